"""ReadAhead: has the kernel read a log ahead of its recovery, in a thread of its own.

While the walk dispatches records, or waits for the disk, the next pieces are read and their records checked;
the kernel does that with the interpreter lock released. The thread goes on from piece to piece up to one that
the kernel leaves to Python, in part at least; the walk starts it again behind that.
Not here: what is done with the records (log_walk.py).
"""

from __future__ import annotations

import queue
import threading
from typing import Final, NamedTuple

from kourou.protocol.layout import BLANK
from kourou.protocol.record_fields import record_mark
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.kernel import Kernel, ReadRecords
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_snapshot import MAX_RECORD_BYTES

_MAX_PIECES: Final = 8
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()


class ReadPiece(NamedTuple):
    """Bytes of a log, from `phy_offset` on, and the records at their start that the kernel has read."""

    phy_offset: int
    raw: bytes
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
        self._run: _Run | None = None

    def piece(self, phy_offset: int) -> ReadPiece:
        """The piece at `phy_offset`, which lies in a file of the log. OSError: it cannot be read."""
        run = self._run
        if run is None or run.next_phy_offset != phy_offset:
            self.close()
            run = self._run = _Run(self, phy_offset)
        return run.next_piece()

    def read(self, phy_offset: int) -> ReadPiece:
        """The same without the thread."""
        log_file = self._log.file_at(phy_offset)
        left = 0 if log_file is None else log_file.end_phy_offset - phy_offset
        raw = self._log.read(phy_offset, min(self._piece_bytes, left)) or b""
        found = ReadPiece(phy_offset, raw, [])
        view = memoryview(raw)
        while records := self._kernel.read_records(
            view[found.end_phy_offset - phy_offset :], found.end_phy_offset, MAX_RECORD_BYTES, _SCHEDULE_TOPIC
        ):
            found.records.append(records)
        return found

    def close(self) -> None:
        """Stop the thread, and wait for it."""
        if self._run is not None:
            self._run.stop()
            self._run = None


class _Run:
    """One thread that reads from one place on."""

    def __init__(self, ahead: ReadAhead, phy_offset: int) -> None:
        self._ahead = ahead
        self.next_phy_offset: int | None = phy_offset
        self._is_stopped = False
        self._pieces: queue.Queue[ReadPiece | BaseException] = queue.Queue(_MAX_PIECES)
        self._thread = threading.Thread(
            target=self._read_all, args=(phy_offset,), name="recovery-read-ahead", daemon=True
        )
        self._thread.start()

    def next_piece(self) -> ReadPiece:
        """The next one in order; what the thread has raised is raised here."""
        found = self._pieces.get()
        if isinstance(found, BaseException):
            self.next_phy_offset = None
            raise found
        self.next_phy_offset = found.end_phy_offset if found.is_done else None
        return found

    def stop(self) -> None:
        """Have the thread end."""
        self._is_stopped = True
        while self._thread.is_alive():
            # It may wait for room.
            while not self._pieces.empty():
                self._pieces.get_nowait()
            self._thread.join(0.01)

    def _read_all(self, phy_offset: int) -> None:
        try:
            while not self._is_stopped:
                found = self._ahead.read(phy_offset)
                self._pieces.put(found)
                if not found.is_done:
                    return
                phy_offset = found.end_phy_offset
        except BaseException as error:
            self._pieces.put(error)
