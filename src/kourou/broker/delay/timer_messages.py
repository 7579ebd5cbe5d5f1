"""TimerMessages: the messages that wait for any time, on the wheel and in its log.

What was stored in rmq_sys_wheel_timer is entered here, in order (`enter`), and waits in the slot of
its time. A slot is taken out when it is over. The files are Apache's, so that either can go on with
what the other left: a slot before `read_ms` is done, all others are not.
Not here: reading the topic and delivering (timer_service.py), the formats (store/timer_….py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.broker.delay.timer_metrics import TimerMetrics
from kourou.clock import duration_text
from kourou.protocol.names import TIMER_TOPIC
from kourou.protocol.tags import java_hash_code
from kourou.store.disk.files import Files
from kourou.store.log.commit_log import CommitLog
from kourou.store.steps import Steps
from kourou.store.timer.timer_checkpoint import (
    APACHE_FIELDS_BYTES,
    TimerCheckpoint,
    load_timer_checkpoint,
    remove_timer_checkpoint,
    save_timer_checkpoint,
)
from kourou.store.timer.timer_log import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    MAX_DELAY_MS,
    UNIT_BYTES,
    TimerLog,
    TimerUnit,
)
from kourou.store.timer.timer_recovery import TimerDamageError, waiting_units
from kourou.store.timer.timer_wheel import TIMER_WHEEL_SLOTS, Slot, TimerWheel

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig

_log = logging.getLogger(__name__)

# So many slots in front of the oldest ones stay unused: a slot must not be read while it is over-written.
_BLANK_SLOTS: Final = 60
# Passed over in a few milliseconds, after a broker was down for hours.
_EMPTY_SLOTS: Final = 10_000
# Finer steps than these Apache's wheel does not have.
_PRECISIONS_MS: Final = (100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class TimerEntry:
    """A message that waits: the time of its slot, where its record lies, whom it is for."""

    out_ms: int
    phy_offset: int
    size: int
    topic: str
    is_delete: bool


class TimerMessages:
    """Owned by the loop. All times are the wheel's: steady time (clock_watch.py) and `ahead_ms`, by which the
    wheel is ahead since the clock was set back while the broker was down.

    `read_ms`: the next slot to be taken out. `queue_offset`: the next message of the topic to be entered;
    `last_entered_phy_offset` is of the last one that a log tells of which is ahead of its checkpoint.
    `noted_phy_offset`: as in DelayOffsetManager. `recovered_note`: what it was at the start, as long as slots
    are still to be taken out of which a killed broker delivered some. `is_rebuilt`: the files were damaged,
    and all messages are entered again."""

    def __init__(self, files: Files, root: Path, config: BrokerConfig, log: CommitLog, now_ms: int) -> None:
        self._files = files
        self._commit_log = log
        self._check_path = root / "config" / "timercheck"
        self.precision_ms = max(ms for ms in _PRECISIONS_MS if ms <= config.timer_precision_ms)
        roll_slots = min(config.timer_roll_window_slot, TIMER_WHEEL_SLOTS - _BLANK_SLOTS)
        self._roll_ms = roll_slots * self.precision_ms
        self._wheel = TimerWheel(files, root / "timerwheel", self.precision_ms)
        self._log = TimerLog(files, root / "timerlog", config.mapped_file_size_timer_log)
        self.metrics = TimerMetrics(files, root)
        self._counter = 0
        self._candidate: TimerCheckpoint | None = None
        self._candidate_end = 0
        self._slot_note: int | None = None
        self.recovered_note: int | None = None
        self.is_dirty = False
        self.read_ms = self._floor(now_ms)
        self.queue_offset = 0
        self.noted_phy_offset: int | None = 0
        self.last_entered_phy_offset: int | None = None
        self.ahead_ms = 0
        self.is_rebuilt = False
        self.damage_count = 0
        self._first_pos = 0

    # -- start -----------------------------------------------------------------------------------

    def load(self, now_ms: int, topics: Iterable[str] = (), *, has_messages: bool = True) -> None:
        """Take over what the files say; `topics` are those that messages may wait for. `has_messages`:
        whether the timer topic holds any, which the files should know of. Waits for the disk."""
        try:
            counts = self._load_files()
        except TimerDamageError as damage:
            self.rebuild(now_ms, damage if has_messages else None)
            counts = {}
        self.metrics.load(counts, topics, now_ms)
        self.ahead_ms = max(0, self.read_ms - now_ms)
        if self.ahead_ms:
            _log.info(
                "the timer wheel is %s ahead of the clock, which was set back: it goes on from there until "
                "no message waits",
                duration_text(self.ahead_ms),
            )

    def _load_files(self) -> dict[int, int]:
        """How many messages wait, by topic. TimerDamageError: the files cannot be believed."""
        checkpoint = load_timer_checkpoint(self._files, self._check_path)
        if checkpoint is None:
            raise TimerDamageError(self._check_path, "the file is missing or cut short")
        if checkpoint.is_doubtful:
            raise TimerDamageError(
                self._check_path, "its checksum is wrong: another broker has used the store, or it is damaged"
            )
        if checkpoint.last_read_ms <= 0 or min(checkpoint.log_pos, checkpoint.queue_offset) < 0:
            raise TimerDamageError(self._check_path, "it holds no progress")
        checkpoint = checkpoint._replace(last_read_ms=self._floor(checkpoint.last_read_ms))
        self._log = TimerLog(self._files, self._log.folder, self._length_of_files(checkpoint))
        wheel_problem = self._wheel.load()
        log = self._commit_log
        found = waiting_units(
            self._log, checkpoint, min_phy_offset=log.min_phy_offset, max_phy_offset=log.max_phy_offset
        )
        if any(slot_ms % self.precision_ms for slot_ms in found.slots):
            raise TimerDamageError(self._wheel.path, "its slots are of another length (timerPrecisionMs)")
        self.read_ms = checkpoint.last_read_ms
        is_wrong = self._wheel.correct(self.read_ms, found.slots, checkpoint.log_pos)
        if is_wrong or (wheel_problem and checkpoint.log_pos):
            self.damage_count += 1
            problem = wheel_problem or "it does not fit the timer log"
            _log.warning("%s: %s; it is derived from the timer log again", self._wheel.path, problem)
        self._log.load(found.end_pos)
        self._first_pos = found.first_pos
        self.queue_offset = checkpoint.queue_offset
        self.noted_phy_offset = checkpoint.noted_phy_offset
        self._counter = checkpoint.version_counter
        self.last_entered_phy_offset = found.last_phy_offset
        return found.counts

    def _length_of_files(self, checkpoint: TimerCheckpoint) -> int:
        """Of the TimerLog's files: as noted; else as they are, which Apache wrote, or will be."""
        if checkpoint.file_bytes is not None:
            return checkpoint.file_bytes
        starts = self._log.starts()
        if len(starts) > 1:
            return starts[1] - starts[0]
        path = self._log.folder / f"{starts[0]:020d}" if starts else None
        return (self._files.length(path) if path is not None else 0) or self._log.file_bytes

    def rebuild(self, now_ms: int, damage: TimerDamageError | None) -> None:
        """Throw the files away, and have all messages of the topic entered again that are not delivered.
        Waits for the disk."""
        if damage is not None:
            self.damage_count += 1
            _log.error(
                "%s; the timer wheel is rebuilt from the CommitLog: it is searched for what was delivered, "
                "and every other message of %s waits for its time again",
                damage,
                TIMER_TOPIC,
            )
        remove_timer_checkpoint(self._files, self._check_path)
        self._log.clear()
        self._wheel.clear()
        self.read_ms = self._floor(now_ms)
        self.queue_offset = self._first_pos = 0
        self.noted_phy_offset, self.last_entered_phy_offset = 0, None
        self._candidate = self._slot_note = None
        self.is_rebuilt, self.is_dirty = True, True

    # -- entering --------------------------------------------------------------------------------

    def enter(self, entry: TimerEntry, now_ms: int) -> None:
        """Have a message wait in its slot. In memory on return: it is in the topic as well."""
        slot_ms, magic = self._slot_of(entry.out_ms, self._floor(now_ms))
        # A wheel that stood still for weeks takes messages out late: the delay of a unit has 32 bits.
        write_ms = min(self._floor(now_ms), self._floor(slot_ms + MAX_DELAY_MS))
        if entry.is_delete:
            magic |= MAGIC_DELETE
        slot = self._wheel.slot(slot_ms)
        prev_pos = -1 if slot is None else slot.last_pos
        topic_hash = java_hash_code(entry.topic)
        pos = self._log.append(
            TimerUnit(prev_pos, magic, write_ms, slot_ms - write_ms, entry.phy_offset, entry.size, topic_hash)
        )
        first_pos, num = (pos, 0) if slot is None else (slot.first_pos, slot.num)
        count = -1 if entry.is_delete else 1
        self._wheel.put(slot_ms, Slot(first_pos, pos, num + count))
        self.metrics.entered(entry.topic, count, now_ms)
        self.is_dirty = True

    def _slot_of(self, out_ms: int, write_ms: int) -> tuple[int, int]:
        """The slot that a message waits in. One that is late waits for the next to be taken out; one
        that is far away for a time on the way, to be entered again then: its record must not grow so
        old that the log lets go of it."""
        ahead_ms = out_ms - write_ms
        if ahead_ms < self._roll_ms:
            return max(self._floor(out_ms), self.read_ms), MAGIC_DEFAULT
        is_near = ahead_ms - self._roll_ms < self._roll_ms // 3
        way_ms = self._roll_ms // 2 if is_near else self._roll_ms
        return self._floor(write_ms + way_ms), MAGIC_DEFAULT | MAGIC_ROLL

    def due_counts(self, now_ms: int, bounds_s: Sequence[int]) -> list[int]:
        """How many messages are due within each of the bounds, which ascend, and beyond the one before; at
        the end those that are overdue."""
        edges_ms = [now_ms, *(now_ms + bound_s * 1000 for bound_s in bounds_s)]
        counts = [self._wheel.count_between(*edges) for edges in pairwise(edges_ms)]
        return [*counts, self._wheel.count_between(self.read_ms, now_ms)]

    def count_at(self, out_ms: int) -> int:
        """How many messages wait for a time."""
        slot = self._wheel.slot(self._floor(out_ms))
        return 0 if slot is None else max(0, slot.num)

    def oldest_phy_offset(self) -> int | None:
        """Where the record lies of the message that has waited longest; None when none waits."""
        pos = self._wheel.first_pos(self.read_ms)
        unit = None if pos is None else self._log.unit(pos)
        return None if unit is None else unit.phy_offset

    def waiting_for(self, topic: str) -> Iterator[tuple[int, int]]:
        """phy_offset and size of the records that are entered and not taken out, of messages for `topic` or
        one with the same hash, in the order in which they were entered. Only at the start; waits for the
        disk."""
        topic_hash = java_hash_code(topic)
        for _, units in self._log.columns(self._first_pos, self._log.end_pos):
            is_wanted = (units["topic_hash"] == topic_hash) & (units["magic"] & MAGIC_DELETE == 0)
            is_wanted &= units["write_ms"] + units["delay_ms"] >= self.read_ms
            for unit in units[is_wanted]:
                yield int(unit["phy_offset"]), int(unit["record_size"])

    # -- taking out ------------------------------------------------------------------------------

    def next_over(self, now_ms: int) -> Slot | None:
        """The next slot that is over and has messages; empty ones are passed over. None: none is, or so
        many were empty that others should have a turn."""
        end_ms = min(self._floor(now_ms), self.read_ms + _EMPTY_SLOTS * self.precision_ms)
        while self.read_ms < end_ms:
            slot = self._wheel.slot(self.read_ms)
            if slot is not None:
                return slot
            self.read_ms += self.precision_ms
        if self.read_ms < self._floor(now_ms):  # many more may be empty: the clock may be years ahead
            next_ms = self._wheel.next_ms(self.read_ms)
            self.read_ms = self._floor(now_ms) if next_ms is None else min(next_ms, self._floor(now_ms))
        return None

    def has_room(self, now_ms: int) -> bool:
        """Whether messages can be entered: not while the wheel is so far behind that slots of the time to
        come are still occupied."""
        return now_ms - self.read_ms < TIMER_WHEEL_SLOTS * self.precision_ms

    def is_empty(self) -> bool:
        """Whether no message waits. Looks at all slots."""
        return self._wheel.first_pos(self.read_ms) is None

    def restart_at(self, now_ms: int) -> None:
        """Nothing waits: go on from another time. Waits for the disk."""
        remove_timer_checkpoint(self._files, self._check_path)
        self._log.clear()
        self._wheel.clear()
        self.read_ms, self._first_pos, self._candidate = self._floor(now_ms), 0, None
        self.is_dirty = True

    def begin_slot(self) -> None:
        """Messages of the slot at `read_ms` are delivered from now on."""
        self._slot_note = self._commit_log.max_phy_offset

    def units_of(self, slot: Slot) -> list[TimerUnit]:
        """The units of the slot at `read_ms`, oldest first. May wait for the disk. TimerDamageError: some
        cannot be read."""
        units = self._log.chain(slot.first_pos, slot.last_pos, self.read_ms)
        if units is None:
            raise TimerDamageError(
                self._log.path(slot.last_pos), f"units of the slot {self.read_ms} cannot be read"
            )
        return units

    def slot_done(self, units: Sequence[TimerUnit], now_ms: int) -> None:
        """All messages of the slot at `read_ms`, which are these, are delivered."""
        for unit in units:
            self.metrics.left(unit.topic_hash, -1 if unit.is_delete else 1, now_ms)
        self.read_ms += self.precision_ms
        self._slot_note = None
        self.is_dirty = True

    def wait_ms(self, now_ms: int) -> int:
        """How long until the next slot is over."""
        return max(0, self.read_ms + self.precision_ms - now_ms)

    # -- flushing --------------------------------------------------------------------------------

    def flush_steps(self, now_ms: int) -> Steps[None]:
        """Write log and wheel, and a checkpoint if what an earlier one counts is durable by now."""
        if self._candidate is None:
            self._counter += 1
            self._candidate = self._checkpoint(now_ms)
            self._candidate_end = self._commit_log.max_phy_offset
            self.is_dirty = False
        pages, candidate = self._wheel.dirty_pages(), self._candidate
        try:
            yield self._log.write
            if pages:
                yield lambda: self._wheel.write_pages(pages)
        except BaseException:
            self._wheel.mark_dirty(pages)
            raise
        if self._commit_log.flushed_phy_offset >= self._candidate_end:
            written = candidate._replace(log_pos=min(candidate.log_pos, self._log.end_pos))
            yield lambda: save_timer_checkpoint(self._files, self._check_path, written)
            self.noted_phy_offset, self._candidate = candidate.noted_phy_offset, None

    def _checkpoint(self, now_ms: int) -> TimerCheckpoint:
        return TimerCheckpoint(
            self.read_ms,
            self._log.end_pos,
            self.queue_offset,
            self._note(),
            now_ms,
            self._counter,
            self._first_pos,
            self._log.file_bytes,
        )

    def _note(self) -> int:
        """From where on the log may have deliveries that `read_ms` does not count: of a slot that is not
        done, now or when the last process was killed."""
        notes = (self._slot_note, self.recovered_note, self._commit_log.max_phy_offset)
        return min(note for note in notes if note is not None)

    def encoded_checkpoint(self, now_ms: int) -> bytes:
        """What GET_TIMER_CHECK_POINT answers, Apache's fields as they are now."""
        return self._checkpoint(now_ms).encode()[:APACHE_FIELDS_BYTES]

    def drop_candidate(self) -> None:
        """The next flush takes the state anew: everything is durable."""
        self._candidate = None
        self.find_first()

    def find_first(self) -> None:
        """Find out which is the oldest unit that waits; looks at all slots. In between an older one is noted,
        and a start reads more than it has to."""
        first_pos = self._wheel.first_pos(self.read_ms)
        self._first_pos = self._log.end_pos if first_pos is None else first_pos

    @property
    def wants_flush(self) -> bool:
        """Whether the files do not hold what there is."""
        return self.is_dirty or self._candidate is not None

    def delete_expired(self) -> None:
        """Remove files of the log whose messages are gone from the CommitLog. Waits for the disk."""
        starts = self._log.starts()
        while len(starts) > 1:
            units = [unit for _, unit in self._log.units(starts[1], starts[1] + UNIT_BYTES)]
            if not units or units[0].phy_offset >= self._commit_log.min_phy_offset:
                return
            self._log.delete_first()
            starts = self._log.starts()

    def close(self) -> None:
        """Let go of the files."""
        self._log.close()
        self._wheel.close()

    def _floor(self, time_ms: int) -> int:
        return time_ms // self.precision_ms * self.precision_ms
