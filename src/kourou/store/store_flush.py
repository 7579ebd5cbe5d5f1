"""StoreFlush: makes a store durable, first the log, then what is derived from it, and notes how far.

The log is synced by jobs that may run in another thread; a failed sync fences the store. Queues and
index follow in rounds of their own: they can be rebuilt, so that they are never waited for.
Not here: who flushes when (flusher.py for sync flush, the broker's timers), what recovery makes of it.
"""

from __future__ import annotations

import logging

from kourou.errors import StorageError
from kourou.store.checkpoint import StoreCheckpoint
from kourou.store.commit_log import CommitLog
from kourou.store.consume_queues import ConsumeQueues
from kourou.store.dispatcher import Dispatcher
from kourou.store.flush_job import FlushJob
from kourou.store.index_service import IndexService
from kourou.store.log_appender import LogAppender

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
        checkpoint: StoreCheckpoint,
    ) -> None:
        self._log = log
        self._appender = appender
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint

    def start_flush(self) -> FlushJob:
        """What has to be synced now. Run the job anywhere, then give it to `finish_flush`."""
        return FlushJob(
            self._log.unsynced_files(), self._log.max_phy_offset, self._dispatcher.dispatched_timestamp
        )

    def finish_flush(self, job: FlushJob) -> None:
        """Take note of a job that ran. A failed one fences the store: a sync that is tried again
        and succeeds proves nothing."""
        job.release()
        if job.error is not None:
            self._appender.fence(f"the CommitLog cannot be synced: {job.error.strerror or job.error}")
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
        if self._appender.is_fenced:
            return
        job = self.start_flush()
        job.run()
        self.finish_flush(job)

    def flush_derived(self, *, thorough: bool) -> bool:
        """Write queues and index to their files; with `thorough` they are on disk on return, and
        the checkpoint says how far. False when the index is left behind.

        OSError: the queues cannot be written. An index that cannot be catches up later, after the
        next start at the latest.
        """
        covered = self._dispatcher.dispatched_phy_offset
        timestamp = self._dispatcher.dispatched_timestamp
        self._queues.flush_round(least_bytes=0 if thorough else 4096, sync=thorough)
        is_indexed = self._flush_index(thorough=thorough)
        if not thorough:
            return is_indexed
        self._queues.save_snapshot(covered)
        checkpoint = self._checkpoint
        checkpoint.logics_physical_offset = covered
        if timestamp:
            checkpoint.logics_msg_timestamp = timestamp
        if self._index is not None and is_indexed:
            checkpoint.indexed_phy_offset = covered
            checkpoint.index_end_phy_offset = self._index.behind_end_phy_offset
            checkpoint.index_msg_timestamp = self._index.full_end_timestamp
        self._save_checkpoint(sync=True)
        return is_indexed

    def _flush_index(self, *, thorough: bool) -> bool:
        """Whether the index, if there is to be one, is complete, and with `thorough` on disk."""
        if self._index is None:
            return True
        try:
            if thorough:
                self._index.flush()
            else:
                self._index.build()
        except (OSError, StorageError) as error:
            _log.warning("the index falls behind: %s", error)
            return False
        return True

    def _save_checkpoint(self, *, sync: bool = False) -> None:
        try:
            self._checkpoint.save()
            if sync:
                self._checkpoint.sync()
        except OSError as error:  # derived: the next recovery only starts earlier
            _log.warning("the checkpoint cannot be written: %s", error.strerror or error)
