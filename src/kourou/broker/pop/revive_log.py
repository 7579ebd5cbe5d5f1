"""ReviveLog: puts check points and acks, and has the table know them when they are stored.

All acks of a check point in one commit cycle become one record, as RocketMQ has it for batches. A record
waits as a timer message until its time; one whose time is over goes to its revive queue at once.
Not here: which records need not be delivered (check_points.py), reading them (revive_reader.py,
pop_recovery.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.storage.inner_message import InnerMessage
from kourou.protocol.names import TIMER_TOPIC
from kourou.protocol.pop.revive_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_LEAD_MS,
    CHECK_POINT_TAG,
    POP_NEXT_PROPERTY,
    CheckPointBody,
    PopAckBody,
    PopBatchAckBody,
)
from kourou.protocol.properties import MessageConst, property_pair
from kourou.store.log.put_status import PutRefusedError, PutStatus

if TYPE_CHECKING:
    from kourou.broker.delay.delayed_messages import DelayedMessages
    from kourou.broker.pop.check_points import CheckPoint, CheckPointTable
    from kourou.broker.pop.contracts import PopStored
    from kourou.broker.pop.in_flight import PopCounts
    from kourou.broker.storage.inner_message import MessageWriter
    from kourou.store.log.put_batch import PutDone
    from kourou.transport.cycles import Cycles

_TAGS: Final = MessageConst.PROPERTY_TAGS
_UNIQ_KEY: Final = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_DELIVER: Final = MessageConst.PROPERTY_TIMER_DELIVER_MS


class _MergedAck:
    """The acks of one check point in the open commit cycle; `consumed` are those of consumers."""

    __slots__ = ("bits", "consumed", "waiting")

    def __init__(self) -> None:
        self.bits = self.consumed = 0
        self.waiting: list[PopStored] = []


class ReviveLog:
    """Writes the revive topic of one broker. `before_write` is the list of what the open commit cycle calls
    before it is written."""

    def __init__(
        self,
        *,
        topic: str,
        table: CheckPointTable,
        writer: MessageWriter,
        delayed: DelayedMessages,
        cycles: Cycles,
        before_write: list[Callable[[], None]],
        store_host: bytes,
        now_ms: Callable[[], int],
        counts: PopCounts,
        on_put: Callable[[], None],
    ) -> None:
        self.topic = topic
        self._table = table
        self._writer = writer
        self._delayed = delayed
        self._cycles = cycles
        self._store_host = store_host
        self._now_ms = now_ms
        self._counts = counts
        # Called with each record that is put.
        self._on_put = on_put
        self._acks: dict[CheckPoint, _MergedAck] = {}
        self._before_write = before_write

    # -- check points ------------------------------------------------------------------------------

    def put_check_point(
        self,
        body: CheckPointBody,
        *,
        revive_queue_id: int,
        due_ms: int,
        next_offset: int | None,
        done: PopStored,
    ) -> None:
        """Put a check point in the open commit cycle. When it is stored, it is in the table, and `done` is
        called; also if it is not. `due_ms`: monotonic. `next_offset`: where a pop has moved its group.
        PutRefusedError: nothing is put, and `done` is not called."""
        deliver_ms = body.pop_time + body.invisible_time - CHECK_POINT_LEAD_MS
        message = self._message(CHECK_POINT_TAG, body, revive_queue_id)
        if next_offset is not None:
            message.properties += property_pair(POP_NEXT_PROPERTY, next_offset)
        stored = partial(self._check_point_stored, body, revive_queue_id, due_ms, message, done)
        self._put_waiting(message, deliver_ms, stored)

    def _check_point_stored(
        self,
        body: CheckPointBody,
        revive_queue_id: int,
        due_ms: int,
        message: InnerMessage,
        done: PopStored,
        status: PutStatus,
        phy_offset: int,
        _: int,
    ) -> None:
        if status.is_stored:
            self._table.add(
                body,
                revive_queue_id=revive_queue_id,
                due_ms=due_ms,
                phy_offset=phy_offset,
                is_waiting=message.topic == TIMER_TOPIC,
            )
        done(status)

    # -- acks --------------------------------------------------------------------------------------

    def ack(self, check_point: CheckPoint, bits: int, done: PopStored, *, is_consumed: bool = True) -> None:
        """Acknowledge messages that are consumed, or have another check point. `done` is called when that
        is stored and the table has it, or has failed."""
        self._cycles.open()
        merged = self._acks.get(check_point)
        if merged is None:
            if not self._acks:
                self._before_write.append(self._put_acks)
            merged = self._acks[check_point] = _MergedAck()
        merged.bits |= bits
        if is_consumed:
            merged.consumed |= bits
        merged.waiting.append(done)
        check_point.acking |= bits

    def _put_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for check_point, merged in acks.items():
            message = self._ack_message(check_point, merged.bits)
            done = partial(self._answer, merged)
            try:
                stored = partial(self._ack_stored, check_point, merged.bits, message, done)
                self._put_waiting(message, check_point.visible_again_ms, stored)
            except PutRefusedError as refusal:
                check_point.acking &= ~merged.bits
                done(refusal.status)

    def _answer(self, merged: _MergedAck, status: PutStatus) -> None:
        if status.is_stored:
            self._counts.acked += merged.consumed.bit_count()
        for done in merged.waiting:
            done(status)

    def put_ack_now(self, check_point: CheckPoint, bits: int, done: PopStored) -> None:
        """As `ack`, for messages whose time is over: the record goes to the revive queue at once, behind what
        was put before. PutRefusedError: nothing is put, and `done` is not called."""
        message = self._ack_message(check_point, bits)
        message.properties += property_pair(_DELIVER, max(0, check_point.visible_again_ms))
        stored = partial(self._ack_stored, check_point, bits, message, done)
        self._put(message, stored)
        check_point.acking |= bits

    def _ack_message(self, check_point: CheckPoint, bits: int) -> InnerMessage:
        offsets = check_point.offsets_of(bits)
        body = _ack_body(check_point, offsets)
        tag = ACK_TAG if len(offsets) == 1 else BATCH_ACK_TAG
        return self._message(tag, body, check_point.revive_queue_id)

    def _ack_stored(
        self,
        check_point: CheckPoint,
        bits: int,
        message: InnerMessage,
        done: PopStored,
        status: PutStatus,
        phy_offset: int,
        _: int,
    ) -> None:
        check_point.acking &= ~bits
        if status.is_stored:
            waits = message.topic == TIMER_TOPIC
            self._table.finish(check_point, bits, phy_offset if waits else None)
        done(status)

    # -- records -----------------------------------------------------------------------------------

    def _message(self, tag: str, body: CheckPointBody | PopAckBody, queue_id: int) -> InnerMessage:
        properties = property_pair(_TAGS, tag) + property_pair(_UNIQ_KEY, body.uniq_key)
        return InnerMessage(self.topic, queue_id, body.encode(), properties, self._now_ms(), self._store_host)

    def _put_waiting(self, message: InnerMessage, deliver_ms: int, stored: PutDone) -> None:
        self._delayed.wait_until(message, deliver_ms)
        self._put(message, stored)

    def _put(self, message: InnerMessage, stored: PutDone) -> None:
        self._writer.put_now(message, stored, wait=True)
        self._on_put()


def _ack_body(check_point: CheckPoint, offsets: Sequence[int]) -> PopAckBody:
    fields = {
        "start_offset": check_point.start_offset,
        "group": check_point.group,
        "topic": check_point.topic,
        "queue_id": check_point.queue_id,
        "pop_time": check_point.pop_time,
        "broker_name": check_point.broker_name,
    }
    if len(offsets) == 1:
        return PopAckBody(ack_offset=offsets[0], **fields)  # type: ignore[arg-type]
    return PopBatchAckBody(ack_offsets=list(offsets), **fields)  # type: ignore[arg-type]
