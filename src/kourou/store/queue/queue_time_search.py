"""Which queue_offset belongs to a point in time.

Messages of a queue lie in the order of their store time, so a bisection finds it; the store
time is in the record, which `store_time` reads (negative: the record cannot be read). An
unreadable record is passed over: its neighbour answers for it.
The answers are those of RocketMQ 5; 4.9 picks a file by its modification time and then the
message closest in time, which may be far off.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import CqUnit

StoreTime = Callable[[int], int]
"""phy_offset to store timestamp in ms; negative when there is no record."""


class BoundaryType(enum.Enum):
    """Which message answers for a time between two messages, or shared by several."""

    LOWER = "LOWER"
    UPPER = "UPPER"


def search_queue_offset(
    queue: ConsumeQueue,
    timestamp_ms: int,
    store_time: StoreTime,
    boundary: BoundaryType = BoundaryType.LOWER,
) -> int:
    """LOWER: the first message stored at `timestamp_ms` or later, the end if there is none.
    UPPER: the last message stored at it or earlier, the first message if there is none."""
    if boundary is BoundaryType.LOWER:
        return queue.first_where(lambda unit: _compare(store_time, unit, timestamp_ms))
    behind = queue.first_where(lambda unit: _compare(store_time, unit, timestamp_ms + 1))
    return _message_before(queue, behind, store_time)


def _message_before(queue: ConsumeQueue, queue_offset: int, store_time: StoreTime) -> int:
    """The last message below `queue_offset` that can be read; the first place if there is none."""
    for before in range(queue_offset - 1, queue.min_queue_offset, -1):
        if _store_time_at(queue, before, store_time) is not None:
            return before
    return queue.min_queue_offset


def _compare(store_time: StoreTime, unit: CqUnit, timestamp_ms: int) -> bool | None:
    """Whether the message was stored at `timestamp_ms` or later."""
    stored_ms = store_time(unit.phy_offset)
    return stored_ms >= timestamp_ms if stored_ms >= 0 else None


def _store_time_at(queue: ConsumeQueue, queue_offset: int, store_time: StoreTime) -> int | None:
    unit = queue.unit(queue_offset)
    if unit is None or not unit.is_message:
        return None
    stored_ms = store_time(unit.phy_offset)
    return stored_ms if stored_ms >= 0 else None
