"""Recovery: from the files a process left behind to a store that can go on.

1. Where to begin (recovery_start.py): the first byte that may not be durable, or not derived yet.
2. Walk the log from there. Every valid record is dispatched: the queues are cut there first, what
   the index has already is passed over.
3. The first bad record ends the log if it lies above what was durable: a torn tail. If valid
   records follow it, the tail is first copied to `quarantine/`. Below what was durable it is
   damage: reported, kept, and the walk goes on behind it.
4. Everything derived is made durable, and the checkpoint says so: a second crash begins where
   this recovery ended.

Progress is kept on the way, so that a crash during recovery does not start it over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kourou.store.disk.files import Files
from kourou.store.dispatcher import Dispatcher
from kourou.store.index.index_service import IndexService
from kourou.store.kernel import Kernel
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import DispatchRequest
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.cq_unit import BLANK_UNIT, UNIT_BYTES
from kourou.store.queue.queue_recovery import QueueState
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.recovery.columns_dispatcher import ColumnsDispatcher
from kourou.store.recovery.corrupt_ranges import Damage, KnownDamages
from kourou.store.recovery.log_walk import LogWalk
from kourou.store.recovery.recovery_start import RecoveryStart

_log = logging.getLogger(__name__)

_WRITE_BYTES: Final = 64 * 1024 * 1024
"""After so much of the log queues and index are written, without a sync: they are not kept in memory."""
_PROGRESS_BYTES: Final = 1024 * 1024 * 1024
"""And after so much of it progress is made durable: a sync may take longer than reading it again."""
_COPY_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did. `damages` are those known before too; `records` were dispatched."""

    clean_exit: bool
    start_phy_offset: int = 0
    end_phy_offset: int = 0
    records: int = 0
    damages: list[Damage] = field(default_factory=list)
    truncated_at: int | None = None
    truncated_reason: str = ""
    quarantine: Path | None = None


