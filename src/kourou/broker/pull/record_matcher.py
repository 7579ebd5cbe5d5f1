"""RecordMatcher: whether records match a filter by property, without waiting for the disk.

It reads the properties of one record after the other in the log's window, and further back where the log
is in the page cache. Its work is bounded: after some records it judges none until it is renewed, so that
others have their turn. A record that is on disk only is noted; `load`, in a thread, makes it judgeable.
"""

from __future__ import annotations

from typing import Final

from kourou.broker.groups.message_filter import PropertyFilter
from kourou.protocol.layout import Buffer
from kourou.protocol.record_fields import properties_start
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_file import LogFile
from kourou.store.log.log_regions import LogWindow

# About a millisecond: 280 records with one comparison each, fewer with more.
WORK_PER_TURN: Final = 2_000
_WORK_PER_RECORD: Final = 4
# Copying so much out of the page cache takes about as long as a term of a filter.
_BYTES_PER_WORK: Final = 2048
_BLOCK_BYTES: Final = 64 * 1024
# A trip to the disk costs more than what it brings.
_COLD_BLOCK_BYTES: Final = 1024 * 1024
_NOTHING: Final = LogWindow(memoryview(b""), 0, 0, 0)


class RecordMatcher:
    """Judges records of one log for one pull. Owned by the loop's thread."""

    __slots__ = (
        "_cold",
        "_end",
        "_log",
        "_low",
        "_matches",
        "_start",
        "_view",
        "_work_left",
        "_work_per_record",
    )

    def __init__(self, log: CommitLog, wants: PropertyFilter) -> None:
        self._log = log
        self._matches = wants.matches_bytes
        self._work_per_record = _WORK_PER_RECORD + wants.terms
        self._view, self._start, self._low, self._end = _NOTHING
        self._work_left = WORK_PER_TURN
        self._cold: tuple[int, int] | None = None

    def __call__(self, phy_offset: int, size_bytes: int) -> bool | None:
        """Whether the record matches; None when that cannot be told now."""
        if self._work_left <= 0:
            return None
        if not (self._low <= phy_offset and phy_offset + size_bytes <= self._end):
            if not self._find_window(phy_offset, size_bytes):
                self._cold = phy_offset, size_bytes
                return None
        self._work_left -= self._work_per_record
        view = self._view
        pos = phy_offset - self._start
        begin = properties_start(view, pos, size_bytes)
        return begin >= 0 and self._matches(view, begin, pos + size_bytes)

    def renew(self) -> None:
        """Judge some more."""
        self._work_left = WORK_PER_TURN

    def rest(self) -> None:
        """Let go of the log, while a pull waits."""
        self._view, self._start, self._low, self._end = _NOTHING
        self._cold = None
        self.renew()

    # -- reading ---------------------------------------------------------------------------------

    def _find_window(self, phy_offset: int, size_bytes: int) -> bool:
        """Have the record in the view; False when it has to come from disk."""
        window = self._log.window_at(phy_offset) or self._log.region_at(phy_offset)
        if window is not None and phy_offset + size_bytes <= window.end:
            self._view, self._start, self._low, self._end = window
            return True
        # Bytes that are not written yet would be kept as they are now.
        block_bytes = max(size_bytes, min(_BLOCK_BYTES, self._log.max_phy_offset - phy_offset))
        for length in (block_bytes, size_bytes):
            raw = self._log.read_nowait(phy_offset, length)
            if raw is not None:
                self._work_left -= length // _BYTES_PER_WORK
                self._look_at(raw, phy_offset)
                return True
        return False

    def _look_at(self, raw: Buffer, phy_offset: int) -> None:
        self._view = memoryview(raw)
        self._start = self._low = phy_offset
        self._end = phy_offset + len(raw)

    @property
    def cold_file(self) -> LogFile | None:
        """The file with the record that is not in memory; None when nothing is to be loaded. To be
        pinned while `load` reads."""
        return None if self._cold is None else self._log.file_at(self._cold[0])

    def load(self, log_file: LogFile) -> None:
        """Read the record that is not in memory, and what follows it. In a disk thread; the loop leaves
        this object alone meanwhile."""
        assert self._cold is not None
        phy_offset, size_bytes = self._cold
        end = min(log_file.end_phy_offset, self._log.max_phy_offset)
        length = max(size_bytes, min(_COLD_BLOCK_BYTES, end - phy_offset))
        raw = log_file.file.pread(length, phy_offset - log_file.start_phy_offset)
        raw = raw.ljust(size_bytes, b"\0")  # of a record that is cut off: nothing matches that
        self._look_at(raw, phy_offset)
        self._cold = None
