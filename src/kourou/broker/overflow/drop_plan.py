"""How far the floors of a group move: pure decisions about backlogs, limits and units.

A limit is reached by any of messages, bytes and age. A drop takes the backlog down to `RESUME_SHARE` of its
limit, so that consumers are not moved all the time. The oldest messages go first, by their places in the log,
which is their order over all queues; or those of the lowest queues, where a queue is a priority.
Not here: reading backlogs (backlog_meter.py), moving floors (drops.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kourou.protocol.overflow_rule import RESUME_SHARE, OverflowRule

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Size(NamedTuple):
    """How large a backlog is. `age_ms`: of its oldest message."""

    messages: int = 0
    size_bytes: int = 0
    age_ms: int = 0


class Excess(NamedTuple):
    """By how much a backlog is to shrink."""

    messages: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class QueueUnits:
    """The first units of a group's backlog in one queue, from `begin` on: places in the log, sizes."""

    queue_id: int
    begin: int
    phy_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]


def share_used(rule: OverflowRule, size: Size) -> float:
    """The largest share of a limit that a backlog uses; 1.0 at the limit."""
    return max(
        _share(size.messages, rule.messages),
        _share(size.size_bytes, rule.size_bytes),
        _share(size.age_ms, rule.age_ms),
    )


def _share(amount: int, limit: int | None) -> float:
    return 0.0 if limit is None else amount / limit


def excess(rule: OverflowRule, size: Size, too_old: int) -> Excess:
    """By how much a backlog has to shrink; `too_old` messages are to go for their age."""
    messages = max(too_old, _over(size.messages, rule.messages))
    return Excess(messages, _over(size.size_bytes, rule.size_bytes))


def kept_age_ms(rule: OverflowRule, size: Size) -> int | None:
    """Older messages have to go; None: the backlog is not too old."""
    if rule.age_ms is None or size.age_ms <= rule.age_ms:
        return None
    return int(rule.age_ms * RESUME_SHARE)


def _over(amount: int, limit: int | None) -> int:
    return amount - int(limit * RESUME_SHARE) if limit is not None and amount > limit else 0


def oldest_first(
    queues: Sequence[QueueUnits], excess: Excess, max_messages: int, max_bytes: int | None = None
) -> dict[int, int]:
    """Floors that leave out the oldest messages: as many as needed, `max_messages` at most, of which each
    queue has units, or all; of more than `max_bytes` a single one."""
    if not queues:
        return {}
    # A unit without a record has no place: that of the one before it.
    places = [np.maximum.accumulate(queue.phy_offsets) for queue in queues]
    order = np.argsort(np.concatenate(places), kind="stable")
    sizes = np.concatenate([queue.sizes for queue in queues])[order]
    count = min(_count(sizes, excess), max_messages)
    if max_bytes is not None:
        count = min(count, max(1, int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))))
    owners = np.repeat(np.arange(len(queues)), [len(queue.sizes) for queue in queues])[order]
    taken = np.bincount(owners[:count], minlength=len(queues)).tolist()
    return {
        queue.queue_id: queue.begin + number for queue, number in zip(queues, taken, strict=True) if number
    }


def lowest_first(queues: Sequence[QueueUnits], excess: Excess, max_messages: int) -> dict[int, int]:
    """Floors that leave out the messages of the lowest queues, in each the oldest first."""
    floors = {}
    messages, size_bytes, room = excess.messages, excess.size_bytes, max_messages
    for queue in sorted(queues, key=lambda each: each.queue_id):
        count = min(_count(queue.sizes, Excess(messages, size_bytes)), room)
        if count <= 0:
            break
        floors[queue.queue_id] = queue.begin + count
        messages, room = messages - count, room - count
        size_bytes -= int(queue.sizes[:count].sum())
    return floors


def _count(sizes: NDArray[np.int64], excess: Excess) -> int:
    """How many of these messages have to go, the first ones, as far as they suffice."""
    by_size = 0
    if excess.size_bytes > 0:
        by_size = int(np.searchsorted(np.cumsum(sizes), excess.size_bytes)) + 1
    return min(max(excess.messages, by_size, 0), len(sizes))


class Gate:
    """Whether sends are rejected: from a limit on, until the backlog is at `RESUME_SHARE` of it."""

    __slots__ = ("is_closed",)

    def __init__(self) -> None:
        self.is_closed = False

    def update(self, share: float) -> bool:
        """Take note of the share that is used; whether the gate has opened or closed."""
        closes = share >= 1.0 if not self.is_closed else share > RESUME_SHARE
        has_changed, self.is_closed = closes != self.is_closed, closes
        return has_changed


MIN_WAIT_MS: Final = 100
MAX_WAIT_MS: Final = 10_000
_UNKNOWN_WAIT_MS: Final = 1_000


class WaitEstimate:
    """After what time a sender should try again, by how fast the share in use falls."""

    __slots__ = ("_began_ms", "_began_share")

    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._began_share = 0.0

    def begin(self, share: float, now_ms: int) -> None:
        """Sends are rejected from now on."""
        self._began_ms, self._began_share = now_ms, share

    def wait_ms(self, share: float, now_ms: int) -> int:
        """The time until `RESUME_SHARE` is reached, if it goes on so; within bounds."""
        fallen = self._began_share - share
        if self._began_ms is None or fallen <= 0 or now_ms <= self._began_ms:
            return _UNKNOWN_WAIT_MS
        left_ms = (share - RESUME_SHARE) * (now_ms - self._began_ms) / fallen
        return max(MIN_WAIT_MS, min(MAX_WAIT_MS, round(left_ms)))
