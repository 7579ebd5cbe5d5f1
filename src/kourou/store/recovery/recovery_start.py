"""Where a recovery begins, and what counted as durable before it.

Kourou notes both in the checkpoint. In a store that Apache wrote last, the rules of Apache find the
file to begin with, and the queues and times tell what was on disk. Where nothing is known the walk
begins with the first file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kourou.errors import StoreFormatError
from kourou.store.index.index_service import IndexService
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import DispatchRequest
from kourou.store.log.log_scanner import LogScanner
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.recovery.checkpoint import StoreCheckpoint

_log = logging.getLogger(__name__)


def check_log_reaches(log: CommitLog, phy_offset: int) -> None:
    """StoreFormatError when the log's files end before `phy_offset`, which it had reached: going on
    would give the offsets of lost messages to others."""
    if log.max_phy_offset < phy_offset:
        raise StoreFormatError(
            log.folders[0],
            f"the files of the CommitLog end at {log.max_phy_offset}, but it went to {phy_offset}; "
            "put the missing files back, or, to go on without them, move the folders consumequeue and index "
            "and the files checkpoint and consumequeue.snapshot away",
        )


class RecoveryStart:
    """Made of what was loaded, before anything is dispatched. `phy_offset` is where to begin,
    `queues_phy_offset`, there or behind it, from where on the queues are to be filled: what only the
    index lacks is not given to queues again, some of which may have been deleted since.
    """

    def __init__(
        self,
        log: CommitLog,
        scanner: LogScanner,
        queues: ConsumeQueues,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        *,
        clean_exit: bool,
    ) -> None:
        self._log = log
        self._scanner = scanner
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self.clean_exit = clean_exit
        self._is_ours = checkpoint.is_ours
        self._noted_durable = checkpoint.durable_phy_offset
        self._flushed_ms = checkpoint.physic_msg_timestamp
        self._dispatched_ms = checkpoint.logics_msg_timestamp
        self._dispatched_phy_offset = checkpoint.logics_physical_offset
        self._queued_phy_offset = max(0, queues.max_phy_offset())
        self.phy_offset = self.queues_phy_offset = 0
        if log.log_files:
            self._find()
            if not (clean_exit and self._is_ours) and any(map(self._ends_wrong, queues.items())):
                self.phy_offset = self.queues_phy_offset = log.min_phy_offset

    def durable_phy_offset(self, follows: int | None) -> int:
        """Up to where the log was on disk for certain; `follows` is a valid record behind a bad one."""
        if self._is_ours:
            return self._noted_durable
        if self.clean_exit:
            # Apache stops when all is flushed and dispatched, and leaves what it once cut off behind that.
            return self._queued_phy_offset
        if follows is not None and follows < self._queued_phy_offset:
            record = self._scanner.record_at(follows)
            if isinstance(record, DispatchRequest) and record.store_timestamp <= self._flushed_ms:
                return follows
        return 0

    def last_timestamp(self, end_phy_offset: int) -> int:
        """When the last record of a log that ends there was stored, or one before it, if none was
        dispatched: what the checkpoint says of the queues may be the time of one that was cut off."""
        if self._dispatched_phy_offset > end_phy_offset:
            return self._flushed_ms
        return max(self._flushed_ms, self._dispatched_ms)

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """The next queue_offset of each queue, as far as its messages were on disk for certain."""
        if not self._is_ours and not self.clean_exit:
            return {}
        durable = self._noted_durable if self._is_ours else self._queued_phy_offset
        if self.phy_offset >= durable:
            return {}
        return {
            (queue.topic, queue.queue_id): queue.max_queue_offset
            if queue.max_phy_offset <= durable
            else queue.first_where(lambda unit: unit.end_phy_offset > durable)
            for queue in self._queues.items()
        }

    def go_back_to(self, phy_offset: int | None) -> None:
        """Begin there, if that is earlier: a queue turned out to lack units from there on."""
        if phy_offset is not None:
            phy_offset = max(phy_offset, self._log.min_phy_offset)
            self.phy_offset = min(phy_offset, self.phy_offset)
            self.queues_phy_offset = min(phy_offset, self.queues_phy_offset)

    @property
    def doubtful_phy_offset(self) -> int | None:
        """From where on a sync may have failed before the last owner ended; None: nowhere."""
        return self._noted_durable if self._is_ours and not self.clean_exit else None

    def _ends_wrong(self, queue: ConsumeQueue) -> bool:
        """Whether the last unit of a queue, if it was on disk, points at no record. What comes behind
        is dispatched again if the log still has it."""
        if queue.max_phy_offset <= self._log.min_phy_offset:
            return False
        unit = queue.unit(queue.max_queue_offset - 1)
        if unit is None or unit.end_phy_offset > self._log.max_phy_offset:
            return True
        if unit.phy_offset >= self.queues_phy_offset and not self.clean_exit:
            return False
        return not self._scanner.is_record(unit.phy_offset, unit.size)

    # -- where to begin --------------------------------------------------------------------------

    def _find(self) -> None:
        queued = self._queues_complete_to()
        derived = queued if self._index is None else min(queued, self._indexed_phy_offset(self._index))
        if self._is_ours:
            start, queued = min(self._noted_durable, derived), min(self._noted_durable, queued)
        elif not self._flushed_ms:
            start = queued = 0
        else:
            limit_ms = self._checkpoint.min_timestamp
            start = queued = self._last_file(
                lambda first: (
                    first.phy_offset <= derived and (self.clean_exit or first.store_timestamp <= limit_ms)
                )
            )
        self.phy_offset = max(start, self._log.min_phy_offset)
        self.queues_phy_offset = max(queued, self._log.min_phy_offset)

    def _queues_complete_to(self) -> int:
        """Up to where the queues have everything; 0 when one of them got lost."""
        if self._is_ours:
            queued = self._checkpoint.logics_physical_offset if self._queues.has_snapshot else 0
        else:
            queued = self._queued_phy_offset
        if self._queues.rebuild_phy_offset is not None:
            queued = min(queued, self._queues.rebuild_phy_offset)
        return queued

    def _indexed_phy_offset(self, index: IndexService) -> int:
        end = index.end_phy_offset
        noted = self._checkpoint.index_end_phy_offset
        if self._is_ours and index.is_complete and index.behind_end_phy_offset >= noted:
            return max(end, self._checkpoint.indexed_phy_offset)
        if self._is_ours and index.behind_end_phy_offset < noted:
            _log.warning(
                "the index ends at %d, although it had reached %d: records from there on are indexed again",
                end,
                noted - 1,
            )
        return end

    def _last_file(self, fits: Callable[[DispatchRequest], bool]) -> int:
        """The last file whose first record is valid and `fits`; at worst the first file."""
        for log_file in reversed(self._log.log_files):
            record = self._scanner.record_at(log_file.start_phy_offset)
            if isinstance(record, DispatchRequest) and record.store_timestamp and fits(record):
                return log_file.start_phy_offset
        return self._log.min_phy_offset
