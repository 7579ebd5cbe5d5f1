"""TimerMessages: the messages that wait for any time, on the wheel and in its log.

What was stored in rmq_sys_wheel_timer is entered here, in order (`enter`), and waits in the slot of
its time. A slot is taken out when it is over. The files are Apache's, so that either can go on with
what the other left: a slot before `read_ms` is done, all others are not.
Not here: reading the topic and delivering (timer_service.py), the formats (store/timer_….py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.broker.timer_metrics import TimerMetrics
from kourou.protocol.tags import java_hash_code
from kourou.store.commit_log import CommitLog
from kourou.store.files import Files
from kourou.store.steps import Steps
from kourou.store.timer_checkpoint import (
    APACHE_FIELDS_BYTES,
    TimerCheckpoint,
    load_timer_checkpoint,
    save_timer_checkpoint,
)
from kourou.store.timer_log import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    UNIT_BYTES,
    TimerLog,
    TimerUnit,
)
from kourou.store.timer_wheel import TIMER_WHEEL_SLOTS, Slot, TimerWheel

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
    """Owned by the loop. `read_ms`: the next slot to be taken out. `queue_offset`: the next message of
    the topic to be entered; `last_entered` is the last one that a log tells of which is ahead of its
    checkpoint. `noted_phy_offset`: as in DelayOffsetManager. `recovered_note`: what it was at the start, as
    long as slots are still to be taken out of which a killed broker delivered some."""

    def __init__(self, files: Files, root: Path, config: BrokerConfig, log: CommitLog, now_ms: int) -> None:
        self._files = files
        self._commit_log = log
        self._check_path = root / "config" / "timercheck"
        self.precision_ms = max(ms for ms in _PRECISIONS_MS if ms <= config.timer_precision_ms)
        self._roll_ms = config.timer_roll_window_slot * self.precision_ms
        self._wheel = TimerWheel(files, root / "timerwheel", self.precision_ms)
        self._log = TimerLog(files, *_log_place(files, root / "timerlog", config.mapped_file_size_timer_log))
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
        self.last_entered: TimerUnit | None = None

    # -- start -----------------------------------------------------------------------------------

    def load(self, now_ms: int, topics: Iterable[str] = ()) -> None:
        """Take over what the files say; `topics` are those that messages may wait for. Waits for the disk."""
        checkpoint = load_timer_checkpoint(self._files, self._check_path)
        if checkpoint is not None:
            self.queue_offset = checkpoint.queue_offset
            self.noted_phy_offset = checkpoint.noted_phy_offset
            self._counter = checkpoint.version_counter
        self._wheel.load()
        self._recover_log(checkpoint)
        if checkpoint is not None and checkpoint.last_read_ms > 0:
            oldest_ms = self._floor(now_ms) - (TIMER_WHEEL_SLOTS - _BLANK_SLOTS) * self.precision_ms
            self.read_ms = max(self._floor(checkpoint.last_read_ms), oldest_ms)
        first_pos = self._wheel.first_pos(self.read_ms)
        counts = {} if first_pos is None else self._log.count_by_topic(first_pos, self.read_ms)
        self.metrics.load(counts, topics, now_ms)

    def _recover_log(self, checkpoint: TimerCheckpoint | None) -> None:
        """Find the end of the log, and link what the wheel may not know yet."""
        starts = self._log.starts()
        if not starts:
            return
        end_pos = begin = self._begin(checkpoint, starts[0])
        for pos, unit in self._log.units(begin, starts[-1] + self._log.file_bytes):
            if unit.phy_offset + unit.size > self._commit_log.max_phy_offset:
                break  # its message was not durable when the machine stopped
            self._relink(pos, unit)
            self.last_entered, end_pos = unit, pos + UNIT_BYTES
        self._log.load(end_pos)
        if self._wheel.drop_behind(end_pos):
            _log.warning("the timer log was cut short at %d, its slots are linked anew", end_pos)
            for pos, unit in self._log.units(starts[0], end_pos):
                self._relink(pos, unit)

    def _begin(self, checkpoint: TimerCheckpoint | None, first_pos: int) -> int:
        """Where the wheel may be behind the log: behind a checkpoint of ours; with Apache's, a file of
        the log before it, as Apache does."""
        if checkpoint is None:
            return first_pos
        if checkpoint.noted_phy_offset is not None:
            return max(first_pos, checkpoint.log_pos)
        pos = checkpoint.log_pos - self._log.file_bytes
        return max(first_pos, pos - pos % self._log.file_bytes)

    def _relink(self, pos: int, unit: TimerUnit) -> None:
        slot = self._wheel.slot(unit.slot_ms)
        if slot is None:
            self._wheel.put(unit.slot_ms, Slot(pos, pos, 1))
        elif slot.last_pos < pos:
            self._wheel.put(unit.slot_ms, Slot(slot.first_pos, pos, slot.num + 1))

    # -- entering --------------------------------------------------------------------------------

    def enter(self, entry: TimerEntry, now_ms: int) -> None:
        """Have a message wait in its slot. In memory on return: it is in the topic as well."""
        write_ms = self._floor(now_ms)
        slot_ms, magic = self._slot_of(entry.out_ms, write_ms)
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

    def count_at(self, out_ms: int) -> int:
        """How many messages wait for a time."""
        slot = self._wheel.slot(self._floor(out_ms))
        return 0 if slot is None else max(0, slot.num)

    def oldest_phy_offset(self) -> int | None:
        """Where the record lies of the message that has waited longest; None when none waits."""
        pos = self._wheel.first_pos(self.read_ms)
        unit = None if pos is None else self._log.unit(pos)
        return None if unit is None else unit.phy_offset

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
        return None

    def begin_slot(self) -> None:
        """Messages of the slot at `read_ms` are delivered from now on."""
        self._slot_note = self._commit_log.max_phy_offset

    def units_of(self, slot: Slot) -> list[TimerUnit]:
        """The units of the slot at `read_ms`, oldest first. May wait for the disk."""
        return self._log.chain(slot.last_pos, self.read_ms)

    def slot_done(self, units: Sequence[TimerUnit], now_ms: int) -> None:
        """All messages of the slot at `read_ms`, which are these, are delivered."""
        for unit in units:
            self.metrics.add(unit.topic_hash, 1 if unit.is_delete else -1, now_ms)
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


def _log_place(files: Files, folder: Path, file_bytes: int) -> tuple[Path, int]:
    """The folder, and the length of its files: that of those which are there."""
    names = files.list_names(folder)
    return folder, files.length(folder / names[0]) if names else file_bytes
