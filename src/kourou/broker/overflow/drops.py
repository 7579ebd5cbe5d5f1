"""Drops: takes from the backlog of a group what an overflow policy names.

A round plans floors (drop_plan.py) for a bounded number of messages. With `dead-letter` their copies are put
first, and the floors move when all copies are stored: a kill between may copy messages twice, and loses none.
Messages that the group's subscription leaves out are not copied: the group would not have got them.
Floors count when they are on disk (tables/overflow_floors.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.groups.message_filter import (
    TAG,
    TagCodes,
    compile_subscription,
    is_tag_type,
    subscription_codes,
)
from kourou.broker.overflow.drop_plan import excess, kept_age_ms, lowest_first, oldest_first
from kourou.broker.send.dead_letters import copy_with_origin, make_dead_letter
from kourou.broker.tables.overflow_floors import FloorMove, OverflowFloors
from kourou.errors import RequestError, StorageError
from kourou.protocol.filter import FilterProgram
from kourou.protocol.overflow_rule import OverflowPolicy, OverflowRule
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import properties_start
from kourou.store.log.put_status import PutStatus
from kourou.store.queue.cq_unit import CqUnit

if TYPE_CHECKING:
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.overflow.backlog_meter import GroupBacklog, QueueBacklog, UnitReads
    from kourou.broker.stats.event_counters import EventCounters
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.inner_message import MessageWriter
    from kourou.broker.storage.record_reads import RecordReader, RecordReads
    from kourou.broker.tables.topics import TopicConfigManager

_log = logging.getLogger(__name__)

ROUND_MESSAGES: Final = 20_000
COPY_MESSAGES: Final = 256
COPY_BYTES: Final = 4 * 1024 * 1024


class _Wanted(NamedTuple):
    """The tags and properties of messages that a group gets; None: any."""

    codes: TagCodes
    program: FilterProgram | None


_ALL: Final = _Wanted(None, None)


class Dropped(NamedTuple):
    """What a round has taken from a backlog."""

    messages: int = 0
    size_bytes: int = 0


class Drops:
    """Moves the floors of one broker's groups."""

    def __init__(
        self,
        *,
        floors: OverflowFloors,
        units: UnitReads,
        records: RecordReader,
        consumers: ConsumerManager,
        writer: MessageWriter,
        topics: TopicConfigManager,
        events: EventCounters,
        disk: DiskThreads,
        age_ms: Callable[[int, int], int],
    ) -> None:
        self._floors = floors
        self._units = units
        self._records = records
        self._consumers = consumers
        self._writer = writer
        self._topics = topics
        self._events = events
        self._disk = disk
        self._age_ms = age_ms

    async def shrink(self, topic: str, rule: OverflowRule, backlog: GroupBacklog) -> Dropped:
        """One round; nothing is dropped from a backlog within its limits. OSError or StorageError: the disk
        or the store does not take it, and nothing has changed."""
        size = backlog.size
        kept_ms = kept_age_ms(rule, size)
        too_old = 0
        if kept_ms is not None:
            too_old = await self._records.read(partial(self._too_old, backlog.queues, kept_ms))
        over = excess(rule, size, too_old)
        if over.messages <= 0 and over.size_bytes <= 0:
            return Dropped()
        is_copied = rule.policy is OverflowPolicy.DEAD_LETTER
        most = COPY_MESSAGES if is_copied else ROUND_MESSAGES
        units = [await self._units.first(each, most) for each in backlog.queues if each.begin < each.end]
        if rule.policy is OverflowPolicy.DROP_LOWEST_PRIORITY:
            floors = lowest_first(units, over, most)
        else:
            floors = oldest_first(units, over, most, COPY_BYTES if is_copied else None)
        taken = [(each, floors[each.queue_id] - each.begin) for each in units if each.queue_id in floors]
        messages = sum(count for _, count in taken)
        if is_copied:
            copied = await self._copy(topic, backlog, floors)
            move = FloorMove(topic, backlog.group, floors, dead_lettered=copied)
        else:
            move = FloorMove(topic, backlog.group, floors, dropped=messages)
        if not await self._move(move):
            return Dropped()
        return Dropped(messages, sum(int(each.sizes[:count].sum()) for each, count in taken))

    async def _move(self, move: FloorMove) -> bool:
        async with self._floors.writing:
            return await self._disk.run_steps(self._floors.moved_steps(move))

    def _too_old(self, queues: Sequence[QueueBacklog], kept_ms: int, reads: RecordReads) -> int:
        """How many messages are older than that."""

        def is_kept(unit: CqUnit) -> bool | None:
            stored_ms = reads.store_time_or_stop(unit.phy_offset)
            return None if stored_ms < 0 else self._age_ms(stored_ms, unit.phy_offset) <= kept_ms

        firsts = (each.queue.first_where(is_kept, each.begin, each.end) - each.begin for each in queues)
        return sum(max(0, first) for first in firsts)

    # -- dead letters ----------------------------------------------------------------------------

    async def _copy(self, topic: str, backlog: GroupBacklog, floors: Mapping[int, int]) -> int:
        """Put copies of what is below `floors`; how many, when all are stored."""
        group = backlog.group
        wanted = self._wanted(topic, group)
        places = [each for each in backlog.queues if each.queue.queue_id in floors]
        raws = await self._records.read(partial(_records, places, floors, wanted))
        stored = [self._put(raw, topic, group) for raw in raws]
        for status in await asyncio.gather(*stored):
            if not status.is_stored:
                raise StorageError(f"a copy for the dead letters of {group} is not stored: {status.name}")
        for _ in raws:
            self._events.dead_letter(group, topic)
        return len(raws)

    def _put(self, raw: bytes, topic: str, group: str) -> asyncio.Future[PutStatus]:
        message = copy_with_origin(decode_record(raw), topic)
        make_dead_letter(message, group, self._topics)
        done: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self._writer.put_now(message, lambda status, _, __: _resolve(done, status), wait=True)
        return done

    def _wanted(self, topic: str, group: str) -> _Wanted:
        """What the group's subscription lets pass: all, if the broker cannot tell at once."""
        subscription = self._consumers.find_subscription(group, topic)
        if subscription is None:
            return _ALL
        expression, expression_type = subscription.sub_string, subscription.expression_type
        try:
            if is_tag_type(expression_type):
                return _Wanted(subscription_codes(expression, TAG), None)
            return _Wanted(None, compile_subscription(expression, expression_type, True))
        except RequestError:
            return _ALL


def _records(
    places: Sequence[QueueBacklog], floors: Mapping[int, int], wanted: _Wanted, reads: RecordReads
) -> list[bytes]:
    """The records of these queues below `floors` that pass the filter, in the order of the log."""
    units: list[CqUnit] = []
    for place in places:
        for queue_offset in range(place.begin, floors[place.queue.queue_id]):
            unit = reads.unit(place.queue, queue_offset)
            if unit is not None and unit.is_message and _has_code(unit, wanted):
                units.append(unit)
    raws = (reads.record(unit.phy_offset) for unit in sorted(units))
    return [raw for raw in raws if raw is not None and _has_properties(raw, wanted)]


def _has_code(unit: CqUnit, wanted: _Wanted) -> bool:
    return wanted.codes is None or unit.tags_code in wanted.codes


def _has_properties(raw: bytes, wanted: _Wanted) -> bool:
    if wanted.program is None:
        return True
    begin = properties_start(raw, 0, len(raw))
    return begin >= 0 and wanted.program.matches_bytes(raw, begin, len(raw))


def _resolve(done: asyncio.Future[PutStatus], status: PutStatus) -> None:
    if not done.done():
        done.set_result(status)
