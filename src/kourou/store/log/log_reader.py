"""LogReader: reads a CommitLog whose files are only looked at.

Unlike `CommitLog` it opens nothing for writing, needs no configuration, and lives with files that
are missing, too short or unreadable: what is not there is read as nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from kourou.errors import ProtocolError
from kourou.protocol.layout import BLANK, BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODES, RECORD
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_mark, record_phy_offset
from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS
from kourou.store.disk.files import Files, OpenFile
from kourou.store.log.dispatch_request import Blank, DispatchRequest, read_dispatch_request
from kourou.store.log.record_columns import Stop, read_piece
from kourou.store.store_layout import SegmentFile

_OPEN_FILES: Final = 16
_PIECE_BYTES: Final = 1024 * 1024


class LogReader:
    """The bytes of a log by phy_offset. Close it, or use it as a context manager."""

    def __init__(
        self,
        files: Files,
        segments: Sequence[SegmentFile],
        delay_levels: tuple[int, ...] = DEFAULT_DELAY_LEVELS,
    ) -> None:
        self._files = files
        self._segments = segments
        self._starts = [segment.start for segment in segments]
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._delay_levels = delay_levels

    def segment_at(self, phy_offset: int) -> SegmentFile | None:
        """The file that holds this byte."""
        index = bisect_right(self._starts, phy_offset) - 1
        if index < 0 or phy_offset >= self._starts[index] + self._segments[index].length:
            return None
        return self._segments[index]

    def read(self, phy_offset: int, size_bytes: int) -> bytes:
        """Bytes of one file; fewer at its end, none where there is no file. OSError as it comes."""
        segment = self.segment_at(phy_offset)
        if segment is None or size_bytes <= 0:
            return b""
        return self._file(segment).pread(size_bytes, phy_offset - segment.start)

    def _file(self, segment: SegmentFile) -> OpenFile:
        file = self._open.pop(segment.start, None) or self._files.open(segment.path, writable=False)
        self._open[segment.start] = file
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].close()
        return file

    def record_bytes(self, phy_offset: int) -> bytes:
        """The record at `phy_offset`, which says so itself, as long as its size says; at a blank its
        mark. ProtocolError when there is neither."""
        head = self.read(phy_offset, RECORD.size)
        size, magic = record_mark(head)
        if magic == BLANK_MAGIC_CODE:
            return head[: BLANK.size]
        # Looked at first: a size in bytes that are no record may ask for a gigabyte.
        stored = record_phy_offset(head.ljust(RECORD.size, b"\0"))
        if magic not in MESSAGE_MAGIC_CODES:
            raise ProtocolError(f"its magic is {magic:#010x}")
        if stored != phy_offset:
            raise ProtocolError(f"the record belongs at {stored}")
        return self.read(phy_offset, size)

    def request_at(self, phy_offset: int) -> DispatchRequest | Blank:
        """The valid record at `phy_offset`, or the blank; ProtocolError says what is wrong with it."""
        return read_dispatch_request(self.record_bytes(phy_offset), 0, phy_offset, self._delay_levels)

    def message_at(self, phy_offset: int) -> MessageExt:
        """The message whose valid record lies at `phy_offset`; ProtocolError when there is none."""
        raw = self.record_bytes(phy_offset)
        found = read_dispatch_request(raw, 0, phy_offset, self._delay_levels)
        if isinstance(found, Blank):
            raise ProtocolError(f"a blank of {found.size} bytes is there, the end of a file")
        return decode_record(raw)

    def is_record(self, phy_offset: int) -> bool:
        """Whether a valid record lies there."""
        try:
            return isinstance(self.request_at(phy_offset), DispatchRequest)
        except (ProtocolError, OSError):
            return False

    def find_end(self, phy_offset: int) -> tuple[int, int | None]:
        """Where the valid records end that begin at `phy_offset`, and when the last of them was stored; None:
        there is none."""
        last: int | None = None
        while (segment := self.segment_at(phy_offset)) is not None:
            piece = read_piece(self.read(phy_offset, _PIECE_BYTES), phy_offset)
            if len(piece.columns):
                last = int(piece.columns.store_timestamps[-1])
            phy_offset += piece.end
            if piece.stop is Stop.BLANK:
                phy_offset = segment.start + segment.length
            elif piece.stop is Stop.BAD or piece.end == 0:
                try:
                    found = self.request_at(phy_offset)  # one that is larger than a piece
                except ProtocolError:
                    break
                if not isinstance(found, DispatchRequest):
                    break
                phy_offset, last = phy_offset + found.size, found.store_timestamp
        return phy_offset, last

    def describe(self, phy_offset: int) -> str:
        """What lies at `phy_offset`, in words."""
        try:
            found = self.request_at(phy_offset)
        except (ProtocolError, OSError):
            return "no record is there"
        if isinstance(found, Blank):
            return "the end of a file is there"
        return f"the record there is {found.topic}/{found.queue_id} queue_offset {found.queue_offset}"

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
