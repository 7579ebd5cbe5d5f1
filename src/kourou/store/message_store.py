"""MessageStore: the whole engine behind one class, as a synchronous library.

One thread owns a store. Life: `open` (lock, load, recover), puts and reads, `close` (flush
everything, checkpoint, remove `abort`). A broker works in commit cycles: `begin_cycle`, any number of
`LogAppender.put`, `write_cycle`, `publish`; `put_message` does all four for one message.

What works on messages one by one takes the components themselves (`log`, `queues`, `appender`, `reader`,
`lookup`, `index`, `dispatcher`, `watch`) from the program that opens the store; the methods here are the
operations that concern several of them.

Durability: `write_cycle` leaves records in the page cache; `flush` makes them durable, or
`start_flush` / `FlushJob.run` / `finish_flush` do so with the waiting in another thread.
A failed sync fences the store: nothing more is written, and it says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Self

from kourou.errors import StorageError
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst, PropertyScanner, properties_to_bytes
from kourou.store.disk.files import Files
from kourou.store.disk.store_lock import StoreLock
from kourou.store.dispatcher import Dispatcher
from kourou.store.flush_job import FlushJob
from kourou.store.index.index_service import IndexService
from kourou.store.kernel import Kernel
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import index_keys, stored_tags_code
from kourou.store.log.log_appender import LogAppender
from kourou.store.log.log_watch import LogWatch
from kourou.store.log.put_batch import PutBatch, PutFailedError
from kourou.store.log.put_status import PutStatus
from kourou.store.producers.producer_log import ProducerLog
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.read.get_message import MessageReader, RecordFilter, TagsFilter
from kourou.store.read.get_message_result import GetMessageResult
from kourou.store.read.message_lookup import MessageLookup
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.recovery.columns_dispatcher import ColumnsDispatcher
from kourou.store.recovery.corrupt_ranges import KnownDamages
from kourou.store.recovery.recovery import RecoveryReport
from kourou.store.replica.replica_log import ReplicaLog
from kourou.store.settings import FlushDiskType, MessageStoreConfig
from kourou.store.steps import Steps, run_steps
from kourou.store.store_flush import StoreFlush
from kourou.store.store_folder import check_folder, make_root
from kourou.store.store_opening import StoreOpening

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
        self,
        config: MessageStoreConfig,
        files: Files,
        now_ms: Callable[[], int],
        lock: StoreLock,
        kernel: Kernel | None = None,
    ) -> None:
        self._lock = lock
        self._kernel = kernel
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
            IndexService(files, config.indexes, config.index_slots, config.index_entries, now_ms, kernel)
            if config.index_enable
            else None
        )
        self.dispatcher = Dispatcher(self.queues, self.index)
        self.publish = self.dispatcher.publish
        """Let readers see a batch."""
        self.publish_run = self.dispatcher.publish_run
        """The same for a run that was written alone."""
        self.appender = LogAppender(
            self.log,
            max_message_bytes=config.max_message_bytes,
            store_host=config.store_host,
            now_ms=now_ms,
        )
        self.begin_cycle = self.appender.begin_cycle
        """Fix the store timestamp of the commit cycle; returns it."""
        self.write_run = self.appender.write_run
        """Write a run that is alone in its commit cycle, and has no messages of idempotent producers."""
        self.reader = MessageReader(
            self.log,
            max_transfer_bytes=config.max_transfer_bytes,
            max_filter_units=config.max_filter_units,
            kernel=kernel,
        )
        self.lookup = MessageLookup(self.log, self.queues, self.index)
        self.producers = ProducerLog(files, config.config_folder, self.log)
        self.watch = LogWatch(files, config.root, lock, self.log, self.appender, self.queues)
        self._flush = StoreFlush(
            self.log,
            self.appender,
            self.dispatcher,
            self.queues,
            self.index,
            self.producers,
            self.checkpoint,
            self.watch,
        )
        self.report = RecoveryReport(clean_exit=True)
        self.damages = KnownDamages(files, config.root / "quarantine")

    # -- life ------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        config: MessageStoreConfig,
        files: Files,
        now_ms: Callable[[], int],
        kernel: Kernel | None = None,
    ) -> Self:
        """Lock, load and recover the store at `config.root`; made anew where there is none. With a `kernel`
        batches and pulls take less time.

        StoreLockedError when another process has it, StoreFormatError when it is no store or was
        written with other sizes, StorageError when the disk does not do its part.
        """
        try:
            check_folder(files, config.root)
            make_root(files, config.root)
            lock = StoreLock.acquire(files, config.root, config.abort)
            store = cls(config, files, now_ms, lock, kernel)
        except OSError as error:
            raise _cannot_open(config, error) from error
        try:
            store.report = StoreOpening(store, files, lock, kernel).run()
        except OSError as error:
            store.abandon()
            raise _cannot_open(config, error) from error
        except BaseException:
            store.abandon()
            raise
        return store

    def close(self) -> None:
        """Flush everything, write the checkpoint, and only if all went well remove `abort`. A store whose
        folder was moved, removed or replaced is let go as it is."""
        self.appender.refuse("shutdown", _SHUT_DOWN)
        try:
            run_steps(self.watch.look_steps())
            self.write_and_publish()
            self.flush()
            is_complete = self.flush_derived(thorough=True)
            if not self.watch.is_displaced:
                if self.index is not None:
                    # Behind the checkpoint, which then knows of more than there is.
                    self.index.drop_damaged()
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

    # -- replication -----------------------------------------------------------------------------

    def last_queued_record(self) -> tuple[int, int] | None:
        """Where the last record lies that a queue has, and its size; None: there is none."""
        last = max(self.queues.items(), key=lambda queue: queue.max_phy_offset, default=None)
        unit = last and last.unit(last.max_queue_offset - 1)
        return (unit.phy_offset, unit.size) if unit else None

    def replica_log(self) -> ReplicaLog:
        """This store as the copy of another: from here on nothing else may be appended to it."""
        columns = ColumnsDispatcher(self.dispatcher, self.queues, self.index)
        return ReplicaLog(
            self.log, self.dispatcher, columns, self.producers, self.config.delay_levels, self._kernel
        )

    # -- durability ------------------------------------------------------------------------------

    @property
    def max_phy_offset(self) -> int:
        """The end of the log."""
        return self.log.max_phy_offset

    @property
    def is_fenced(self) -> bool:
        """Whether nothing more is written, since a sync failed or a file was lost."""
        return self.appender.is_fenced

    def start_flush(self) -> FlushJob:
        """What has to be synced now. Run the job anywhere, then give it to `finish_flush`."""
        return self._flush.start_flush()

    def finish_flush(self, job: FlushJob) -> None:
        """Record a job that ran. A failed one fences the store."""
        self._flush.finish_flush(job)

    def flush(self) -> None:
        """Make the log durable: on disk on return, unless the store is fenced."""
        self._flush.flush()

    def flush_steps(self) -> Steps[None]:
        """The same in steps: what was written when it began is on disk at its end."""
        return self._flush.flush_steps()

    def flush_derived(self, *, thorough: bool) -> bool:
        """Write queues and index to their files; with `thorough` they are on disk on return, and the
        checkpoint says how far. False when the index is left behind. OSError: queues cannot be written."""
        return self._flush.flush_derived(thorough=thorough)

    def derived_steps(self, *, thorough: bool) -> Steps[bool]:
        """The same in steps, one such work at a time: nothing may be deleted in between."""
        return self._flush.derived_steps(thorough=thorough)

    # -- topics and queues -----------------------------------------------------------------------

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues; its records stay in the log until they expire. On disk on return,
        so that no recovery brings them back. StorageError: nothing was deleted."""
        # First the others: a recovery that fills queues from before this moment would bring it back.
        self.flush()
        if self.appender.is_fenced and self.appender.refusal is not None:
            raise self.appender.refusal
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
    def cycle_ms(self) -> int:
        """The store timestamp of the commit cycle."""
        return self.appender.cycle_ms

    @property
    def pending_bytes(self) -> int:
        """Bytes put and not written yet: the bound of a commit cycle."""
        return self.appender.pending_bytes

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made on first use."""
        return self.queues.get(topic, queue_id)

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
        now_ms = self.begin_cycle()
        tags, keys, uniq_key, delay = _scan(properties)
        self.appender.put(
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
        self.write_and_publish()
        return results[0]

    def write_cycle(self) -> PutBatch | None:
        """Write what is pending: in the page cache on return. PutFailedError: nothing is stored."""
        try:
            batch = self.appender.write_cycle()
        except PutFailedError:
            self.producers.cycle_failed()
            raise
        windows = self.producers.table.windows
        if windows.undo or windows.unwritten_spans:
            windows.keep()
        return batch

    def write_and_publish(self) -> None:
        """End a commit cycle without an event loop: write, flush if configured, publish, respond."""
        try:
            batch = self.write_cycle()
        except PutFailedError as failed:
            failed.batch.answer(failed.status)
            return
        if batch is None:
            return
        if self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            batch.answer_unwaited(PutStatus.PUT_OK)
            self.flush()
            if self.appender.is_fenced:
                # It may or may not be on disk: it was never visible, and must not become so.
                batch.answer(PutStatus.SERVICE_NOT_AVAILABLE)
                return
        self.publish(batch)
        batch.answer(PutStatus.PUT_OK)

    # -- reading ---------------------------------------------------------------------------------

    def look_message(self, phy_offset: int) -> MessageExt | None:
        """The message whose record starts at `phy_offset`; None when there is none, or it is damaged."""
        return self.lookup.look_message(phy_offset)

    def query_message(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> list[MessageExt]:
        """Messages of `topic` indexed under `key` and stored in the time range, oldest first. Those of
        another key with the same hash may be among them."""
        return self.lookup.query_message(topic, key, max_messages, begin_ms, end_ms)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first queue_offset that can be read; 0 where there is no queue."""
        return self.lookup.min_offset_in_queue(topic, queue_id)

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The queue_offset of the next message that readers will see; 0 where there is no queue."""
        return self.lookup.max_offset_in_queue(topic, queue_id)

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


def _cannot_open(config: MessageStoreConfig, error: OSError) -> StorageError:
    where = error.filename or config.root
    return StorageError(f"{where}: the store cannot be opened: {error.strerror or error}", config.root)
