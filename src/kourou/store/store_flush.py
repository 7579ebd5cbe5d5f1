"""StoreFlush: makes a store durable, first the log, then what is derived from it, and notes how far.

The log is synced by jobs that may run in another thread; a failed sync fences the store. Queues and
index follow in rounds of their own: they can be rebuilt, so that they are never waited for.
Not here: when to flush (flusher.py for sync flush, the broker's timers), recovery.
"""

from __future__ import annotations

import logging

from kourou.errors import StorageError
from kourou.store.dispatcher import Dispatcher
from kourou.store.flush_job import FlushJob
from kourou.store.index.index_service import IndexService
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_appender import LogAppender
from kourou.store.log.log_file import LOSS_CURE
from kourou.store.log.log_watch import LogWatch
from kourou.store.producers.producer_log import ProducerLog
from kourou.store.queue.consume_queues import LEAST_FLUSH_BYTES, ConsumeQueues
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.steps import Steps, run_steps

_log = logging.getLogger(__name__)


class StoreFlush:
    """Owned by the store's thread."""

    def __init__(
        self,
        log: CommitLog,
        appender: LogAppender,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        index: IndexService | None,
        producers: ProducerLog,
        checkpoint: StoreCheckpoint,
        watch: LogWatch,
    ) -> None:
        self._log = log
        self._appender = appender
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index
        self._producers = producers
        self._checkpoint = checkpoint
        self._watch = watch

    def start_flush(self) -> FlushJob:
        """What has to be synced now. Run the job anywhere, then give it to `finish_flush`."""
        # A recovery that finds part of a record below what was durable would take it for damage.
        covers_phy_offset = self._log.max_phy_offset - self._log.incomplete_bytes
        return FlushJob(self._log.unsynced_files(), covers_phy_offset, self._dispatcher.dispatched_timestamp)

    def finish_flush(self, job: FlushJob) -> None:
        """Take note of a job that ran. A failed one fences the store: a sync that is tried again
        and succeeds proves nothing."""
        job.release()
        if job.error is not None:
            self._appender.fence(f"the CommitLog cannot be synced: {job.error.strerror or job.error}")
        if job.loss is not None:
            self._appender.fence(job.loss, LOSS_CURE)
        if self._appender.is_fenced:
            return
        self._log.mark_flushed(job.covers_phy_offset)
        if job.store_timestamp:
            self._checkpoint.physic_msg_timestamp = job.store_timestamp
        self._checkpoint.durable_phy_offset = self._log.flushed_phy_offset
        self._save_checkpoint()

    def flush(self) -> None:
        """Make the log durable; on return without a fence everything written so far is on disk.

        A fenced store is not synced again.
        """
        run_steps(self.flush_steps())

    def flush_steps(self) -> Steps[None]:
        """The same in steps: what was written when it began is on disk at its end."""
        if self._appender.is_fenced:
            return
        job = self.start_flush()
        try:
            yield job.run
        except BaseException:
            # The waiter was cancelled: a sync that failed meanwhile must still be reported.
            if job.error is not None or job.loss is not None:
                self.finish_flush(job)
            job.release()
            raise
        self.finish_flush(job)

    def flush_derived(self, *, thorough: bool) -> bool:
        """Write queues and index to their files; with `thorough` they are on disk on return, and
        the checkpoint says how far. False when the index is left behind.

        OSError: the queues cannot be written. An index that cannot be catches up later, after the
        next start at the latest.
        """
        return run_steps(self.derived_steps(thorough=thorough))

    def derived_steps(self, *, thorough: bool) -> Steps[bool]:
        """The same in steps, one such work at a time: nothing may be deleted in between. Nothing is written
        if the store's folder is not there any more."""
        yield from self._watch.look_steps()
        if self._watch.is_displaced:
            return False
        covered = self._dispatcher.dispatched_phy_offset
        queued = max(covered, self._dispatcher.queued_phy_offset)
        timestamp = self._dispatcher.dispatched_timestamp
        flush_round = self._queues.begin_round(least_bytes=0 if thorough else LEAST_FLUSH_BYTES)
        yield from flush_round.steps()
        if not thorough:
            return self._build_index()
        yield flush_round.sync
        index_end = yield from self._index_steps()
        yield from self._queues.snapshot_steps(queued)
        if not (yield from self._producers.save_steps(self.flush_steps)):
            return False
        checkpoint = self._checkpoint
        checkpoint.logics_physical_offset = queued
        if timestamp:
            checkpoint.logics_msg_timestamp = timestamp
        if self._index is not None and index_end is not None:
            checkpoint.indexed_phy_offset = covered
            checkpoint.index_end_phy_offset = index_end
            checkpoint.index_msg_timestamp = self._index.full_end_timestamp
        self._save_checkpoint()
        yield self._sync_checkpoint
        return index_end is not None

    def _build_index(self) -> bool:
        """Whether the index, if there is to be one, has all there is."""
        try:
            if self._index is not None:
                self._index.build()
        except (OSError, StorageError) as error:
            _log.warning("the index falls behind: %s", error)
            return False
        return True

    def _index_steps(self) -> Steps[int | None]:
        """Make the index durable; where it ends then (0 without one), None when it is left behind."""
        index = self._index
        if index is None:
            return 0
        try:
            index.build()
            end = index.behind_end_phy_offset
            yield from index.flush_steps()
        except (OSError, StorageError) as error:
            _log.warning("the index falls behind: %s", error)
            return None
        return end

    def _save_checkpoint(self) -> None:
        try:
            self._checkpoint.save()
        except OSError as error:
            _warn_of_checkpoint(error)

    def _sync_checkpoint(self) -> None:
        try:
            self._checkpoint.sync()
        except OSError as error:
            _warn_of_checkpoint(error)


def _warn_of_checkpoint(error: OSError) -> None:
    # Derived: the next recovery only starts earlier.
    _log.warning("the checkpoint cannot be written: %s", error.strerror or error)
