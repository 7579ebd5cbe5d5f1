"""QueueVerifier: units of ConsumeQueues are checked against their records, and rebuilt where they do not fit.

A process trusts the units that it appended itself. Units from before its start are checked when they are
first read, once: topic, queue_id, queue_offset, phy_offset, size and tags code of the record, its lengths and
the CRC of its body. So damage to a queue's files and damage to the CommitLog are both found before a consumer
gets to it. What does not fit is looked for in the log, between the records of the units around it. A record
that is there gives the unit again; where there is none the message is lost, and its unit becomes blank, which
readers step over.

Runs in any thread, with descriptors of its own; only one thread at a time rebuilds.
Not here: which units are in doubt (consume_queue.py), what is known of damage (corrupt_ranges.py). The thread
that sends old messages verifies units itself, and leaves to this what does not fit (cold_answers.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from threading import Lock, local
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from kourou.errors import ProtocolError
from kourou.protocol.layout import MAX_TOPIC_BYTES_V1, MIN_RECORD_BYTES
from kourou.protocol.names import is_lmq
from kourou.protocol.properties import MessageConst, properties_from_bytes
from kourou.protocol.property_columns import PropertyColumns
from kourou.protocol.record_fields import record_phy_offset
from kourou.protocol.record_spans import Bools, Int64s, RecordSpans
from kourou.protocol.tags import tags_code
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.disk.files import Files
from kourou.store.kernel import Kernel
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import Blank, DispatchRequest, read_dispatch_request
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.log.log_snapshot import MAX_RECORD_BYTES, LogSnapshot
from kourou.store.log.record_columns import read_piece, spans_at
from kourou.store.queue.cq_unit import BLANK_UNIT, UNIT, UNIT_BYTES
from kourou.store.queue.queue_view import Units, units_of
from kourou.store.queue.unit_blocks import CHUNK_UNITS
from kourou.store.recovery.columns_dispatcher import is_listed
from kourou.store.recovery.corrupt_ranges import Damage, KnownDamages

if TYPE_CHECKING:
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.queue_files import QueueFiles

_AHEAD_UNITS: Final = 4096
"""Up to so many units are verified at once if their records lie close together: what Python does for them
holds up the loop."""
_AHEAD_BYTES: Final = 32 * 1024 * 1024
_READ_BYTES: Final = 4 * 1024 * 1024
"""Records of one check; a larger one is checked alone."""
_READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""The following bytes of the log are fetched, too, while these are checked: for the next check."""
_GAP_BYTES: Final = 8 * 1024
"""Records closer together than this are read in one go."""
_REBUILT_UNITS: Final = 65_536
"""More are not kept of one walk over the whole log; what follows is found from there."""
_SCRATCH_BYTES: Final = 8 * 1024 * 1024
_FIRST_PIECE_BYTES: Final = 128 * 1024
_EXT_ADDRESS_END: Final = -(1 << 31)
"""Below are Apache's addresses in `consumequeue_ext`, no tags codes."""


