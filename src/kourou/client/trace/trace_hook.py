"""ProducerTrace: the hook that tells of a producer's sends and transactions in Apache's trace format.

As Java: a send that a broker answered is told of, unless the answer says that it wants no trace.
"""

from __future__ import annotations

import time
from typing import Final

from kourou.client.producer.producer_hooks import EndTransactionContext, ProducerHook, SendContext
from kourou.client.producer.send_result import SendResult, split_result
from kourou.client.trace.trace_data import EndTransactionTrace, PubTrace, TraceMessageType
from kourou.client.trace.trace_dispatcher import TraceDispatcher
from kourou.client.transactions.transaction_state import TransactionState
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.properties import MessageConst

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
    """Makes records of what one producer does. `group` is as the user knows it."""

    def __init__(self, group: str, dispatcher: TraceDispatcher) -> None:
        self._group = group
        self._dispatcher = dispatcher

    def before_send(self, context: SendContext) -> None:
        """Note the time."""
        context.notes[_BEGUN] = _now_ms()

    def after_send(self, context: SendContext) -> None:
        """Tell of each message that was stored."""
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
        """Tell how a transaction ends."""
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
