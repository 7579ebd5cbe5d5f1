"""GetMessageResult: what a pull found, and how what is not in memory gets there.

Not here: which messages those are (get_message.py).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kourou.errors import DamageError
from kourou.protocol.layout import BLANK, MESSAGE_MAGIC_CODES, Buffer
from kourou.protocol.record_fields import record_mark
from kourou.store.log.log_file import LogFile

_READ_AT_ONCE_BYTES: Final = 1024 * 1024
_GAP_BYTES: Final = 32 * 1024
"""A disk reads on over this many unrequested bytes: a seek takes longer."""
_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""The following bytes are fetched, too, for a reader of most of the log: for its next pulls."""


class GetMessageStatus(enum.Enum):
    """RocketMQ's words; the name goes out as remark."""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_FOUND_NULL = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()


class ColdRun:
    """Records side by side in the log that are not in memory: `buffers[index]` is to be read out of
    `log_file`, which is pinned so long."""

    __slots__ = ("index", "log_file", "position", "size_bytes")

    def __init__(self, index: int, log_file: LogFile, position: int, size_bytes: int) -> None:
        self.index = index
        self.log_file = log_file
        self.position = position
        self.size_bytes = size_bytes


@dataclass(slots=True)
class GetMessageResult:
    """What a pull found. `next_begin_offset` is where the next one should start.

    `buffers` are the records' bytes, in order; nothing stands where they are to be loaded first.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: list[Buffer] = field(default_factory=list)
    message_count: int = 0
    size_bytes: int = 0
    last_phy_offset: int = 0
    is_loaded: bool = True
    """False when some of it has to come from disk: `load` it where waiting is allowed, then
    `release` it in the owner's thread, in any case."""
    is_dense: bool = False
    """Whether a reader that continues like this reads a large part of the log."""
    is_full: bool = False
    """Whether the limits leave no room for the next message; known of reads that look at units one by one."""
    queue_offsets: list[int] = field(default_factory=list)
    """Of each message, where a read looked at units one by one; else they end at `next_begin_offset`."""
    _cold: list[ColdRun] = field(default_factory=list)

    def add_cold(self, log_file: LogFile, phy_offset: int, size_bytes: int) -> None:
        """Go on with records that are not in memory."""
        log_file.pin()
        self._cold.append(
            ColdRun(len(self.buffers), log_file, phy_offset - log_file.start_phy_offset, size_bytes)
        )
        self.buffers.append(b"")
        self.is_loaded = False

    def extend(self, part: GetMessageResult) -> None:
        """Add what was found behind it in the same queue."""
        for run in part._cold:
            run.index += len(self.buffers)
        self._cold += part._cold
        self.buffers += part.buffers
        self.queue_offsets += part.queue_offsets
        self.is_loaded = self.is_loaded and part.is_loaded
        self.is_dense = part.is_dense
        self.is_full = part.is_full
        self.message_count += part.message_count
        self.size_bytes += part.size_bytes
        self.next_begin_offset = part.next_begin_offset
        self.min_offset, self.max_offset = part.min_offset, part.max_offset
        if part.message_count:
            self.status = GetMessageStatus.FOUND
            self.last_phy_offset = part.last_phy_offset

    def found_offsets(self) -> Sequence[int]:
        """The queue_offset of each message, in order."""
        end = self.next_begin_offset
        return self.queue_offsets or range(end - self.message_count, end)

    def load(self) -> None:
        """Read what is not in memory yet; may wait for the disk, in any thread."""
        span: list[ColdRun] = []
        for run in self._cold:
            if span and not _reads_on(span[0], span[-1], run):
                self._load_span(span)
                span = []
            span.append(run)
        if span:
            self._load_span(span)
        self.is_loaded = True

    def _load_span(self, span: list[ColdRun]) -> None:
        first, last = span[0], span[-1]
        if self.is_dense:
            first.log_file.file.will_need(_AHEAD_BYTES, first.position)
        raw = memoryview(
            first.log_file.file.pread(last.position + last.size_bytes - first.position, first.position)
        )
        for run in span:
            begin = run.position - first.position
            records = raw[begin : begin + run.size_bytes]
            if len(records) < run.size_bytes or (run.log_file.is_broken and not _are_records(records)):
                raise _cut_short(run)
            self.buffers[run.index] = records

    def release(self) -> None:
        """Let go of the files that `load` read; in the owner's thread, whether it loaded or not."""
        for run in self._cold:
            run.log_file.unpin()
        self._cold.clear()


def _are_records(records: memoryview) -> bool:
    """Whether a run holds nothing but records: a file that was cut short, and has grown again by what was
    written behind that, has zeros in between."""
    while records:
        if len(records) < BLANK.size:
            return False
        size, magic = record_mark(records)
        if magic not in MESSAGE_MAGIC_CODES or not 0 < size <= len(records):
            return False
        records = records[size:]
    return True


def _cut_short(run: ColdRun) -> DamageError:
    return DamageError(run.log_file.path, run.position, "the file was cut short while it was in use")


def _reads_on(first: ColdRun, last: ColdRun, run: ColdRun) -> bool:
    """Whether one read takes in `run` behind `last` too."""
    gap_bytes = run.position - last.position - last.size_bytes
    return (
        run.log_file is first.log_file
        and 0 <= gap_bytes <= _GAP_BYTES
        and run.position + run.size_bytes - first.position <= _READ_AT_ONCE_BYTES
    )
