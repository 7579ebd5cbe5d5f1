"""Cutting a log: a former master becomes a slave, and the end of its log is not in the new master's.

What is cut off is first kept as a file (orphaned_tail.py). Then everything that knows of it is set back, so
that each step is right for the log before the cut as well: the checkpoint (a recovery walks from there), the
ConsumeQueues and the index, recorded progress (cut_progress.py), idempotent producers, known damage. Then the
log is cut. The epochs go last: as long as the log may have its tail, they tell that it has parted.

A process that is killed on the way leaves a store that was not closed. After its recovery another cut has the
same result as the first one would have had; the tail is kept in one file.
Not here: where two logs part (handshake.py).
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from dataclasses import replace

from kourou.errors import StorageError
from kourou.store.disk.files import Files
from kourou.store.log.dispatch_request import DispatchRequest
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.log.log_snapshot import MAX_RECORD_BYTES
from kourou.store.message_store import MessageStore
from kourou.store.replica.cut_progress import ProgressCut, read_effects
from kourou.store.replica.epochs import EpochFile
from kourou.store.replica.orphaned_tail import SavedTail, save_tail
from kourou.store.settings import MessageStoreConfig

_log = logging.getLogger(__name__)


class LogCutError(StorageError):
    """A log cannot be cut where it should be; nothing was changed."""


def cut_log(
    files: Files, config: MessageStoreConfig, phy_offset: int, *, set_name: str, now_ms: Callable[[], int]
) -> SavedTail | None:
    """End the log of a store that no broker uses at `phy_offset`, where a record ends. The tail is kept in
    a file of the store that names the broker set. None: the log ends there already, perhaps since an earlier
    call was interrupted. On disk on return. Waits for the disk.

    LogCutError: the log has no such place. StoreLockedError, StorageError: nothing of the tail is lost, and
    the call can be repeated.
    """
    store = MessageStore.open(config, files, now_ms)
    try:
        cut = _LogCut(files, store, phy_offset)
        try:
            cut.check()
        except LogCutError:
            store.close()
            raise
        saved = cut.save(set_name, now_ms()) if phy_offset < store.log.max_phy_offset else None
        if saved is not None:
            cut.run()
        cut.forget_epochs()
        if cut.is_complete:
            store.close()
    except OSError as error:
        raise StorageError(
            f"{error.filename or config.root}: the CommitLog cannot be cut at {phy_offset}: "
            f"{error.strerror or error}; nothing of it is lost: check the disk, and restart the broker",
            config.root,
        ) from error
    finally:
        store.abandon()
    if saved is not None:
        _log.warning(
            "the CommitLog of %s is cut at %d: the %d bytes from there to %d, written up to epoch %d of %s, "
            "are not in the log of the new master. They are kept in %s; `kourou store inspect %s` lists the "
            "messages",
            config.root,
            phy_offset,
            saved.size_bytes,
            saved.end_phy_offset,
            saved.epoch,
            set_name,
            saved.path,
            shlex.quote(str(saved.path)),
        )
    return saved


class _LogCut:
    """One cut of an open store that nothing else uses."""

    def __init__(self, files: Files, store: MessageStore, phy_offset: int) -> None:
        self._files = files
        self._store = store
        self._phy_offset = phy_offset
        # A log without records has no files: it may begin anywhere.
        self._is_whole = phy_offset == store.log.min_phy_offset
        self._end = 0 if self._is_whole else phy_offset
        self._epochs = EpochFile(files, store.config.root)
        self._epochs.load()
        self.is_complete = True
        """Whether the store can be closed."""

    def _scanner(self) -> LogScanner:
        config = self._store.config
        return LogScanner(
            self._store.log,
            config.delay_levels,
            max_record_bytes=MAX_RECORD_BYTES,
            check_crc=config.check_crc_on_recover,
        )

    def check(self) -> None:
        """LogCutError if the log cannot be cut there."""
        log, at, root = self._store.log, self._phy_offset, self._store.config.root
        if at < log.min_phy_offset:
            raise LogCutError(
                f"{root}: the CommitLog begins at {log.min_phy_offset}, so that it cannot be cut at {at}: it "
                "has nothing in common with the master's. Move the store away: the broker copies all of the "
                "master's then",
                root,
            )
        if at > log.max_phy_offset:
            raise LogCutError(
                f"{root}: the CommitLog ends at {log.max_phy_offset} and cannot be cut at {at}", root
            )
        if at == log.max_phy_offset or self._store.damages.is_known(at, at + 1):
            return
        found = self._scanner().record_at(at)
        if isinstance(found, BadRecord):
            raise LogCutError(
                f"{root}: the CommitLog cannot be cut at {at}, where no record begins: {found.reason}", root
            )

    def save(self, set_name: str, now_ms: int) -> SavedTail:
        """Keep what is to be cut off; on disk on return."""
        log, root = self._store.log, self._store.config.root
        epoch = self._epochs.epochs[-1].epoch if self._epochs.epochs else 0
        return save_tail(
            self._files, root, log, self._phy_offset, set_name=set_name, epoch=epoch, now_ms=now_ms
        )

    def run(self) -> None:
        """Cut the log and all that is derived from it. OSError, StorageError: repeat it."""
        store, scanner = self._store, self._scanner()
        # Units that a failed write has left behind the end of a queue would not be cut.
        if not store.flush_derived(thorough=True):
            raise StorageError(
                f"{store.config.root}: the CommitLog cannot be cut, since its index cannot be written; "
                "nothing of it is lost: check the disk, and restart the broker",
                store.config.root,
            )
        effects = read_effects(store.log, scanner, self._phy_offset)
        self._lower_checkpoint()
        self._cut_queues()
        self._cut_index(scanner)
        self._correct_time(scanner)
        ProgressCut(self._files, store.config.config_folder, store.queues, effects).run(self._end)
        store.producers.rewind(scanner, self._phy_offset)
        self._forget_damage()
        if self._is_whole:
            store.log.clear()
        else:
            store.log.truncate(self._phy_offset)
        store.dispatcher.dispatched_phy_offset = store.dispatcher.queued_phy_offset = self._end

    def forget_epochs(self) -> None:
        """Drop the epochs without records; on disk on return."""
        self._epochs.cut(self._phy_offset)

    def _lower_checkpoint(self) -> None:
        """Have a recovery walk from the cut on, and take nothing behind it for lost."""
        checkpoint = self._store.checkpoint
        for name in (
            "master_flushed_offset",
            "confirm_phy_offset",
            "logics_physical_offset",
            "durable_phy_offset",
            "indexed_phy_offset",
            "index_end_phy_offset",
        ):
            setattr(checkpoint, name, min(getattr(checkpoint, name), self._end))
        checkpoint.save()
        checkpoint.sync()

    def _cut_queues(self) -> None:
        queues, checkpoint = self._store.queues, self._store.checkpoint
        queues.rebuild_phy_offset = None
        if self._is_whole:
            for topic in queues.topics():
                queues.delete_topic(topic)
        else:
            queues.truncate_all(self._phy_offset)
        queues.flush_round(least_bytes=0, sync=True)
        if queues.is_complete:
            queues.save_snapshot(self._end)
            return
        # Units in front of the cut were damaged: the store is left to a recovery.
        self.is_complete = False
        checkpoint.logics_physical_offset = min(queues.rebuild_phy_offset or 0, self._end)

    def _cut_index(self, scanner: LogScanner) -> None:
        index = self._store.index
        if index is not None and self._is_whole:
            index.reset()
        elif index is not None:
            index.truncate(self._phy_offset)
            index.correct_end(_store_timestamp(scanner, index.end_phy_offset))

    def _correct_time(self, scanner: LogScanner) -> None:
        """What the checkpoint says of the last record; on disk on return."""
        store, checkpoint = self._store, self._store.checkpoint
        last = store.last_queued_record()
        store.dispatcher.dispatched_timestamp = 0 if last is None else _store_timestamp(scanner, last[0])
        checkpoint.physic_msg_timestamp = store.dispatcher.dispatched_timestamp
        checkpoint.logics_msg_timestamp = store.dispatcher.dispatched_timestamp
        checkpoint.save()
        checkpoint.sync()

    def _forget_damage(self) -> None:
        """Damage behind the cut went with it."""
        known = self._store.damages
        known.damages[:] = [
            replace(each, end_phy_offset=min(each.end_phy_offset, self._phy_offset))
            for each in known.damages
            if each.phy_offset < self._phy_offset
        ]
        known.next_offsets = {
            (topic, queue_id): next_offset
            for (topic, queue_id), next_offset in known.next_offsets.items()
            if known.damages and self._store.max_offset_in_queue(topic, queue_id) == next_offset
        }
        known.save()


def _store_timestamp(scanner: LogScanner, phy_offset: int) -> int:
    found = scanner.record_at(phy_offset)
    return found.store_timestamp if isinstance(found, DispatchRequest) else 0
