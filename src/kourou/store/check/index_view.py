"""IndexView: the entries of all IndexFiles in order, only looked at, and each file's own soundness.

Reads entries a chunk at a time and follows the slots along: an entry must lead to the one before it
in its slot, and at the end each slot of the file to its newest entry. Entries lie in the order of the
log; one that does not is reported and left out, so that the rest can be walked along the log.
Not here: whether entries agree with the log (check_index.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.record_spans import Int64s
from kourou.store.check.invariants import Invariant
from kourou.store.disk.files import Files, OpenFile
from kourou.store.index.index_entry import ENTRIES, HEADER_BYTES, IndexHeader, IndexLayout
from kourou.store.index.index_slots import SLOTS_POSITION

CHUNK_ENTRIES: Final = 65_536
_CHUNK_SLOTS: Final = 262_144
_COUNT_POSITION: Final = 36
_SLOT_COUNT_POSITION: Final = 32

Report = Callable[[Invariant, int, str], None]
"""Says what is wrong at a byte of the file."""


@dataclass(frozen=True, slots=True)
class EntryRows:
    """Entries of one file; row i is entry `indexes[i]`."""

    indexes: Int64s
    hashes: Int64s
    phy_offsets: Int64s
    time_diffs: Int64s

    def __len__(self) -> int:
        return len(self.indexes)

    def select(self, rows: slice | NDArray[Any]) -> EntryRows:
        """The rows at these positions, or of this mask."""
        return EntryRows(self.indexes[rows], self.hashes[rows], self.phy_offsets[rows], self.time_diffs[rows])


class IndexView:
    """One IndexFile of a known layout."""

    def __init__(self, files: Files, path: Path, layout: IndexLayout) -> None:
        self._files = files
        self.path = path
        self.layout = layout
        with files.open(path, writable=False) as file:
            self.header = IndexHeader.decode(file.pread(HEADER_BYTES, 0).ljust(HEADER_BYTES, b"\0"))
            self.count = self._written_count(file)
            self.first_phy_offset = self._phy_offset(file, 1)
            self.last_phy_offset = self._phy_offset(file, self.count - 1)

    def _written_count(self, file: OpenFile) -> int:
        """How many entries the header counts, as far as they were written."""
        count = min(self.header.index_count, self.layout.entry_count)
        end = min(self.layout.entry_position(count), file.data_end())
        count = min(count, max(end - self.layout.entry_position(0), 0) // ENTRIES.itemsize + 1)
        while count > 1:
            first = max(1, count - CHUNK_ENTRIES)
            raw = self._read(file, first, count - first).tobytes().rstrip(b"\0")
            if raw:
                return first + -(-len(raw) // ENTRIES.itemsize)
            count = first
        return 1

    def _phy_offset(self, file: OpenFile, index: int) -> int:
        return int(self._read(file, index, 1)["phy_offset"][0]) if self.count > 1 else 0

    def _read(self, file: OpenFile, index: int, count: int) -> NDArray[Any]:
        size = count * ENTRIES.itemsize
        return np.frombuffer(file.pread(size, self.layout.entry_position(index)).ljust(size, b"\0"), ENTRIES)

    @property
    def is_full(self) -> bool:
        """Whether another entry would have gone to another file."""
        return self.header.index_count >= self.layout.entry_count

    def looks_right(self) -> bool:
        """Whether the first entries make sense where this layout says they are."""
        count = min(self.count - 1, 1000)
        if count < 1:
            return True
        with self._files.open(self.path, writable=False) as file:
            entries = self._read(file, 1, count)
        before = np.zeros(self.layout.slot_count, np.int64)
        right = entries["prev_index"] == _link(before, entries["key_hash"].astype(np.int64), 1)
        return bool(right.mean() > 0.5)

    def find(self, key_hash: int) -> list[int]:
        """phy_offsets of all entries with this hash, newest first."""
        found: list[int] = []
        with self._files.open(self.path, writable=False) as file:
            slot = file.pread(4, self.layout.slot_position(key_hash % self.layout.slot_count))
            index, before = int.from_bytes(slot, "big", signed=True), self.count
            # A chain leads to ever older entries; one that does not is broken.
            while 0 < index < before:
                entry = self._read(file, index, 1)[0]
                if int(entry["key_hash"]) == key_hash:
                    found.append(int(entry["phy_offset"]))
                index, before = int(entry["prev_index"]), index
        return found

    def entries(self, report: Report) -> Iterator[EntryRows]:
        """All entries in order, except those out of order; faults of the file go to `report`."""
        if self.count != self.header.index_count:
            report(
                Invariant.INDEX_HEADER,
                _COUNT_POSITION,
                f"the header says that entries end at {self.header.index_count}, they do at {self.count}",
            )
        newest = np.zeros(self.layout.slot_count, np.int64)
        last_phy_offset = -1
        with self._files.open(self.path, writable=False) as file:
            for index in range(1, self.count, CHUNK_ENTRIES):
                raw = self._read(file, index, min(CHUNK_ENTRIES, self.count - index))
                rows = EntryRows(
                    np.arange(index, index + len(raw)),
                    raw["key_hash"].astype(np.int64),
                    raw["phy_offset"].astype(np.int64),
                    raw["time_diff"].astype(np.int64),
                )
                self._check_links(rows, raw["prev_index"].astype(np.int64), newest, report)
                rows = self._in_order(rows, last_phy_offset, report)
                if len(rows):
                    last_phy_offset = int(rows.phy_offsets[-1])
                    yield rows
            self._check_slots(file, newest, report)

    def _check_links(self, rows: EntryRows, prev_indexes: Int64s, newest: Int64s, report: Report) -> None:
        expected = _link(newest, rows.hashes, int(rows.indexes[0]))
        for row in np.flatnonzero(expected != prev_indexes).tolist():
            index = int(rows.indexes[row])
            report(
                Invariant.INDEX_CHAIN,
                self.layout.entry_position(index),
                f"entry {index} leads to entry {prev_indexes[row]}, the one before it in its slot "
                f"is {expected[row]}",
            )

    def _check_slots(self, file: OpenFile, newest: Int64s, report: Report) -> None:
        used = int((newest > 0).sum())
        if self.header.hash_slot_count != used and self.count > 1:
            report(
                Invariant.INDEX_HEADER,
                _SLOT_COUNT_POSITION,
                f"the header says that {self.header.hash_slot_count} slots are in use, {used} are",
            )
        for first in range(0, len(newest), _CHUNK_SLOTS):
            part = newest[first : first + _CHUNK_SLOTS]
            raw = file.pread(len(part) * 4, SLOTS_POSITION + first * 4)
            values = np.frombuffer(raw.ljust(len(part) * 4, b"\0"), ">i4").astype(np.int64)
            for row in np.flatnonzero(values != part).tolist():
                report(
                    Invariant.INDEX_CHAIN,
                    self.layout.slot_position(first + row),
                    f"slot {first + row} leads to entry {values[row]}, its newest is {part[row]}",
                )

    def _in_order(self, rows: EntryRows, last_phy_offset: int, report: Report) -> EntryRows:
        """Leave out entries that lie before the one before them, or in front of one that does not."""
        phy_offsets = np.concatenate(([last_phy_offset], rows.phy_offsets))
        kept = np.ones(len(phy_offsets), np.bool_)
        for at in (np.flatnonzero(phy_offsets[1:] < phy_offsets[:-1]) + 1).tolist():
            # One of the two is wrong: the earlier one, if without it the order is right.
            earlier_is_wrong = at > 1 and phy_offsets[at] >= phy_offsets[at - 2]
            wrong = at - 1 if earlier_is_wrong else at
            kept[wrong] = False
            index = int(rows.indexes[wrong - 1])
            report(
                Invariant.INDEX_ORDER,
                self.layout.entry_position(index),
                f"entry {index} points at {phy_offsets[wrong]}, out of the order of the log",
            )
        return rows if kept.all() else rows.select(kept[1:])


def _link(newest: Int64s, hashes: Int64s, first_index: int) -> Int64s:
    """The entry that each new one must lead to; `newest`, by slot, is brought up to date."""
    slots = hashes % len(newest)
    order = np.argsort(slots, kind="stable")
    sorted_slots = slots[order]
    indexes = order + first_index
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = sorted_slots[1:] != sorted_slots[:-1]
    linked = np.empty(len(order), np.int64)
    linked[1:] = indexes[:-1]
    linked[is_first] = newest[sorted_slots[is_first]]
    expected = np.empty(len(order), np.int64)
    expected[order] = linked
    is_last = np.roll(is_first, -1)
    newest[sorted_slots[is_last]] = indexes[is_last]
    return expected
