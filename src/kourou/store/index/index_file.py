"""IndexFile: finds records of the CommitLog by key. One file of the index; bytes in index_entry.py.

Entries are appended by `pwrite`, slots live in memory (index_slots.py) and the header too; `flush`
brings both to the file, the header last and behind a sync. So whatever the machine loses, entries
below the header's count are there; slots may be newer than that, and `recover` rebuilds them from the
entries. A header that counts more than was written (Apache keeps no such order) shows there as well.

Two keys of one record may land in two files: the one that was nearly full, and the next.
One thing is not as Apache does it: the first entry of a file has time_diff 0. Apache computes it from
the end of the file before, so that after a pause the first key counts as younger than it is.
Not here: which files there are (index_service.py), how keys are hashed (index_hash.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kourou.errors import StorageError, StoreFormatError
from kourou.store.disk.files import Files, OpenFile
from kourou.store.index.index_entry import (
    ENTRIES,
    ENTRY_BYTES,
    HEADER_BYTES,
    MAX_TIME_DIFF,
    Entries,
    IndexBatch,
    IndexHeader,
    IndexLayout,
    Longs,
)
from kourou.store.index.index_slots import Indexes, SlotTable
from kourou.store.index.index_walk import IndexWalk, KeySearch
from kourou.store.kernel import Kernel
from kourou.store.steps import Steps, run_steps

# Entries looked at in one go when a file is recovered or cut: 1.3 MB.
_CHUNK_ENTRIES: Final = 65_536
# Entries looked at in one go for those of the last record: few as a rule.
_WINDOW_ENTRIES: Final = 204


class IndexFile:
    """One file, open. Change it from one thread only."""

    __slots__ = (
        "header",
        "is_closed",
        "is_damaged",
        "is_verified",
        "_file",
        "_header_is_dirty",
        "_layout",
        "_pins",
        "_slots",
    )

    def __init__(self, file: OpenFile, layout: IndexLayout, header: IndexHeader) -> None:
        self.header = header
        self._file = file
        self._layout = layout
        # None until something is appended: queries read slots from the file, and a store at rest
        # does not keep 20 MB of them.
        self._slots: SlotTable | None = None
        self._header_is_dirty = False
        self._pins = 0
        self.is_closed = False
        # Whether all of it is of this process, or was checked by it; and whether that found what cannot be
        # mended.
        self.is_verified = False
        self.is_damaged = False

    @classmethod
    def create(cls, files: Files, path: Path, layout: IndexLayout, header: IndexHeader) -> IndexFile:
        """Make a new file at full length, all of it a hole. Its name is on disk after `sync_folder`."""
        file = files.open(path, exclusive=True)
        try:
            file.set_length(layout.file_bytes)
        except OSError:
            file.close()
            files.remove(path)
            raise
        created = cls(file, layout, header)
        created._slots = SlotTable(layout.slot_count)
        created.is_verified = True
        return created

    @classmethod
    def open(cls, files: Files, path: Path, layout: IndexLayout) -> IndexFile:
        """Open a file as it is. StoreFormatError when it has entries and another length.

        Without entries a wrong length is what a crash left of a new file, and nothing is lost.
        """
        file = files.open(path)
        try:
            header = IndexHeader.decode(file.pread(HEADER_BYTES, 0).ljust(HEADER_BYTES, b"\x00"))
            length = file.length()
            if header.index_count > 1 and length != layout.file_bytes:
                raise StoreFormatError(
                    path,
                    f"the index file has {length} bytes, but maxHashSlotNum={layout.slot_count} and "
                    f"maxIndexNum={layout.entry_count} ask for {layout.file_bytes}; "
                    "set both to what the store was written with",
                )
        except BaseException:
            file.close()
            raise
        return cls(file, layout, header)

    @property
    def path(self) -> Path:
        """The file's name, with its folder."""
        return self._file.path

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return self.header.index_count <= 1

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another entry."""
        return self.header.index_count >= self._layout.entry_count

    @property
    def is_flushed(self) -> bool:
        """Whether everything is on disk."""
        return not self._header_is_dirty and (self._slots is None or not self._slots.is_dirty)

    def close(self) -> None:
        """Give the descriptor back, or leave that to the last search. Nothing is written."""
        self.is_closed = True
        if not self._pins:
            self._file.close()

    # -- appending -------------------------------------------------------------------------------

    def append(self, batch: IndexBatch, kernel: Kernel | None = None) -> int:
        """Add as many rows as there is room for; returns how many. Entries are in the page cache
        then, slots and header in memory. After an OSError the file is as before. A `kernel` chains them
        faster."""
        header = self.header
        first_index = header.index_count
        batch = batch.part(0, self._layout.entry_count - first_index)
        if not len(batch):
            return 0
        slots = self._load_slots()
        prev_indexes = slots.add(batch.key_hashes, first_index, kernel)
        begin = int(batch.store_timestamps[0]) if self.is_empty else header.begin_timestamp
        entries = _encode(batch, begin, prev_indexes)
        try:
            self._file.pwrite(entries.data, self._layout.entry_position(first_index))
        except OSError:
            slots.unlink(batch.key_hashes, prev_indexes)
            raise
        self._count(batch, len(batch) - int(np.count_nonzero(prev_indexes)))
        return len(batch)

    def _count(self, batch: IndexBatch, new_slots: int) -> None:
        header = self.header
        if self.is_empty:
            header.begin_timestamp = int(batch.store_timestamps[0])
            header.begin_phy_offset = int(batch.phy_offsets[0])
        header.end_timestamp = int(batch.store_timestamps[-1])
        header.end_phy_offset = int(batch.phy_offsets[-1])
        header.hash_slot_count += new_slots
        header.index_count += len(batch)
        self._header_is_dirty = True

    def _load_slots(self) -> SlotTable:
        if self._slots is None:
            self._slots = SlotTable.load(self._file, self._layout.slot_count, self.header.index_count)
        return self._slots

    def flush(self) -> None:
        """On return everything is on disk.

        StorageError when a sync fails: then it is unknown what is on disk, and another try proves nothing.
        """
        run_steps(self.flush_steps())

    def flush_steps(self) -> Steps[None]:
        """The same in steps: at the end all that was there at the start is on disk."""
        if self.is_flushed:
            return
        if self._slots is not None:
            self._slots.write(self._file)
        header = self.header.encode()
        yield self._sync
        yield partial(self._file.pwrite, header, 0)
        yield self._sync
        self._header_is_dirty = self.header.encode() != header

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(
                f"{self.path}: the index file cannot be synced: {reason}", self.path
            ) from error

    def release_slots(self) -> None:
        """Free the slots in memory: nothing will be appended. To be called after `flush`."""
        self._slots = None

    # -- finding ---------------------------------------------------------------------------------

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether records of this time may be in the file."""
        first, last = self.header.begin_timestamp, self.header.end_timestamp
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last

    def select_steps(self, search: KeySearch) -> Steps[None]:
        """Add what fits `search`, in steps; the file may be removed meanwhile."""
        with self.pinned():
            walk = IndexWalk(self, search)
            while not walk.is_over:
                yield walk.walk_on

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """The file stays open meanwhile, even if it is removed."""
        self._pins += 1
        try:
            yield
        finally:
            self._pins -= 1
            if self.is_closed:
                self.close()

    def slot_nowait(self, key_hash: int) -> int | None:
        """The newest entry of a hash's chain, 0 for none; None when it has to be read from the file."""
        return None if self._slots is None else self._slots[key_hash % self._layout.slot_count]

    def read_slot(self, key_hash: int) -> int:
        """The same from the file, in any thread."""
        position = self._layout.slot_position(key_hash % self._layout.slot_count)
        return int.from_bytes(self._file.pread(4, position), "big", signed=True)

    def keys_at_end(self, phy_offset: int) -> int:
        """How many of the last entries belong to the record at `phy_offset`."""
        count = 0
        for _, entries in self._chunks_backwards(_WINDOW_ENTRIES):
            others = np.flatnonzero(entries["phy_offset"] != phy_offset)
            if others.size:
                return count + entries.size - 1 - int(others[-1])
            count += entries.size
        return count

    # -- repair ----------------------------------------------------------------------------------

    def is_plausible(self) -> bool:
        """Whether the header fits the last entry it counts: where it does not, see `recover`."""
        if self.is_empty:
            return True
        count = self.header.index_count
        if count > self._layout.entry_count:
            return False
        (last,) = self._entries(count - 1, count)
        return int(last["phy_offset"]) == self.header.end_phy_offset

    def recover(self) -> bool:
        """Rebuild the slots from the entries after a crash, and check both. False if entries that
        the header counts are not there: then the file was cut in front of the first doubtful record.
        """
        counted = self.header.index_count
        slots, valid = self._replay(min(counted, self._layout.entry_count))
        slots.compare(self._file)
        self._slots = slots
        self.is_verified = True
        if valid == counted and self.is_plausible():
            return True
        self.header.index_count = valid
        self._header_is_dirty = True
        if not self.is_empty:
            (last,) = self._entries(valid - 1, valid)
            # The entry that is gone may have been another key of the same record.
            self.truncate(int(last["phy_offset"]))
        return False

    def _replay(self, index_count: int) -> tuple[SlotTable, int]:
        """The slots that entries below `index_count` make, up to the first that cannot be right;
        and that one's index."""
        slots = SlotTable(self._layout.slot_count)
        phy_offset = 0
        hash_slots = 0
        for first, entries in self._chunks(index_count):
            right = _right_entries(entries, phy_offset)
            links = slots.link(entries["key_hash"].astype(np.int32), first)
            right &= entries["prev_index"] == links.prev_indexes
            count = entries.size if right.all() else int(np.argmin(right))
            if count < entries.size:
                links = slots.link(entries["key_hash"][:count].astype(np.int32), first)
            slots.apply(links)
            hash_slots += count - int(np.count_nonzero(links.prev_indexes))
            if count < entries.size:
                index_count = first + count
                break
            phy_offset = int(entries["phy_offset"][-1])
        self._set_hash_slots(hash_slots)
        return slots, index_count

    def _set_hash_slots(self, hash_slots: int) -> None:
        if self.header.hash_slot_count != hash_slots:
            self.header.hash_slot_count = hash_slots
            self._header_is_dirty = True

    # -- checking --------------------------------------------------------------------------------

    def begin_check(self) -> IndexCheck:
        """A check of what is in the file now; its parts run in any thread, then `finish_check`."""
        return IndexCheck(self._file, self._layout, self.header.index_count)

    def first_and_last(self) -> tuple[int, int]:
        """The phy_offsets of the first and the last entry."""
        count = self.header.index_count
        (first,), (last,) = self._entries(1, 2), self._entries(count - 1, count)
        return int(first["phy_offset"]), int(last["phy_offset"])

    def finish_check(self, check: IndexCheck, begin_timestamp: int, end_timestamp: int) -> int:
        """Take over what a check found; how much was wrong. The times are those of the first and the last
        record, 0: not known."""
        wrong = check.wrong_entries
        header = self.header
        if self._slots is None and header.index_count == check.index_count:
            wrong += check.wrong_slots
        else:
            # Entries came in this life, by slots that may have been wrong; the file need not have these yet.
            wrong += check.link_newer(header.index_count)
            wrong += check.wrong_slots if self._slots is None else check.slots.differing(self._slots)
            check.compare()
        if wrong:
            self._slots = check.slots
        first_phy_offset, _ = self.first_and_last()
        before = header.encode()
        header.begin_phy_offset = first_phy_offset
        header.begin_timestamp = begin_timestamp or header.begin_timestamp
        if header.index_count == check.index_count:
            header.end_timestamp = end_timestamp or header.end_timestamp
        header.hash_slot_count = check.slots.used
        if header.encode() != before:
            self._header_is_dirty = True
            wrong += 1
        self.is_verified = True
        return wrong

    def truncate(self, phy_offset: int) -> bool:
        """Take out entries of records at `phy_offset` and beyond; whether there were any.

        In memory on return. The file has to be flushed before anything is appended: entries that
        were cut must not come back between new ones. The end's time is then known by the second.
        """
        header = self.header
        before = header.index_count
        for first, entries in self._chunks_backwards(_CHUNK_ENTRIES):
            beyond = np.flatnonzero(entries["phy_offset"] >= phy_offset)
            if not beyond.size:
                break
            self._take_back(entries[beyond[0] :], first + int(beyond[0]))
            if beyond[0] > 0:
                break
        if header.index_count == before:
            return False
        self._header_is_dirty = True
        if not self.is_empty:
            (last,) = self._entries(header.index_count - 1, header.index_count)
            header.end_phy_offset = int(last["phy_offset"])
            header.end_timestamp = header.begin_timestamp + int(last["time_diff"]) * 1000
        return True

    def correct_end(self, store_timestamp: int) -> None:
        """The last record was stored at this time. In memory on return."""
        if self.header.end_timestamp != store_timestamp and not self.is_empty:
            self.header.end_timestamp = store_timestamp
            self._header_is_dirty = True

    def _take_back(self, entries: Entries, first_index: int) -> None:
        slots = self._load_slots()
        indexes = np.arange(first_index, first_index + entries.size)
        prev_indexes = entries["prev_index"].astype(np.int32)
        prev_indexes[(prev_indexes < 0) | (prev_indexes >= indexes)] = 0
        slots.unlink(entries["key_hash"].astype(np.int32), prev_indexes)
        self.header.hash_slot_count -= int(np.count_nonzero(prev_indexes == 0))
        self.header.index_count = first_index

    # -- reading ---------------------------------------------------------------------------------

    def read_entries(self, first: int, last: int) -> bytes:
        """The bytes of some entries, in any thread; may wait for the disk."""
        return self._file.pread((last - first) * ENTRY_BYTES, self._layout.entry_position(first))

    def _entries(self, first: int, last: int) -> Entries:
        return np.frombuffer(self.read_entries(first, last), ENTRIES)

    def _chunks(self, index_count: int) -> Iterator[tuple[int, Entries]]:
        for first in range(1, index_count, _CHUNK_ENTRIES):
            yield first, self._entries(first, min(first + _CHUNK_ENTRIES, index_count))

    def _chunks_backwards(self, size: int) -> Iterator[tuple[int, Entries]]:
        """Chunks of up to `size` entries, the newest first."""
        last = self.header.index_count
        while last > 1:
            first = max(1, last - size)
            yield first, self._entries(first, last)
            last = first


