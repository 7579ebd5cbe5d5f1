"""ConsumeQueue: one queue's index into the CommitLog.

A row of 20-byte units (cq_unit.py), unit k for the message with queue_offset k. The newest
units are in memory, the tail; flush rounds (queue_flush.py) carry it to the files. Always
rebuildable from the CommitLog, so never synced before an ack, and `append` touches no file.

One thread owns a queue. Another may run the writing half of a flush round, and `read_units`
below what was flushed: those units no longer change.
Not here: which queues there are (consume_queues.py), appending (dispatcher.py), search by
time (queue_time_search.py), where it begins when the log loses its start (queue_min_search.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from kourou.errors import DamageError
from kourou.protocol.names import is_lmq
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.queue.cq_unit import BLANK_UNIT, UNIT, UNIT_BYTES, CqUnit
from kourou.store.queue.queue_files import QueueFiles
from kourou.store.queue.queue_min_search import MinSearch
from kourou.store.queue.queue_recovery import IsRecord, QueueState, find_end
from kourou.store.queue.unit_blocks import BLOCK_UNITS, CHUNK_UNITS

if TYPE_CHECKING:
    from kourou.protocol.record import RecordEncoder

_log = logging.getLogger(__name__)

_pack = UNIT.pack
_BLANK_ROW: Final = np.frombuffer(BLANK_UNIT, np.uint8)
_PROBE_UNITS: Final = 64
# As many as the smallest records of one CommitLog file: a gap comes from records lost there.
# A queue_offset further ahead is no gap but a broken number.
MAX_GAP_UNITS: Final = 10_000_000
_MAX_QUEUE_OFFSET: Final = (1 << 63) // UNIT_BYTES - 1  # positions have 63 bits
_FILL_UNITS: Final = 50_000

Verdict = Callable[[CqUnit], bool | None]
"""Whether a unit is what a search looks for; None if it does not decide."""


class ConsumeQueue:
    """A queue: units from `min_queue_offset` to `max_queue_offset`, which is the next one's offset.

    `max_phy_offset` is the end of the last message's record, -1 when there is none. `has_files`: units were
    written to files, which may have expired since.
    `next_queue_offset` and `encoder` belong to the appender: the first runs ahead of
    `max_queue_offset` by the messages that are not visible yet.
    Units below `flushed_queue_offset` are in the files, in the page cache at least; `tail` has those from
    there on. `blocks` has, by number, blocks of flushed units that may be read as they are (unit_blocks.py):
    once units are taken away or in doubt, it is another dict. `doubted` has blocks with units that may have
    to be verified, and `unverified` a byte for each chunk of units: how many at its end were not verified.
    The compiled kernel reads all of these."""

    __slots__ = (
        "_doubtful_end",
        "_epoch",
        "_files",
        "_first_file",
        "_mark_dirty",
        "_min_phy_offset",
        "blocks",
        "doubted",
        "encoder",
        "flushed_queue_offset",
        "has_files",
        "max_phy_offset",
        "max_queue_offset",
        "min_queue_offset",
        "next_queue_offset",
        "queue_id",
        "tail",
        "topic",
        "unverified",
    )

    def __init__(
        self, topic: str, queue_id: int, files: QueueFiles, mark_dirty: Callable[[ConsumeQueue], None]
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.encoder: RecordEncoder | None = None
        self._files = files
        self._mark_dirty = mark_dirty
        # Changes when units are taken away: a flush under way is void then.
        self._epoch = 0
        self.blocks: dict[int, bytes] = {}
        self.doubted: dict[int, bytes] = {}
        self._reset(0)

    def __repr__(self) -> str:
        return (
            f"<ConsumeQueue {self.topic}/{self.queue_id} [{self.min_queue_offset}, {self.max_queue_offset})>"
        )

    def _reset(self, queue_offset: int) -> None:
        """No units; the next one is `queue_offset`."""
        self.min_queue_offset = self.max_queue_offset = self.next_queue_offset = queue_offset
        self.max_phy_offset = -1
        self._min_phy_offset = -1  # of the unit at min_queue_offset, -1: not known
        self.flushed_queue_offset = queue_offset
        self._first_file = self._files.start_of(queue_offset * UNIT_BYTES)
        self.has_files = False
        self.tail = bytearray()
        # Units below are not of this process: they are read only when they were verified.
        self._doubtful_end = 0
        self.unverified: bytearray | None = None

    @property
    def units_per_file(self) -> int:
        """How many units a file holds: `read_units` never crosses from one to the next."""
        return self._files.units_per_file

    @property
    def first_file_queue_offset(self) -> int:
        """The first unit of the first file; it may lie below `min_queue_offset`."""
        return self._first_file // UNIT_BYTES

    # -- growing ---------------------------------------------------------------------------------

    def append(self, phy_offset: int, size: int, tags_code: int) -> None:
        """Add the next unit. In memory on return, and visible."""
        tail = self.tail
        if not tail:
            self._begin_tail(phy_offset)
        tail += _pack(phy_offset, size, tags_code)
        self.max_queue_offset += 1
        self.max_phy_offset = phy_offset + size

    def append_units(self, raw: bytes, count: int, end_phy_offset: int) -> None:
        """Add `count` units at once; the record of the last ends at `end_phy_offset`. As `append`."""
        tail = self.tail
        if not tail:
            self._begin_tail(UNIT.unpack_from(raw)[0])
        tail += raw
        self.max_queue_offset += count
        self.max_phy_offset = end_phy_offset

    def _begin_tail(self, phy_offset: int) -> None:
        self._mark_dirty(self)
        if self.min_queue_offset == self.max_queue_offset:
            self._min_phy_offset = phy_offset

    def put(self, queue_offset: int, phy_offset: int, size: int, tags_code: int) -> bool:
        """Add the unit of a record found in the CommitLog; False when the queue has it already.

        Places the queue never got a message for are filled with blank units, and a record that
        counts from 0 again starts the queue over: its topic was deleted and made anew.
        DamageError when the queue_offset cannot be right.
        """
        if phy_offset + size <= self.max_phy_offset:
            return False
        if queue_offset != self.max_queue_offset and not self._make_room(queue_offset, phy_offset):
            return False
        self.append(phy_offset, size, tags_code)
        if self.next_queue_offset < self.max_queue_offset:
            self.next_queue_offset = self.max_queue_offset
        return True

    def _next_epoch(self) -> None:
        """Units are taken away."""
        self._epoch += 1
        self.blocks = {}
        self.doubted = {}

    def _make_room(self, queue_offset: int, phy_offset: int) -> bool:
        """Have `queue_offset` come next; False when that place is taken."""
        if not 0 <= queue_offset <= _MAX_QUEUE_OFFSET:
            raise self._broken_number(queue_offset, phy_offset, "which no queue reaches")
        if self.max_phy_offset < 0:
            self._reset(queue_offset)
            return True
        if queue_offset == 0:
            _log.info(
                "%s/%d: the record at %d starts the queue over, %d units go",
                self.topic,
                self.queue_id,
                phy_offset,
                self.max_queue_offset - self.min_queue_offset,
            )
            self.clear()
            return True
        if queue_offset < self.max_queue_offset:
            self._log_oddity(
                "has the place of the record at %d taken: queue_offset %d", phy_offset, queue_offset
            )
            return False
        self._fill_gap(queue_offset, phy_offset)
        return True

    def _fill_gap(self, queue_offset: int, phy_offset: int) -> None:
        missing = queue_offset - self.max_queue_offset
        if missing > MAX_GAP_UNITS:
            raise self._broken_number(queue_offset, phy_offset, f"{missing} ahead of the queue")
        self._log_oddity("has no units for %d messages in front of queue_offset %d", missing, queue_offset)
        is_empty = self.min_queue_offset == self.max_queue_offset
        self._append_blanks(missing)
        if is_empty:
            self.min_queue_offset, self._min_phy_offset = queue_offset, -1

    def _append_blanks(self, count: int) -> None:
        while count:
            some = min(count, _FILL_UNITS)
            self.append_units(BLANK_UNIT * some, some, self.max_phy_offset)
            count -= some
            if len(self.tail) >= _FILL_UNITS * UNIT_BYTES:
                self.flush()

    def _broken_number(self, queue_offset: int, phy_offset: int, reason: str) -> DamageError:
        return DamageError(
            self._files.folder(self.topic, self.queue_id),
            queue_offset * UNIT_BYTES,
            f"the record at phy_offset {phy_offset} has queue_offset {queue_offset}, {reason}",
        )

    def _log_oddity(self, what: str, *args: int) -> None:
        _log.warning("%s/%d " + what, self.topic, self.queue_id, *args)

    # -- flushing --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the tail. In the page cache on return."""
        epoch, queue_offset, raw = self.unflushed()
        self.write_units(epoch, queue_offset, raw)
        self.mark_flushed(epoch, queue_offset + len(raw) // UNIT_BYTES)

    @property
    def unflushed_bytes(self) -> int:
        """How long the tail is."""
        return len(self.tail)

    def unflushed(self) -> tuple[int, int, bytes]:
        """A copy of the tail to write: epoch, queue_offset of its first unit, its bytes."""
        return self._epoch, self.flushed_queue_offset, bytes(self.tail)

    def write_units(self, epoch: int, queue_offset: int, raw: bytes) -> None:
        """Write what `unflushed` gave, in any thread; nothing happens if units were taken away since."""
        with self._files.lock:
            if epoch == self._epoch:
                self._files.write(self.topic, self.queue_id, queue_offset * UNIT_BYTES, raw)

    def mark_flushed(self, epoch: int, queue_offset: int) -> None:
        """Units below `queue_offset` have been written: readers find them in the files."""
        count = queue_offset - self.flushed_queue_offset
        if epoch == self._epoch and count > 0:
            self.flushed_queue_offset = queue_offset
            self.has_files = True
            del self.tail[: count * UNIT_BYTES]

    # -- reading ---------------------------------------------------------------------------------

    def read_units(self, queue_offset: int, max_units: int) -> bytes:
        """Up to `max_units` whole units from `queue_offset` on; none outside of [min, max).

        Stops where a file ends and where the tail begins. May wait for the disk.
        """
        if queue_offset >= self.flushed_queue_offset:
            return self._tail_units(queue_offset, max_units)
        count = self._readable_units(queue_offset, max_units)
        if count <= 0:
            return b""
        verifier = self._files.verifier
        if verifier is not None and self._is_doubtful(queue_offset, count):
            verifier.verify(self, queue_offset, count)
        raw = self._read_raw(queue_offset, count)
        if verifier is not None and len(raw) < count * UNIT_BYTES:
            # Its file is gone or too short, although this process wrote it: so may be others.
            self._doubt_all()
            verifier.verify(self, queue_offset, count)
            raw = self._read_raw(queue_offset, count)
        return raw

    def _read_raw(self, queue_offset: int, count: int) -> bytes:
        """Whole units of one file as they are there, fewer where it is too short or gone."""
        if count <= 0:
            return b""
        size_bytes = count * UNIT_BYTES
        raw = self._files.read(self.topic, self.queue_id, queue_offset * UNIT_BYTES, size_bytes)
        return raw if len(raw) == size_bytes else raw[: len(raw) // UNIT_BYTES * UNIT_BYTES]

    def read_units_nowait(self, queue_offset: int, max_units: int) -> bytes | None:
        """The same without waiting: None when the units have to come from disk."""
        if queue_offset >= self.flushed_queue_offset:
            return self._tail_units(queue_offset, max_units)
        if queue_offset < self._doubtful_end and self._is_doubtful(queue_offset, max_units):
            return None
        if max_units <= BLOCK_UNITS and queue_offset >= self.min_queue_offset:
            units = self._block_units(queue_offset, max_units)
            if units is not None:
                return units
        return self._read_flushed(queue_offset, max_units)

    def _block_units(self, queue_offset: int, max_units: int) -> bytes | None:
        """All of these units from one block or two; None when these are not all flushed and in memory."""
        number, first = divmod(queue_offset, BLOCK_UNITS)
        units = self.blocks.get(number) or self._read_block(number)
        if units is not None and first + max_units > BLOCK_UNITS:
            following = self.blocks.get(number + 1) or self._read_block(number + 1)
            units = None if following is None else units + following
        return None if units is None else units[first * UNIT_BYTES : (first + max_units) * UNIT_BYTES]

    def _read_flushed(self, queue_offset: int, max_units: int) -> bytes | None:
        size_bytes = self._readable_units(queue_offset, max_units) * UNIT_BYTES
        if size_bytes <= 0:
            return b""
        raw = self._files.read_nowait(self.topic, self.queue_id, queue_offset * UNIT_BYTES, size_bytes)
        # A file that is too short is rebuilt by `read_units`, which may wait.
        return None if raw is None or len(raw) < size_bytes else raw

    def _read_block(self, number: int) -> bytes | None:
        """A whole block, which is kept; None unless all of it is flushed, verified, in one file, and in
        memory."""
        queue_offset = number * BLOCK_UNITS
        # Another thread that finds units doubtful replaces this dict.
        blocks = self.blocks
        if self._is_doubtful(max(queue_offset, self.min_queue_offset), BLOCK_UNITS):
            return None
        return self._load_block(blocks, number)

    def load_doubted_nowait(self, queue_offset: int) -> bool:
        """Have the block with this unit in `doubted`, for a reader that verifies units itself. False if some
        of it are not flushed or not in memory, or are verified otherwise: units of Apache's multiplexed
        queues, and those of delayed messages."""
        number, doubted = queue_offset // BLOCK_UNITS, self.doubted
        if number in doubted:
            return True
        if is_lmq(self.topic) or self.topic == SCHEDULE_TOPIC or self._files.verifier is None:
            return False
        self.unverified_chunks()
        return self._load_block(doubted, number) is not None

    def _load_block(self, blocks: dict[int, bytes], number: int) -> bytes | None:
        queue_offset = number * BLOCK_UNITS
        if self._readable_units(queue_offset, BLOCK_UNITS) < BLOCK_UNITS:
            return None
        block = self._read_flushed(queue_offset, BLOCK_UNITS)
        if block is not None:
            self._files.blocks.keep(blocks, number, block)
        return block

    def _tail_units(self, queue_offset: int, max_units: int) -> bytes:
        if queue_offset < self.min_queue_offset:
            return b""
        begin = (queue_offset - self.flushed_queue_offset) * UNIT_BYTES
        return bytes(self.tail[begin : begin + max_units * UNIT_BYTES])

    def _readable_units(self, queue_offset: int, max_units: int) -> int:
        if queue_offset < self.min_queue_offset:
            return 0
        per_file = self._files.units_per_file
        return min(max_units, self.flushed_queue_offset - queue_offset, per_file - queue_offset % per_file)

    def _read_unverified(self, queue_offset: int, max_units: int) -> bytes:
        """For searches, which look at few units of many: a wrong one must not make them wait."""
        if queue_offset >= self.flushed_queue_offset:
            return self._tail_units(queue_offset, max_units)
        return self._read_raw(queue_offset, self._readable_units(queue_offset, max_units))

    def unit(self, queue_offset: int) -> CqUnit | None:
        """One unit as it is there, not verified; it may be blank. None outside of [min, max) or when its
        file is gone."""
        raw = self._read_unverified(queue_offset, 1)
        return CqUnit(*UNIT.unpack(raw)) if raw else None

    # -- verifying -------------------------------------------------------------------------------

    def _is_doubtful(self, queue_offset: int, count: int) -> bool:
        """Whether some of these units have to be verified yet."""
        end = min(queue_offset + count, self._doubtful_end)
        if not self.min_queue_offset <= queue_offset < end or self._files.verifier is None:
            return False
        unverified = self.unverified
        return unverified is None or any(unverified[queue_offset // CHUNK_UNITS : -(-end // CHUNK_UNITS)])

    def unverified_chunks(self) -> bytearray:
        """For each chunk of doubtful units how many, at its end, were not verified. A verifier takes it
        before it reads, and changes it: if all are in doubt again by then, that has no effect. In any
        thread."""
        unverified = self.unverified
        while unverified is None:
            doubtful_end = self._doubtful_end
            unverified = self.unverified = bytearray([CHUNK_UNITS]) * -(-doubtful_end // CHUNK_UNITS)
            if doubtful_end != self._doubtful_end:
                unverified = None
        return unverified

    def distrust(self, queue_offset: int) -> bool:
        """Have every unit verified before it is read again: something else has written to the files, as the
        unit at `queue_offset` shows. False when that is not in the files, or nothing can verify it."""
        if self._files.verifier is None or queue_offset >= self.flushed_queue_offset or is_lmq(self.topic):
            return False
        self._doubt_all()
        self._files.blocks.clear()
        return True

    def _doubt_all(self) -> None:
        # In this order: another thread may be about to verify units, or to read them.
        self._doubtful_end = self.flushed_queue_offset
        self.doubted = {}
        self.unverified = None
        self.blocks = {}

    def rewrite_units(self, epoch: int, queue_offset: int, raw: bytes) -> bool:
        """Replace units that were wrong, in any thread; False if units were taken away since `epoch`."""
        with self._files.lock:
            if epoch != self._epoch:
                return False
            self._files.rewrite(self.topic, self.queue_id, queue_offset * UNIT_BYTES, raw)
            self.doubted = {}
        return True

    # -- searching -------------------------------------------------------------------------------

    def first_where(self, verdict: Verdict, low: int | None = None, high: int | None = None) -> int:
        """The first message for which `verdict` is true, by bisection; `high` if none.

        In [low, high), by default all of the queue; below what was flushed also in other threads.
        Once true it has to stay true. Blank units, units whose file is gone, and those whose
        verdict is None count as the next one that can tell.
        """
        low = self.min_queue_offset if low is None else low
        return self._bisect(verdict, low, self.max_queue_offset if high is None else high)[1]

    def first_kept(self, verdict: Verdict, high: int) -> int:
        """Like `first_where`, up to `high`, but damaged units right in front of that message count as well:
        what they stood for is found when they are read. Not the zeros in front of a queue's first message."""
        low = self.min_queue_offset
        place, found = self._bisect(verdict, low, high)
        may_be_hole = place == low and not low % self.units_per_file
        while place < found and not is_lmq(self.topic):
            count = self._readable_units(place, min(found - place, BLOCK_UNITS))
            units = np.frombuffer(self._read_raw(place, count).ljust(count * UNIT_BYTES, b"\0"), np.uint8)
            rows = units.reshape(-1, UNIT_BYTES)
            is_damaged = (rows != _BLANK_ROW).any(axis=1)
            if may_be_hole:
                is_damaged &= rows.any(axis=1)
            if is_damaged.any():
                return place + int(is_damaged.argmax())
            place += count
        return found

    def _bisect(self, verdict: Verdict, low: int, high: int) -> tuple[int, int]:
        """The first place that counts as found, and the message it counts for."""
        found = high
        while low < high:
            middle = (low + high) // 2
            told = self._next_told(middle, high, verdict)
            if told is None:
                high = middle
            elif told[1]:
                high, found = middle, told[0]
            else:
                low = told[0] + 1
        return low, found

    def _next_told(self, low: int, high: int, verdict: Verdict) -> tuple[int, bool] | None:
        """The next queue_offset in [low, high) with a verdict, and that verdict."""
        while low < high:
            raw = self._read_unverified(low, min(_PROBE_UNITS, high - low))
            for fields in UNIT.iter_unpack(raw):
                unit = CqUnit(*fields)
                told = verdict(unit) if unit.is_message else None
                if told is not None:
                    return low, told
                low += 1
            if not raw:
                low += self.units_per_file - low % self.units_per_file
        return None

    # -- shortening ------------------------------------------------------------------------------

    def truncate(self, phy_offset: int) -> bool:
        """The CommitLog ends at `phy_offset`: drop units whose record goes beyond it.

        True when one of them began before it: a unit that was wrong, so that the record it
        stood for has to be dispatched again, from `max_phy_offset` on.
        """
        if self.max_phy_offset <= phy_offset:
            return False
        if phy_offset < self._files.covered_phy_offset:
            self._files.drop_snapshot()
        max_before = self.max_phy_offset
        place, first = self._bisect(
            lambda unit: unit.end_phy_offset > phy_offset, self.min_queue_offset, self.max_queue_offset
        )
        wrong = self.unit(first)
        kept, max_phy_offset = self._last_message(place)
        self._cut(kept if max_phy_offset >= 0 else first, max_phy_offset)
        # A unit that points behind the queue's last record is damaged, too, and misled the search.
        return wrong is not None and not phy_offset <= wrong.phy_offset < max_before

    def _last_message(self, queue_offset: int) -> tuple[int, int]:
        """The place behind the last message below `queue_offset`, and where its record ends; -1 when
        there is none.

        Expired ones count too: where there are no others, they keep the next offset from going back.
        """
        while queue_offset > self.first_file_queue_offset:
            raw = self._unit_bytes(queue_offset - 1)
            if raw and (unit := CqUnit(*UNIT.unpack(raw))).is_message:
                return queue_offset, unit.end_phy_offset
            queue_offset -= 1
        return queue_offset, -1

    def _unit_bytes(self, queue_offset: int) -> bytes:
        if queue_offset >= self.flushed_queue_offset:
            begin = (queue_offset - self.flushed_queue_offset) * UNIT_BYTES
            return bytes(self.tail[begin : begin + UNIT_BYTES])
        raw = self._files.read(self.topic, self.queue_id, queue_offset * UNIT_BYTES, UNIT_BYTES)
        return raw if len(raw) == UNIT_BYTES else b""

    def _cut(self, queue_offset: int, max_phy_offset: int) -> None:
        """Drop the units from `queue_offset` on, in memory and in the files."""
        with self._files.lock:
            self._next_epoch()
            if max_phy_offset < 0:
                self._files.remove_queue(self.topic, self.queue_id)
                self._reset(queue_offset)
                return
            if queue_offset < self.flushed_queue_offset:
                self._cut_files(queue_offset)
            else:
                del self.tail[(queue_offset - self.flushed_queue_offset) * UNIT_BYTES :]
        self.max_queue_offset = self.next_queue_offset = queue_offset
        self.max_phy_offset = max_phy_offset
        self._doubtful_end = min(self._doubtful_end, queue_offset)
        if queue_offset <= self.min_queue_offset:
            self.min_queue_offset, self._min_phy_offset = queue_offset, -1

    def _cut_files(self, queue_offset: int) -> None:
        end = queue_offset * UNIT_BYTES
        last_file = self._files.start_of(self.flushed_queue_offset * UNIT_BYTES - 1)
        for start in range(last_file, end - 1, -self._files.file_bytes):
            self._files.remove(self.topic, self.queue_id, start)
        if end % self._files.file_bytes:
            self._files.cut(self.topic, self.queue_id, end)
        self.flushed_queue_offset = queue_offset
        self.tail = bytearray()

    def correct_min(self, min_phy_offset: int) -> None:
        """The CommitLog begins at `min_phy_offset`: `min_queue_offset` is the first message in it."""
        search = self.min_search(min_phy_offset)
        if search is not None:
            search.run()
            search.finish()

    def min_search(self, min_phy_offset: int) -> MinSearch | None:
        """The same with the search in the files apart; None when there is nothing to search there."""
        if self.max_phy_offset < 0 or self._min_phy_offset >= min_phy_offset:
            return None
        if self.max_phy_offset <= min_phy_offset:
            self.begin_at(self.max_queue_offset, -1)
            return None
        return MinSearch(self, min_phy_offset)

    def begin_at(self, queue_offset: int, phy_offset: int) -> None:
        """What lies in front of this message, whose record is at `phy_offset` (-1: not known), is gone."""
        self.min_queue_offset, self._min_phy_offset = queue_offset, phy_offset

    @property
    def epoch(self) -> int:
        """Another number whenever units were taken away at the end."""
        return self._epoch

    def delete_expired(self, min_phy_offset: int) -> int:
        """Correct the minimum, then remove the files below it, never the last. How many that were.

        The snapshot must not have the queue any more.
        """
        self.correct_min(min_phy_offset)
        starts = self.expired_files
        self.remove_first(starts)
        return len(starts)

    def remove_first(self, starts: range) -> None:
        """Remove files that were `expired_files` before; in any thread. Gone from disk on return."""
        with self._files.lock:
            for start in starts:
                self._files.remove_first(self.topic, self.queue_id, start)
                self._first_file = start + self._files.file_bytes

    @property
    def expired_files(self) -> range:
        """Where the files begin that lie wholly below `min_queue_offset`; never the last file."""
        last_file = self._files.start_of(max(0, self.flushed_queue_offset * UNIT_BYTES - 1))
        end = min(self._files.start_of(self.min_queue_offset * UNIT_BYTES), last_file)
        return range(self._first_file, end, self._files.file_bytes)

    def clear(self) -> None:
        """Remove the files and start over at 0."""
        self._files.drop_snapshot()
        self._cut(0, -1)

    def destroy(self) -> None:
        """Remove the files and forget every unit. What is appended from here on stays in memory.

        The snapshot must not have the queue any more.
        """
        self._mark_dirty = _ignore
        self._cut(0, -1)

    def retire(self) -> None:
        """Forget every unit, with the lock of the files held, which are the caller's to remove."""
        self._mark_dirty = _ignore
        self._next_epoch()
        self._reset(0)

    # -- restarting ------------------------------------------------------------------------------

    def recover(
        self,
        starts: list[int] | None = None,
        is_record: IsRecord | None = None,
        *,
        repair: bool = True,
    ) -> bool:
        """Find the end from the files, which begin at `starts`; nothing may have been appended yet.

        With `repair` what follows the end is removed from disk. False when something did follow
        it, a file was missing or short, or a unit was wrong: then the CommitLog has to be
        dispatched again from `max_phy_offset` on. Without `repair` nothing is written.
        """
        if starts is None:
            starts = self._files.list_starts(self.topic, self.queue_id)
        state = find_end(self._files, self.topic, self.queue_id, starts, is_record)
        if repair:
            with self._files.lock:
                self._repair(starts, state)
        self.adopt(state)
        return state.is_sound

    def adopt(self, state: QueueState) -> None:
        """Take over what is known of the files."""
        self._next_epoch()
        self._reset(state.end // UNIT_BYTES)
        self._doubtful_end = self.flushed_queue_offset
        self.max_phy_offset = state.max_phy_offset
        if state.max_phy_offset >= 0:
            self._first_file = state.start
            self.has_files = True
            self.min_queue_offset = state.min_queue_offset
            self._min_phy_offset = state.min_phy_offset

    def state(self) -> QueueState:
        """What `adopt` wants. Without a tail it is the whole queue, and sound."""
        return QueueState(
            self._first_file,
            self.flushed_queue_offset * UNIT_BYTES,
            self.min_queue_offset,
            self._min_phy_offset,
            self.max_phy_offset,
            not self.tail,
        )

    def _repair(self, starts: list[int], state: QueueState) -> None:
        kept_end = state.end if state.max_phy_offset >= 0 else -1
        for start in starts:
            if start >= kept_end:
                self._files.remove(self.topic, self.queue_id, start)
        if kept_end > 0 and kept_end % self._files.file_bytes and not state.is_sound:
            self._files.cut(self.topic, self.queue_id, kept_end)


def _ignore(_: ConsumeQueue) -> None:
    """A queue that is gone has nothing to flush."""
