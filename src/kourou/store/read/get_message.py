"""Reading a queue: which messages a pull gets, and how it goes on.

The ConsumeQueue says where the records lie; neighbours in the log are gathered into runs,
so that a pull of a busy queue is one slice of the log. Nothing is decoded unless a filter
needs the record itself. What is not in memory is left to `GetMessageResult.load`, which may
wait for the disk in a thread of the caller's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import add
from typing import Final, NamedTuple

import numpy as np

from kourou.protocol.layout import Buffer
from kourou.store.kernel import Kernel
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_regions import REGION_BYTES, LogWindow
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import BLANK_SIZE, MANY, UNIT, UNIT_BYTES, unit_arrays, unit_columns
from kourou.store.read.get_message_result import GetMessageResult, GetMessageStatus
from kourou.store.read.transfer_limits import MAX_MESSAGES, Room, TransferLimits, smaller_room

TagsFilter = Callable[[int], bool]
"""Whether a record with this tags code may match; decided from the ConsumeQueue alone."""
RecordFilter = Callable[[Buffer], bool]
"""Whether a record matches, from its bytes."""
Matcher = Callable[[int, int], bool | None]
"""Whether the record at a phy_offset, of a size, matches; None: undecided for now, reading stops there."""


_NOWHERE: Final = LogWindow(memoryview(b""), 0, 1, 0)
DENSE: Final = 16
"""Up to so many bytes of the log for each one that is wanted, a region is looked for around them."""
_MAX_COPIED_BYTES: Final = 256 * 1024
"""More are handed on as views of the log, without a copy."""
_SMALL_BYTES: Final = 16 * 1024
"""Where the first record is smaller than this they are copied, however many: the connection would join the
views (connection.py)."""
_NO_PHY_OFFSET: Final = 1 << 62


class _Rooms(NamedTuple):
    """The room until a unit points to `memory_phy_offset` or behind it, and the one from there on."""

    first: Room
    in_memory: Room
    memory_phy_offset: int


class MessageReader:
    """Reads queues against one log."""

    def __init__(
        self,
        log: CommitLog,
        *,
        max_transfer_bytes: int,
        max_filter_units: int,
        kernel: Kernel | None = None,
    ) -> None:
        self._log = log
        self._limits = TransferLimits.of_bytes(max_transfer_bytes)
        self.max_filter_units = max_filter_units
        self._kernel = kernel

    def units_wanted(self, max_messages: int, *, is_filtered: bool) -> int:
        """How many units a read of `max_messages` looks at. With a filter that does not depend on how
        many are asked for: it may let none of them pass."""
        if not is_filtered and 0 < max_messages <= MAX_MESSAGES:
            return max_messages
        return max(1, self.max_filter_units if is_filtered else min(max_messages, MAX_MESSAGES))

    def is_old(self, units: bytes) -> bool:
        """Whether the first of some units points to what is no longer among the newest bytes of the log."""
        return bool(units) and UNIT.unpack_from(units)[0] < self._log.window_phy_offset

    def _is_overwritten(self, units: bytes) -> bool:
        """Whether there are units that no process wrote: neither of messages nor blank."""
        phy_offsets, sizes = unit_arrays(units)
        is_wrong = (sizes <= 0) | (phy_offsets < 0)
        is_wrong |= (phy_offsets > self._log.max_phy_offset - sizes) & (sizes != BLANK_SIZE)
        return bool(is_wrong.any())

    def get_message(
        self,
        queue: ConsumeQueue | None,
        queue_offset: int,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        limits: TransferLimits | None = None,
        found: GetMessageResult | None = None,
        tags_filter: TagsFilter | None = None,
        record_filter: RecordFilter | None = None,
        matcher: Matcher | None = None,
        units: bytes | None = None,
    ) -> GetMessageResult:
        """Up to `max_messages` from `queue_offset` on, within `limits`; what the same pull has `found` before
        counts. Waits for the disk only if `record_filter` needs a record that is not in memory; a
        `matcher` instead reads records itself. `units` are those of the queue from `queue_offset` on; if not
        given, they are read, which may wait too."""
        if queue is None or not queue.min_queue_offset <= queue_offset < queue.max_queue_offset:
            return _outside(queue, queue_offset)
        if record_filter is not None:
            matcher = partial(self._matches, record_filter)
        is_filtered = tags_filter is not None or matcher is not None
        if units is None:
            wanted = self.units_wanted(max_messages, is_filtered=is_filtered)
            units = queue.read_units(queue_offset, wanted)
            if self._is_overwritten(units) and queue.distrust(queue_offset):
                units = queue.read_units(queue_offset, wanted)
        if not units:
            return _missing(queue, queue_offset)
        if limits is None:
            limits = self._limits
        first_unit = UNIT.unpack_from(units)
        memory_phy_offset = self._log.max_phy_offset - limits.memory_bytes
        is_on_disk = first_unit[0] < memory_phy_offset
        most, most_bytes = limits.on_disk if is_on_disk else limits.in_memory
        if max_messages < most:
            most = max_messages
        if max_bytes and max_bytes < most_bytes:
            most_bytes = max_bytes
        # Units of both kinds have to be looked at one by one.
        is_one_kind = not is_on_disk or _last_phy_offset(units) < memory_phy_offset
        if self._kernel is not None and not is_filtered and is_one_kind:
            gathered = self._gather(self._kernel, queue, queue_offset, units, first_unit, most, most_bytes)
            if gathered is not None:
                return gathered
        result = GetMessageResult(
            GetMessageStatus.NO_MATCHED_MESSAGE, queue_offset, queue.min_queue_offset, queue.max_queue_offset
        )
        if is_filtered or not is_one_kind or not self._take_all(result, units, most, most_bytes):
            rooms = _Rooms(
                (most, most_bytes),
                smaller_room(limits.in_memory, max_messages, max_bytes),
                memory_phy_offset if is_on_disk else _NO_PHY_OFFSET,
            )
            self._take_some(result, queue, units, rooms, tags_filter, matcher, found)
        return result

    def _take_all(self, result: GetMessageResult, units: bytes, max_messages: int, max_bytes: int) -> bool:
        """Give units from the first one on, as most pulls get them; False, and nothing is given, if they
        have to be looked at one by one."""
        if len(units) > MANY * UNIT_BYTES:
            return self._take_many(result, units, max_messages, max_bytes)
        phy_offsets, sizes = unit_columns(units)
        total = sum(sizes)
        if len(sizes) > max_messages or total > max_bytes:
            # However small the limits, one message is always given: else a reader would stay there.
            count = max(1, min(max_messages, bisect_right(tuple(accumulate(sizes)), max_bytes)))
            phy_offsets, sizes = phy_offsets[:count], sizes[:count]
            total = sum(sizes)
        ends = tuple(map(add, phy_offsets, sizes))
        low, high = min(phy_offsets), max(ends)
        log = self._log
        if low < log.min_phy_offset or high > log.max_phy_offset or min(sizes) <= 0:
            return False
        result.status = GetMessageStatus.FOUND
        result.message_count = len(sizes)
        result.size_bytes = total
        result.last_phy_offset = phy_offsets[-1]
        result.next_begin_offset += len(sizes)
        if ends[-1] - phy_offsets[0] == total:
            self._load(result, (low,), (high,), low, high, total)
        else:
            self._load(result, phy_offsets, ends, low, high, total)
        return True

    def _gather(
        self,
        kernel: Kernel,
        queue: ConsumeQueue,
        queue_offset: int,
        units: bytes,
        first_unit: tuple[int, int, int],
        max_messages: int,
        max_bytes: int,
    ) -> GetMessageResult | None:
        """The same by the compiled kernel, in one copy; None where not all of them are in memory, or they are
        better not copied."""
        phy_offset, size, _ = first_unit
        log = self._log
        if phy_offset >= log.window_phy_offset:
            window = log.window_at(phy_offset)
        else:
            last_phy_offset, last_size, _ = UNIT.unpack_from(units, len(units) - UNIT_BYTES)
            if last_phy_offset - phy_offset >= DENSE * size * (len(units) // UNIT_BYTES):
                return None
            window = log.region_at(phy_offset, last_phy_offset + last_size)
        if window is None:
            return None
        view, start, low, end = window
        max_copied = max_bytes if size < _SMALL_BYTES else _MAX_COPIED_BYTES
        found = kernel.gather(view, start, low, end, units, max_messages, max_bytes, max_copied)
        if found is None:
            return None
        count, last_phy_offset, records = found
        return GetMessageResult(
            GetMessageStatus.FOUND,
            queue_offset + count,
            queue.min_queue_offset,
            queue.max_queue_offset,
            [records],
            count,
            len(records),
            last_phy_offset,
        )

    def _take_many(self, result: GetMessageResult, units: bytes, max_messages: int, max_bytes: int) -> bool:
        """The same for bulk readers, with nothing done for a single message."""
        phy_offsets, sizes = unit_arrays(units)
        if int(sizes.min()) <= 0:
            return False
        count = max(1, min(max_messages, int(np.searchsorted(np.cumsum(sizes), max_bytes, "right"))))
        phy_offsets, sizes = phy_offsets[:count], sizes[:count]
        ends = phy_offsets + sizes
        low, high = int(phy_offsets.min()), int(ends.max())
        if low < self._log.min_phy_offset or high > self._log.max_phy_offset:
            return False
        # A run ends also where a region of the log does: one that goes beyond would be copied.
        regions = ends // REGION_BYTES
        gaps = np.flatnonzero((ends[:-1] != phy_offsets[1:]) | (regions[:-1] != regions[1:]))
        total = int(sizes.sum())
        result.status = GetMessageStatus.FOUND
        result.message_count = len(sizes)
        result.size_bytes = total
        result.last_phy_offset = int(phy_offsets[-1])
        result.next_begin_offset += len(sizes)
        run_begins = phy_offsets[np.append(0, gaps + 1)].tolist()
        run_ends = ends[np.append(gaps, len(ends) - 1)].tolist()
        self._load(result, run_begins, run_ends, low, high, total)
        return True

    def _window(self, phy_offset: int, run_end: int, *, is_dense: bool) -> LogWindow | None:
        """A piece of the log in memory with a run of it: as much as there is, or but the run itself."""
        window = self._log.window_at(phy_offset)
        if window is None and is_dense:
            window = self._log.region_at(phy_offset, run_end)
        if window is None or run_end > window.end:
            raw = self._log.read_nowait(phy_offset, run_end - phy_offset)
            return None if raw is None else LogWindow(memoryview(raw), phy_offset, phy_offset, run_end)
        return window

    def _take_some(
        self,
        result: GetMessageResult,
        queue: ConsumeQueue,
        units: bytes,
        rooms: _Rooms,
        tags_filter: TagsFilter | None,
        matcher: Matcher | None,
        found: GetMessageResult | None,
    ) -> None:
        """Look at the units one by one."""
        begins: list[int] = []
        ends: list[int] = []
        offsets = result.queue_offsets
        run_end = -1
        low, high = self._log.min_phy_offset, self._log.max_phy_offset
        count, total = (0, 0) if found is None else (found.message_count, found.size_bytes)
        (most, most_bytes), room_in_memory, memory_phy_offset = rooms
        next_offset = result.next_begin_offset
        for phy_offset, size, tags_code in UNIT.iter_unpack(units):
            if phy_offset >= memory_phy_offset:
                most, most_bytes = room_in_memory
            if count and count >= most:
                result.is_full = True
                break
            next_offset += 1
            if tags_filter is not None and not tags_filter(tags_code):
                continue
            if not (low <= phy_offset <= high - size and 0 < size < BLANK_SIZE):
                is_removed = size == BLANK_SIZE or (size > 0 and 0 <= phy_offset < low)
                if not is_removed and queue.distrust(next_offset - 1):
                    # Something has overwritten the file: the next read has it verified, and rebuilt.
                    next_offset -= 1
                    break
                if not begins:
                    result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                continue
            if count and total + size > most_bytes:
                result.is_full = True
                next_offset -= 1
                break
            if matcher is not None and not (matches := matcher(phy_offset, size)):
                if matches is None:
                    next_offset -= 1
                    break
                continue
            if phy_offset == run_end:
                ends.pop()
            else:
                begins.append(phy_offset)
            run_end = phy_offset + size
            ends.append(run_end)
            offsets.append(next_offset - 1)
            count += 1
            total += size
            result.last_phy_offset = phy_offset
        result.next_begin_offset = next_offset
        if found is not None:
            count, total = count - found.message_count, total - found.size_bytes
        result.message_count = count
        result.size_bytes = total
        if count:
            result.status = GetMessageStatus.FOUND
            self._load(result, begins, ends, min(begins), max(ends), total)

    def _load(
        self,
        result: GetMessageResult,
        begins: Sequence[int],
        ends: Sequence[int],
        low: int,
        high: int,
        total: int,
    ) -> None:
        """Put these runs of the log, `total` bytes within [low, high), into the result; those that are not
        in memory it may load."""
        result.is_dense = is_dense = high - low < DENSE * total
        window = self._log.window_at(low)
        if window is None and is_dense:
            window = self._log.region_at(low, high)
        if window is not None and high <= window.end:
            view, start = window.view, window.start
            result.buffers = [
                view[begin - start : end - start] for begin, end in zip(begins, ends, strict=True)
            ]
        else:
            self._load_runs(result, begins, ends, is_dense=is_dense)

    def _load_runs(
        self, result: GetMessageResult, begins: Sequence[int], ends: Sequence[int], *, is_dense: bool
    ) -> None:
        """The same where no window has all of them."""
        view, start, low, end = _NOWHERE
        for phy_offset, run_end in zip(begins, ends, strict=True):
            if phy_offset < low or run_end > end:
                view, start, low, end = self._window(phy_offset, run_end, is_dense=is_dense) or _NOWHERE
            if low <= phy_offset and run_end <= end:
                result.buffers.append(view[phy_offset - start : run_end - start])
            elif (log_file := self._log.file_at(phy_offset)) is not None:
                result.add_cold(log_file, phy_offset, run_end - phy_offset)

    def _matches(self, record_filter: RecordFilter, phy_offset: int, size: int) -> bool:
        record = self._log.read_nowait(phy_offset, size) or self._log.read(phy_offset, size)
        return record is not None and record_filter(record)


def _last_phy_offset(units: bytes) -> int:
    phy_offset: int = UNIT.unpack_from(units, len(units) - UNIT_BYTES)[0]
    return phy_offset


def _missing(queue: ConsumeQueue, queue_offset: int) -> GetMessageResult:
    """The answer where a file of the queue is missing. Asking the same again would find nothing for ever."""
    per_file = queue.units_per_file
    next_offset = min(queue_offset - queue_offset % per_file + per_file, queue.max_queue_offset)
    return GetMessageResult(
        GetMessageStatus.OFFSET_FOUND_NULL, next_offset, queue.min_queue_offset, queue.max_queue_offset
    )


def _outside(queue: ConsumeQueue | None, queue_offset: int) -> GetMessageResult:
    """The answer to an offset that the queue does not hold."""
    if queue is None:
        return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    low, high = queue.min_queue_offset, queue.max_queue_offset
    if high == 0:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if queue_offset < low:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, high, low, high)
    return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
