"""What the files of the timers hold at a start, checked against each other and against the CommitLog.

The TimerLog below the checkpoint's position was on disk: there each unit must be whole, its record inside
the CommitLog, and its link lead to the unit before in the same slot. What fails is damage, and none of the
files is believed then: the caller enters the messages of the topic anew. Behind the position units count as
long as they are whole. The wheel is always derived from the units; a wheel on disk that says otherwise is
reported, and corrected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kourou.store.timer.timer_checkpoint import TimerCheckpoint
from kourou.store.timer.timer_log import MAGIC_DELETE, UNIT_BYTES, Columns, TimerLog, TimerUnit
from kourou.store.timer.timer_wheel import Slot

Longs: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class TimerDamageError(Exception):
    """A file of the timers is missing or does not fit the others; `path` says which."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class WaitingUnits:
    """The units that wait, in slots from the checkpoint's time on."""

    slots: dict[int, Slot]
    """By the time of the slot in ms."""
    counts: dict[int, int]
    """Messages by the hash of their topic."""
    end_pos: int
    first_pos: int
    last_phy_offset: int | None
    """Of the last unit that the checkpoint's queue_offset may not count; None: there is none."""


def waiting_units(
    log: TimerLog, checkpoint: TimerCheckpoint, *, min_phy_offset: int, max_phy_offset: int
) -> WaitingUnits:
    """Read the TimerLog; TimerDamageError when it cannot be believed. Waits for the disk."""
    begin = _begin(log, checkpoint, min_phy_offset)
    sure = [_columns(pos, units) for pos, units in _checked(log, begin, checkpoint.log_pos, max_phy_offset)]
    behind = list(_behind(log, checkpoint.log_pos, max_phy_offset))
    rows = [(pos, unit.slot_ms, unit.prev_pos, _sign(unit), unit.topic_hash) for pos, unit in behind]
    sure.append(tuple(np.array(rows, np.int64).reshape(-1, 5).T))
    end_pos = behind[-1][0] + UNIT_BYTES if behind else checkpoint.log_pos
    # Apache's queue_offset may be behind its log; ours is noted together with the position.
    last = log.unit_before(end_pos) if behind or checkpoint.noted_phy_offset is None else None
    units = _Units(*(np.concatenate(columns) for columns in zip(*sure, strict=True)))
    waiting = units.from_slot(checkpoint.last_read_ms)
    waiting.check_links(log.folder, begin)
    return WaitingUnits(
        slots=waiting.slots(),
        counts=waiting.counts(),
        end_pos=end_pos,
        first_pos=int(waiting.pos.min()) if len(waiting.pos) else end_pos,
        last_phy_offset=None if last is None else last.phy_offset,
    )


def _begin(log: TimerLog, checkpoint: TimerCheckpoint, min_phy_offset: int) -> int:
    """Where the oldest unit may lie that waits."""
    starts, file_bytes = log.starts(), log.file_bytes
    if not starts:
        if checkpoint.log_pos > 0:
            raise TimerDamageError(
                log.folder, f"there are no files, but the checkpoint records {checkpoint.log_pos} bytes"
            )
        return 0
    if starts[0] % file_bytes:
        raise TimerDamageError(log.folder, f"no file of {file_bytes} bytes begins at {starts[0]}")
    for start, following in zip(starts, starts[1:], strict=False):
        if following != start + file_bytes:
            raise TimerDamageError(log.path(start + file_bytes), "the file is missing")
    end = starts[-1] + file_bytes
    if checkpoint.log_pos > end:
        raise TimerDamageError(log.folder, f"the files end at {end}, the checkpoint at {checkpoint.log_pos}")
    for start in starts:
        length = log.length(start)
        if start < checkpoint.log_pos and length != file_bytes:
            raise TimerDamageError(log.path(start), f"it is {length} bytes long instead of {file_bytes}")
    first_pos = checkpoint.first_pos or 0
    if first_pos >= starts[0]:
        return first_pos
    # Files are deleted when their messages are gone from the CommitLog, and not before.
    first = next(log.units(starts[0], starts[0] + UNIT_BYTES), None)
    if starts[0] < checkpoint.log_pos and first is not None and first[1].phy_offset >= min_phy_offset:
        raise TimerDamageError(log.path(starts[0] - file_bytes), "the file is missing")
    return min(starts[0], checkpoint.log_pos)


