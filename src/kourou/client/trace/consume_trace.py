"""ConsumeTrace: reports what was consumed to the trace topic, in Apache's form (trace_data.py).

Records are collected and sent every second. Records that no broker accepts are dropped: tracing must neither
delay consumption nor fill the memory.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.core.namespaces import Namespace
from kourou.client.core.subscription import now_ms
from kourou.client.core.unique_id import UniqueIds
from kourou.client.producer.inner_sends import InnerSends
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.handlers import ConsumeHookContext, ConsumerHook
from kourou.client.trace.trace_data import (
    SubAfterTrace,
    SubBeforeTrace,
    TraceContextCode,
    TraceRecord,
    encode_trace,
    trace_keys,
)
from kourou.errors import KourouError
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import KEY_SEPARATOR, MessageConst

_log = logging.getLogger(__name__)

SEND_INTERVAL_MS: Final = 1_000
_MAX_WAITING: Final = 4_096
_AT_ONCE: Final = 100


class ConsumeTrace(ConsumerHook):
    """A hook that collects trace records; `send` is called periodically."""

    def __init__(self, instance: ClientInstance, namespace: Namespace, topic: str) -> None:
        self._topic = topic
        self._sends = InnerSends(instance)
        self._namespace = namespace
        self._ids = UniqueIds()
        self._waiting: deque[TraceRecord] = deque(maxlen=_MAX_WAITING)
        self._has_failed = False

    def before_consume(self, context: ConsumeHookContext) -> None:
        """Record the delivery of messages, unless the producer's broker disabled tracing, or they are trace
        messages: their records would be delivered too, without end."""
        is_trace = context.queue.topic == self._topic
        traced = [] if is_trace else [each for each in context.messages if _is_traced(each)]
        context.notes[_TRACED] = traced
        context.notes[_REQUEST_ID] = request_id = self._ids.next_id()
        group, at_ms = self._namespace.unwrap(context.group), now_ms()
        self._waiting += [
            SubBeforeTrace(
                at_ms,
                message.properties.get(MessageConst.PROPERTY_MSG_REGION),
                group,
                request_id,
                message.msg_id,
                message.reconsume_times,
                _keys(message),
            )
            for message in traced
        ]

    def after_consume(self, context: ConsumeHookContext) -> None:
        traced: list[MessageExt] = context.notes[_TRACED]
        code = context_code(context)
        cost_ms = int(context.elapsed_ms / max(1, len(context.messages)))
        group, at_ms = self._namespace.unwrap(context.group), now_ms()
        self._waiting += [
            SubAfterTrace(
                context.notes[_REQUEST_ID],
                message.msg_id,
                cost_ms,
                code is TraceContextCode.SUCCESS,
                _keys(message),
                code,
                at_ms,
                group,
            )
            for message in traced
        ]

    async def send(self) -> None:
        """Send the collected records; those that no broker accepts are dropped."""
        while self._waiting:
            records = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            properties = {
                MessageConst.PROPERTY_KEYS: KEY_SEPARATOR.join(trace_keys(records)),
                MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: self._ids.next_id(),
            }
            try:
                await self._sends.send(self._topic, encode_trace(records).encode(), properties)
                self._has_failed = False
            except KourouError as error:
                level = logging.DEBUG if self._has_failed else logging.WARNING
                self._has_failed = True
                _log.log(level, "dropped %d trace records: %s", len(records), error)


_TRACED: Final = "kourou.trace.messages"
_REQUEST_ID: Final = "kourou.trace.request_id"


def context_code(context: ConsumeHookContext) -> TraceContextCode:
    """The result of a handler, as Apache's code."""
    if context.is_timeout:
        return TraceContextCode.TIMEOUT
    if context.error is not None:
        return TraceContextCode.EXCEPTION
    if context.result is ConsumeResult.SUCCESS:
        return TraceContextCode.SUCCESS
    return TraceContextCode.FAILED


def _is_traced(message: MessageExt) -> bool:
    return message.properties.get(MessageConst.PROPERTY_TRACE_SWITCH) != "false"


def _keys(message: MessageExt) -> str | None:
    return message.properties.get(MessageConst.PROPERTY_KEYS)
