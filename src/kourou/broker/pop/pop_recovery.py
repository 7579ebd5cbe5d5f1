"""What was in flight when the broker stopped: the table from the records of the revive topic, and how far
groups had popped.

    revive queues    from their progress on: check points that the timers have delivered, their acks; before
                     it: acks of check points that wait still, which were revived while the timers were late
    timers           what waits, on the wheel or not entered yet
    popped since     consumer offsets on disk are some seconds old after a kill. They are written together
                     with the ends of the timer topic and the revive queues of that moment; check points
                     behind those say how far pops have moved their groups since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kourou.broker.pop.revive_reader import (
    CHECK_POINT_CODE,
    READ_UNITS,
    apply_ack,
    decode_check_point,
    decode_revive_record,
    remaining_time,
)
from kourou.protocol.layout import RECORD
from kourou.protocol.names import REVIVE_GROUP, TIMER_TOPIC
from kourou.protocol.pop.revive_records import POP_NEXT_PROPERTY
from kourou.protocol.properties import MessageConst, get_property, properties_from_bytes
from kourou.protocol.record_fields import record_store_timestamp
from kourou.protocol.tags import tags_code
from kourou.store.queue.cq_unit import UNIT, CqUnit

if TYPE_CHECKING:
    from kourou.broker.delay.timer_service import TimerService
    from kourou.broker.pop.check_points import CheckPointTable
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.protocol.message import MessageExt
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues

_log = logging.getLogger(__name__)

_CLOCK_STEP_MS: Final = 60_000
"""Acks are stored after the end of the invisible time, by a clock that may have been set by so much."""
_TAKEN_OUT: Final = MessageConst.PROPERTY_TIMER_DEQUEUE_MS


class PopRecovery:
    """Fills the table of one broker. All of it waits for the disk, and nothing else may use the store."""

    def __init__(
        self,
        *,
        topic: str,
        table: CheckPointTable,
        own_broker: str,
        timers: TimerService | None,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueues,
        commit_log: CommitLog,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._table = table
        self._own_broker = own_broker
        self._timers = timers
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._queues = queues
        self._commit_log = commit_log
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def recover(self) -> None:
        """Find out what is in flight, and how far groups have popped."""
        # What is entered already is not known.
        self._table.entering(self._commit_log.max_phy_offset)
        early: list[tuple[MessageExt, int]] = []
        for queue_id in self._queues.queue_ids(self._topic):
            self._read_queue(queue_id, early)
        if self._timers is not None:
            for record in self._timers.waiting_for(self._topic):
                self._read_waiting(record)
        # An ack goes to its queue at once if its time is over; the check point may still wait for the timers.
        for record, code in early:
            apply_ack(self._table, record, code, self._own_broker)
        moved = self._move_offsets()
        if not self._offsets.knows_pops:  # a kill would leave a file that does not say what it counts
            self._offsets.persist()
        if len(self._table) or moved:
            _log.info(
                "%d popped messages are in flight; %d queues were popped from after their consumer offsets "
                "were written",
                self._table.message_count,
                moved,
            )

    # -- in flight ---------------------------------------------------------------------------------

    def _read_queue(self, queue_id: int, early: list[tuple[MessageExt, int]]) -> None:
        queue = self._queues.get(self._topic, queue_id)
        progress = self._offsets.query(REVIVE_GROUP, self._topic, queue_id)
        begin = min(max(progress + 1, queue.min_queue_offset), queue.max_queue_offset)
        self._table.read(queue_id, begin - 1)
        for place, unit in self._units(self._topic, queue_id, self._first_ack(queue, begin)):
            is_done = place < begin
            if is_done and unit.tags_code == CHECK_POINT_CODE:
                continue
            record = decode_revive_record(self._commit_log.read(unit.phy_offset, unit.size))
            if record is None:
                _log.error("%s/%d, offset %d cannot be read", self._topic, queue_id, place)
            elif unit.tags_code == CHECK_POINT_CODE:
                self._add(record, queue_id, place)
            elif is_done or not apply_ack(self._table, record, unit.tags_code, self._own_broker):
                early.append((record, unit.tags_code))
        self._table.read(queue_id, queue.max_queue_offset - 1)

    def _first_ack(self, queue: ConsumeQueue, begin: int) -> int:
        """Where the acks begin that check points on the wheel may have before the progress of the queue."""
        if self._timers is None:
            return begin
        since_ms = min(self._timers.taken_out_ms, self._now_ms()) - _CLOCK_STEP_MS

        def is_late(unit: CqUnit) -> bool | None:
            head = self._commit_log.read(unit.phy_offset, RECORD.size)
            return None if head is None else record_store_timestamp(head) >= since_ms

        return queue.first_where(is_late, high=begin)

    def _read_waiting(self, record: MessageExt) -> None:
        properties = properties_from_bytes(record.raw_properties)
        code = tags_code(get_property(properties, MessageConst.PROPERTY_TAGS))
        queue_id = get_property(properties, MessageConst.PROPERTY_REAL_QUEUE_ID)
        if code == CHECK_POINT_CODE and queue_id is not None and queue_id.isdecimal():
            self._add(record, int(queue_id), None)
        else:
            apply_ack(self._table, record, code, self._own_broker, is_waiting=True)

    def _add(self, record: MessageExt, queue_id: int, place: int | None) -> None:
        body = decode_check_point(record)
        if body is None:
            return
        found = self._table.find(body.key(self._own_broker)) or self._table.add(
            body,
            revive_queue_id=queue_id,
            due_ms=self._monotonic_ms() + remaining_time(body, self._now_ms()),
            phy_offset=record.phy_offset,
            is_waiting=place is None,
        )
        if found is not None and place is not None:
            self._table.place(found, place)

    # -- popped since ------------------------------------------------------------------------------

    def _move_offsets(self) -> int:
        """Move groups behind what they have popped; how many queues of groups."""
        moved = set()
        revive_queues = [(self._topic, queue_id) for queue_id in self._queues.queue_ids(self._topic)]
        for topic, queue_id in ((TIMER_TOPIC, 0), *revive_queues):
            begin = self._offsets.popped_from(topic, queue_id)
            for _, unit in () if begin is None else self._units(topic, queue_id, begin):
                if unit.tags_code != CHECK_POINT_CODE:
                    continue
                record = decode_revive_record(self._commit_log.read(unit.phy_offset, unit.size))
                key = None if record is None else self._move_offset(record)
                if key is not None:
                    moved.add(key)
        return len(moved)

    def _move_offset(self, record: MessageExt) -> tuple[str, str, int] | None:
        properties = properties_from_bytes(record.raw_properties)
        next_offset = get_property(properties, POP_NEXT_PROPERTY)
        # What the timers have delivered was popped longer ago, and is in the timer topic.
        was_delivered = record.topic != TIMER_TOPIC and get_property(properties, _TAKEN_OUT) is not None
        if next_offset is None or not next_offset.isdecimal() or was_delivered:
            return None
        body = decode_check_point(record)
        if body is None or self._topics.get(body.topic) is None or self._groups.find(body.group) is None:
            return None
        if not self._offsets.advance(body.group, body.topic, body.queue_id, int(next_offset)):
            return None
        return body.topic, body.group, body.queue_id

    def _units(self, topic: str, queue_id: int, begin: int) -> Iterator[tuple[int, CqUnit]]:
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return
        queue_offset = max(begin, queue.min_queue_offset)
        while queue_offset < queue.max_queue_offset:
            raw = queue.read_units(queue_offset, READ_UNITS)
            for fields in UNIT.iter_unpack(raw):
                unit = CqUnit(*fields)
                if unit.is_message:
                    yield queue_offset, unit
                queue_offset += 1
            if not raw:  # a file of the queue is missing
                queue_offset += queue.units_per_file - queue_offset % queue.units_per_file
