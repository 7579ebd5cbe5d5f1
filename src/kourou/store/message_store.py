"""MessageStore: the whole engine behind one class, as a synchronous library.

One thread owns a store. Life: `open` (lock, load, recover), puts and reads, `close` (flush
everything, checkpoint, remove `abort`). A broker works in passes: `begin_pass`, any number of
`put`, `write_pass`, `publish`; `put_message` does all four for one message.

Durability: `write_pass` leaves records in the page cache; `flush` makes them durable, or
`start_flush` / `FlushJob.run` / `finish_flush` do so with the waiting in another thread.
A failed sync fences the store: nothing more is written, and it says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from kourou.errors import StorageError, StoreFormatError
from kourou.protocol.properties import MessageConst, PropertyScanner, properties_to_bytes
from kourou.store.checkpoint import StoreCheckpoint
from kourou.store.commit_log import CommitLog
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.consume_queues import ConsumeQueues
from kourou.store.dispatch_request import index_keys, stored_tags_code
from kourou.store.dispatcher import Dispatcher
from kourou.store.files import Files
from kourou.store.flush_job import FlushJob
from kourou.store.get_message import GetMessageResult, MessageReader, RecordFilter, TagsFilter
from kourou.store.index_service import IndexService
from kourou.store.log_appender import LogAppender
from kourou.store.log_scanner import LogScanner
from kourou.store.message_lookup import MessageLookup
from kourou.store.put_batch import PutBatch, PutFailedError
from kourou.store.put_status import PutStatus
from kourou.store.queue_recovery import IsRecord
from kourou.store.queue_snapshot import decode_snapshot
from kourou.store.recovery import Recovery, RecoveryReport
from kourou.store.recovery_start import RecoveryStart, check_log_reaches
from kourou.store.settings import FlushDiskType, MessageStoreConfig
from kourou.store.store_lock import StoreLock

_log = logging.getLogger(__name__)

# The largest record recovery takes for one: the body limit may have been larger once.
_MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
# One of them is in every store; in a folder with other names only we do not begin a new one.
_STORE_NAMES: Final = frozenset(
    {"abort", "checkpoint", "commitlog", "config", "consumequeue", "index", "lock", "lost+found"}
)
_SHUT_DOWN: Final = StorageError("the message store has been shut down")

_scan = PropertyScanner(
    MessageConst.PROPERTY_TAGS,
    MessageConst.PROPERTY_KEYS,
    MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
).values


@dataclass(frozen=True, slots=True)
class PutMessageResult:
    """What became of one message."""

    status: PutStatus
    phy_offset: int
    queue_offset: int


class MessageStore:
    """A store that is open. Made by `MessageStore.open`."""

    def __init__(
        self, config: MessageStoreConfig, files: Files, now_ms: Callable[[], int], lock: StoreLock
    ) -> None:
        self._lock = lock
        self._files = files
        self._now_ms = now_ms
        self.config = config
        self.checkpoint = StoreCheckpoint(files, config.checkpoint)
        self.log = CommitLog(
            files,
            config.log_folders,
            config.commit_log_file_bytes,
            read_window_bytes=config.read_window_bytes,
            read_only_folders=config.read_only_commit_log_folders,
        )
        self.queues = ConsumeQueues(files, config.queue_folder, config.consume_queue_file_bytes)
        self.index = (
            IndexService(files, config.indexes, config.index_slots, config.index_entries, now_ms)
            if config.index_enable
            else None
        )
        self.dispatcher = Dispatcher(self.queues, self.index)
        self.appender = LogAppender(
            self.log, max_message_bytes=config.max_message_bytes, store_host=config.store_host
        )
        self.reader = MessageReader(
            self.log,
            max_transfer_bytes=config.max_transfer_bytes,
            max_filter_units=config.max_filter_units,
        )
        lookup = MessageLookup(self.log, self.queues, self.index)
        # The parts' own methods, without a call in between.
        self.put = self.appender.put
        self.put_many = self.appender.put_many
        self.look_message = lookup.look_message
        self.store_timestamp = lookup.store_timestamp
        self.query_message = lookup.query_message
        self.min_offset_in_queue = lookup.min_offset_in_queue
        self.max_offset_in_queue = lookup.max_offset_in_queue
        self.offset_in_queue_by_time = lookup.offset_in_queue_by_time
        self.message_time = lookup.message_time
        self.earliest_message_time = lookup.earliest_message_time
        self.report = RecoveryReport(clean_exit=True)

    # -- life ------------------------------------------------------------------------------------

    @classmethod
    def open(cls, config: MessageStoreConfig, files: Files, now_ms: Callable[[], int]) -> Self:
        """Lock, load and recover the store at `config.root`; made anew where there is none.

        StoreLockedError when another process has it, StoreFormatError when it is no store or was
        written with other sizes, StorageError when the disk does not do its part.
        """
        try:
            _check_folder(files, config)
            _make_root(files, config.root)
            store = cls(config, files, now_ms, StoreLock.acquire(files, config.root, config.abort))
        except OSError as error:
            raise _cannot_open(config, error) from error
        try:
            store._load()
        except OSError as error:
            store.abandon()
            raise _cannot_open(config, error) from error
        except BaseException:
            store.abandon()
            raise
        return store

    def _load(self) -> None:
        clean_exit = self._lock.was_clean
        checkpoint = self.checkpoint
        checkpoint.load()
        if checkpoint.problem is not None:
            _log.warning("%s is not used: %s", self.config.checkpoint, checkpoint.problem)
        self.log.load()
        if checkpoint.is_ours:
            check_log_reaches(self.log, checkpoint.durable_phy_offset)
        if self.index is not None:
            self.index.load(clean_exit, checkpoint.index_msg_timestamp)
        scanner = LogScanner(
            self.log,
            self.config.delay_levels,
            max_record_bytes=_MAX_RECORD_BYTES,
            check_crc=self.config.check_crc_on_recover,
        )
        start = self._load_queues(scanner, clean_exit)
        self._mark_open()
        self.report = self._recover(scanner, start)
        self.reader.damaged = [(d.phy_offset, d.end_phy_offset) for d in self.report.damages]
        _log.info(
            "store %s open: CommitLog %d to %d, %d records taken after a %s stop",
            self.config.root,
            self.log.min_phy_offset,
            self.log.max_phy_offset,
            self.report.records,
            "clean" if clean_exit else "sudden",
        )

    def _load_queues(self, scanner: LogScanner, clean_exit: bool) -> RecoveryStart:
        checkpoint = self.checkpoint
        queues_are_known = self._has_snapshot()
        self.queues.load(
            clean_exit and checkpoint.is_ours,
            log_end_phy_offset=checkpoint.logics_physical_offset,
            is_record=self._may_be_record(scanner, clean_exit),
        )
        if not self.log.log_files:
            check_log_reaches(self.log, self.queues.max_phy_offset())
        return RecoveryStart(
            self.log,
            scanner,
            self.queues,
            self.index,
            checkpoint,
            clean_exit=clean_exit,
            queues_are_known=queues_are_known,
        )

    def _may_be_record(self, scanner: LogScanner, clean_exit: bool) -> IsRecord:
        """Whether a unit at the end of a queue can be right: what was on disk has to be a record, if its
        file is not gone; what comes behind is dispatched again if the log still has it."""
        checkpoint, low, end = self.checkpoint, self.log.min_phy_offset, self.log.max_phy_offset
        synced = min(checkpoint.durable_phy_offset, checkpoint.logics_physical_offset)
        checked = end if clean_exit else synced if checkpoint.is_ours else 0

        def may_be_record(phy_offset: int, size: int) -> bool:
            if phy_offset >= checked:
                return phy_offset + size <= end and not clean_exit
            return phy_offset < low or scanner.is_record(phy_offset, size)

        return may_be_record if self.log.log_files else lambda *_: True

    def _has_snapshot(self) -> bool:
        folder = self.config.queue_folder
        try:
            raw = self._files.read(folder.with_name(folder.name + ".snapshot"))
        except FileNotFoundError:
            return False
        return decode_snapshot(raw) is not None

    def _mark_open(self) -> None:
        try:
            self._lock.mark_open()
        except OSError:
            # Half of the mark would make this look like a crash.
            if self._lock.was_clean:
                with suppress(OSError):
                    self._files.remove(self.config.abort)
            raise

    def _recover(self, scanner: LogScanner, start: RecoveryStart) -> RecoveryReport:
        return Recovery(
            self._files,
            self.config.root,
            self.log,
            scanner,
            self.dispatcher,
            self.queues,
            self.index,
            self.checkpoint,
            start,
            self._keep_progress,
        ).run()

    def _keep_progress(self) -> None:
        try:
            self.flush_derived(thorough=True)
        except OSError as error:  # derived: the next recovery only starts earlier
            _log.warning("what recovery derived cannot be saved: %s", error)

    def close(self) -> None:
        """Flush everything, write the checkpoint, and only if all went well remove `abort`."""
        self.appender.refuse("shutdown", _SHUT_DOWN)
        try:
            self.write_pass_and_publish()
            self.flush()
            is_complete = self.flush_derived(thorough=True)
            self.log.drop_prepared()
            if is_complete and self.appender.is_undone and not self.appender.is_fenced:
                self._lock.mark_clean()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of all files without flushing anything, as a process that dies does."""
        self.appender.refuse("shutdown", _SHUT_DOWN)
        self.appender.drop_pending()
        self.log.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.checkpoint.close()
        self._lock.release()

    # -- topics and queues -----------------------------------------------------------------------

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues; its records stay in the log until they expire. On disk on return,
        so that no recovery brings them back."""
        # First the others: a recovery that begins before this moment would dispatch the topic again.
        self.flush()
        self.flush_derived(thorough=True)
        self.queues.delete_topic(topic)

    def clean_expired_queues(self, keep_topics: Collection[str] = ()) -> list[tuple[str, int]]:
        """Delete the queues all of whose messages are gone from the log: topic and queue_id of each."""
        expired = self.queues.clean_expired(self.log.min_phy_offset, keep_topics)
        if expired:
            self.flush_derived(thorough=True)
        return expired

    # -- putting ---------------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """Bytes put and not written yet: the bound of a pass."""
        return self.appender.pending_bytes

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made on first use."""
        return self.queues.get(topic, queue_id)

    def begin_pass(self) -> int:
        """Fix the store timestamp of the pass; returns it."""
        return self.appender.begin_pass(self._now_ms())

    def put_message(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str = "",
        *,
        born_timestamp: int = 0,
        born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00",
        sys_flag: int = 0,
    ) -> PutMessageResult:
        """Store one message, as the flush mode asks: in the page cache on return, or on disk.

        PutRefusedError: it was not even tried.
        """
        results: list[PutMessageResult] = []
        now_ms = self.begin_pass()
        tags, keys, uniq_key, delay = _scan(properties)
        self.put(
            self.queue(topic, queue_id),
            body,
            properties_to_bytes(properties),
            tags_code=stored_tags_code(topic, tags, delay, now_ms, self.config.delay_levels),
            keys=index_keys(uniq_key, keys),
            born_timestamp=born_timestamp or now_ms,
            born_host=born_host,
            sys_flag=sys_flag,
            done=lambda status, phy, queue_offset: results.append(
                PutMessageResult(status, phy, queue_offset)
            ),
        )
        self.write_pass_and_publish()
        return results[0]

    def write_pass(self) -> PutBatch | None:
        """Write what is pending: in the page cache on return. PutFailedError: nothing is stored."""
        return self.appender.write_pass()

    def publish(self, batch: PutBatch) -> Iterable[ConsumeQueue]:
        """Let readers see a batch; returns the queues that grew."""
        return self.dispatcher.publish(batch)

    def write_pass_and_publish(self) -> None:
        """End a pass without an event loop: write, flush if the mode asks for it, publish, answer."""
        try:
            batch = self.write_pass()
        except PutFailedError as failed:
            failed.batch.answer(failed.status)
            return
        if batch is None:
            return
        if self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            batch.answer_unwaited(PutStatus.PUT_OK)
            self.flush()
            if self.appender.is_fenced:
                # It may or may not be on disk: nobody has seen it, and nobody is to.
                batch.answer(PutStatus.SERVICE_NOT_AVAILABLE)
                return
        self.publish(batch)
        batch.answer(PutStatus.PUT_OK)

    # -- durability ------------------------------------------------------------------------------

    def start_flush(self) -> FlushJob:
        """What has to be synced now. Run the job anywhere, then give it to `finish_flush`."""
        return FlushJob(
            self.log.unsynced_files(), self.log.max_phy_offset, self.dispatcher.dispatched_timestamp
        )

    def finish_flush(self, job: FlushJob) -> None:
        """Take note of a job that ran. A failed one fences the store: a sync that is tried again
        and succeeds proves nothing."""
        job.release()
        if job.error is not None:
            self.appender.fence(f"the CommitLog cannot be synced: {job.error.strerror or job.error}")
        if self.appender.is_fenced:
            return
        self.log.mark_flushed(job.covers_phy_offset)
        if job.store_timestamp:
            self.checkpoint.physic_msg_timestamp = job.store_timestamp
        self.checkpoint.durable_phy_offset = self.log.flushed_phy_offset
        self._save_checkpoint()

    def flush(self) -> None:
        """Make the log durable; on return without a fence everything written so far is on disk."""
        job = self.start_flush()
        job.run()
        self.finish_flush(job)

    def flush_derived(self, *, thorough: bool) -> bool:
        """Write queues and index to their files; with `thorough` they are on disk on return, and
        the checkpoint says how far. False when the index is left behind.

        OSError: the queues cannot be written. An index that cannot be catches up later, after the
        next start at the latest.
        """
        covered = self.dispatcher.dispatched_phy_offset
        timestamp = self.dispatcher.dispatched_timestamp
        self.queues.flush_round(least_bytes=0 if thorough else 4096, sync=thorough)
        is_indexed = self._flush_index(thorough=thorough)
        if not thorough:
            return is_indexed
        self.queues.save_snapshot(covered)
        checkpoint = self.checkpoint
        checkpoint.logics_physical_offset = covered
        if timestamp:
            checkpoint.logics_msg_timestamp = timestamp
        if self.index is not None and is_indexed:
            checkpoint.indexed_phy_offset = covered
            checkpoint.index_end_phy_offset = self.index.end_phy_offset
            checkpoint.index_msg_timestamp = self.index.full_end_timestamp
        self._save_checkpoint(sync=True)
        return is_indexed

    def _flush_index(self, *, thorough: bool) -> bool:
        """Whether the index, if there is to be one, is complete, and with `thorough` on disk."""
        if self.index is None:
            return True
        try:
            if thorough:
                self.index.flush()
            else:
                self.index.build()
        except (OSError, StorageError) as error:
            _log.warning("the index falls behind: %s", error)
            return False
        return True

    def _save_checkpoint(self, *, sync: bool = False) -> None:
        try:
            self.checkpoint.save()
            if sync:
                self.checkpoint.sync()
        except OSError as error:  # derived: the next recovery only starts earlier
            _log.warning("the checkpoint cannot be written: %s", error.strerror or error)

    # -- reading ---------------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int = 32,
        *,
        max_bytes: int | None = None,
        tags_filter: TagsFilter | None = None,
        record_filter: RecordFilter | None = None,
        wait: bool = True,
    ) -> GetMessageResult:
        """Messages of a queue from `queue_offset` on. Without `wait`, what is not in memory is left
        to `GetMessageResult.load`."""
        result = self.reader.get_message(
            self.queues.find(topic, queue_id),
            queue_offset,
            max_messages,
            max_bytes=max_bytes,
            tags_filter=tags_filter,
            record_filter=record_filter,
        )
        if wait and not result.is_loaded:
            try:
                result.load()
            finally:
                result.release()
        return result


def _make_root(files: Files, root: Path) -> None:
    """Make the store's folder; on return its name is on disk, without which all in it would be lost."""
    missing = [folder for folder in (root, *root.parents) if not files.is_folder(folder)]
    files.make_folder(root)
    for folder in missing:
        files.sync_folder(folder.parent)


def _check_folder(files: Files, config: MessageStoreConfig) -> None:
    """StoreFormatError for a folder that has files, and none that a store has."""
    names = [name for name in files.list_names(config.root) if not name.startswith(".")]
    if names and _STORE_NAMES.isdisjoint(names):
        raise StoreFormatError(
            config.root,
            f"this is no store: it holds {names[0]} and {len(names) - 1} more, but neither commitlog nor "
            "config; name a store, or a new or empty folder",
        )


def _cannot_open(config: MessageStoreConfig, error: OSError) -> StorageError:
    where = error.filename or config.root
    return StorageError(f"{where}: the store cannot be opened: {error.strerror or error}", config.root)
