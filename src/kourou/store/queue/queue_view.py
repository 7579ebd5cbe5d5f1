"""QueueView: the units of one ConsumeQueue as they lie in its files, only looked at.

Unlike `ConsumeQueue` it decides nothing: it shows what is there, zeros where a file is missing or too
short. Not here: what units must say (check_queue.py).
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.record_spans import Bools, Int64s
from kourou.store.disk.files import Files, OpenFile
from kourou.store.queue.cq_unit import BLANK_SIZE, UNIT_BYTES, UNIT_TYPE
from kourou.store.store_layout import QueueFolder, SegmentFile

_STEP_BYTES: Final = 64 * 1024


class Units:
    """Units of a ConsumeQueue as numpy columns."""

    __slots__ = ("phy_offsets", "raw", "sizes", "tags_codes")

    def __init__(self, raw: NDArray[Any]) -> None:
        self.raw = raw
        self.phy_offsets: Int64s = raw["phy_offset"].astype(np.int64)
        self.sizes: Int64s = raw["size"].astype(np.int64)
        self.tags_codes: Int64s = raw["tags_code"].astype(np.int64)

    def __len__(self) -> int:
        return len(self.phy_offsets)

    @property
    def are_zero(self) -> Bools:
        """A mask of the units that were never written."""
        zero: Bools = (self.phy_offsets == 0) & (self.sizes == 0) & (self.tags_codes == 0)
        return zero

    @property
    def are_blank(self) -> Bools:
        """Which hold a place whose message the queue never had."""
        blank: Bools = (self.phy_offsets == 0) & (self.sizes == BLANK_SIZE)
        return blank


def units_of(raw: bytes | bytearray) -> Units:
    """Decode the units in these bytes."""
    return Units(np.frombuffer(raw, UNIT_TYPE))


class QueueView:
    """One queue. `end_queue_offset` is behind the last unit that is not zero."""

    __slots__ = ("_file_bytes", "_files", "_segments", "end_queue_offset", "folder")

    def __init__(self, files: Files, queue: QueueFolder, file_bytes: int) -> None:
        self._files = files
        self._segments = {segment.start: segment for segment in queue.segments}
        self._file_bytes = file_bytes
        self.folder = queue.path
        self.end_queue_offset = self._find_end()

    @property
    def first_queue_offset(self) -> int:
        """The first unit of the first file."""
        return min(self._segments, default=0) // UNIT_BYTES

    def place(self, queue_offset: int) -> tuple[Path, int]:
        """The file that a unit is in, or should be, and its byte there."""
        start, position = self._split(queue_offset * UNIT_BYTES)
        return self.folder / f"{start:020d}", position

    def _split(self, position: int) -> tuple[int, int]:
        in_file = position % self._file_bytes
        return position - in_file, in_file

    def units(self, queue_offset: int, count: int) -> Units:
        """Units from `queue_offset` on; zeros where there is nothing."""
        raw = bytearray(count * UNIT_BYTES)
        done = 0
        while done < len(raw):
            start, in_file = self._split(queue_offset * UNIT_BYTES + done)
            size = min(self._file_bytes - in_file, len(raw) - done)
            segment = self._segments.get(start)
            if segment is not None:
                with self._files.open(segment.path, writable=False) as file:
                    part = file.pread(size, in_file)
                raw[done : done + len(part)] = part
            done += size
        return units_of(raw)

    def min_queue_offset(self, log_min_phy_offset: int) -> int:
        """The first unit whose record lies in a log that begins at `log_min_phy_offset`."""

        def is_in_log(queue_offset: int) -> bool:
            unit = self.units(queue_offset, 1)
            return not unit.are_blank[0] and int(unit.phy_offsets[0]) >= log_min_phy_offset

        first, end = self.first_queue_offset, self.end_queue_offset
        if first < end and is_in_log(first):
            return first
        return first + bisect_left(range(first, end), True, key=is_in_log)

    def last_end_phy_offset(self) -> int:
        """Where the record of the last unit ends; 0 when there is none."""
        if self.end_queue_offset <= self.first_queue_offset:
            return 0
        last = self.units(self.end_queue_offset - 1, 1)
        return 0 if last.are_blank[0] else int(last.phy_offsets[0] + last.sizes[0])

    def _find_end(self) -> int:
        for start in sorted(self._segments, reverse=True):
            with self._files.open(self._segments[start].path, writable=False) as file:
                end = self._data_end(file, self._segments[start])
            if end:
                return (start + end + UNIT_BYTES - 1) // UNIT_BYTES
        return self.first_queue_offset

    def _data_end(self, file: OpenFile, segment: SegmentFile) -> int:
        """The byte behind the last that is not zero."""
        end = min(file.data_end(), segment.length, self._file_bytes)
        while end:
            first = max(0, end - _STEP_BYTES)
            left = len(file.pread(end - first, first).rstrip(b"\0"))
            if left:
                return first + left
            end = first
        return 0
