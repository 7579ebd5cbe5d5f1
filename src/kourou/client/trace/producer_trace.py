"""ProducerTrace: the hook that reports a producer's sends and transactions in Apache's trace format.

As in Java, a send that a broker answered is traced unless the response disables tracing. TraceDispatcher
sends the records in small batches with its own producer, so that tracing neither delays the client's sends
nor is traced itself. Records that cannot be sent are dropped.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal

from kourou.client.core.settings import ClientSettings
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer_hooks import EndTransactionContext, ProducerHook, SendContext
from kourou.client.producer.send_result import SendResult, split_result
from kourou.client.trace.trace_data import (
    EndTransactionTrace,
    PubTrace,
    TraceMessageType,
    TraceRecord,
    encode_trace,
    trace_keys,
)
from kourou.errors import KourouError
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC
from kourou.protocol.properties import MessageConst

if TYPE_CHECKING:
    from kourou.client.producer.producer import AsyncProducer
    from kourou.client.producer.send_result import SendResult

_log = logging.getLogger(__name__)


_BATCH: Final = 10
_MAX_WAIT_S: Final = 5.0
_MAX_BYTES: Final = 128_000
_SEND_TIMEOUT_MS: Final = 5_000
_MAX_IN_FLIGHT: Final = 2_048
_numbers = itertools.count()


class TraceDispatcher:
    """Sends the trace records of one client of `group`. It is started and stopped with the client."""

    def __init__(
        self,
        group: str,
        kind: Literal["PRODUCE", "CONSUME"],
        settings: ClientSettings,
        *,
        topic: str = RMQ_SYS_TRACE_TOPIC,
    ) -> None:
        self.topic = topic
        self._records: list[TraceRecord] = []
        self._timer: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._producer = _inner_producer(group, kind, settings)
        self.dropped = 0
        """Trace messages that could not be sent."""

    async def start(self) -> None:
        """Connect, with the errors of any client."""
        await self._producer.start()

    async def stop(self) -> None:
        """Send what is left and close. May be called twice."""
        try:
            if self._records:
                self._send_all()
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            await self._producer.stop()

    def add(self, record: TraceRecord) -> None:
        """Queue a record; it is sent with others, at most seconds later."""
        self._records.append(record)
        if len(self._records) >= _BATCH:
            self._send_all()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_MAX_WAIT_S, self._send_all)

    def _send_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        records, self._records = self._records, []
        size, part = 0, list[TraceRecord]()
        for record in records:
            record_bytes = len(encode_trace([record]).encode())
            if part and size + record_bytes > _MAX_BYTES:
                self._send(part)
                size, part = 0, []
            part.append(record)
            size += record_bytes
        if part:
            self._send(part)

    def _send(self, records: list[TraceRecord]) -> None:
        keys = [key for key in trace_keys(records) if " " not in key]
        try:
            message = Message(self.topic, encode_trace(records).encode(), keys=keys)
            self._producer.send_nowait(message).add_done_callback(self._sent)
        except KourouError as error:
            self._failed(error)

    def _sent(self, future: asyncio.Future[SendResult]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self.dropped += 1
        level = logging.DEBUG if self._has_failed else logging.WARNING
        self._has_failed = True
        _log.log(level, "could not send trace to %s: %s", self.topic, error)


def _inner_producer(group: str, kind: str, settings: ClientSettings) -> AsyncProducer:
    # Imported here, since AsyncProducer imports this module.
    from kourou.client.producer.producer import AsyncProducer

    number = next(_numbers)
    same: dict[str, Any] = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if not field.name.startswith("_") and field.name not in ("instance_name", "namespace")
    }
    return AsyncProducer(
        f"_INNER_TRACE_PRODUCER-{group}-{kind}-{number}"[:120],
        instance_name=f"PID_CLIENT_INNER_TRACE_PRODUCER#{os.getpid()}#{number}",
        send_timeout_ms=_SEND_TIMEOUT_MS,
        max_in_flight=_MAX_IN_FLIGHT,
        **same,
    )


_BEGUN: Final = "trace-begun-ms"
_STATES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
_DELAYS: Final = (
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_START_DELIVER_TIME,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
)


class ProducerTrace(ProducerHook):
    """Records the sends and transactions of one producer. `group` is the user's name."""

    def __init__(self, group: str, dispatcher: TraceDispatcher) -> None:
        self._group = group
        self._dispatcher = dispatcher

    def before_send(self, context: SendContext) -> None:
        context.notes[_BEGUN] = _now_ms()

    def after_send(self, context: SendContext) -> None:
        result = context.result
        if result is None or not result.trace_on or context.topic == self._dispatcher.topic:
            return
        begun_ms = context.notes[_BEGUN]
        cost_ms = (_now_ms() - begun_ms) // len(context.messages)
        for message, its_result in zip(context.messages, _results(context, result), strict=True):
            self._dispatcher.add(
                PubTrace(
                    time_ms=begun_ms,
                    region=result.region_id,
                    group=self._group,
                    topic=message.topic,
                    msg_id=its_result.msg_id,
                    tags=message.tags,
                    keys=" ".join(message.keys) or None,
                    store_host=context.broker_address,
                    body_length=len(message.body),
                    cost_ms=cost_ms,
                    message_type=_type_of(message, is_half=context.is_half),
                    offset_msg_id=its_result.offset_msg_id,
                    is_success=result.is_ok,
                )
            )

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Record the end of a transaction."""
        message = context.message
        self._dispatcher.add(
            EndTransactionTrace(
                time_ms=_now_ms(),
                region=message.get_property(MessageConst.PROPERTY_MSG_REGION) or "DefaultRegion",
                group=self._group,
                topic=message.topic,
                msg_id=context.msg_id,
                tags=message.tags,
                keys=" ".join(message.keys) or None,
                store_host=context.broker_address,
                message_type=TraceMessageType.TRANSACTION_COMMIT,
                transaction_id=context.transaction_id,
                state=_STATES[context.state],
                is_from_check=context.from_transaction_check,
            )
        )


def _results(context: SendContext, result: SendResult) -> list[SendResult]:
    if len(context.messages) == 1:
        return [result]
    uniq_key = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
    return split_result(result, [message.get_property(uniq_key) or "" for message in context.messages])


def _type_of(message: Message | MessageExt, *, is_half: bool) -> TraceMessageType:
    if is_half:
        return TraceMessageType.TRANSACTION_HALF
    is_delayed = any(message.get_property(name) for name in _DELAYS)
    return TraceMessageType.DELAY if is_delayed else TraceMessageType.NORMAL


def _now_ms() -> int:
    return int(time.time() * 1000)
