"""LogCheck: reads the whole CommitLog once and says what is wrong with it.

Everything else is checked against the records it hands out. A bad record is damage where the log is
known to have been whole: below what the checkpoint calls durable, or what the ConsumeQueues point at,
or in front of a file that begins well. Elsewhere it is where the log ends: after a clean stop only
zeros follow (Apache leaves older bytes there), after a kill a torn record may.
Not here: what records look like (record_columns.py), queues and index (check_queues.py, check_index.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from kourou.errors import ProtocolError
from kourou.protocol.record_fields import RAW_MAGIC_CODES, record_mark
from kourou.store.check.check_context import CheckContext
from kourou.store.check.invariants import Invariant
from kourou.store.disk.files import OpenFile
from kourou.store.log.dispatch_request import Blank, DispatchRequest
from kourou.store.log.record_columns import Piece, RecordColumns, Stop, read_piece
from kourou.store.store_layout import SegmentFile
from kourou.wording import counted

_PIECE_BYTES: Final = 4 * 1024 * 1024
_MARK_BYTES: Final = 8
_ZEROS: Final = bytes(_PIECE_BYTES)


class _Place(NamedTuple):
    """A valid record behind a bad one."""

    file_index: int
    position: int
    record: DispatchRequest


class LogCheck:
    """One pass over the log; `take` gets the valid records, in order."""

    def __init__(self, context: CheckContext, take: Callable[[RecordColumns], None]) -> None:
        self._context = context
        self._findings = context.findings
        self._take = take
        self._segments = [file for file in context.layout.log_files if file.length]
        self._file_bytes = context.layout.log_file_bytes or 0
        self._resume: dict[int, int] = {}
        self._has_ended = False
        self._data_ends: list[int] = []
        self._last_timestamp = 0
        self._backward_steps: list[int] = []

    def run(self) -> None:
        """Check; on return the context knows where the log ends and where it has holes."""
        self._check_files()
        self._data_ends = [self._data_end(segment) for segment in self._segments]
        if self._segments:
            self._context.log_end_phy_offset = self._end_of(self._segments[-1])
        for index, segment in enumerate(self._segments):
            if self._has_ended:
                break
            self._scan_file(index, segment)
        self._note_backward_steps()
        self._check_durable_end()

    # -- the files -------------------------------------------------------------------------------

    def _check_files(self) -> None:
        layout = self._context.layout
        for segment in layout.log_files:
            self._check_file(segment, is_last=segment is layout.log_files[-1])
        expected: int | None = None
        for segment in self._segments:
            if expected is not None and segment.start != expected:
                self._gap(segment, expected)
            expected = segment.start + self._file_bytes

    def _check_file(self, segment: SegmentFile, *, is_last: bool) -> None:
        if segment.start % self._file_bytes if self._file_bytes else segment.start:
            self._findings.violation(
                Invariant.LOG_FILE_NAME,
                segment.path,
                None,
                f"its name is not a multiple of the file size {self._file_bytes}",
            )
        if segment.length == 0 and is_last:
            self._findings.recovery(segment.path, None, "remove this file, which is empty")
        elif segment.length != self._file_bytes:
            self._findings.violation(
                Invariant.LOG_FILE_LENGTH,
                segment.path,
                min(segment.length, self._file_bytes),
                f"it has {segment.length} bytes, the others have {self._file_bytes}",
            )

    def _gap(self, segment: SegmentFile, expected: int) -> None:
        what = f"the log goes on at {segment.start} where {expected} is expected"
        if segment.start > expected:
            missing = (segment.start - expected) // self._file_bytes
            what += f": {missing} {'file is' if missing == 1 else 'files are'} missing before it"
            self._context.add_hole(expected, segment.start)
        self._findings.violation(Invariant.LOG_CONTIGUOUS, segment.path, None, what)

    def _data_end(self, segment: SegmentFile) -> int:
        """Behind this only zeros follow in the file."""
        try:
            with self._context.files.open(segment.path, writable=False) as file:
                return min(file.data_end(), segment.length)
        except OSError:
            return segment.length  # reported when it is scanned

    def _end_of(self, segment: SegmentFile) -> int:
        return segment.start + min(segment.length, self._file_bytes)

    # -- the records -----------------------------------------------------------------------------

    def _scan_file(self, index: int, segment: SegmentFile) -> None:
        try:
            with self._context.files.open(segment.path, writable=False) as file:
                self._scan(index, segment, file)
        except OSError as error:
            self._context.unreadable(segment.path, error)
            self._context.add_hole(segment.start, self._end_of(segment))
        self._progress(index, self._file_bytes)

    def _scan(self, index: int, segment: SegmentFile, file: OpenFile) -> None:
        length = min(segment.length, self._file_bytes)
        position: int | None = self._resume.pop(index, 0)
        wanted = _PIECE_BYTES
        while position is not None and position < length:
            raw = file.pread(min(wanted, length - position), position)
            piece = read_piece(raw, segment.start + position, self._context.kernel)
            self._records(segment, piece)
            position += piece.end
            wanted = _PIECE_BYTES
            if piece.stop is Stop.BLANK:
                position = self._blank(index, segment, file, position, length)
            elif piece.stop is Stop.BAD or 0 < length - position < _MARK_BYTES:
                position = self._bad(index, segment, file, position)
            elif piece.end == 0:
                # A record larger than a piece, or one that the file's end cuts off.
                wanted, _ = record_mark(file.pread(_MARK_BYTES, position))
                if wanted > length - position:
                    position = self._bad(index, segment, file, position)
            self._progress(index, length if position is None else position)

    def _records(self, segment: SegmentFile, piece: Piece) -> None:
        columns = piece.columns
        count = len(columns)
        if not count:
            return
        counts = self._findings.report.counts
        counts.records += count
        counts.log_bytes += int(columns.sizes.sum())
        for row in columns.bad_property_crcs:
            self._findings.violation(
                Invariant.LOG_RECORD,
                segment.path,
                int(columns.phy_offsets[row]) - segment.start,
                "the record does not match the CRC in its property __CRC32#",
            )
        self._watch_time(columns)
        self._take(columns)

    def _watch_time(self, columns: RecordColumns) -> None:
        times = columns.store_timestamps
        before = np.concatenate(([self._last_timestamp], times[:-1]))
        for row in np.flatnonzero(times < before).tolist():
            self._backward_steps.append(int(columns.phy_offsets[row]))
        self._last_timestamp = int(times[-1])

    def _note_backward_steps(self) -> None:
        if self._backward_steps:
            first = self._backward_steps[0]
            segment = self._context.reader.segment_at(first)
            assert segment is not None
            self._findings.note(
                segment.path,
                first - segment.start,
                f"store timestamps go back {counted(len(self._backward_steps), 'time')}, here first: "
                "the clock was set back",
            )

    def _blank(
        self, index: int, segment: SegmentFile, file: OpenFile, position: int, length: int
    ) -> int | None:
        """A blank is right if it reaches the end of the file: go on with the next one."""
        size, _ = record_mark(file.pread(_MARK_BYTES, position))
        if size == self._file_bytes - position:
            return length
        reason = (
            f"a blank of {size} bytes does not reach the file's end, {self._file_bytes - position} bytes away"
        )
        return self._bad(index, segment, file, position, reason)

    def _progress(self, index: int, position: int) -> None:
        if self._context.options.progress is not None:
            done = sum(self._data_ends[:index]) + min(position, self._data_ends[index])
            self._context.options.progress(done, sum(self._data_ends))

    # -- bad records -----------------------------------------------------------------------------

    def _bad(
        self, index: int, segment: SegmentFile, file: OpenFile, position: int, reason: str = ""
    ) -> int | None:
        """Decide what a bad record means: where to go on in this file, or None when the log ends."""
        phy_offset = segment.start + position
        is_zero = _is_zero(file, position, self._data_ends[index])
        following = self._next_valid(index, position + 1, only_later=is_zero)
        if is_zero and following is None and not self._has_later_data(index):
            self._end(index, phy_offset)
            return None
        reason = reason or self._reason(phy_offset)
        if not self._is_damage(phy_offset, index, following):
            self._tail(segment, position, reason, following)
            self._end(index, phy_offset)
            return None
        return self._damage(index, segment, position, reason, following, is_zero)

    def _has_later_data(self, index: int) -> bool:
        """Whether a file behind this one has anything but zeros."""
        for later in range(index + 1, len(self._segments)):
            try:
                with self._context.files.open(self._segments[later].path, writable=False) as file:
                    if not _is_zero(file, 0, self._data_ends[later]):
                        return True
            except OSError:
                return True
        return False

    def _reason(self, phy_offset: int) -> str:
        try:
            found = self._context.reader.request_at(phy_offset)
        except ProtocolError as error:
            return str(error)
        return f"{found} has changed while it was read"

    def _is_damage(self, phy_offset: int, index: int, following: _Place | None) -> bool:
        """Whether a valid record was here once, and not merely on its way to the disk."""
        checkpoint = self._context.checkpoint
        if checkpoint.is_ours and phy_offset < checkpoint.durable_phy_offset:
            return True
        if self._context.is_clean:
            # Files behind the end of the log do not survive a start.
            is_inside = following is not None and following.file_index > index
            return is_inside or phy_offset < self._context.queues_end_phy_offset
        if checkpoint.is_ours or following is None:
            return False
        return following.record.store_timestamp <= checkpoint.physic_msg_timestamp

    def _damage(
        self,
        index: int,
        segment: SegmentFile,
        position: int,
        reason: str,
        following: _Place | None,
        is_zero: bool,
    ) -> int | None:
        phy_offset = segment.start + position
        if following is None:
            end = max(self._context.queues_end_phy_offset, self._context.checkpoint.durable_phy_offset)
            what = "no valid record follows"
        else:
            end = self._segments[following.file_index].start + following.position
            what = f"the next valid record is {end - phy_offset} bytes further on"
        self._findings.violation(
            Invariant.LOG_BLANK if is_zero else Invariant.LOG_RECORD,
            segment.path,
            position,
            f"{'no record and no blank' if is_zero else 'no valid record'}: {reason}; {what}",
        )
        self._context.add_hole(phy_offset, end)
        if following is None:
            self._end(index, end)
            return None
        if following.file_index == index:
            return following.position
        self._resume[following.file_index] = following.position
        for skipped in range(index + 1, following.file_index):
            self._resume[skipped] = self._file_bytes
        return self._file_bytes

    def _tail(self, segment: SegmentFile, position: int, reason: str, following: _Place | None) -> None:
        """Bytes that are no zeros follow the end of the log."""
        phy_offset = segment.start + position
        if self._context.in_use:
            self._findings.note(segment.path, position, f"the log is being written here, at {phy_offset}")
        elif self._context.will_recover:
            what = f"end the log at {phy_offset}: {reason}"
            if following is not None:
                what += "; valid records behind it are kept in `quarantine`"
            self._findings.recovery(segment.path, position, what)
        elif self._context.checkpoint.is_ours:
            self._findings.violation(
                Invariant.LOG_ZEROS,
                segment.path,
                position,
                f"bytes that are not a record follow the log: {reason}",
            )
        else:
            self._findings.note(segment.path, position, "bytes of older records follow the end of the log")

    def _end(self, index: int, phy_offset: int) -> None:
        self._has_ended = True
        self._context.log_end_phy_offset = phy_offset
        for segment in self._segments[index + 1 :]:
            if self._context.will_recover and not self._context.in_use:
                self._findings.recovery(
                    segment.path, None, "remove this file: it lies behind the end of the log"
                )
            else:
                self._findings.note(segment.path, None, "an empty file, prepared for what comes next")

    def _check_durable_end(self) -> None:
        checkpoint = self._context.checkpoint
        end = self._context.log_end_phy_offset
        if checkpoint.is_ours and checkpoint.durable_phy_offset > end:
            path = self._segments[-1].path if self._segments else self._context.layout.log_folders[0]
            self._findings.violation(
                Invariant.LOG_END,
                path,
                end - self._segments[-1].start if self._segments else None,
                f"the log ends at {end}, the checkpoint says that it was on disk up to "
                f"{checkpoint.durable_phy_offset}",
            )

    # -- searching -------------------------------------------------------------------------------

    def _next_valid(self, index: int, position: int, *, only_later: bool) -> _Place | None:
        """The next valid record from here on, in this file or a later one."""
        for at in range(index + 1 if only_later else index, len(self._segments)):
            try:
                found = self._next_in_file(at, position if at == index else 0)
            except OSError:
                continue  # reported when its turn comes
            if found is not None:
                return found
        return None

    def _next_in_file(self, index: int, position: int) -> _Place | None:
        segment = self._segments[index]
        end = self._data_ends[index]
        with self._context.files.open(segment.path, writable=False) as file:
            while position < end:
                raw = file.pread(min(_PIECE_BYTES, end - position), position)
                for candidate in _magic_positions(raw):
                    at = position + candidate - 4
                    record = self._valid_record(segment.start + at) if at >= 0 else None
                    if record is not None:
                        return _Place(index, at, record)
                # A magic may lie across two pieces.
                position += max(len(raw) - 3, 1)
        return None

    def _valid_record(self, phy_offset: int) -> DispatchRequest | None:
        try:
            found = self._context.reader.request_at(phy_offset)
        except ProtocolError:
            return None
        return None if isinstance(found, Blank) else found


def _is_zero(file: OpenFile, position: int, data_end: int) -> bool:
    """Whether nothing but zeros follows in the file."""
    while position < data_end:
        raw = file.pread(min(_PIECE_BYTES, data_end - position), position)
        if not raw:
            return True
        if raw != _ZEROS[: len(raw)]:
            return False
        position += len(raw)
    return True


def _magic_positions(raw: bytes) -> list[int]:
    """Where a magic stands in `raw`, in order."""
    found = []
    for magic in RAW_MAGIC_CODES:
        at = raw.find(magic)
        while at >= 0:
            found.append(at)
            at = raw.find(magic, at + 1)
    return sorted(found)