class Recovery:
    """One recovery of one store. `write_derived` writes what is derived so far to its files, `keep_progress`
    makes it durable; `pass_over` gets the start and the end of records that have no sequences of idempotent
    producers."""

    def __init__(
        self,
        files: Files,
        root: Path,
        log: CommitLog,
        scanner: LogScanner,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        start: RecoveryStart,
        write_derived: Callable[[], None],
        keep_progress: Callable[[], None],
        pass_over: Callable[[int, int], None],
        known: KnownDamages,
        kernel: Kernel | None = None,
    ) -> None:
        self._files = files
        self._quarantine = root / "quarantine"
        self._start = start
        self._known = known
        self._log = log
        self._scanner = scanner
        self._dispatcher = dispatcher
        self._log_walk = LogWalk(
            log, scanner, dispatcher, ColumnsDispatcher(dispatcher, queues, index), kernel
        )
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._write_derived = write_derived
        self._keep_progress = keep_progress
        self._pass_over = pass_over
        self._synced_phy_offset = self._written_phy_offset = 0
        self._next_offsets: dict[tuple[str, int], int] = {}

    def run(self) -> RecoveryReport:
        """Recover; on return the log's end is known, all of it is derived, and that is durable."""
        report = RecoveryReport(self._start.clean_exit)
        if self._log.log_files:
            self._known.load()
            self._known.damages = list(filter(self._is_still_damaged, self._known.damages))
            self._known.report_known()
            report.damages = self._known.damages
            self._next_offsets = self._start.next_offsets()
            self._cut_queues()
            self._dispatcher.queued_phy_offset = self._start.queues_phy_offset
            self._synced_phy_offset = self._written_phy_offset = self._start.phy_offset
            report.start_phy_offset = report.end_phy_offset = self._start.phy_offset
            try:
                self._walk(report)
            finally:
                self._log_walk.close()
            self._keep_places()
            self._known.save()
            self._cut(report)
        self._cut_derived(report)
        self._keep(report)
        return report

    # -- the walk --------------------------------------------------------------------------------

    def _walk(self, report: RecoveryReport) -> None:
        """Dispatch from the start to the log's end, which is found on the way."""
        end_of_files = self._log.max_phy_offset
        phy_offset: int | None = report.start_phy_offset
        while phy_offset is not None:
            bad = self._dispatch_from(phy_offset, end_of_files, report)
            if bad is None:
                return
            phy_offset = self._pass_bad(bad, report)

    def _dispatch_from(self, phy_offset: int, end: int, report: RecoveryReport) -> BadRecord | None:
        """Dispatch valid records; the bad one behind them, or None at the end of the files."""
        report.end_phy_offset = phy_offset
        while report.end_phy_offset < end:
            step = self._log_walk.step(report.end_phy_offset)
            if not step.has_sequences:
                self._pass_over(report.end_phy_offset, step.end_phy_offset)
            report.records += step.records
            report.end_phy_offset = step.end_phy_offset
            if step.bad is not None:
                return step.bad
            if report.end_phy_offset - self._synced_phy_offset >= _PROGRESS_BYTES:
                self._keep(report)
            elif report.end_phy_offset - self._written_phy_offset >= _WRITE_BYTES:
                self._write_derived()
                self._written_phy_offset = report.end_phy_offset
        return None

    def _pass_bad(self, bad: BadRecord, report: RecoveryReport) -> int | None:
        """Tell a torn tail from damage: where to go on, or None when the log ends here."""
        written_end = self._log.written_end(bad.phy_offset)
        follows = self._scanner.next_record(bad.phy_offset + 1, written_end)
        durable = self._start.durable_phy_offset(follows)
        if bad.phy_offset >= durable:
            if written_end > bad.phy_offset:
                report.truncated_at, report.truncated_reason = bad.phy_offset, bad.reason
            if follows is not None:
                report.quarantine = self._save_tail(bad.phy_offset, written_end)
            return None
        # What follows the durable part is examined on its own, if no record comes before.
        end = durable if follows is None else min(follows, durable)
        self._note(self._damage(bad, end))
        return end

    def _damage(self, bad: BadRecord, end_phy_offset: int) -> Damage:
        log_file = self._log.file_at(bad.phy_offset)
        assert log_file is not None
        return Damage(log_file.path, bad.phy_offset, end_phy_offset, bad.reason)

    def _note(self, damage: Damage) -> None:
        """Write damage down before anything else: a second crash may begin behind it."""
        _log.error("%s", damage)
        known = self._known
        if damage not in known.damages:
            known.damages.append(damage)
            for queue, next_offset in self._next_offsets.items():
                known.next_offsets.setdefault(queue, next_offset)
            known.save()

    def _keep_places(self) -> None:
        """Have queues go on where they were before, although their last messages are lost."""
        known = self._known
        kept = {}
        for (topic, queue_id), next_offset in known.next_offsets.items() if known.damages else ():
            queue = self._queues.get(topic, queue_id)
            is_blank = not _has_message_before(queue, next_offset)
            if queue.max_queue_offset < next_offset:
                _go_on_at(queue, next_offset)
            if is_blank and queue.max_queue_offset == next_offset:
                kept[topic, queue_id] = next_offset
        known.next_offsets = kept

    def _is_still_damaged(self, known: Damage) -> bool:
        """False when its file is gone by now, or was put back from a copy: then all from there on is
        dispatched again."""
        if self._log.file_at(known.phy_offset) is None:
            return False
        records = self._scanner.records(known.phy_offset, known.end_phy_offset)
        if any(isinstance(found, BadRecord) for found in records):
            return True
        _log.warning(
            "%s: the damaged stretch from %d to %d holds valid records again; its messages are served",
            known.path,
            known.phy_offset,
            known.end_phy_offset,
        )
        self._start.go_back_to(known.phy_offset)
        if self._index is not None:
            self._index.truncate(known.phy_offset)
        return False

    # -- the tail --------------------------------------------------------------------------------

    def _save_tail(self, phy_offset: int, end_phy_offset: int) -> Path:
        """Copy what is cut off although valid records are in it; durable on return."""
        path = self._quarantine / f"{phy_offset:020d}-{end_phy_offset:020d}"
        self._files.make_folder(self._quarantine)
        with self._files.open(path, create=True) as target:
            at = phy_offset
            while at < end_phy_offset and (log_file := self._log.file_at(at)) is not None:
                size = min(_COPY_BYTES, log_file.end_phy_offset - at, end_phy_offset - at)
                target.pwrite(self._log.read(at, size) or b"", at - phy_offset)
                at += size
            target.sync()
        self._files.sync_folder(self._quarantine)
        self._files.sync_folder(self._quarantine.parent)
        _log.error(
            "the log's tail from %d holds valid records behind a torn one; it is saved as %s",
            phy_offset,
            path,
        )
        return path

    def _cut(self, report: RecoveryReport) -> None:
        end = report.end_phy_offset
        if report.truncated_at is not None:
            _log.warning("the log ends at %d: %s", end, report.truncated_reason)
        if self._log.log_files[-1].start_phy_offset > end or self._log.written_end(end) > end:
            self._log.truncate(end)
        self._log.max_phy_offset = end
        self._log.remove_leftovers()

    # -- what is derived -------------------------------------------------------------------------

    def _cut_queues(self) -> None:
        """Drop the units of records that are about to be dispatched.

        Behind what was synced a power loss keeps any of them, torn ones too, and of a queue that
        lost its first units only the others are left.
        """
        start, queues = self._start, self._queues
        is_cut = False
        while queues.max_phy_offset() > start.queues_phy_offset:
            is_cut = True
            if self._checkpoint.is_ours:
                # Before they go: a second crash must not miss them.
                self._checkpoint.logics_physical_offset = start.queues_phy_offset
                self._checkpoint.save()
                self._checkpoint.sync()
            queues.rebuild_phy_offset = None
            queues.truncate_all(start.queues_phy_offset)
            start.go_back_to(queues.rebuild_phy_offset)
        if is_cut and self._checkpoint.is_ours:
            self._save_snapshot()

    def _save_snapshot(self) -> None:
        try:
            self._queues.flush_round(least_bytes=0, sync=True)
            self._queues.save_snapshot(self._start.queues_phy_offset)
        except OSError as error:  # without it a second crash costs a longer walk
            _log.warning("what is left of the ConsumeQueues cannot be noted: %s", error)

    def _cut_derived(self, report: RecoveryReport) -> None:
        if self._index is not None:
            self._index.truncate(report.end_phy_offset)
            self._index.correct_end(self._store_timestamp(self._index.end_phy_offset))
        self._queues.correct_min(self._log.min_phy_offset)
        self._dispatcher.dispatched_phy_offset = report.end_phy_offset
        if not self._dispatcher.dispatched_timestamp:
            self._dispatcher.dispatched_timestamp = self._start.last_timestamp(report.end_phy_offset)

    def _store_timestamp(self, phy_offset: int) -> int:
        found = self._scanner.record_at(phy_offset)
        return found.store_timestamp if isinstance(found, DispatchRequest) else 0

    # -- durability ------------------------------------------------------------------------------

    def _keep(self, report: RecoveryReport) -> None:
        """Make durable what is known so far, first the log, and note it for the next recovery."""
        end = report.end_phy_offset
        self._write_again(end)
        # What a killed process wrote may still be in the page cache only. From here on it counts
        # as durable: consumers will see it.
        for log_file in self._log.log_files:
            if log_file.end_phy_offset > self._synced_phy_offset and log_file.start_phy_offset < end:
                log_file.file.sync()
        self._synced_phy_offset = self._written_phy_offset = self._log.flushed_phy_offset = end
        checkpoint = self._checkpoint
        checkpoint.durable_phy_offset = max(end, checkpoint.durable_phy_offset)
        if self._dispatcher.dispatched_timestamp:
            checkpoint.physic_msg_timestamp = self._dispatcher.dispatched_timestamp
        self._keep_progress()

    def _write_again(self, end_phy_offset: int) -> None:
        doubtful = self._start.doubtful_phy_offset
        if doubtful is None:
            return
        begin = max(self._synced_phy_offset, doubtful)
        for log_file in self._log.log_files:
            position = max(begin - log_file.start_phy_offset, 0)
            log_file.write_again(
                position, min(end_phy_offset - log_file.start_phy_offset, log_file.size_bytes)
            )


def _has_message_before(queue: ConsumeQueue, queue_offset: int) -> bool:
    unit = queue.unit(queue_offset - 1)
    return unit is not None and unit.is_message


def _go_on_at(queue: ConsumeQueue, queue_offset: int) -> None:
    """Give the queue's next message this offset, which lies ahead; what is between stays blank."""
    missing = queue_offset - queue.max_queue_offset
    if queue.max_phy_offset < 0:
        position = queue_offset * UNIT_BYTES
        queue.adopt(QueueState(position, position, queue_offset, -1, -1, True))
    else:
        queue.append_units(BLANK_UNIT * missing, missing, queue.max_phy_offset)
    queue.next_queue_offset = queue_offset
