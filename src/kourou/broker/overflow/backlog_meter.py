"""BacklogMeter: how large the backlogs of the live groups of one topic are.

Messages are the distance from where a group goes on to the end of each queue. Bytes are exact, too: the sizes
in the units of the queue. Each unit is read once when it comes and once by each group that passes it: a mark
keeps, for the end of the queue and for each group, how many bytes lie before it. The age is that of the
record at which a group goes on. A queue counts for a group once the group has committed an offset of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from kourou.broker.overflow.drop_plan import QueueUnits, Size
from kourou.store.queue.cq_unit import BLANK_SIZE, unit_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader, RecordReads
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.protocol.overflow_rule import OverflowRule
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues

_CHUNK_UNITS: Final = 8_192


@dataclass(slots=True)
class QueueBacklog:
    """What a group has not consumed of one queue: [begin, end). `age_ms`: of the first message."""

    queue: ConsumeQueue
    begin: int
    end: int
    size_bytes: int = 0
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupBacklog:
    """What a group has not consumed of a topic."""

    group: str
    queues: Sequence[QueueBacklog]

    @property
    def size(self) -> Size:
        """Added up over the queues; the greatest age."""
        return Size(
            sum(each.end - each.begin for each in self.queues),
            sum(each.size_bytes for each in self.queues),
            max((each.age_ms for each in self.queues), default=0),
        )


@dataclass(slots=True)
class _Mark:
    """`before` is how many bytes lie below `queue_offset`, counted from some place of the queue."""

    queue_offset: int
    before: int


@dataclass(slots=True)
class _QueueMarks:
    queue: ConsumeQueue
    end: _Mark
    groups: dict[str, _Mark]


class UnitReads:
    """Reads the units of queues, without the loop waiting for the disk."""

    def __init__(self, disk: DiskThreads) -> None:
        self._disk = disk

    async def chunks(
        self, queue: ConsumeQueue, begin: int, end: int
    ) -> AsyncIterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Places in the log and sizes of the units in [begin, end), some at a time."""
        while begin < end:
            wanted = min(end - begin, _CHUNK_UNITS)
            raw = queue.read_units_nowait(begin, wanted)
            if raw is None:
                raw = await self._disk.run(queue.read_units, begin, wanted)
            if not raw:
                return
            phy_offsets, sizes = unit_arrays(raw)
            begin += len(sizes)
            yield phy_offsets, np.where((sizes > 0) & (sizes < BLANK_SIZE), sizes, 0)
            if begin < end:
                await asyncio.sleep(0)

    async def first(self, backlog: QueueBacklog, max_units: int) -> QueueUnits:
        """The first units of a backlog."""
        end = min(backlog.end, backlog.begin + max_units)
        read = [chunk async for chunk in self.chunks(backlog.queue, backlog.begin, end)]
        none = np.zeros(0, np.int64)
        return QueueUnits(
            backlog.queue.queue_id,
            backlog.begin,
            np.concatenate([none, *(phy_offsets for phy_offsets, _ in read)]),
            np.concatenate([none, *(sizes for _, sizes in read)]),
        )


class BacklogMeter:
    """Measures one topic. `age_ms(store_time, phy_offset)` is how long ago a record was stored."""

    def __init__(
        self,
        topic: str,
        *,
        queues: ConsumeQueues,
        offsets: ConsumerOffsetManager,
        units: UnitReads,
        records: RecordReader,
        age_ms: Callable[[int, int], int],
    ) -> None:
        self._topic = topic
        self._queues = queues
        self._offsets = offsets
        self._units = units
        self._records = records
        self._age_ms = age_ms
        self._marks: dict[int, _QueueMarks] = {}

    async def measure(self, groups: Iterable[str], rule: OverflowRule) -> list[GroupBacklog]:
        """The backlogs of these groups; bytes and ages where the rule limits them."""
        queues = [self._queues.get(self._topic, queue_id) for queue_id in self._queues.queue_ids(self._topic)]
        backlogs = [GroupBacklog(group, list(self._of_group(group, queues))) for group in groups]
        if rule.size_bytes is not None:
            await self._measure_bytes(backlogs)
        if rule.age_ms is not None:
            places = [each for backlog in backlogs for each in backlog.queues if each.begin < each.end]
            ages_ms = await self._records.read(partial(self._ages, places))
            for place, age_ms in zip(places, ages_ms, strict=True):
                place.age_ms = age_ms
        return backlogs

    def _of_group(self, group: str, queues: Iterable[ConsumeQueue]) -> Iterable[QueueBacklog]:
        for queue in queues:
            low, high = queue.min_queue_offset, queue.max_queue_offset
            committed = self._offsets.query(group, self._topic, queue.queue_id)
            if committed >= 0:
                yield QueueBacklog(queue, min(max(committed, low), high), high)

    def _ages(self, places: Sequence[QueueBacklog], reads: RecordReads) -> list[int]:
        ages_ms = []
        for place in places:
            unit = reads.unit(place.queue, place.begin)
            stored_ms = -1 if unit is None or not unit.is_message else reads.store_time(unit.phy_offset)
            ages_ms.append(0 if unit is None or stored_ms < 0 else self._age_ms(stored_ms, unit.phy_offset))
        return ages_ms

    # -- bytes -----------------------------------------------------------------------------------

    async def _measure_bytes(self, backlogs: Sequence[GroupBacklog]) -> None:
        known = {backlog.group for backlog in backlogs}
        for marks in self._marks.values():
            for group in marks.groups.keys() - known:
                del marks.groups[group]
        for backlog in backlogs:
            for place in backlog.queues:
                place.size_bytes = await self._bytes(backlog.group, place)

    async def _bytes(self, group: str, place: QueueBacklog) -> int:
        queue = place.queue
        marks = self._marks.get(queue.queue_id)
        if marks is None or marks.queue is not queue or marks.end.queue_offset > place.end:
            marks = self._marks[queue.queue_id] = _QueueMarks(queue, _Mark(place.end, 0), {})
        end = marks.end
        end.before += await self._size(queue, end.queue_offset, place.end)
        end.queue_offset = place.end
        mark = marks.groups.get(group)
        if mark is None or mark.queue_offset < queue.min_queue_offset:
            # From the end: what lies before the queue's beginning cannot be read any more.
            before = end.before - await self._size(queue, place.begin, place.end)
            mark = marks.groups[group] = _Mark(place.begin, before)
        elif mark.queue_offset <= place.begin:
            mark.before += await self._size(queue, mark.queue_offset, place.begin)
        else:
            mark.before -= await self._size(queue, place.begin, mark.queue_offset)
        mark.queue_offset = place.begin
        return end.before - mark.before

    async def _size(self, queue: ConsumeQueue, begin: int, end: int) -> int:
        return sum([int(sizes.sum()) async for _, sizes in self._units.chunks(queue, begin, end)])
