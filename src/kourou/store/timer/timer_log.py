"""TimerLog: one unit for each timer message, in the order they came, as the files in `timerlog/` keep it.

A unit, 52 bytes, big-endian: size i32 = 52, prev_pos i64 (the unit before in the same slot, -1: none),
magic i32 (1, +2 to be put back when the slot is over, +4 to leave another message out), write time
i64, delay i32 (slot time less write time), phy_offset i64, record size i32, hash of the real topic
i32, reserved i64: 0 in Apache's units, in ours "KT" and the CRC-32 of the 44 bytes before it.
A file ends with 16 bytes: bytes left i32, 0 i64, 0xCBD43194 i32.
Units are in memory until `write` carries them to the files.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from kourou.store.disk.files import Files, OpenFile

UNIT_BYTES: Final = 52
MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4

_UNIT: Final = Struct(">iqiqiqii")
_RESERVED: Final = Struct(">q")
_CHECKED: Final = 0x4B54 << 32  # KT: the lower half is a CRC-32
MAX_DELAY_MS: Final = 2**31 - 1
"""What the delay of a unit can hold."""
COLUMNS: Final = np.dtype(
    [
        ("size", ">i4"),
        ("prev_pos", ">i8"),
        ("magic", ">i4"),
        ("write_ms", ">i8"),
        ("delay_ms", ">i4"),
        ("phy_offset", ">i8"),
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
"""A unit as a row of numpy."""
Columns: TypeAlias = np.ndarray[Any, np.dtype[np.void]]
_BLANK: Final = Struct(">iqI")
_BLANK_MAGIC: Final = 0xCBD43194
_NAME_DIGITS: Final = 20
# Units of one slot lie scattered among those of others, but mostly near: read at once.
_BLOCK_BYTES: Final = 64 * 1024
_MAX_BLOCKS: Final = 64
_PIECE_BYTES: Final = 4 * 1024 * 1024


class TimerUnit(NamedTuple):
    """One timer message: until when it waits, and where its record lies."""

    prev_pos: int
    magic: int
    write_ms: int
    delay_ms: int
    phy_offset: int
    size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        """The time of its slot."""
        return self.write_ms + self.delay_ms

    @property
    def is_roll(self) -> bool:
        """Whether it waits on when its slot is over."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def is_delete(self) -> bool:
        """Whether it has another message left out."""
        return bool(self.magic & MAGIC_DELETE)

    def encode(self) -> bytes:
        fields = _UNIT.pack(UNIT_BYTES, *self)
        return fields + _RESERVED.pack(_CHECKED | zlib.crc32(fields))


