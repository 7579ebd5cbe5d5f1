"""Reading a queue: which messages a pull gets, and how it goes on.

The ConsumeQueue says where the records lie; neighbours in the log are gathered into runs,
so that a pull of a busy queue is one slice of the log. Nothing is decoded unless a filter
needs the record itself. What is not in memory is left to `GetMessageResult.load`, which may
wait for the disk in a thread of the caller's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kourou.protocol.record import Buffer
from kourou.store.commit_log import CommitLog, LogWindow
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.cq_unit import BLANK_SIZE, UNIT
from kourou.store.log_file import LogFile

TagsFilter = Callable[[int], bool]
"""Whether a record with this tags code may match; decided from the ConsumeQueue alone."""
RecordFilter = Callable[[Buffer], bool]
"""Whether a record matches, from its bytes."""
RecordJudge = Callable[[int, int], bool | None]
"""Whether the record at a phy_offset, of a size, matches; None: not to be told now, reading stops there."""


MAX_MESSAGES: Final = 16_384
"""A pull gets no more, whatever it asks for: looking at so many units takes some milliseconds."""

_NOWHERE: Final = LogWindow(memoryview(b""), 0, 1, 0)


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


class Run:
    """Records that lie side by side in the log; `data` is None until they are read from disk,
    out of `log_file`, which is pinned so long."""

    __slots__ = ("data", "log_file", "phy_offset", "size_bytes")

    def __init__(self, phy_offset: int, size_bytes: int) -> None:
        self.phy_offset = phy_offset
        self.size_bytes = size_bytes
        self.data: Buffer | None = None
        self.log_file: LogFile | None = None


@dataclass(slots=True)
class GetMessageResult:
    """What a pull found. `next_begin_offset` is where the next one should start."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    runs: list[Run] = field(default_factory=list)
    message_count: int = 0
    size_bytes: int = 0
    last_phy_offset: int = 0

    @property
    def is_loaded(self) -> bool:
        """False when some of it has to come from disk: `load` it where waiting is allowed, then
        `release` it in the owner's thread, in any case."""
        return all(run.data is not None for run in self.runs)

    @property
    def buffers(self) -> list[Buffer]:
        """The records' bytes, in order."""
        return [run.data for run in self.runs if run.data is not None]

    def load(self) -> None:
        """Read what is not in memory yet; may wait for the disk, in any thread."""
        for run in self.runs:
            if run.data is None and run.log_file is not None:
                position = run.phy_offset - run.log_file.start_phy_offset
                run.data = run.log_file.file.pread(run.size_bytes, position)

    def release(self) -> None:
        """Let go of the files that `load` read; in the owner's thread, whether it loaded or not."""
        for run in self.runs:
            if run.log_file is not None:
                run.log_file.unpin()
                run.log_file = None