class _Scratch(local):
    """Memory for records, one of each thread."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def of(self, size_bytes: int) -> memoryview:
        """So many bytes, with any content."""
        if size_bytes > _SCRATCH_BYTES:
            return memoryview(bytearray(size_bytes))
        if not self._memory:
            self._memory = bytearray(_SCRATCH_BYTES)
        return memoryview(self._memory)[:size_bytes]


class QueueVerifier:
    """Verifies the queues of one store. `has_ext`: Apache kept bit maps of filters beside the queues."""

    def __init__(
        self,
        files: Files,
        log: CommitLog,
        queue_files: QueueFiles,
        damages: KnownDamages,
        delay_levels: tuple[int, ...],
        *,
        kernel: Kernel | None = None,
        has_ext: bool = False,
    ) -> None:
        self._files = files
        self._log = log
        self._queue_files = queue_files
        self.damages = damages
        self._delay_levels = delay_levels
        self.kernel = kernel
        self.has_ext = has_ext
        # Memory of each thread for records: what is made anew for each check costs more than to fill it.
        self.scratch = _Scratch()
        self._rebuilding = Lock()

    def verify(self, queue: ConsumeQueue, queue_offset: int, count: int) -> None:
        """Have these units, which are in the files, fit their records, or be blank. May wait for the disk;
        OSError when it fails."""
        unverified = queue.unverified_chunks()
        try:
            first, end = self._verify(queue, queue_offset, count)
        except FileNotFoundError:  # the log has deleted a file meanwhile, which is now left out
            first, end = self._verify(queue, queue_offset, count)
        # Whole chunks, but at the ends of the queue, where there is no more of them.
        chunks = range(first // CHUNK_UNITS, min(-(-end // CHUNK_UNITS), len(unverified)))
        unverified[chunks.start : chunks.stop] = bytes(len(chunks))

    def _verify(self, queue: ConsumeQueue, queue_offset: int, count: int) -> tuple[int, int]:
        """The same; from which unit to which that was."""
        with closing(LogSnapshot(self._files, self._log)) as log:
            check = _QueueCheck(self, queue, log)
            first, end = check.range_of(queue_offset, count)
            if check.fits(first, check.units(first, end)).all():
                return first, end
        with self._rebuilding, closing(LogSnapshot(self._files, self._log)) as log:
            # Again: another thread may have rebuilt them, and the log may have deleted their records.
            check = _QueueCheck(self, queue, log)
            units = check.units(first, end)
            self._rebuild(queue, check, first, units, check.fits(first, units))
        return first, end

    def _rebuild(
        self, queue: ConsumeQueue, check: _QueueCheck, first: int, units: Units, is_right: Bools
    ) -> None:
        at = 0
        while at < len(is_right):
            if is_right[at]:
                at += 1
                continue
            run_end = at + 1
            while run_end < len(is_right) and not is_right[run_end]:
                run_end += 1
            behind = first + run_end if run_end < len(is_right) else None
            found, known_end = check.find_records(first + at, first + run_end, behind)
            self._write(queue, check, first + at, known_end, found)
            at = known_end - first

    def _write(
        self, queue: ConsumeQueue, check: _QueueCheck, first: int, end: int, found: dict[int, bytes]
    ) -> None:
        """Replace the units from `first` to before `end` by those that were found, blank ones elsewhere."""
        before = check.raw_units(first, end)
        after = b"".join(found.get(queue_offset, BLANK_UNIT) for queue_offset in range(first, end))
        if before == after:
            return
        if not queue.rewrite_units(check.epoch, first, after):
            return
        rebuilt = sum(
            before[at : at + UNIT_BYTES] != after[at : at + UNIT_BYTES]
            for at in range(0, len(after), UNIT_BYTES)
            if after[at : at + UNIT_BYTES] != BLANK_UNIT
        )
        lost = [
            first + at // UNIT_BYTES
            for at in range(0, len(after), UNIT_BYTES)
            if after[at : at + UNIT_BYTES] == BLANK_UNIT != before[at : at + UNIT_BYTES]
        ]
        path = self._queue_files.path(
            queue.topic, queue.queue_id, self._queue_files.start_of(first * UNIT_BYTES)
        )
        if rebuilt:
            self.damages.note_rebuilt(queue.topic, queue.queue_id, path, first, rebuilt)
        for first_lost, last_lost in _runs(lost):
            self.damages.note_lost(queue.topic, queue.queue_id, first_lost, last_lost)

    # -- for the checks --------------------------------------------------------------------------

    def read_units(self, queue: ConsumeQueue, queue_offset: int, end: int) -> bytes:
        """The units as they lie in the files; zeros where a file is missing or too short."""
        raw = b""
        per_file = self._queue_files.units_per_file
        while queue_offset < end:
            count = min(end - queue_offset, per_file - queue_offset % per_file)
            position, size = queue_offset * UNIT_BYTES, count * UNIT_BYTES
            raw += self._queue_files.read(queue.topic, queue.queue_id, position, size).ljust(size, b"\0")
            queue_offset += count
        return raw

    def first_of_lost_file(self, queue: ConsumeQueue, queue_offset: int, first: int) -> int:
        """The first unit of the file that this unit should be in, if it is gone; else `first`."""
        start = self._queue_files.start_of(queue_offset * UNIT_BYTES)
        is_gone = self._queue_files.length(queue.topic, queue.queue_id, start) < 0
        return min(first, start // UNIT_BYTES) if is_gone else first

    def note_damage(self, log: LogSnapshot, bad: BadRecord, end_phy_offset: int) -> None:
        log_file = log.file_at(bad.phy_offset)
        if log_file is not None:
            self.damages.note(Damage(log_file.path, bad.phy_offset, end_phy_offset, bad.reason))

    def scanner(self, log: LogSnapshot) -> LogScanner:
        return LogScanner(log, self._delay_levels, max_record_bytes=MAX_RECORD_BYTES)


class _QueueCheck:
    """One check of one queue, by one thread."""

    def __init__(self, verifier: QueueVerifier, queue: ConsumeQueue, log: LogSnapshot) -> None:
        self._verifier = verifier
        self._queue = queue
        self._log = log
        self._raw_topic = queue.topic.encode("utf-8", "surrogateescape")
        # Those of delayed messages are times of delivery, by the delay levels of their day.
        self._has_codes = queue.topic != SCHEDULE_TOPIC
        self.epoch = queue.epoch

    # -- which units -----------------------------------------------------------------------------

    def range_of(self, queue_offset: int, count: int) -> tuple[int, int]:
        """Whole chunks around these units; more behind them if the records lie close together."""
        low, high = self._queue.min_queue_offset, self._queue.flushed_queue_offset
        first = queue_offset - queue_offset % CHUNK_UNITS
        # A file that is gone is made anew from its first unit on.
        first = max(low, self._verifier.first_of_lost_file(self._queue, queue_offset, first))
        end = min(high, _chunk_end(queue_offset + count))
        ahead = min(high, first - first % _AHEAD_UNITS + _AHEAD_UNITS)
        if ahead > end:
            phy_offsets = self.units(first, ahead).phy_offsets
            is_far = phy_offsets - phy_offsets[0] > _AHEAD_BYTES
            near = first + (int(is_far.argmax()) if is_far.any() else len(is_far))
            end = max(end, ahead if near == ahead else near - near % CHUNK_UNITS)
        return first, end

    def raw_units(self, first: int, end: int) -> bytes:
        return self._verifier.read_units(self._queue, first, end)

    def units(self, first: int, end: int) -> Units:
        return units_of(self.raw_units(first, end))

    # -- do they fit -----------------------------------------------------------------------------

    def fits(self, first: int, units: Units) -> Bools:
        """Which of the units from `first` on fit their records. What the log no longer has fits too: its
        record expired."""
        if is_lmq(self._queue.topic):
            # Queues of Apache's whose units point at records of other topics.
            return np.ones(len(units), np.bool_)
        if self._fit_in_files(first, units):
            return np.ones(len(units), np.bool_)
        phy_offsets, sizes = units.phy_offsets, units.sizes
        is_sized = (sizes >= MIN_RECORD_BYTES) & (sizes <= MAX_RECORD_BYTES)
        is_right: Bools = is_sized & (phy_offsets >= 0) & (phy_offsets < self._log.min_phy_offset)
        rows = np.flatnonzero(
            is_sized
            & (phy_offsets >= self._log.min_phy_offset)
            & (phy_offsets <= self._log.max_phy_offset - sizes)
        )
        is_kept = np.zeros(len(units), np.bool_)
        for some in _batches(rows, phy_offsets, sizes, self._log.file_bytes):
            is_kept[some] = self._fit(first + some, units, some)
        if is_right.any():
            # Records expire from the queue's start on: none behind one that the log has.
            is_right &= ~np.logical_or.accumulate(is_kept) & (not self._is_kept_before(first))
        return is_right | is_kept

    def _fit_in_files(self, first: int, units: Units) -> bool:
        """Whether all of them fit, by the compiled kernel; False also for what Python has to decide."""
        kernel = self._verifier.kernel
        if kernel is None or not len(units):
            return False
        borders = np.flatnonzero(np.diff(units.phy_offsets // self._log.file_bytes)) + 1
        at = 0
        for end in (*borders.tolist(), len(units)):
            place = self._log.descriptor_at(int(units.phy_offsets[at]))
            if place is None or not kernel.units_fit_in_file(
                *place,
                units.raw[at:end].tobytes(),
                first + at,
                self._raw_topic,
                self._queue.queue_id,
                self._has_codes,
                _READ_AHEAD_BYTES,
            ):
                return False
            at = end
        return True

    def _is_kept_before(self, queue_offset: int) -> bool:
        """Whether the unit in front of this one points into the log, as far as can be seen from itself."""
        if queue_offset <= self._queue.min_queue_offset:
            return False
        unit = self.units(queue_offset - 1, queue_offset)
        phy_offset, size = int(unit.phy_offsets[0]), int(unit.sizes[0])
        is_sized = MIN_RECORD_BYTES <= size <= MAX_RECORD_BYTES
        return is_sized and self._log.min_phy_offset <= phy_offset <= self._log.max_phy_offset - size

    def _fit(self, queue_offsets: Int64s, units: Units, rows: Int64s) -> Bools:
        """The same for units whose records lie side by side, or nearly."""
        phy_offsets, sizes = units.phy_offsets[rows], units.sizes[rows]
        low, high = int(phy_offsets[0]), int(phy_offsets[-1] + sizes[-1])
        raw = self._log.view(low, high)
        if raw is None:
            raw = self._verifier.scratch.of(high - low)
            if not self._log.read_into(raw, low):
                return np.zeros(len(rows), np.bool_)
        kernel = self._verifier.kernel
        if kernel is not None and kernel.units_fit(
            raw,
            low,
            units.raw[rows].tobytes(),
            int(queue_offsets[0]),
            self._raw_topic,
            self._queue.queue_id,
            self._has_codes,
        ):
            return np.ones(len(rows), np.bool_)
        records, is_right = spans_at(raw, phy_offsets - low, sizes, phy_offsets)
        is_right &= records.field("queue_id") == self._queue.queue_id
        is_right &= (records.field("queue_offset") == queue_offsets) & is_listed(records.sys_flags)
        rows_right = np.flatnonzero(is_right)
        is_right[rows_right] = self._texts_fit(raw, records, rows_right, units.tags_codes[rows[rows_right]])
        return is_right

    def _texts_fit(
        self, raw: memoryview, records: RecordSpans, rows: NDArray[np.intp], codes: Int64s
    ) -> list[bool]:
        """Whether topics and tags are those of the units, and nothing is wrong with them."""
        topic_begins, topic_ends = records.topic_begins[rows].tolist(), records.topic_ends[rows].tolist()
        begins, ends = records.property_begins[rows].tolist(), records.ends[rows].tolist()
        topic = self._raw_topic
        is_short = len(topic) <= MAX_TOPIC_BYTES_V1
        stored = [bytes(raw[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        tags = PropertyColumns.of(stored).values(MessageConst.PROPERTY_TAGS)
        found: list[int | None] = []
        spans = zip(topic_begins, topic_ends, stored, rows.tolist(), strict=True)
        for at, (topic_begin, topic_end, properties, row) in enumerate(spans):
            if is_short and raw[topic_begin:topic_end] == topic and b"\0" not in properties:
                found.append(tags_code(properties_from_bytes(tags[at])) if at in tags else 0)
            else:
                record = bytes(raw[int(records.starts[row]) : ends[at]])
                found.append(self._code_of_uncommon(record, record_phy_offset(record)))
        if not self._has_codes:
            return [code is not None for code in found]
        wanted = codes.tolist()
        ext_end = _EXT_ADDRESS_END if self._verifier.has_ext else -(1 << 63)
        return [
            code is not None and (code == own or own < ext_end)
            for code, own in zip(found, wanted, strict=True)
        ]

    def _code_of_uncommon(self, record: bytes, phy_offset: int) -> int | None:
        """The tags code of a record that may not be one, or may be of another topic: None."""
        try:
            found = read_dispatch_request(record, 0, phy_offset, (), check_crc=False)
        except ProtocolError:
            return None
        return None if isinstance(found, Blank) or found.topic != self._queue.topic else found.tags_code

    # -- finding their records -------------------------------------------------------------------

    def find_records(self, first: int, end: int, behind: int | None) -> tuple[dict[int, bytes], int]:
        """The units from `first` on, made from the records of the log, and up to where that is all of them,
        which is at `end` or later. `behind` is a unit that fits, if there is one right behind them."""
        low = self._place_before(first)
        if low is not None:
            high = None if behind is None else self._place(behind)
            return self._find_between(first, end, low[1], self._limit(high))
        # Nothing in front of them fits. The log may still have records of a topic that was deleted and made
        # anew: only the last row that counts from its start belongs to this queue. So all is walked.
        high = self._place_behind(end)
        known_end = self._queue.flushed_queue_offset if high is None else high[0]
        known_end = min(known_end, end + _REBUILT_UNITS)
        found: dict[int, bytes] = {}
        last = -1
        for queue_offset, unit in self._records(self._log.min_phy_offset, self._limit(high)):
            if queue_offset <= last:
                found.clear()
            last = queue_offset
            if first <= queue_offset < known_end:
                found[queue_offset] = unit
        return found, known_end

    def _find_between(self, first: int, end: int, low: int, high: int) -> tuple[dict[int, bytes], int]:
        found: dict[int, bytes] = {}
        for queue_offset, unit in self._records(low, high):
            if queue_offset >= end:
                # What is missing up to there is lost, too: no later walk has to find that out.
                return found, min(queue_offset, self._queue.flushed_queue_offset)
            found[queue_offset] = unit
        return found, end

    def _limit(self, high: tuple[int, int, int] | None) -> int:
        """Where the records of the queue end, or those in front of a unit."""
        limit = min(self._log.max_phy_offset, self._queue.max_phy_offset)
        return limit if high is None else min(limit, high[2])

    def _place(self, queue_offset: int) -> tuple[int, int, int] | None:
        """A unit that fits, as queue_offset, the end of its record and its start; None if it does not."""
        units = self.units(queue_offset, queue_offset + 1)
        phy_offset = int(units.phy_offsets[0])
        if phy_offset < self._log.min_phy_offset or not self.fits(queue_offset, units)[0]:
            return None
        return queue_offset, phy_offset + int(units.sizes[0]), phy_offset

    def _place_before(self, queue_offset: int) -> tuple[int, int, int] | None:
        """A unit in front of this one that fits: the next one, or one further and further away."""
        step = 1
        while queue_offset - step >= self._queue.min_queue_offset:
            if (place := self._place(queue_offset - step)) is not None:
                return place
            step *= 2
        return None

    def _place_behind(self, queue_offset: int) -> tuple[int, int, int] | None:
        step = 0
        while queue_offset + step < self._queue.flushed_queue_offset:
            if (place := self._place(queue_offset + step)) is not None:
                return place
            step = 2 * step or 1
        return None

    def _records(self, phy_offset: int, limit: int) -> Iterator[tuple[int, bytes]]:
        """The records of the queue up to `limit`, as queue_offset and unit; damage on the way is noted."""
        scanner = self._verifier.scanner(self._log)
        piece_bytes = _FIRST_PIECE_BYTES
        while phy_offset < limit and (log_file := self._log.file_at(phy_offset)) is not None:
            raw = self._log.read(phy_offset, min(piece_bytes, log_file.end_phy_offset - phy_offset)) or b""
            piece_bytes = min(2 * piece_bytes, _READ_BYTES)
            piece = read_piece(raw, phy_offset)
            columns = piece.columns
            if len(columns):
                is_mine = is_listed(columns.sys_flags) & (columns.queue_ids == self._queue.queue_id)
                for row in np.flatnonzero(is_mine).tolist():
                    if str(columns.topics[row], "utf-8", "replace") != self._queue.topic:
                        continue
                    found = scanner.record_at(int(columns.phy_offsets[row]))
                    if isinstance(found, DispatchRequest) and not self._is_torn(scanner, found, limit):
                        yield found.queue_offset, _unit_of(found)
                phy_offset += piece.end
                continue
            found = scanner.record_at(phy_offset)
            if isinstance(found, Blank):
                phy_offset += found.size
            elif isinstance(found, BadRecord):
                follows = scanner.next_record(phy_offset + 1, limit)
                end = limit if follows is None else follows
                self._verifier.note_damage(self._log, found, end)
                phy_offset = end
            else:
                if self._is_mine(found) and not self._is_torn(scanner, found, limit):
                    yield found.queue_offset, _unit_of(found)
                phy_offset += found.size

    def _is_torn(self, scanner: LogScanner, record: DispatchRequest, limit: int) -> bool:
        """Whether a record was overwritten in its properties, which no checksum covers: its unit has other
        tags, all else is the same, and what follows it is damaged."""
        end = record.phy_offset + record.size
        if self._verifier.damages.is_known(record.phy_offset, end):
            return True
        unit = self.units(record.queue_offset, record.queue_offset + 1)
        if (
            (int(unit.phy_offsets[0]), int(unit.sizes[0])) != (record.phy_offset, record.size)
            or int(unit.tags_codes[0]) == record.tags_code
            or not self._has_codes
            or end >= limit
            or not isinstance(scanner.record_at(end), BadRecord)
        ):
            return False
        bad = BadRecord(record.phy_offset, "its tags have changed, and no record follows")
        self._verifier.note_damage(self._log, bad, scanner.next_record(end, limit) or limit)
        return True

    def _is_mine(self, request: DispatchRequest) -> bool:
        queue = self._queue
        return (request.topic, request.queue_id) == (queue.topic, queue.queue_id) and request.in_consume_queue


def _unit_of(request: DispatchRequest) -> bytes:
    return UNIT.pack(request.phy_offset, request.size, request.tags_code)


def _chunk_end(queue_offset: int) -> int:
    return -(-queue_offset // CHUNK_UNITS) * CHUNK_UNITS


def _batches(
    rows: NDArray[np.intp], phy_offsets: Int64s, sizes: Int64s, file_bytes: int
) -> Iterator[NDArray[np.intp]]:
    """The rows in parts: neighbours in the queue whose records lie close together in one file of the log."""
    if not len(rows):
        return
    phy_offsets, sizes = phy_offsets[rows], sizes[rows]
    gaps = phy_offsets[1:] - (phy_offsets + sizes)[:-1]
    is_apart = (gaps < 0) | (gaps > _GAP_BYTES) | (np.diff(rows) > 1)
    is_apart |= np.diff(phy_offsets // file_bytes) != 0
    is_apart |= np.diff(phy_offsets // _READ_BYTES) != 0
    yield from np.split(rows, np.flatnonzero(is_apart) + 1)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Numbers that follow each other as first and last."""
    first = last = None
    for number in numbers:
        if first is not None and last is not None and number != last + 1:
            yield first, last
            first = None
        first, last = number if first is None else first, number
    if first is not None and last is not None:
        yield first, last