class TimerLog:
    """Owned by one thread. `write` and reads may run in another one; the owner appends nothing then."""

    def __init__(self, files: Files, folder: Path, file_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._file_bytes = file_bytes
        self._open: dict[int, OpenFile] = {}
        self._blocks: dict[int, bytes] = {}
        self._tail = bytearray()
        self._written_pos = 0
        self._lock = threading.Lock()  # over the three above

    # -- what there is ---------------------------------------------------------------------------

    @property
    def end_pos(self) -> int:
        """Where the next unit goes."""
        return self._written_pos + len(self._tail)

    @property
    def file_bytes(self) -> int:
        """The length of each file."""
        return self._file_bytes

    @property
    def folder(self) -> Path:
        return self._folder

    def starts(self) -> list[int]:
        """The first position of each file."""
        names = self._files.list_names(self._folder)
        return [int(name) for name in names if len(name) == _NAME_DIGITS and name.isdigit()]

    def path(self, pos: int) -> Path:
        """The file of a position."""
        return self._path_of(pos - pos % self._file_bytes)

    def _path_of(self, start: int) -> Path:
        """The file that begins there, be it a start by the length of files here or by another one."""
        return self._folder / f"{start:0{_NAME_DIGITS}d}"

    def length(self, start: int) -> int:
        """How long a file is."""
        return self._files.length(self._path_of(start))

    def next_unit_pos(self, pos: int) -> int:
        """`pos`, or the next file's start where no unit fits any more."""
        left = self._file_bytes - pos % self._file_bytes
        return pos + left if left < UNIT_BYTES + _BLANK.size else pos

    def load(self, end_pos: int) -> None:
        """Units below `end_pos` are in the files. What lies behind is cut off: it must not be taken for
        units when new ones have grown up to it."""
        with self._lock:
            self._blocks.clear()
            self._written_pos = end_pos
        for start in self.starts():
            if start > end_pos:
                self._remove(start)
            elif start + self._file_bytes > end_pos:
                file = self._file(end_pos)
                file.set_length(end_pos - start)
                file.set_length(self._file_bytes)

    def clear(self) -> None:
        """Remove all files, and begin anew at position 0."""
        for start in self.starts():
            self._remove(start)
        with self._lock:
            self._tail.clear()
            self._written_pos = 0

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    # -- growing ---------------------------------------------------------------------------------

    def append(self, unit: TimerUnit) -> int:
        """Add a unit, in memory on return; its position."""
        left = self.next_unit_pos(self.end_pos) - self.end_pos
        if left:
            self._tail += _BLANK.pack(left, 0, _BLANK_MAGIC).ljust(left, b"\0")
        pos = self.end_pos
        self._tail += unit.encode()
        return pos

    def write(self) -> None:
        """Carry all units to the files; on disk on return."""
        touched = []
        while self._tail:
            file = self._file(self._written_pos, create=True)
            within = self._written_pos % self._file_bytes
            piece = bytes(self._tail[: self._file_bytes - within])
            file.pwrite(piece, within)
            with self._lock:
                self._blocks.clear()
                self._written_pos += len(piece)
                del self._tail[: len(piece)]
            touched.append(file)
        for file in touched:
            file.sync()

    def delete_first(self) -> None:
        self._remove(self.starts()[0])

    def _remove(self, start: int) -> None:
        file = self._open.pop(start, None)
        if file is not None:
            file.close()
        with self._lock:
            self._blocks.clear()
        self._files.remove(self._path_of(start))
        self._files.sync_folder(self._folder)

    # -- reading ---------------------------------------------------------------------------------

    def unit(self, pos: int) -> TimerUnit | None:
        """The unit at `pos`; None when there is none."""
        if pos < 0 or pos + UNIT_BYTES > self.end_pos:
            return None
        return decode_unit(self._read(pos, UNIT_BYTES))

    def unit_before(self, end_pos: int) -> TimerUnit | None:
        """The last unit of the files below `end_pos`; None when there is none."""
        within = end_pos % self._file_bytes
        if end_pos and not within:  # a file ends with a blank
            whole_bytes = (self._file_bytes - _BLANK.size) // UNIT_BYTES * UNIT_BYTES
            end_pos += whole_bytes - self._file_bytes
        return decode_unit(self._read(end_pos - UNIT_BYTES, UNIT_BYTES)) if end_pos >= UNIT_BYTES else None

    def chain(self, first_pos: int, last_pos: int, slot_ms: int) -> list[TimerUnit] | None:
        """The units of one slot, oldest first; None when some cannot be read. May wait for the disk."""
        found = []
        pos = last_pos
        while (unit := self.unit(pos)) is not None and unit.slot_ms == slot_ms:
            found.append(unit)
            if pos == first_pos:
                return found[::-1]
            if unit.prev_pos >= pos:  # chains go back
                break
            pos = unit.prev_pos
        return None

    def units(self, pos: int, end_pos: int) -> Iterator[tuple[int, TimerUnit]]:
        """Positions and units from `pos` on, as long as they are units and lie below `end_pos`."""
        while pos + UNIT_BYTES <= end_pos:
            raw = self._read(pos, UNIT_BYTES)
            unit = decode_unit(raw)
            if unit is not None:
                yield pos, unit
                pos += UNIT_BYTES
            elif len(raw) >= _BLANK.size and _BLANK.unpack_from(raw)[2] == _BLANK_MAGIC:
                pos += self._file_bytes - pos % self._file_bytes
            else:
                return

    def columns(self, pos: int, end_pos: int) -> Iterator[tuple[int, Columns]]:
        """Units from `pos` to `end_pos`, in large pieces: the position of the first one, and columns
        (COLUMNS). They stop at the first unit that is none, and nothing behind it is read. Waits for the
        disk."""
        while pos + UNIT_BYTES <= end_pos:
            within = pos % self._file_bytes
            whole_bytes = (self._file_bytes - _BLANK.size) // UNIT_BYTES * UNIT_BYTES
            size_bytes = min(whole_bytes - within, end_pos - pos, _PIECE_BYTES) // UNIT_BYTES * UNIT_BYTES
            if size_bytes <= 0:
                pos += self._file_bytes - within
                continue
            raw = self._pread(pos, size_bytes)
            units = _whole_units(raw)
            yield pos, units
            if len(units) * UNIT_BYTES < size_bytes:
                return
            pos += size_bytes

    def _pread(self, pos: int, size_bytes: int) -> bytes:
        try:
            return self._file(pos).pread(size_bytes, pos % self._file_bytes)
        except FileNotFoundError:
            return b""

    def _read(self, pos: int, size_bytes: int) -> bytes:
        with self._lock:
            if pos >= self._written_pos and self._tail:
                begin = pos - self._written_pos
                return bytes(self._tail[begin : begin + size_bytes])
            within = pos % self._file_bytes
            at = within % _BLOCK_BYTES
            return self._block(pos - at)[at : at + size_bytes]

    def _block(self, pos: int) -> bytes:
        """The bytes from `pos` on, enough for every unit that begins in the block."""
        raw = self._blocks.get(pos)
        if raw is None:
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks.clear()
            try:
                raw = self._file(pos).pread(_BLOCK_BYTES + UNIT_BYTES, pos % self._file_bytes)
            except FileNotFoundError:
                raw = b""
            self._blocks[pos] = raw
        return raw

    def _file(self, pos: int, *, create: bool = False) -> OpenFile:
        start = pos - pos % self._file_bytes
        file = self._open.get(start)
        if file is not None:
            return file
        path = self.path(start)
        is_new = create and not self._files.exists(path)
        if is_new:
            self._files.make_folder(self._folder)
        file = self._files.open(path, create=create)
        if is_new:
            file.set_length(self._file_bytes)
            self._files.sync_folder(self._folder)
        self._open[start] = file
        return file


def _whole_units(raw: bytes) -> Columns:
    """The units that `raw` begins with, up to the first that is none."""
    units = np.frombuffer(raw[: len(raw) // UNIT_BYTES * UNIT_BYTES], dtype=COLUMNS)
    is_unit = (units["size"] == UNIT_BYTES) & (units["magic"] & MAGIC_DEFAULT != 0)
    is_unit &= units["record_size"] > 0
    count = len(units) if is_unit.all() else int(np.argmin(is_unit))
    for index in range(count):
        if not _is_whole(raw[index * UNIT_BYTES : (index + 1) * UNIT_BYTES]):
            count = index
            break
    return units[:count]


def decode_unit(raw: bytes) -> TimerUnit | None:
    """The unit that `raw` begins with; None when it is none."""
    if len(raw) < UNIT_BYTES:
        return None
    size, *fields = _UNIT.unpack_from(raw)
    unit = TimerUnit(*fields)
    is_unit = size == UNIT_BYTES and unit.magic & MAGIC_DEFAULT and unit.size > 0
    return unit if is_unit and _is_whole(raw[:UNIT_BYTES]) else None


def _is_whole(raw: bytes) -> bool:
    """Whether the checksum of a unit fits; Apache's units have none."""
    reserved: int = _RESERVED.unpack_from(raw, _UNIT.size)[0]
    return reserved in (0, _CHECKED | zlib.crc32(raw[: _UNIT.size]))
