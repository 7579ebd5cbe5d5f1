"""IndexCheck: the IndexFiles against the keys of the records, in both directions.

Entries lie in the order of the log, so both are walked along together.
Not here: chains and slots (index_view.py), which keys a record has (check_window.py), keys that are in
no file (index_gaps.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.record_spans import Bools, Int64s
from kourou.store.check.check_context import CheckContext
from kourou.store.check.check_window import KeyRows
from kourou.store.check.index_gaps import IndexGaps
from kourou.store.check.index_view import EntryRows, IndexView, Report
from kourou.store.check.invariants import Invariant
from kourou.store.index.index_entry import HEADER_BYTES, MAX_TIME_DIFF, IndexHeader, IndexLayout
from kourou.store.store_layout import index_layout
from kourou.wording import counted

_BEGIN_TIMESTAMP_POSITION: Final = 0
_END_TIMESTAMP_POSITION: Final = 8
_BEGIN_PHY_OFFSET_POSITION: Final = 16
_END_PHY_OFFSET_POSITION: Final = 24


class IndexCheck:
    """The whole index. Make it before the log is read, feed it with keys, then `finish`."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._views: list[IndexView] = []
        self._gaps = IndexGaps(context, [])
        self._cursor: Iterator[tuple[int, EntryRows]] = iter(())
        self._ahead: tuple[int, EntryRows] | None = None
        self._times: dict[int, list[int]] = {}  # by file: store times of its first and last record
        self._duplicates = 0
        self._beyond_end = 0
        self._in_holes = 0
        self._repairs: Counter[Path] = Counter()
        self._not_checked = False

    def open(self) -> None:
        """Find the files' layout; what does not fit is reported and left out."""
        context = self._context
        for path, length in context.layout.index_files:
            layout = self._layout_of(path, length)
            if layout is None:
                continue
            try:
                view = IndexView(context.files, path, layout)
                fits = view.looks_right()
            except OSError as error:
                context.unreadable(path, error)
                self._not_checked = True
                continue
            if fits:
                self._add(view)
            else:
                self._ask_for_slots(path, length, layout)
        self._gaps = IndexGaps(context, self._views)
        self._cursor = self._all_entries()
        self._ahead = next(self._cursor, None)

    def _layout_of(self, path: Path, length: int) -> IndexLayout | None:
        usual = self._context.layout.index_file_bytes
        if length != usual:
            self._wrong_length(path, length, usual or 0)
            return None
        layout = index_layout(length, self._context.options.index_slots)
        if layout is None:
            self._ask_for_slots(path, length, None)
        return layout

    def _wrong_length(self, path: Path, length: int, usual: int) -> None:
        # A file just made has no entries, and need not have got its length.
        if self._context.will_recover and self._is_new(path):
            return self._context.findings.recovery(path, length, "remove this file, which holds nothing yet")
        self._not_checked = True
        self._context.findings.violation(
            Invariant.INDEX_FILE_LENGTH,
            path,
            min(length, usual),
            f"it has {length} bytes, the others have {usual}",
        )

    def _is_new(self, path: Path) -> bool:
        try:
            with self._context.files.open(path, writable=False) as file:
                raw = file.pread(HEADER_BYTES, 0)
        except OSError:
            return False
        return IndexHeader.decode(raw.ljust(HEADER_BYTES, b"\0")).index_count <= 1

    def _ask_for_slots(self, path: Path, length: int, assumed: IndexLayout | None) -> None:
        self._not_checked = True
        tried = (
            f"{assumed.slot_count} slots and {assumed.entry_count} entries do not fit its content"
            if assumed
            else f"{length} bytes are no such file with four entries a slot"
        )
        self._context.findings.violation(
            Invariant.INDEX_FILE_LENGTH,
            path,
            None,
            f"{tried}; give the number of slots (maxHashSlotNum) with --index-slots",
        )

    def _add(self, view: IndexView) -> None:
        counts = self._context.findings.report.counts
        counts.index_files += 1
        counts.index_entries += view.count - 1
        if view.count > 1:
            self._views.append(view)

    # -- entries ---------------------------------------------------------------------------------

    def _all_entries(self) -> Iterator[tuple[int, EntryRows]]:
        for number, view in enumerate(self._views):
            try:
                for rows in view.entries(self._reporter(view)):
                    yield number, rows
            except OSError as error:
                self._context.unreadable(view.path, error)

    def _reporter(self, view: IndexView) -> Report:
        """How faults of a file are reported: what the next start repairs is only counted."""
        checkpoint = self._context.checkpoint
        is_trusted = view.is_full and view.header.end_timestamp <= checkpoint.index_msg_timestamp
        if self._context.will_recover and not is_trusted:
            return lambda invariant, position, what: self._repairs.update([view.path])
        return lambda invariant, position, what: self._context.findings.violation(
            invariant, view.path, position, what
        )

    def _entries_before(self, phy_offset: int) -> Iterator[tuple[int, EntryRows]]:
        """The next entries, as far as they point below `phy_offset`."""
        while self._ahead is not None:
            number, rows = self._ahead
            count = int(np.searchsorted(rows.phy_offsets, phy_offset))
            if count:
                yield number, rows.select(slice(0, count))
            if count < len(rows):
                self._ahead = number, rows.select(slice(count, None))
                return
            self._ahead = next(self._cursor, None)

    # -- keys ------------------------------------------------------------------------------------

    def take(self, keys: KeyRows, end_phy_offset: int) -> None:
        """Compare the keys of all records up to `end_phy_offset` with their entries."""
        self._gaps.watch(keys)
        batches = list(self._entries_before(end_phy_offset))
        hashes = _joined([rows.hashes for _, rows in batches])
        phy_offsets = _joined([rows.phy_offsets for _, rows in batches])
        plain = keys.select(~keys.is_tag)
        if _equal(plain, hashes, phy_offsets):
            missing, strange = plain.select(np.zeros(len(plain), np.bool_)), None
        elif _equal(keys, hashes, phy_offsets):
            missing, strange = keys.select(np.zeros(len(keys), np.bool_)), None
        else:
            missing, strange = self._differences(keys, hashes, phy_offsets)
        self._miss(missing)
        first = 0
        for number, rows in batches:
            part = None if strange is None else strange[first : first + len(rows)]
            self._check_entries(number, rows, keys, part)
            first += len(rows)

    def _differences(self, keys: KeyRows, hashes: Int64s, phy_offsets: Int64s) -> tuple[KeyRows, Bools]:
        """Keys without an entry, and which entries have no key."""
        found = Counter(zip(phy_offsets.tolist(), hashes.tolist(), strict=True))
        wanted = list(zip(keys.phy_offsets.tolist(), keys.hashes.tolist(), strict=True))
        is_missing = np.zeros(len(keys), np.bool_)
        left = Counter(found)
        for row, (pair, is_tag) in enumerate(zip(wanted, keys.is_tag.tolist(), strict=True)):
            if left[pair] > 0:
                left[pair] -= 1
            elif not is_tag:
                is_missing[row] = True
        known = set(wanted)
        is_strange = np.fromiter(
            (pair not in known for pair in zip(phy_offsets.tolist(), hashes.tolist(), strict=True)),
            np.bool_,
            len(hashes),
        )
        self._duplicates += sum(count for pair, count in left.items() if count > 0 and pair in known)
        return keys.select(is_missing), is_strange

    def _miss(self, keys: KeyRows) -> None:
        """Keys without an entry: in a gap they are counted, inside a file each is a violation."""
        inside, of_file = self._gaps.take(keys)
        for row, number in zip(np.flatnonzero(inside).tolist(), of_file.tolist(), strict=True):
            self._missing_key(self._views[number], int(keys.phy_offsets[row]), int(keys.hashes[row]))

    def _missing_key(self, view: IndexView, phy_offset: int, key_hash: int) -> None:
        self._reporter(view)(
            Invariant.INDEX_COMPLETE,
            view.layout.slot_position(key_hash % view.layout.slot_count),
            f"no entry for a key of hash {key_hash} of the record at {phy_offset}; "
            f"{self._context.reader.describe(phy_offset)}",
        )

    def _check_entries(self, number: int, rows: EntryRows, keys: KeyRows, strange: Bools | None) -> None:
        """Look at entries of one file: those without a key, and the times of the others."""
        view = self._views[number]
        if strange is not None:
            is_old = rows.phy_offsets < self._context.log_min_phy_offset
            for row in np.flatnonzero(strange & ~is_old).tolist():
                self._strange_entry(view, int(rows.indexes[row]), int(rows.phy_offsets[row]))
            rows = rows.select(~strange)
        if not len(rows):
            return
        at = np.searchsorted(keys.phy_offsets, rows.phy_offsets)
        stored = keys.store_timestamps[np.minimum(at, len(keys) - 1)]
        self._times.setdefault(number, [int(stored[0]), 0])[1] = int(stored[-1])
        self._check_times(number, rows, stored)

    def _strange_entry(self, view: IndexView, index: int, phy_offset: int) -> None:
        if self._context.in_hole(phy_offset):
            self._in_holes += 1
            return
        self._context.findings.violation(
            Invariant.INDEX_ENTRY,
            view.path,
            view.layout.entry_position(index),
            f"entry {index} points at {phy_offset} and has the hash of no key there; "
            f"{self._context.reader.describe(phy_offset)}",
        )

    def _check_times(self, number: int, rows: EntryRows, stored: Int64s) -> None:
        view = self._views[number]
        expected = _time_diffs(stored, view.header.begin_timestamp)
        is_wrong = rows.time_diffs != expected
        if is_wrong.any() and number > 0:
            # Apache counts the first entry of a file from the end of the file before it.
            before = _time_diffs(stored, self._views[number - 1].header.end_timestamp)
            is_wrong &= (rows.indexes != 1) | (rows.time_diffs != before)
        if is_wrong.all() and len(rows) > 1:
            return  # the header's time is wrong, which is reported once, at the end
        for row in np.flatnonzero(is_wrong).tolist():
            index = int(rows.indexes[row])
            self._reporter(view)(
                Invariant.INDEX_ENTRY,
                view.layout.entry_position(index) + 12,
                f"entry {index} says {rows.time_diffs[row]} s after the file's first record, "
                f"it is {expected[row]}",
            )

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """All keys are through: look at what lies behind the log, at headers and gaps."""
        for number, rows in self._entries_before(1 << 62):
            self._beyond(self._views[number], rows)
        for number, view in enumerate(self._views):
            self._check_header(number, view)
        if not self._not_checked:
            self._gaps.report()
        self._report_counts()

    def _beyond(self, view: IndexView, rows: EntryRows) -> None:
        if self._context.will_recover:
            self._beyond_end += len(rows)
            return
        for row in range(len(rows)):
            index, phy_offset = int(rows.indexes[row]), int(rows.phy_offsets[row])
            if self._context.has_lost_end or self._context.in_hole(phy_offset):
                self._in_holes += 1
                continue
            self._context.findings.violation(
                Invariant.INDEX_ENTRY,
                view.path,
                view.layout.entry_position(index),
                f"entry {index} points at {phy_offset}, behind the end of the log at "
                f"{self._context.log_end_phy_offset}",
            )

    def _check_header(self, number: int, view: IndexView) -> None:
        report = self._reporter(view)
        begin, end = self._times.get(number, [0, 0])
        says = view.header
        for name, position, said, found in (
            ("begin_phy_offset", _BEGIN_PHY_OFFSET_POSITION, says.begin_phy_offset, view.first_phy_offset),
            ("end_phy_offset", _END_PHY_OFFSET_POSITION, says.end_phy_offset, view.last_phy_offset),
            ("begin_timestamp", _BEGIN_TIMESTAMP_POSITION, says.begin_timestamp, begin),
            ("end_timestamp", _END_TIMESTAMP_POSITION, says.end_timestamp, end),
        ):
            is_known = not name.endswith("timestamp") or self._is_in_log(view, name)
            if is_known and said != found:
                report(
                    Invariant.INDEX_HEADER,
                    position,
                    f"the header's {name} is {said}, its entries say {found}",
                )

    def _is_in_log(self, view: IndexView, name: str) -> bool:
        phy_offset = view.first_phy_offset if name.startswith("begin") else view.last_phy_offset
        context = self._context
        if not context.log_min_phy_offset <= phy_offset < context.log_end_phy_offset:
            return False
        return not context.in_hole(phy_offset) and context.reader.is_record(phy_offset)

    def _report_counts(self) -> None:
        findings, folder = self._context.findings, self._context.layout.root / "index"
        for path, count in self._repairs.items():
            findings.recovery(
                path, None, f"repair or drop this file: {counted(count, 'thing')} in it do not fit"
            )
        if self._beyond_end:
            end = self._context.log_end_phy_offset
            findings.recovery(
                folder,
                None,
                f"drop what points behind the end of the log at {end}, entries: {self._beyond_end}",
            )
        if self._duplicates:
            findings.note(folder, None, f"entries that are there twice: {self._duplicates}")
        if self._in_holes:
            findings.note(
                folder, None, f"entries that point into damaged or missing parts of the log: {self._in_holes}"
            )


def _equal(keys: KeyRows, hashes: Int64s, phy_offsets: Int64s) -> bool:
    return np.array_equal(keys.phy_offsets, phy_offsets) and np.array_equal(keys.hashes, hashes)


def _joined(arrays: list[Int64s]) -> Int64s:
    return np.concatenate([np.empty(0, np.int64), *arrays])


def _time_diffs(stored: Int64s, begin_timestamp: int) -> NDArray[Any]:
    """Seconds since the file's first record, as an entry keeps them."""
    if begin_timestamp <= 0:
        return np.zeros(len(stored), np.int64)
    return np.clip((stored - begin_timestamp) // 1000, 0, MAX_TIME_DIFF)
