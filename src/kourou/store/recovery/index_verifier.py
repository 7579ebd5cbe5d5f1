"""IndexVerifier: files of the index from before this start are checked before the first query reads them.

A wrong slot, link or entry makes a query miss messages without a word. Slots and links follow from the hashes
of the entries, in order; where they do not, the slots are made anew. Entries that contradict each other are
made anew from the keys of the records in the CommitLog. What cannot be, since the log no longer has those
records, is reported, and the index is built again from there at the next start.
Not here: what is checked after a crash (index_file.py, `recover`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from kourou.store.disk.files import Files
from kourou.store.index.index_entry import IndexBatch
from kourou.store.index.index_file import IndexCheck, IndexFile
from kourou.store.index.index_hash import KeyHasher
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import Blank, DispatchRequest
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.log.log_snapshot import MAX_RECORD_BYTES, LogSnapshot
from kourou.store.log.record_columns import read_piece
from kourou.store.recovery.columns_dispatcher import keys_of
from kourou.store.recovery.corrupt_ranges import KnownDamages
from kourou.store.steps import Steps

_log = logging.getLogger(__name__)

_PIECE_BYTES = 4 * 1024 * 1024

Keys = tuple[str, tuple[str, ...], int, int]
"""Topic, keys, phy_offset and store time of a record."""


class IndexVerifier:
    """Verifies the files of one index; one at a time."""

    def __init__(
        self, files: Files, log: CommitLog, damages: KnownDamages, delay_levels: tuple[int, ...]
    ) -> None:
        self._files = files
        self._log = log
        self._damages = damages
        self._delay_levels = delay_levels

    def verify_steps(self, index_file: IndexFile, before: IndexFile | None) -> Steps[None]:
        """Check a file, and repair it if necessary; `before` is the previous one. The owner continues between
        the steps."""
        check = index_file.begin_check()
        yield check.run
        log = LogSnapshot(self._files, self._log)
        with closing(log):
            times: list[tuple[int, int]] = []
            yield lambda: times.append(self._times(log, index_file))
            if check.wrong_entries:
                found: list[IndexBatch | None] = []
                yield lambda: found.append(self._entries(log, index_file, before, check))
                if (batch := found[0]) is None:
                    self._give_up(index_file, check)
                    return
                yield lambda: check.rewrite(batch)
            yield check.compare
        rebuilt = index_file.finish_check(check, *times[0])
        if rebuilt:
            self._damages.note_rebuilt_entries(index_file.path, rebuilt)

    def _give_up(self, index_file: IndexFile, check: IndexCheck) -> None:
        index_file.is_verified = True
        index_file.is_damaged = True
        _log.error(
            "%s: %d entries are damaged and cannot be rebuilt now; queries by key may miss messages until "
            "the next start, which indexes the records from %d on again",
            index_file.path,
            check.wrong_entries,
            index_file.header.begin_phy_offset,
        )

    def _times(self, log: LogSnapshot, index_file: IndexFile) -> tuple[int, int]:
        """When the first and the last record were stored; 0 where the log does not say."""
        scanner = self._scanner(log)
        found = map(scanner.record_at, index_file.first_and_last())
        first, last = (
            record.store_timestamp if isinstance(record, DispatchRequest) else 0 for record in found
        )
        return first, last

    def _entries(
        self, log: LogSnapshot, index_file: IndexFile, before: IndexFile | None, check: IndexCheck
    ) -> IndexBatch | None:
        """What the entries have to say, from the log; None if that is unknown, or does not fit those
        that are right."""
        first = index_file.header.begin_phy_offset if before is None else before.header.end_phy_offset
        if first < log.min_phy_offset:
            return None
        rows = list(self._keys(log, first, index_file.header.end_phy_offset))
        if not rows:
            return None
        topics, keys, phy_offsets, times = zip(*rows, strict=True)
        counts = np.fromiter(map(len, keys), np.intp, len(keys))
        batch = IndexBatch(
            KeyHasher().hashes(topics, keys, counts),
            np.repeat(np.array(phy_offsets, np.int64), counts),
            np.repeat(np.array(times, np.int64), counts),
        )
        # Two files may share the keys of a record.
        batch = batch.part(0 if before is None else before.keys_at_end(first))
        return check.fitting(batch)

    def _keys(self, log: LogSnapshot, phy_offset: int, last_phy_offset: int) -> Iterator[Keys]:
        """The keys of the records from one place to another, that one included."""
        scanner = self._scanner(log)
        while phy_offset <= last_phy_offset and (log_file := log.file_at(phy_offset)) is not None:
            raw = log.read(phy_offset, min(_PIECE_BYTES, log_file.end_phy_offset - phy_offset)) or b""
            piece = read_piece(raw, phy_offset)
            if len(piece.columns):
                yield from (row for row in keys_of(piece.columns) if row[2] <= last_phy_offset)
                phy_offset += piece.end
                continue
            found = scanner.record_at(phy_offset)
            if isinstance(found, BadRecord):
                follows = scanner.next_record(phy_offset + 1, last_phy_offset + 1)
                if follows is None:
                    return
                phy_offset = follows
                continue
            if not isinstance(found, Blank) and found.keys and found.in_index:
                yield found.topic, found.keys, found.phy_offset, found.store_timestamp
            phy_offset += found.size

    def _scanner(self, log: LogSnapshot) -> LogScanner:
        return LogScanner(log, self._delay_levels, max_record_bytes=MAX_RECORD_BYTES)
