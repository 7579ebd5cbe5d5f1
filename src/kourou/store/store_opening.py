"""StoreOpening: from the files of a locked store to a MessageStore that can be used.

Checkpoint, log, index and queues are loaded, the store is marked as open, and what a crash left behind is
recovered; then the verifiers of queues and index are set.
Not here: the lock (store_lock.py), how the log is recovered (recovery/recovery.py).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kourou.protocol.names import PRODUCERS_TOPIC
from kourou.store.index.index_links import keep_linked
from kourou.store.log.log_scanner import PIECE_BYTES, LogScanner
from kourou.store.log.log_snapshot import MAX_RECORD_BYTES
from kourou.store.recovery.index_verifier import IndexVerifier
from kourou.store.recovery.queue_verifier import QueueVerifier
from kourou.store.recovery.recovery import Recovery, RecoveryReport
from kourou.store.recovery.recovery_start import RecoveryStart, check_log_reaches

if TYPE_CHECKING:
    from kourou.store.disk.files import Files
    from kourou.store.disk.store_lock import StoreLock
    from kourou.store.kernel import Kernel
    from kourou.store.message_store import MessageStore

_log = logging.getLogger(__name__)

# Where a record or two are wanted, megabytes are not read.
_FEW_RECORDS_BYTES: Final = 64 * 1024


class StoreOpening:
    """Loads and recovers one store."""

    def __init__(self, store: MessageStore, files: Files, lock: StoreLock, kernel: Kernel | None) -> None:
        self._store = store
        self._files = files
        self._lock = lock
        self._kernel = kernel

    def run(self) -> RecoveryReport:
        """Load and recover. OSError, StoreFormatError, StorageError: the store cannot be opened."""
        store = self._store
        clean_exit = self._lock.was_clean
        if not clean_exit:
            _log.info("store %s was not closed: it is recovered now", store.config.root)
        checkpoint = store.checkpoint
        checkpoint.load()
        if checkpoint.problem is not None:
            _log.warning("%s is not used: %s", store.config.checkpoint, checkpoint.problem)
        elif checkpoint.is_taken_over:
            _log.info("another broker has worked on %s since Kourou did", store.config.root)
        store.log.load()
        if checkpoint.is_ours:
            check_log_reaches(store.log, checkpoint.durable_phy_offset)
        if store.index is not None:
            store.index.load(clean_exit, checkpoint.index_msg_timestamp)
            keep_linked(store.index, self._scanner(piece_bytes=_FEW_RECORDS_BYTES), store.log.min_phy_offset)
        scanner = self._scanner()
        start = self._load_queues(scanner, clean_exit)
        self._mark_open()
        if not clean_exit:
            _log.info(
                "recovery reads the CommitLog from %d on; its files end at %d",
                start.phy_offset,
                store.log.max_phy_offset,
            )
        has_openings = store.queues.find(PRODUCERS_TOPIC, 0) is not None
        store.producers.restore(start.phy_offset, has_openings=has_openings)
        report = self._recover(scanner, start)
        store.producers.recovered(self._scanner())
        store.queues.verify_by(self._verifier())
        if store.index is not None:
            levels = store.config.delay_levels
            store.index.verifier = IndexVerifier(self._files, store.log, store.damages, levels)
        _log.info(
            "store %s open: CommitLog %d to %d, %d records recovered after %s; "
            "files of %d bytes in the CommitLog, of %d units in a ConsumeQueue",
            store.config.root,
            store.log.min_phy_offset,
            store.log.max_phy_offset,
            report.records,
            "an orderly stop" if clean_exit else "a crash",
            store.log.file_bytes,
            store.queues.units_per_file,
        )
        return report

    def _scanner(self, *, piece_bytes: int = PIECE_BYTES) -> LogScanner:
        return LogScanner(
            self._store.log,
            self._store.config.delay_levels,
            max_record_bytes=MAX_RECORD_BYTES,
            check_crc=self._store.config.check_crc_on_recover,
            piece_bytes=piece_bytes,
        )

    def _verifier(self) -> QueueVerifier:
        return QueueVerifier(
            self._files,
            self._store.log,
            self._store.queues.files,
            self._store.damages,
            self._store.config.delay_levels,
            kernel=self._kernel,
            has_ext=self._files.is_folder(self._store.config.root / "consumequeue_ext"),
        )

    def _load_queues(self, scanner: LogScanner, clean_exit: bool) -> RecoveryStart:
        checkpoint = self._store.checkpoint
        self._store.queues.load(
            clean_exit and checkpoint.is_ours,
            log_end_phy_offset=checkpoint.logics_physical_offset,
            is_taken_over=checkpoint.is_taken_over,
        )
        if not self._store.log.log_files:
            check_log_reaches(self._store.log, self._store.queues.max_phy_offset())
        return RecoveryStart(
            self._store.log,
            scanner,
            self._store.queues,
            self._store.index,
            checkpoint,
            clean_exit=clean_exit,
        )

    def _mark_open(self) -> None:
        try:
            self._lock.mark_open()
        except OSError:
            # Half of the mark would make this look like a crash.
            if self._lock.was_clean:
                with suppress(OSError):
                    self._files.remove(self._store.config.abort)
            raise

    def _recover(self, scanner: LogScanner, start: RecoveryStart) -> RecoveryReport:
        return Recovery(
            self._files,
            self._store.config.root,
            self._store.log,
            scanner,
            self._store.dispatcher,
            self._store.queues,
            self._store.index,
            self._store.checkpoint,
            start,
            self._write_derived,
            self._keep_progress,
            self._store.producers.pass_over,
            self._store.damages,
            self._kernel,
        ).run()

    def _keep_progress(self) -> None:
        self._store.producers.read_log(self._scanner(), self._store.dispatcher.dispatched_phy_offset)
        self._flush_derived(thorough=True)

    def _write_derived(self) -> None:
        self._flush_derived(thorough=False)

    def _flush_derived(self, *, thorough: bool) -> None:
        try:
            self._store.flush_derived(thorough=thorough)
        except OSError as error:  # derived: the next recovery only starts earlier
            _log.warning("what recovery derived cannot be saved: %s", error)
