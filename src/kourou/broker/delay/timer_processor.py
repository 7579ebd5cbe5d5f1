"""Requests about timer messages: RECALL_MESSAGE, which takes one back before it is delivered, and how far
they are.

A sender of a timer message gets a recall handle, and returns it to recall the message. Its timestamp is one
that waits in the same slot as the message.

The message lies in the log and stays there. A second one, which waits in the same slot, has it left out when
the slot is emptied. The response to a recall means that this second one is stored.
Not here: the slots (timer_messages.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.storage.inner_message import InnerMessage, MessageWriter
from kourou.errors import RequestError
from kourou.protocol.bodies import encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from kourou.protocol.message_id import encode_host
from kourou.protocol.names import TIMER_TOPIC, is_retry_topic
from kourou.protocol.properties import MessageConst, PropertyScanner, encode_properties
from kourou.protocol.recall_handle import RecallHandle, decode_recall_handle
from kourou.store.log.put_status import PutStatus
from kourou.transport.addresses import parse_address
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.admission import Admission
    from kourou.broker.delay.timer_messages import TimerMessages
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.topics import TopicConfigManager

_scan: Final = PropertyScanner(
    MessageConst.PROPERTY_REAL_TOPIC,
    MessageConst.PROPERTY_TIMER_OUT_MS,
    MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
).values
RECALL_TAG: Final = "_RECALL_TAG_"
_NOT_ENABLED: Final = ": timerWheelEnable is false, or was when the broker started"


def recall_handle(message: InnerMessage, broker_name: str) -> str | None:
    """The handle of a message that is about to wait for its time; None for every other."""
    if message.topic != TIMER_TOPIC:
        return None
    topic, out_ms, uniq_key = _scan(message.properties)
    if not topic or not out_ms or not uniq_key or is_retry_topic(topic):
        return None
    return RecallHandle(topic, broker_name, int(out_ms) + 1, uniq_key).encode()


class TimerProcessor:
    """Answers requests about timer messages."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        admission: Admission,
        topics: TopicConfigManager,
        timers: TimerMessages | None,
        writer: MessageWriter,
        new_uniq_key: Callable[[], str],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._admission = admission
        self._topics = topics
        self._timers = timers
        self._writer = writer
        self._new_uniq_key = new_uniq_key
        self._now_ms = now_ms

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_check_point,
            RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
        }

    def recall(self, request: Request) -> None:
        """RECALL_MESSAGE."""
        header = request.header(RecallMessageRequestHeader)
        self._check_broker()
        if self._topics.get(header.topic) is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        handle = self._check_handle(header)
        message = self._recall_message(request, handle)
        self._writer.put(message, partial(self._answer, request, handle), wait=True)

    def get_timer_check_point(self, request: Request) -> None:
        """GET_TIMER_CHECK_POINT: how far the timers are, for a slave."""
        timers = self._timers
        if timers is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The checkpoint is null{_NOT_ENABLED}")
        request.reply(body=timers.encoded_checkpoint(self._now_ms()))

    def get_timer_metrics(self, request: Request) -> None:
        """GET_TIMER_METRICS: how many timer messages wait, topic by topic."""
        timers = self._timers
        if timers is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The timer message store is null{_NOT_ENABLED}")
        request.reply(body=encode_body(timers.metrics.snapshot(self._topics.table)))

    def _check_broker(self) -> None:
        admission, config = self._admission, self._config.current
        if not config.recall_message_enable:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden: recallMessageEnable is false",
            )
        if admission.is_slave:
            raise RequestError(
                ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        if not admission.is_accepting:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        if not admission.is_writable and not config.allow_recall_when_broker_not_writeable:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
            )

    def _check_handle(self, header: RecallMessageRequestHeader) -> RecallHandle:
        try:
            handle = decode_recall_handle(header.recall_handle)
        except ValueError as error:
            raise _refused(str(error)) from error
        if handle.topic != header.topic:
            raise _refused("topic not match")
        if handle.broker_name != self._config.current.broker_name:
            raise _refused("broker not match")
        left_ms = handle.timestamp_ms - self._now_ms()
        if not 0 < left_ms < self._config.current.timer_max_delay_sec * 1000:
            raise _refused("timestamp invalid, the message is delivered already or was never sent")
        return handle

    def _recall_message(self, request: Request, handle: RecallHandle) -> InnerMessage:
        uniq_key = self._new_uniq_key()
        properties = {
            MessageConst.PROPERTY_TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.uniq_key}",
            MessageConst.PROPERTY_TIMER_DELIVER_MS: str(handle.timestamp_ms),
            MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: uniq_key,
            MessageConst.PROPERTY_TAGS: RECALL_TAG,
            MessageConst.PROPERTY_CLUSTER: self._config.current.broker_cluster_name,
        }
        host, port = parse_address(request.connection.remote_address)
        try:
            text = encode_properties(properties)
        except ValueError as error:
            raise _refused("recall handle is invalid") from error
        now_ms = self._now_ms()
        return InnerMessage(handle.topic, 0, b"0", text, now_ms, encode_host(host, port))

    def _answer(self, request: Request, handle: RecallHandle, status: PutStatus, _: int, __: int) -> None:
        if not status.is_stored:
            request.error(ResponseCode.SYSTEM_ERROR, f"recall failed, {status.name}")
            return
        request.reply(RecallMessageResponseHeader(msg_id=handle.uniq_key))


def _refused(reason: str) -> RequestError:
    return RequestError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {reason}")
