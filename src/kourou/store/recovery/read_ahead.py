"""ReadAhead: has the kernel read a log ahead of its recovery, in threads of its own.

While the walk dispatches records, or waits for the disk, the next pieces are read and their records checked,
several at once; the kernel does that with the interpreter lock released. A piece has the records that start
in one stretch of a file. No thread waits for the one before it to learn where the first of them starts: that
is the first place whose bytes say that a record of this phy_offset is there. If they mislead (a body may hold
anything), the piece does not begin where the walk is, and is read again from there.
Not here: what is done with the records (log_walk.py).
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from kourou.protocol.layout import BLANK, RECORD
from kourou.protocol.record_fields import RAW_MAGIC_CODES, record_mark, record_phy_offset
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.kernel import Kernel, ReadRecords
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_snapshot import MAX_RECORD_BYTES

_MAX_PIECES: Final = 8
_READERS: Final = min(4, os.cpu_count() or 1)
_SEAM_BYTES: Final = 64 * 1024
"""What is read behind a stretch: the end of the record that starts in it and ends behind it."""
_MAX_MISLEADING: Final = 64
_MAGIC_POS: Final = RECORD.at("magic")
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()


class ReadPiece(NamedTuple):
    """Bytes of a log, from `phy_offset` on, and the records at their start that the kernel has read."""

    phy_offset: int
    raw: memoryview
    records: list[ReadRecords]

    @property
    def end_phy_offset(self) -> int:
        """The end of the records."""
        return self.records[-1][0] if self.records else self.phy_offset

    @property
    def is_done(self) -> bool:
        """Whether nothing is left of the bytes but, at most, a part of a record."""
        rest = self.end_phy_offset - self.phy_offset
        left = len(self.raw) - rest
        return bool(self.records) and (left < BLANK.size or record_mark(self.raw, rest)[0] > left)


class ReadAhead:
    """Reads one log, which nothing else writes. To be closed."""

    def __init__(self, log: CommitLog, kernel: Kernel, piece_bytes: int) -> None:
        self._log = log
        self._kernel = kernel
        self._piece_bytes = piece_bytes
        self._readers = ThreadPoolExecutor(_READERS, "recovery-read-ahead")
        self._ahead: dict[int, Future[ReadPiece]] = {}  # by the start of their stretch, in order
        self._next_start: int | None = 0

    def piece(self, phy_offset: int) -> ReadPiece:
        """The piece at `phy_offset`, which lies in a file of the log. OSError: it cannot be read."""
        start, _ = self._stretch(phy_offset)
        while self._ahead and next(iter(self._ahead)) < start:
            self._ahead.pop(next(iter(self._ahead))).cancel()
        self._read_on(start, phy_offset)
        ahead = self._ahead.pop(start, None)
        found = None if ahead is None else ahead.result()
        return found if found is not None and found.phy_offset == phy_offset else self.read(phy_offset)

    def read(self, phy_offset: int) -> ReadPiece:
        """The same without the threads."""
        _, end = self._stretch(phy_offset)
        # One that is larger than the seam fits in as well.
        raw = self._bytes(phy_offset, max(end + _SEAM_BYTES, phy_offset + self._piece_bytes))
        return self._read_records(phy_offset, raw, 0, end)

    def close(self) -> None:
        """Stop the threads, and wait for them."""
        self._readers.shutdown(cancel_futures=True)
        self._ahead.clear()

    # -- stretches -------------------------------------------------------------------------------

    def _stretch(self, phy_offset: int) -> tuple[int, int]:
        """Start and end of the stretch that this byte lies in."""
        log_file = self._log.file_at(phy_offset)
        if log_file is None:
            return phy_offset, phy_offset
        start = phy_offset - (phy_offset - log_file.start_phy_offset) % self._piece_bytes
        return start, min(start + self._piece_bytes, log_file.end_phy_offset)

    def _read_on(self, start: int, phy_offset: int) -> None:
        """Have the stretches read that come next, from `start` on unless the walk is inside that."""
        if self._next_start is not None and self._next_start <= start:
            self._next_start = start if phy_offset == start else self._following(start)
        while self._next_start is not None and len(self._ahead) < _MAX_PIECES:
            self._ahead[self._next_start] = self._readers.submit(self._read_stretch, self._next_start)
            self._next_start = self._following(self._next_start)

    def _following(self, start: int) -> int | None:
        """The start of the stretch behind that at `start`; None at the end of the files."""
        _, end = self._stretch(start)
        return None if self._log.file_at(end) is None else end

    def _read_stretch(self, start: int) -> ReadPiece:
        _, end = self._stretch(start)
        raw = self._bytes(start, end + _SEAM_BYTES)
        return self._read_records(start, raw, _first_record(raw, 0, start) or 0, end)

    # -- records ---------------------------------------------------------------------------------

    def _bytes(self, phy_offset: int, end_phy_offset: int) -> bytes:
        """The bytes of one file up to there, or to its end."""
        log_file = self._log.file_at(phy_offset)
        end = phy_offset if log_file is None else min(end_phy_offset, log_file.end_phy_offset)
        return self._log.read(phy_offset, end - phy_offset) or b""

    def _read_records(self, phy_offset: int, raw: bytes, first: int, end_phy_offset: int) -> ReadPiece:
        """The piece that begins at byte `first` of `raw`, which lies at `phy_offset`, and ends where a record
        starts behind `end_phy_offset`."""
        last = _first_record(raw, end_phy_offset - phy_offset, phy_offset)
        view = memoryview(raw)[first:last]
        found = ReadPiece(phy_offset + first, view, [])
        while records := self._kernel.read_records(
            view[found.end_phy_offset - found.phy_offset :],
            found.end_phy_offset,
            MAX_RECORD_BYTES,
            _SCHEDULE_TOPIC,
        ):
            found.records.append(records)
        return found


def _first_record(raw: bytes, at: int, phy_offset: int) -> int | None:
    """The first byte from `at` on of `raw`, which lies at `phy_offset`, where a record of its place seems to
    start; None if there is none."""
    first, end = None, len(raw)
    for magic in RAW_MAGIC_CODES:
        found = raw.find(magic, at + _MAGIC_POS, end)
        for _ in range(_MAX_MISLEADING):
            start = found - _MAGIC_POS
            if found < 0 or start + RECORD.end("phy_offset") > len(raw):
                break
            if record_phy_offset(raw, start) == phy_offset + start:
                first, end = start, found
                break
            found = raw.find(magic, found + 1, end)
    return first
