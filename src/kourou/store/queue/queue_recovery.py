"""Where a ConsumeQueue ends, found from its files after a restart.

The last three files are read, as RocketMQ does; what lies before them was synced long ago. Units
are sound as long as their offsets are not negative, their sizes positive, and each record
begins where the one before it ends, or later. The first that is not ends the queue: the
CommitLog has what comes after it. Blank units at the end are left out: they only ever stand
in front of a message.

Nothing is changed on disk here; that is `ConsumeQueue.recover`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from kourou.store.queue.cq_unit import BLANK_SIZE, UNIT, UNIT_BYTES, UNIT_TYPE, CqUnit
from kourou.store.queue.queue_files import QueueFiles

IsRecord = Callable[[int, int], bool]
"""Whether the CommitLog has a record at this phy_offset, of this size."""

_LAST_FILES: Final = 3
# No log gets that long, and sums with a size stay within 64 bits.
_MAX_PHY_OFFSET: Final = 1 << 62
# Up to here a plain loop is faster than the set-up of array operations.
_FEW_UNITS: Final = 64


class QueueState(NamedTuple):
    """What the files of a queue hold; `start` and `end` are positions (20 times a queue_offset).

    `start` is that of the first file, `end` that behind the last message. `max_phy_offset` is
    where the record of the last message ends, -1 when there is none; `min_phy_offset` that of the
    unit at `min_queue_offset`, -1 when it was not looked at or is blank. `is_sound` says that
    nothing but zeros follows, in a last file of full length.
    """

    start: int
    end: int
    min_queue_offset: int
    min_phy_offset: int
    max_phy_offset: int
    is_sound: bool


def find_end(
    files: QueueFiles, topic: str, queue_id: int, starts: Sequence[int], is_record: IsRecord | None = None
) -> QueueState:
    """What a queue holds that has the files `starts`.

    With `is_record` last units that point at no record are left out too: a flipped bit there
    would hide every message that follows.
    """
    row = _without_gap(starts, files.file_bytes)
    is_sound = len(row) == len(starts)
    while row:
        first = max(0, len(row) - _LAST_FILES)
        raw, is_whole = _read(files, topic, queue_id, row[first:])
        units = used_units(raw)
        kept = _trim(raw, sound_units(raw, units), is_record)
        is_sound = is_sound and is_whole and kept == units
        if kept:
            return _state(row, first, raw, kept, is_sound)
        row = row[:first]
    start = starts[0] if starts else 0
    return QueueState(start, start, start // UNIT_BYTES, -1, -1, is_sound)


def _state(row: Sequence[int], first: int, raw: bytes, kept: int, is_sound: bool) -> QueueState:
    first_unit = CqUnit(*UNIT.unpack_from(raw))
    last_unit = CqUnit(*UNIT.unpack_from(raw, (kept - 1) * UNIT_BYTES))
    return QueueState(
        start=row[0],
        end=row[first] + kept * UNIT_BYTES,
        min_queue_offset=row[0] // UNIT_BYTES,
        min_phy_offset=first_unit.phy_offset if first == 0 and first_unit.is_message else -1,
        max_phy_offset=last_unit.end_phy_offset,
        is_sound=is_sound,
    )


def _without_gap(starts: Sequence[int], file_bytes: int) -> Sequence[int]:
    """The files up to the first that is missing."""
    for index in range(1, len(starts)):
        if starts[index] != starts[index - 1] + file_bytes:
            return starts[:index]
    return starts


def _read(files: QueueFiles, topic: str, queue_id: int, starts: Sequence[int]) -> tuple[bytes, bool]:
    """The files one behind the other, and whether all have full length and no torn unit.

    One that is too short counts as if it ended in zeros.
    """
    is_whole, parts = True, []
    for start in starts:
        raw, length = files.read_data(topic, queue_id, start)
        whole_bytes = len(raw) // UNIT_BYTES * UNIT_BYTES
        # A write that was cut short, by a kill or a full disk, ends with a page, which may be inside a unit.
        is_torn = any(raw[whole_bytes:])
        is_whole = is_whole and length == files.file_bytes and not is_torn
        parts.append(raw[:whole_bytes])
    if len(parts) == 1:
        return parts[0], is_whole
    return b"".join(raw.ljust(files.file_bytes, b"\0") for raw in parts), is_whole


def used_units(raw: bytes) -> int:
    """How many units there are up to the last byte that is not zero."""
    return -(-len(raw.rstrip(b"\0")) // UNIT_BYTES)


def sound_units(raw: bytes, count: int) -> int:
    """How many of the first `count` units can be trusted: all before the first that is wrong.

    Of two that overlap it is unknown which is wrong: neither counts.
    """
    raw = raw[: count * UNIT_BYTES].ljust(count * UNIT_BYTES, b"\0")
    return _sound_few(raw, count) if count <= _FEW_UNITS else _sound_many(raw, count)


def _sound_few(raw: bytes, count: int) -> int:
    last, end = 0, 0
    for index, (phy_offset, size, _) in enumerate(UNIT.iter_unpack(raw)):
        if size <= 0 or not 0 <= phy_offset <= _MAX_PHY_OFFSET:
            return index
        if size == BLANK_SIZE:
            continue
        if phy_offset < end:
            return last
        last, end = index, phy_offset + size
    return count


def _sound_many(raw: bytes, count: int) -> int:
    units = np.frombuffer(raw, UNIT_TYPE)
    phy_offsets = units["phy_offset"].astype(np.int64)
    sizes = units["size"].astype(np.int64)
    is_bad = (sizes <= 0) | (phy_offsets < 0) | (phy_offsets > _MAX_PHY_OFFSET)
    if is_bad.any():
        count = int(is_bad.argmax())
    messages = np.flatnonzero(sizes[:count] != BLANK_SIZE)
    phy_offsets = phy_offsets[messages]
    overlaps = phy_offsets[1:] < (phy_offsets + sizes[messages])[:-1]
    return int(messages[overlaps.argmax()]) if overlaps.any() else count


def _trim(raw: bytes, count: int, is_record: IsRecord | None) -> int:
    """Leave out units at the end that are blank, or not in the log."""
    while count:
        unit = CqUnit(*UNIT.unpack_from(raw, (count - 1) * UNIT_BYTES))
        if unit.is_message and (is_record is None or is_record(unit.phy_offset, unit.size)):
            break
        count -= 1
    return count
