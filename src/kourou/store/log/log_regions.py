"""LogRegions: parts of old log files that are in memory, read through a map without a copy.

The newest bytes of the log are mapped and read as they are (commit_log.py). Older ones may still lie in
the page cache: the system is asked for a region at a time, and the answer is believed for a second.
Whoever shortens the log forgets what was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from kourou.store.log.log_file import LogFile

REGION_BYTES: Final = 4 * 1024 * 1024
"""How much is asked for at a time; one begins at each multiple of it in a file."""
_SMALL_BYTES: Final = 256 * 1024
"""And if that is not all in memory."""
_BELIEVED_S: Final = 1.0
_MAX_REGIONS: Final = 512
"""2 GiB."""
_MAX_MAPPED_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Of old files that are mapped for reads. The tables of a map take two thousandths of what is read through
it; each page that is read for the first time through a new map is a fault."""
_MAX_MAPS: Final = 64
"""Of them, however small."""


class LogWindow(NamedTuple):
    """A part of one file in memory: bytes from `low` to `end`, the one at phy_offset x is
    `view[x - start]`."""

    view: memoryview
    start: int
    low: int
    end: int


class LogRegions:
    """The regions that were found in memory within the last second."""

    __slots__ = ("_clock", "_found", "_mapped")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[int, tuple[LogWindow, float]] = {}
        # In the order of their last use.
        self._mapped: dict[LogFile, None] = {}

    def at(self, log_file: LogFile, phy_offset: int, end_phy_offset: int) -> LogWindow | None:
        """What lies in memory around this byte of `log_file`, up to `end_phy_offset`; None when it has
        to come from disk."""
        for size_bytes in (REGION_BYTES, _SMALL_BYTES):
            low = phy_offset - (phy_offset - log_file.start_phy_offset) % size_bytes
            found = self._found.get(low)
            if found is not None and self._clock() < found[1] and phy_offset < found[0].end:
                return found[0]
            end = min(low + size_bytes, log_file.end_phy_offset, end_phy_offset)
            if log_file.is_resident(low, end):
                return self._note(log_file, low, end)
        return None

    def over(
        self, log_file: LogFile, phy_offset: int, until_phy_offset: int, end_phy_offset: int
    ) -> LogWindow | None:
        """The same for all of `log_file` from one byte until another, over as many regions as it takes."""
        first = last = self.at(log_file, phy_offset, end_phy_offset)
        while last is not None and last.end < until_phy_offset:
            last = self.at(log_file, last.end, end_phy_offset)
        if first is last or first is None or last is None:
            return last
        return LogWindow(last.view, last.start, first.low, last.end)

    def _note(self, log_file: LogFile, low: int, end: int) -> LogWindow:
        window = LogWindow(log_file.mapped(), log_file.start_phy_offset, low, end)
        self._found.pop(low, None)
        self._found[low] = window, self._clock() + _BELIEVED_S
        if len(self._found) > _MAX_REGIONS:
            del self._found[next(iter(self._found))]
        self._mapped.pop(log_file, None)
        self._mapped[log_file] = None
        while len(self._mapped) > 1 and self._are_too_many():
            self.forget(next(iter(self._mapped)))
        return window

    def _are_too_many(self) -> bool:
        mapped_bytes = sum(log_file.size_bytes for log_file in self._mapped)
        return mapped_bytes > _MAX_MAPPED_BYTES or len(self._mapped) > _MAX_MAPS

    def forget(self, log_file: LogFile) -> None:
        """Let go of a file and its map: one that is gone frees its blocks only then."""
        self._mapped.pop(log_file, None)
        first, end = log_file.start_phy_offset, log_file.end_phy_offset
        for low in [low for low in self._found if first <= low < end]:
            del self._found[low]
        log_file.unmap()

    def has_mapped(self, log_file: LogFile) -> bool:
        """Whether the file is mapped for reads of old parts."""
        return log_file in self._mapped

    def clear(self) -> None:
        """Forget which regions are in memory, and let go of their maps."""
        self._found.clear()
        for log_file in self._mapped:
            log_file.unmap()
        self._mapped.clear()