class MessageReader:
    """Reads queues against one log. `damaged` are ranges of the log that hold no records."""

    def __init__(self, log: CommitLog, *, max_transfer_bytes: int, max_filter_units: int) -> None:
        self._log = log
        self._max_transfer_bytes = max_transfer_bytes
        self._max_filter_units = max_filter_units
        self.damaged: list[tuple[int, int]] = []

    def units_wanted(self, max_messages: int, *, is_filtered: bool) -> int:
        """How many units a read of `max_messages` looks at. With a filter that does not depend on how
        many are asked for: it may let none of them pass."""
        return max(1, self._max_filter_units if is_filtered else min(max_messages, MAX_MESSAGES))

    def get_message(
        self,
        queue: ConsumeQueue | None,
        queue_offset: int,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        tags_filter: TagsFilter | None = None,
        record_filter: RecordFilter | None = None,
        judge: RecordJudge | None = None,
        units: bytes | None = None,
    ) -> GetMessageResult:
        """Up to `max_messages` from `queue_offset` on. Waits for the disk only if `record_filter`
        needs a record that is not in memory; a `judge` in its stead reads records itself. `units` are
        those of the queue from `queue_offset` on; they are read, which may wait too, if not given."""
        refusal = _outside(queue, queue_offset)
        if refusal is not None:
            return refusal
        assert queue is not None
        if record_filter is not None:
            judge = partial(self._matches, record_filter)
        if units is None:
            is_filtered = tags_filter is not None or judge is not None
            units = queue.read_units(queue_offset, self.units_wanted(max_messages, is_filtered=is_filtered))
        result = GetMessageResult(
            GetMessageStatus.NO_MATCHED_MESSAGE, queue_offset, queue.min_queue_offset, queue.max_queue_offset
        )
        if not units:
            # A file of the queue is missing. Asking the same again would find nothing for ever.
            per_file = queue.units_per_file
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
            result.next_begin_offset = min(
                queue_offset - queue_offset % per_file + per_file, queue.max_queue_offset
            )
            return result
        limit = min(max_bytes or self._max_transfer_bytes, self._max_transfer_bytes)
        self._gather(result, units, max_messages, limit, tags_filter, judge)
        self._load_from_memory(result.runs)
        return result

    def _load_from_memory(self, runs: Sequence[Run]) -> None:
        view, start, low, end = _NOWHERE
        for run in runs:
            phy_offset = run.phy_offset
            run_end = phy_offset + run.size_bytes
            if not low <= phy_offset < end:
                view, start, low, end = self._log.window_at(phy_offset) or _NOWHERE
            if low <= phy_offset and run_end <= end:
                run.data = view[phy_offset - start : run_end - start]
            else:
                self._load_nowait(run)

    def _load_nowait(self, run: Run) -> None:
        run.data = self._log.read_nowait(run.phy_offset, run.size_bytes)
        if run.data is None and (log_file := self._log.file_at(run.phy_offset)) is not None:
            log_file.pin()
            run.log_file = log_file

    def _gather(
        self,
        result: GetMessageResult,
        units: bytes,
        max_messages: int,
        max_bytes: int,
        tags_filter: TagsFilter | None,
        judge: RecordJudge | None,
    ) -> None:
        runs = result.runs
        run_end = -1
        low, high, damaged = self._log.min_phy_offset, self._log.max_phy_offset, self.damaged
        count = total = 0
        next_offset = result.next_begin_offset
        for phy_offset, size, tags_code in UNIT.iter_unpack(units):
            # However small the limits, one message is always given: else a reader would stay there.
            if count and (count >= max_messages or total + size > max_bytes):
                break
            next_offset += 1
            if tags_filter is not None and not tags_filter(tags_code):
                continue
            if (
                phy_offset < low
                or phy_offset + size > high
                or size == BLANK_SIZE
                or (damaged and _is_inside(phy_offset, damaged))
            ):
                if not count:
                    result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                continue
            if judge is not None and not (matches := judge(phy_offset, size)):
                if matches is None:
                    next_offset -= 1
                    break
                continue
            if phy_offset == run_end:
                runs[-1].size_bytes += size
            else:
                runs.append(Run(phy_offset, size))
            run_end = phy_offset + size
            count += 1
            total += size
            result.last_phy_offset = phy_offset
        result.next_begin_offset = next_offset
        result.message_count = count
        result.size_bytes = total
        if count:
            result.status = GetMessageStatus.FOUND

    def _matches(self, record_filter: RecordFilter, phy_offset: int, size: int) -> bool:
        record = self._log.read_nowait(phy_offset, size) or self._log.read(phy_offset, size)
        return record is not None and record_filter(record)


def _is_inside(phy_offset: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= phy_offset < end for start, end in ranges)


def _outside(queue: ConsumeQueue | None, queue_offset: int) -> GetMessageResult | None:
    """The answer to an offset that the queue does not hold; None when it does."""
    if queue is None:
        return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    low, high = queue.min_queue_offset, queue.max_queue_offset
    if high == 0:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if queue_offset < low:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, high, low, high)
    if queue_offset > high:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    return None