def _checked(log: TimerLog, begin: int, end_pos: int, max_phy_offset: int) -> Iterator[tuple[int, Columns]]:
    """The units below the checkpoint, all of them."""
    last_phy_offset = -1
    reached = begin
    for pos, units in log.columns(begin, end_pos):
        phy_offsets = units["phy_offset"].astype(np.int64)
        ends = phy_offsets + units["record_size"]
        # Not in order of the log, that is; one that leaves another out may be in several slots.
        if len(units) and (phy_offsets[0] < last_phy_offset or (np.diff(phy_offsets) < 0).any()):
            raise TimerDamageError(log.path(pos), f"units behind {pos} point back in the CommitLog")
        if (ends > max_phy_offset).any():
            raise TimerDamageError(log.path(pos), f"units behind {pos} point behind the CommitLog's end")
        if len(units):
            last_phy_offset = int(phy_offsets[-1])
            yield pos, units
        reached = pos + len(units) * UNIT_BYTES
    if log.next_unit_pos(reached) < end_pos:
        raise TimerDamageError(log.path(reached), f"there is no unit at {reached}")


def _behind(log: TimerLog, pos: int, max_phy_offset: int) -> Iterator[tuple[int, TimerUnit]]:
    """Units that came after the checkpoint, whose message was durable when the machine stopped."""
    starts = log.starts()
    end = starts[-1] + log.file_bytes if starts else 0
    for found, unit in log.units(pos, end):
        if unit.phy_offset + unit.size > max_phy_offset:
            return
        yield found, unit


class _Units:
    def __init__(self, pos: Longs, slot: Longs, prev: Longs, sign: Longs, topic: Longs) -> None:
        self.pos, self._slot, self._prev, self._sign, self._topic = pos, slot, prev, sign, topic

    def from_slot(self, slot_ms: int) -> _Units:
        """Those of slots from a time on, ordered by slot and position."""
        chosen = np.flatnonzero(self._slot >= slot_ms)
        chosen = chosen[np.lexsort((self.pos[chosen], self._slot[chosen]))]
        columns = (self.pos, self._slot, self._prev, self._sign, self._topic)
        return _Units(*(column[chosen] for column in columns))

    def check_links(self, folder: Path, begin: int) -> None:
        """Each unit names the one before in its slot; the first one none, or one that was not read."""
        is_first = np.concatenate(([True], self._slot[1:] != self._slot[:-1]))[: len(self.pos)]
        before = np.concatenate(([-1], self.pos[:-1]))[: len(self.pos)]
        is_wrong = np.where(is_first, self._prev >= begin, self._prev != before)
        if is_wrong.any():
            pos = int(self.pos[np.argmax(is_wrong)])
            raise TimerDamageError(folder, f"the unit at {pos} is linked to none of its slot")

    def slots(self) -> dict[int, Slot]:
        if not len(self.pos):
            return {}
        times, firsts = np.unique(self._slot, return_index=True)
        lasts = np.append(firsts[1:], len(self._slot)) - 1
        nums = np.add.reduceat(self._sign, firsts)
        rows = zip(times, self.pos[firsts], self.pos[lasts], nums, strict=True)
        return {int(time): Slot(int(first), int(last), int(num)) for time, first, last, num in rows}

    def counts(self) -> dict[int, int]:
        hashes, places = np.unique(self._topic, return_inverse=True)
        counts = np.bincount(places, weights=self._sign, minlength=len(hashes))
        return dict(zip(hashes.tolist(), counts.astype(np.int64).tolist(), strict=True))


def _columns(pos: int, units: Columns) -> tuple[Longs, ...]:
    slot = units["write_ms"].astype(np.int64) + units["delay_ms"]
    sign = np.where(units["magic"] & MAGIC_DELETE, -1, 1).astype(np.int64)
    positions = pos + np.arange(len(units), dtype=np.int64) * UNIT_BYTES
    prev, topic = units["prev_pos"].astype(np.int64), units["topic_hash"].astype(np.int64)
    return positions, slot, prev, sign, topic


def _sign(unit: TimerUnit) -> int:
    return -1 if unit.is_delete else 1
