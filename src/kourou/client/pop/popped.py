"""Popped messages: what a pop returns, each with its lease.

A lease is a message on loan from a broker, until it is acknowledged, returned, or its time is over. Brokers
answer an ack of a lease that has ended like any other, so the client watches the time itself: from the
moment the answer to the pop arrived, which is later than its begin at the broker. A lease that counts as over
here is over at the broker too. Times are those of the loop, in seconds.
Not here: the requests (pop_calls.py), how acks are merged (acks.py).
"""

from __future__ import annotations

import asyncio
import enum
from operator import attrgetter
from typing import Any, Final

from kourou.errors import ProtocolError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.headers.pop import PopMessageResponseHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.pop.offset_infos import QueueKey, decode_offset_infos
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind, topic_of_kind
from kourou.protocol.properties import MessageConst, PropertyFinder
from kourou.protocol.record import decode_records

MAX_POP_MESSAGES: Final = 32
"""The maximum number of messages of one pop, which is what brokers allow."""
MIN_INVISIBLE_MS: Final = 1_000
MAX_INVISIBLE_MS: Final = 12 * 3_600_000
"""The longest invisible time, as in Apache's other clients."""

_find_handle: Final = PropertyFinder([MessageConst.PROPERTY_POP_CK])
# Delays of 10 s, 30 s, 1 min … 2 h, as Java's POP consumer has them.
_RETRY_DELAYS_S: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


def retry_delay_ms(reconsume_times: int) -> int:
    """The delay of the next delivery after a failure, by the number of deliveries before.

    >>> retry_delay_ms(0), retry_delay_ms(1), retry_delay_ms(99)
    (10000, 30000, 7200000)
    """
    return _RETRY_DELAYS_S[min(max(reconsume_times, 0), len(_RETRY_DELAYS_S) - 1)] * 1000


class LeaseState(enum.Enum):
    """What has become of a lease."""

    HELD = enum.auto()
    ACKED = enum.auto()
    """An ack was sent, or waits to be."""
    RETURNED = enum.auto()


class Lease:
    """The lease of one message. `topic` is the one that was popped, as brokers know it."""

    __slots__ = ("ack", "changing", "ends_at", "group", "handle", "is_started", "state", "topic")

    def __init__(self, topic: str, group: str, handle: ReceiptHandle, ends_at: float) -> None:
        self.topic = topic
        self.group = group
        self.handle = handle
        """The current one: each change of the invisible time issues a new one."""
        self.ends_at = ends_at
        self.state = LeaseState.HELD
        self.ack: asyncio.Future[None] | None = None
        """The outcome of the ack."""
        self.changing = asyncio.Lock()
        """Held while the handle is being replaced."""
        self.is_started = False
        """Whether a handler was called with the message."""

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message lies in, which may be one of a retry topic."""
        handle = self.handle
        return MessageQueue(
            topic_of_kind(self.topic, self.group, handle.kind), handle.broker_name, handle.queue_id
        )

    def is_over(self, now_s: float) -> bool:
        """Whether the message may be delivered again by now."""
        return now_s >= self.ends_at


class LeasedMessage(MessageExt, kw_only=True, eq=False):
    """A message with its lease."""

    lease: Lease


_fields_of: Final = attrgetter(*MessageExt.__struct_fields__)


def message_fields(message: MessageExt) -> tuple[Any, ...]:
    """The fields of a message in the order of its constructor, for subclasses with a lease."""
    fields: tuple[Any, ...] = _fields_of(message)
    return fields


def popped_messages(
    body: bytes,
    header: PopMessageResponseHeader,
    *,
    topic: str,
    group: str,
    broker_name: str,
    ends_at: float,
    shown_topic: str,
) -> list[LeasedMessage]:
    """The messages of an answer, with their leases. ProtocolError if body and header do not fit."""
    messages = decode_records(body)
    handles = PoppedHandles(header, topic, broker_name)
    found = []
    for message in messages:
        lease = Lease(topic, group, handles.of(message), ends_at)
        message.broker_name = broker_name
        message.topic = shown_topic
        found.append(LeasedMessage(*message_fields(message), lease=lease))
    return found


class PoppedHandles:
    """The handles of one answer: `of` is called for each message of it, in their order. The records of
    a queue are in the order of `msgOffsetInfo`."""

    def __init__(self, header: PopMessageResponseHeader, topic: str, broker_name: str) -> None:
        self._header = header
        self._topic = topic
        self._broker_name = broker_name
        queues = decode_offset_infos(header.start_offset_info, header.msg_offset_info)
        self._queues = {(queue.kind, queue.queue_id): queue for queue in queues}
        self._seen: dict[QueueKey, int] = {}

    def of(self, message: MessageExt) -> ReceiptHandle:
        """The handle of the next message."""
        given = self._given(message)
        if given is not None:
            return given
        kind = PopTopicKind.NORMAL if message.topic == self._topic else PopTopicKind.of(message.topic)
        key = kind, message.queue_id
        popped = self._queues.get(key)
        index = self._seen.get(key, 0)
        self._seen[key] = index + 1
        if popped is None or index >= len(popped.offsets):
            raise ProtocolError(
                f"the answer to a pop of {self._topic!r} has a message of queue {message.queue_id} of "
                f"{message.topic!r} that its msgOffsetInfo does not list: "
                f"{self._header.msg_offset_info!r:.200}"
            )
        return ReceiptHandle(
            popped.start_offset,
            self._header.pop_time,
            self._header.invisible_time,
            self._header.revive_qid,
            kind,
            self._broker_name,
            message.queue_id,
            popped.offsets[index],
        )

    def _given(self, message: MessageExt) -> ReceiptHandle | None:
        """The handle that a record of a retry topic has, which the broker shows under the original topic."""
        raw = message.raw_properties
        text = _find_handle.values(raw, 0, len(raw))[0]
        if text is None:
            return None
        try:
            handle = ReceiptHandle.decode(text)
        except ProtocolError:
            return None
        # A message may have the property from elsewhere.
        return handle if handle.pop_time == self._header.pop_time else None
