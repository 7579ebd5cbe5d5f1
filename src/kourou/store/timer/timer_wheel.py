"""TimerWheel: which timer messages wait for which second, as the file `timerwheel` keeps it.

A ring of slots, one for each step of the clock (`timerPrecisionMs`), 14 days of seconds. A slot,
32 bytes, big-endian: time i64 (in steps), first_pos i64 and last_pos i64 (units of the TimerLog, a
chain from last to first), num i32, magic i32. It counts only for the time that it says.
The slots are in memory; `dirty_pages` and `write_pages` carry what changed to the file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from kourou.store.disk.files import Files

TIMER_WHEEL_SLOTS: Final = 7 * 24 * 3600
"""How many steps ahead a message may wait; the ring has twice as many slots, for those that are over."""

_SLOT: Final = Struct(">qqqii")
_SLOTS: Final = 2 * TIMER_WHEEL_SLOTS
_SIZE_BYTES: Final = _SLOTS * _SLOT.size
_PAGE_BYTES: Final = 4096
_LOAD_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_LOAD_BYTES)
_COLUMNS: Final = np.dtype(
    [("time", ">i8"), ("first_pos", ">i8"), ("last_pos", ">i8"), ("num", ">i4"), ("magic", ">i4")]
)


class Slot(NamedTuple):
    """Where the chain of a slot begins and ends, and of how many messages it is."""

    first_pos: int
    last_pos: int
    num: int


class TimerWheel:
    """Owned by one thread, but for `write_pages`. Without a file until something is written."""

    def __init__(self, files: Files, path: Path, precision_ms: int) -> None:
        self._files = files
        self._path = path
        self._precision_ms = precision_ms
        self._slots = mmap.mmap(-1, _SIZE_BYTES)  # unused pages take no memory
        self._dirty: set[int] = set()
        self._is_blank = True  # nothing was put since it was made: a search would read 37 MB of zeros

    @property
    def path(self) -> Path:
        return self._path

    def load(self) -> str | None:
        """Take over the file; what is wrong with it, if anything: it is missing, or not of its length.
        OSError as it comes."""
        if not self._files.exists(self._path):
            return "the file is missing"
        with self._files.open(self._path, writable=False) as file:
            for position in range(0, _SIZE_BYTES, _LOAD_BYTES):
                piece = file.pread(min(_LOAD_BYTES, _SIZE_BYTES - position), position)
                if piece != _ZEROS[: len(piece)]:
                    self._slots[position : position + len(piece)] = piece
                    self._is_blank = False
        length = self._files.length(self._path)
        return None if length == _SIZE_BYTES else f"it is {length} bytes long instead of {_SIZE_BYTES}"

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of a time; None when nothing waits for it."""
        position = self._position(time_ms)
        time, first_pos, last_pos, num, _ = _SLOT.unpack_from(self._slots, position)
        if time != time_ms // self._precision_ms or last_pos < 0:
            return None
        return Slot(first_pos, last_pos, num)

    def put(self, time_ms: int, slot: Slot) -> None:
        """Set the slot of a time."""
        position = self._position(time_ms)
        _SLOT.pack_into(self._slots, position, time_ms // self._precision_ms, *slot, 0)
        self._dirty.add(position // _PAGE_BYTES)
        self._is_blank = False

    def first_pos(self, time_ms: int) -> int | None:
        """Where the oldest unit lies of all slots from a time on; None when they are empty."""
        if self._is_blank:
            return None
        columns = np.frombuffer(self._slots, dtype=_COLUMNS)
        is_waiting = (columns["time"] >= time_ms // self._precision_ms) & (columns["last_pos"] >= 0)
        found = columns["first_pos"][is_waiting]
        first = int(found.min()) if len(found) else None
        del columns, found  # the map cannot be closed while they look at it
        return first

    def next_ms(self, time_ms: int) -> int | None:
        """The time of the first slot that is not empty, from a time on; None when all are."""
        if self._is_blank:
            return None
        columns = np.frombuffer(self._slots, dtype=_COLUMNS)
        found = columns["time"][
            (columns["time"] >= time_ms // self._precision_ms) & (columns["last_pos"] >= 0)
        ]
        first = int(found.min()) * self._precision_ms if len(found) else None
        del columns, found
        return first

    def count_between(self, begin_ms: int, end_ms: int) -> int:
        """How many messages wait for the times from `begin_ms` to before `end_ms`."""
        first, last = begin_ms // self._precision_ms, end_ms // self._precision_ms
        if self._is_blank:
            return 0
        columns = np.frombuffer(self._slots, dtype=_COLUMNS)
        total = 0
        while first < last:
            index = first % _SLOTS
            piece = columns[index : index + last - first]
            is_waiting = (piece["time"] >= first) & (piece["time"] < last) & (piece["last_pos"] >= 0)
            total += int(piece["num"][is_waiting].sum())
            first += len(piece)
            del piece
        del columns  # the map cannot be closed while it looks at it
        return total

    def correct(self, time_ms: int, slots: Mapping[int, Slot], sure_pos: int) -> bool:
        """Have the slots from a time on be `slots`; True when one was wrong that was on disk for certain:
        whose units lie below `sure_pos` of the TimerLog."""
        is_wrong = False
        for index, time, last_pos in self._filled(time_ms):
            if time * self._precision_ms not in slots or time % _SLOTS != index:
                is_wrong = is_wrong or 0 <= last_pos < sure_pos or time % _SLOTS != index
                self._empty(index)
        for slot_ms, slot in slots.items():
            stored = self.slot(slot_ms)
            if stored != slot:
                was_sure = slot.last_pos < sure_pos and (stored is None or stored.last_pos < sure_pos)
                is_wrong = is_wrong or was_sure
                self.put(slot_ms, slot)
        return is_wrong

    def _filled(self, time_ms: int) -> Iterable[tuple[int, int, int]]:
        """Index, time and last_pos of the slots from a time on."""
        if self._is_blank:
            return ()
        columns = np.frombuffer(self._slots, dtype=_COLUMNS)
        found = np.flatnonzero(columns["time"] >= time_ms // self._precision_ms)
        times, lasts = columns["time"][found].tolist(), columns["last_pos"][found].tolist()
        del columns  # the map cannot be closed while it looks at it
        return zip(found.tolist(), times, lasts, strict=True)

    def _empty(self, index: int) -> None:
        position = index * _SLOT.size
        self._slots[position : position + _SLOT.size] = bytes(_SLOT.size)
        self._dirty.add(position // _PAGE_BYTES)

    def clear(self) -> None:
        """Empty all slots, and remove the file."""
        self._slots, self._dirty, self._is_blank = mmap.mmap(-1, _SIZE_BYTES), set(), True
        if self._files.exists(self._path):
            self._files.remove(self._path)
            self._files.sync_folder(self._path.parent)

    def dirty_pages(self) -> list[tuple[int, bytes]]:
        """Positions and bytes to write; from now on they count as written."""
        dirty, self._dirty = sorted(self._dirty), set()
        starts = (page * _PAGE_BYTES for page in dirty)
        return [(start, self._slots[start : start + _PAGE_BYTES]) for start in starts]

    def write_pages(self, pages: list[tuple[int, bytes]]) -> None:
        """On disk on return; in any thread, one at a time."""
        is_new = not self._files.exists(self._path)
        with self._files.open(self._path, create=True) as file:
            file.set_length(_SIZE_BYTES)
            for position, raw in pages:
                file.pwrite(raw, position)
            file.sync()
        if is_new:
            self._files.sync_folder(self._path.parent)

    def mark_dirty(self, pages: list[tuple[int, bytes]]) -> None:
        """Pages could not be written: they are to be tried again."""
        self._dirty.update(position // _PAGE_BYTES for position, _ in pages)

    def close(self) -> None:
        """Release the memory of the slots; unusable afterwards."""
        self._slots.close()

    def _position(self, time_ms: int) -> int:
        return time_ms // self._precision_ms % _SLOTS * _SLOT.size