class IndexCheck:
    """A check of the entries below `index_count` of one file. All but the result in any thread."""

    def __init__(self, file: OpenFile, layout: IndexLayout, index_count: int) -> None:
        self._file = file
        self._layout = layout
        self.index_count = index_count
        self.slots = SlotTable(layout.slot_count)
        self.wrong_slots = 0
        self._is_wrong = np.zeros(index_count, np.bool_)

    @property
    def wrong_entries(self) -> int:
        """How many entries contradict others."""
        return int(np.count_nonzero(self._is_wrong))

    def run(self) -> None:
        """Follow the entries: each has to lead to the one before it in its slot."""
        phy_offset = 0
        for first, entries in self._chunks(1, self.index_count):
            right = _right_entries(entries, phy_offset)
            links = self.slots.link(entries["key_hash"].astype(np.int32) & 0x7FFFFFFF, first)
            right &= entries["prev_index"] == links.prev_indexes
            self._is_wrong[first : first + entries.size] = ~right
            self.slots.apply(links)
            phy_offset = int(entries["phy_offset"][-1])

    def fitting(self, batch: IndexBatch) -> IndexBatch | None:
        """The part of `batch` that the entries have to be; None when most of those that are right differ from
        it."""
        batch = batch.part(0, self.index_count - 1)
        if len(batch) < self.index_count - 1:
            return None
        right = same = 0
        for first, entries in self._chunks(1, self.index_count):
            part = batch.part(first - 1, first - 1 + entries.size)
            is_right = ~self._is_wrong[first : first + entries.size]
            is_same = (entries["phy_offset"] == part.phy_offsets) & (entries["key_hash"] == part.key_hashes)
            right += int(np.count_nonzero(is_right))
            same += int(np.count_nonzero(is_right & is_same))
        # Of those that are wrong some may pass for right by chance.
        return batch if same > right // 2 else None

    def rewrite(self, batch: IndexBatch) -> None:
        """Make all entries anew, one for each row."""
        self.slots = SlotTable(self._layout.slot_count)
        begin = int(batch.store_timestamps[0])
        for first in range(1, self.index_count, _CHUNK_ENTRIES):
            part = batch.part(first - 1, min(first - 1 + _CHUNK_ENTRIES, self.index_count - 1))
            links = self.slots.link(part.key_hashes, first)
            self._file.pwrite(
                _encode(part, begin, links.prev_indexes).data, self._layout.entry_position(first)
            )
            self.slots.apply(links)

    def compare(self) -> None:
        """Count the slots of the file that are wrong."""
        self.wrong_slots = self.slots.compare(self._file)

    def link_newer(self, index_count: int) -> int:
        """Chain the entries that came meanwhile, in the owner's thread; how many were chained wrongly."""
        wrong = 0
        for first, entries in self._chunks(self.index_count, index_count):
            links = self.slots.link(entries["key_hash"].astype(np.int32), first)
            is_wrong = entries["prev_index"] != links.prev_indexes
            if is_wrong.any():
                entries = entries.copy()
                entries["prev_index"] = links.prev_indexes
                self._file.pwrite(entries.data, self._layout.entry_position(first))
                wrong += int(np.count_nonzero(is_wrong))
            self.slots.apply(links)
        return wrong

    def _chunks(self, first: int, last: int) -> Iterator[tuple[int, Entries]]:
        for begin in range(first, last, _CHUNK_ENTRIES):
            end = min(begin + _CHUNK_ENTRIES, last)
            size_bytes = (end - begin) * ENTRY_BYTES
            raw = self._file.pread(size_bytes, self._layout.entry_position(begin)).ljust(size_bytes, b"\0")
            yield begin, np.frombuffer(raw, ENTRIES)


def _encode(batch: IndexBatch, begin_timestamp: int, prev_indexes: Indexes) -> Entries:
    entries = np.empty(len(batch), ENTRIES)
    entries["key_hash"] = batch.key_hashes
    entries["phy_offset"] = batch.phy_offsets
    entries["time_diff"] = _time_diffs(batch.store_timestamps, begin_timestamp)
    entries["prev_index"] = prev_indexes
    return entries


def _time_diffs(store_timestamps: Longs, begin_timestamp: int) -> Longs:
    if begin_timestamp <= 0:
        return np.zeros_like(store_timestamps)
    return np.clip((store_timestamps - begin_timestamp) // 1000, 0, MAX_TIME_DIFF)


def _right_entries(entries: Entries, min_phy_offset: int) -> NDArray[np.bool_]:
    """Which entries may be what was written, each by itself and beside the one before it."""
    phy_offsets = entries["phy_offset"].astype(np.int64)
    before = np.empty_like(phy_offsets)
    before[:1] = min_phy_offset
    before[1:] = phy_offsets[:-1]
    right = phy_offsets >= before
    right &= entries["key_hash"] >= 0
    right &= entries["time_diff"] >= 0
    return right
