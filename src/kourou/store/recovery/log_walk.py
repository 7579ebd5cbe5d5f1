"""LogWalk: reads the log from some point on and dispatches what it finds, piece by piece.

Not here: where to begin and what a bad record means (recovery.py), how records are dispatched
(dispatcher.py, columns_dispatcher.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kourou.errors import DamageError
from kourou.store.dispatcher import Dispatcher
from kourou.store.kernel import Kernel
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import Blank
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.log.record_columns import read_piece
from kourou.store.recovery.columns_dispatcher import ColumnsDispatcher
from kourou.store.recovery.read_ahead import ReadAhead, ReadPiece

_PIECE_BYTES: Final = 4 * 1024 * 1024


class WalkStep(NamedTuple):
    """So many records were dispatched, up to `end_phy_offset`, where `bad` lies if there is one.
    `has_sequences`: sequences of idempotent producers may be among them."""

    records: int
    end_phy_offset: int
    bad: BadRecord | None = None
    has_sequences: bool = True


class LogWalk:
    """Walks one log. Only records that pass every check are dispatched. With a kernel it reads those that are
    plain, and Python only what is left of a piece."""

    def __init__(
        self,
        log: CommitLog,
        scanner: LogScanner,
        dispatcher: Dispatcher,
        columns: ColumnsDispatcher,
        kernel: Kernel | None = None,
    ) -> None:
        self._log = log
        self._scanner = scanner
        self._dispatcher = dispatcher
        self._columns = columns
        self._ahead = None if kernel is None else ReadAhead(log, kernel, _PIECE_BYTES)

    def step(self, phy_offset: int) -> WalkStep:
        """Dispatch some records from `phy_offset` on, one at least, or pass over a blank; or a bad one
        is there."""
        log_file = self._log.file_at(phy_offset)
        if log_file is None:
            return self._one(phy_offset)
        if self._ahead is None:
            size = min(_PIECE_BYTES, log_file.end_phy_offset - phy_offset)
            return self._read_columns(self._log.read(phy_offset, size) or b"", phy_offset)
        piece = self._ahead.piece(phy_offset)
        step = self._take(piece)
        if piece.is_done and step.end_phy_offset == piece.end_phy_offset:
            return step
        rest = bytes(piece.raw[step.end_phy_offset - phy_offset :])
        records, end, bad, has_sequences = self._read_columns(rest, step.end_phy_offset)
        return WalkStep(step.records + records, end, bad, step.has_sequences or has_sequences)

    def close(self) -> None:
        """Read no further ahead."""
        if self._ahead is not None:
            self._ahead.close()

    def _take(self, piece: ReadPiece) -> WalkStep:
        """Dispatch the records that the kernel has read, up to the first that Python has to look at."""
        count, end, has_sequences = 0, piece.phy_offset, False
        for records in piece.records:
            taken = self._columns.dispatch_read(records, end)
            if not taken:
                break
            count += taken
            end = records[0]
            has_sequences |= records[4]
        return WalkStep(count, end, None, has_sequences)

    def _read_columns(self, raw: bytes, phy_offset: int) -> WalkStep:
        """Dispatch the records at the start of `raw` by columns, or where they are not plain one by one."""
        piece = read_piece(raw, phy_offset)
        if not len(piece.columns):
            return self._one(phy_offset)
        if self._columns.dispatch(piece.columns) is not None:
            return WalkStep(len(piece.columns), phy_offset + piece.end)
        return self._one_by_one(phy_offset, phy_offset + piece.end)

    def _one_by_one(self, phy_offset: int, end_phy_offset: int) -> WalkStep:
        records = 0
        while phy_offset < end_phy_offset:
            step = self._one(phy_offset)
            records += step.records
            phy_offset = step.end_phy_offset
            if step.bad is not None:
                return WalkStep(records, phy_offset, step.bad)
        return WalkStep(records, phy_offset)

    def _one(self, phy_offset: int) -> WalkStep:
        found = self._scanner.record_at(phy_offset)
        if isinstance(found, BadRecord):
            return WalkStep(0, phy_offset, found)
        if isinstance(found, Blank):
            return WalkStep(0, phy_offset + found.size, None, False)
        try:
            self._dispatcher.dispatch(found)
        except DamageError as error:
            return WalkStep(0, phy_offset, BadRecord(phy_offset, error.reason))
        return WalkStep(1, phy_offset + found.size)
