"""SlotTable: the hash slots of one IndexFile in memory.

A slot holds the index of the newest entry whose hash falls into it, 0 for none; older ones follow by
each entry's `prev_index`. On disk the slots lie behind the 40-byte header, i32 big-endian. Here they
are an array whose pages the system provides on first use, so that an empty table costs nothing; what
changed goes to the file in blocks of a page. Slots follow from the entries alone: see `link`.
Not here: the entries (index_file.py), when to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kourou.store.disk.files import OpenFile
from kourou.store.kernel import Kernel

SLOTS_POSITION: Final = 40
SLOT_BYTES: Final = 4
_BLOCK_SLOTS: Final = 1024
# The header takes the place of so many slots in the first page: blocks are pages of the file.
_SHIFT: Final = SLOTS_POSITION // SLOT_BYTES
# Blocks read or written in one call: 1 MiB.
_RUN_BLOCKS: Final = 256
_ON_DISK: Final = np.dtype(">i4")

Indexes = NDArray[np.int32]


class Links(NamedTuple):
    """What new entries mean for the slots: each one's predecessor, and the slots' new values."""

    prev_indexes: Indexes
    slots: NDArray[np.int64]
    newest_indexes: NDArray[np.int64]


class SlotTable:
    """All slots of one file. Values are indexes of entries that exist, or 0."""

    __slots__ = ("_values", "_dirty")

    def __init__(self, slot_count: int) -> None:
        self._values: Indexes = np.zeros(slot_count, np.int32)
        self._dirty = np.zeros((slot_count + _SHIFT) // _BLOCK_SLOTS + 1, np.bool_)

    @classmethod
    def load(cls, file: OpenFile, slot_count: int, index_count: int) -> SlotTable:
        """Read the slots of a file; values that are no entry below `index_count` become 0."""
        table = cls(slot_count)
        for first, on_disk in table._read(file):
            if on_disk.any():
                wrong = (on_disk < 0) | (on_disk >= index_count)
                table._values[first : first + on_disk.size] = np.where(wrong, 0, on_disk)
                table._mark(first + np.flatnonzero(wrong))
        return table

    def __getitem__(self, slot: int) -> int:
        return int(self._values[slot])

    def link(self, key_hashes: Indexes, first_index: int) -> Links:
        """Chain new entries, the first of which gets `first_index`. Nothing is changed yet."""
        count = key_hashes.size
        # Sorting slot and position as one number keeps the order within a slot, and is several
        # times faster than a stable sort of the slots.
        bits = count.bit_length()
        order = key_hashes.astype(np.int64) % self._values.size << bits
        order |= np.arange(count)
        order.sort()
        slots = order >> bits
        order &= (1 << bits) - 1
        is_first = np.ones(count + 1, np.bool_)
        np.not_equal(slots[1:], slots[:-1], out=is_first[1:-1])
        indexes = order + first_index
        linked = np.empty(count, np.int32)
        linked[1:] = indexes[:-1]
        linked[is_first[:-1]] = self._values[slots[is_first[:-1]]]
        prev_indexes = np.empty(count, np.int32)
        prev_indexes[order] = linked
        is_last = is_first[1:]
        return Links(prev_indexes, slots[is_last], indexes[is_last])

    def apply(self, links: Links) -> None:
        """Take up entries that were linked."""
        self._values[links.slots] = links.newest_indexes
        self._mark(links.slots)

    def add(self, key_hashes: Indexes, first_index: int, kernel: Kernel | None = None) -> Indexes:
        """Chain new entries and take them up; the predecessor of each. `unlink` takes them back."""
        if kernel is None:
            links = self.link(key_hashes, first_index)
            self.apply(links)
            return links.prev_indexes
        linked = kernel.link_entries(
            key_hashes.data, self._values.data, self._dirty.data, first_index, _SHIFT, _BLOCK_SLOTS
        )
        return np.frombuffer(linked, np.int32)

    def unlink(self, key_hashes: Indexes, prev_indexes: Indexes) -> None:
        """Take back the newest entries, given in the order they were linked in."""
        slots = key_hashes.astype(np.int64) % self._values.size
        # Of several values for one slot the last one stays: that of the oldest entry.
        self._values[slots[::-1]] = prev_indexes[::-1]
        self._mark(slots)

    @property
    def is_dirty(self) -> bool:
        """Whether the file has other values."""
        return bool(self._dirty.any())

    @property
    def used(self) -> int:
        """How many have an entry."""
        return int(np.count_nonzero(self._values))

    def compare(self, file: OpenFile) -> int:
        """Find out which blocks of a file differ from this table: those are to be written. How many slots
        do."""
        self._dirty[:] = False
        count = 0
        for first, on_disk in self._read(file):
            differs = on_disk != self._values[first : first + on_disk.size]
            self._mark(first + np.flatnonzero(differs))
            count += int(np.count_nonzero(differs))
        return count

    def differing(self, other: SlotTable) -> int:
        """How many slots have another value there."""
        return int(np.count_nonzero(self._values != other._values))

    def write(self, file: OpenFile) -> None:
        """Write what changed; on return it is in the page cache."""
        for first, last in self._dirty_runs():
            file.pwrite(self._values[first:last].astype(_ON_DISK).data, SLOTS_POSITION + first * SLOT_BYTES)
        self._dirty[:] = False

    def _mark(self, slots: NDArray[np.int64]) -> None:
        self._dirty[(slots + _SHIFT) // _BLOCK_SLOTS] = True

    def _dirty_runs(self) -> Iterator[tuple[int, int]]:
        """Slots to write, as ranges [first, last) of neighbouring blocks."""
        blocks = np.flatnonzero(self._dirty)
        for run in np.split(blocks, np.flatnonzero(np.diff(blocks) > 1) + 1):
            for part in range(0, run.size, _RUN_BLOCKS):
                some = run[part : part + _RUN_BLOCKS]
                yield (
                    max(int(some[0]) * _BLOCK_SLOTS - _SHIFT, 0),
                    min((int(some[-1]) + 1) * _BLOCK_SLOTS - _SHIFT, self._values.size),
                )

    def _read(self, file: OpenFile) -> Iterator[tuple[int, Indexes]]:
        step = _RUN_BLOCKS * _BLOCK_SLOTS
        for first in range(0, self._values.size, step):
            size_bytes = min(step, self._values.size - first) * SLOT_BYTES
            raw = file.pread(size_bytes, SLOTS_POSITION + first * SLOT_BYTES)
            yield first, np.frombuffer(raw, _ON_DISK).astype(np.int32)
