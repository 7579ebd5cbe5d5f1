"""Journal: stores records of atomic publishes, applies them to the table, and keeps itself short.

What holds: `put` leaves a record pending; when it is stored, the table has it, and `done` is called.
`recover` fills the table from the records, and finds what of committed publishes is in the log already.
`put_again` puts live records that are old behind the others, so that neither retention drops them nor a start
has to read far back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from kourou.broker.atomic.atomic_table import AtomicTable, LiveItem
from kourou.broker.atomic.journal_records import (
    BEGIN_PROPERTY,
    JournalRecord,
    Staged,
    begin_property,
    decode_journal_record,
    encode_journal_record,
)
from kourou.broker.storage.commit_cycle import MAX_CYCLE_BYTES
from kourou.errors import ProtocolError, StorageError
from kourou.protocol.atomic import ATOMIC_PROPERTY
from kourou.protocol.message import MessageExt
from kourou.protocol.names import ATOMIC_TOPIC
from kourou.protocol.properties import get_property, properties_from_bytes, property_start
from kourou.protocol.record import decode_record, decode_records
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.log.put_status import PutStatus

if TYPE_CHECKING:
    from kourou.broker.storage.record_reads import RecordReader, RecordReads
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.message_store import MessageStore
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

JournalDone: TypeAlias = Callable[[PutStatus], None]

_READ_MESSAGES: Final = 1_024
_READ_BYTES: Final = 4 * 1024 * 1024
_ROUND_ITEMS: Final = 1_024
_ROUND_BYTES: Final = 16 * 1024 * 1024
# As long as the journal has no more records than this from its beginning on, a start reads it in no time.
_SHORT: Final = 1_024
# Of the records from the beginning on, one in so many at least is live.
_LIVE_SHARE: Final = 4
_MARK: Final = property_start(ATOMIC_PROPERTY).encode()


@dataclass(slots=True)
class AtomicCounts:
    """What has happened since the start."""

    begun: int = 0
    """Publishes of which this broker got a first part."""
    committed: int = 0
    rolled_back: int = 0
    """Decisions of programs, at this broker as their coordinator."""
    abandoned: int = 0
    """Publishes that it has rolled back itself: without a decision in time, or of a replaced program."""


class Journal:
    """The journal of one broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        log: CommitLog,
        queues: ConsumeQueues,
        appender: LogAppender,
        cycles: Cycles,
        records: RecordReader,
        store_host: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._log = log
        self._queues = queues
        self._appender = appender
        self._cycles = cycles
        self._records = records
        self._store_host = store_host
        self._now_ms = now_ms
        # Whether messages of a committed publish are on their way to the log.
        self.is_busy: Callable[[str], bool] = lambda _: False
        self._in_flight: dict[int, None] = {}
        self._unreadable: set[int] = set()
        self.table = AtomicTable()
        self.counts = AtomicCounts()

    @property
    def queue(self) -> ConsumeQueue:
        """The queue of the journal, made on first use."""
        return self._queues.get(ATOMIC_TOPIC, 0)

    # -- putting -----------------------------------------------------------------------------------

    def put(self, record: JournalRecord, done: JournalDone | None = None) -> None:
        """Leave a record pending. `done` is called once, when the table has it, or when it is not stored.
        PutRefusedError: nothing happens. Not from inside a `done`."""
        self._put(encode_journal_record(record), record, done)

    def _put(self, body: bytes, record: JournalRecord, done: JournalDone | None) -> None:
        self._cycles.open()
        queue_offset = self.queue.next_queue_offset
        begin = self.table.begin
        oldest = next(iter(self._in_flight), queue_offset)
        begin = oldest if begin is None else min(begin, oldest)
        self._appender.put(
            self.queue,
            body,
            begin_property(begin),
            0,
            (),
            self._now_ms(),
            self._store_host,
            0,
            0,
            0,
            0,
            partial(self._stored, record, done),
            True,
        )
        self._in_flight[queue_offset] = None

    def _stored(
        self,
        record: JournalRecord,
        done: JournalDone | None,
        status: PutStatus,
        phy_offset: int,
        queue_offset: int,
    ) -> None:
        self._in_flight.pop(queue_offset, None)
        if status.is_stored:
            self.table.apply(record, queue_offset, phy_offset)
        if done is not None:
            done(status)

    async def write(self, record: JournalRecord) -> PutStatus:
        """Put a record and wait for it. PutRefusedError."""
        future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self.put(record, partial(_resolve, future))
        return await future

    def end_cycle_if_large(self) -> None:
        """To be called behind the puts that belong together: one cycle must not grow without a bound."""
        if self._appender.pending_bytes > MAX_CYCLE_BYTES:
            self._cycles.renew()

    # -- reading -----------------------------------------------------------------------------------

    async def read_part(self, atomic_id: str, part: int) -> Staged:
        """A part from the log. StorageError: it cannot be read, or is gone."""
        while True:
            joined = self.table.participations.get(atomic_id)
            staged = None if joined is None else joined.parts.get(part)
            if staged is None:
                raise StorageError(f"atomic publish {atomic_id}: part {part} is gone")
            raw = await self._read(staged.phy_offset)
            if raw is not None:
                record = decode_journal_record(decode_record(raw).stored_body)
                if isinstance(record, Staged):
                    return record
            if not self._has_moved(atomic_id, part, staged.phy_offset):
                raise StorageError(
                    f"atomic publish {atomic_id}: part {part} cannot be read at {staged.phy_offset}"
                )

    def _read(self, phy_offset: int) -> Awaitable[bytes | None]:
        def read(reads: RecordReads) -> bytes | None:
            return reads.record(phy_offset)

        return self._records.read(read)

    def _has_moved(self, atomic_id: str, part: int, phy_offset: int) -> bool:
        """Whether a part was put again while it was read."""
        joined = self.table.participations.get(atomic_id)
        staged = None if joined is None else joined.parts.get(part)
        return staged is None or staged.phy_offset != phy_offset

    # -- recovery ----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Fill the table. Waits for the disk; while it runs nothing else may use the store."""
        self.table = AtomicTable()
        if self._queues.find(ATOMIC_TOPIC, 0) is None:
            return
        for record in self._journal(self._begin()):
            try:
                parsed = decode_journal_record(record.stored_body)
                self.table.apply(parsed, record.queue_offset, record.phy_offset)
            except ProtocolError as error:
                _log.error("%s/0, offset %d: %s", ATOMIC_TOPIC, record.queue_offset, error)
        self._find_published()

    def _begin(self) -> int:
        """Where the journal has to be read from: the last record says it."""
        queue = self.queue
        last = None
        for record in self._journal(max(queue.min_queue_offset, queue.max_queue_offset - 1)):
            last = record
        if last is None:
            return queue.min_queue_offset
        begin = get_property(properties_from_bytes(last.raw_properties), BEGIN_PROPERTY)
        if begin is None or not begin.isdecimal():
            _log.error("%s/0, offset %d: no %s", ATOMIC_TOPIC, last.queue_offset, BEGIN_PROPERTY)
            return queue.min_queue_offset
        if int(begin) < queue.min_queue_offset:
            _log.error(
                "%s/0 begins at offset %d, and records from %s on are needed: atomic publishes may be lost",
                ATOMIC_TOPIC,
                queue.min_queue_offset,
                begin,
            )
        return max(int(begin), queue.min_queue_offset)

    def _journal(self, queue_offset: int) -> Iterator[MessageExt]:
        while queue_offset < self.queue.max_queue_offset:
            result = self._store.get_message(
                ATOMIC_TOPIC, 0, queue_offset, _READ_MESSAGES, max_bytes=_READ_BYTES
            )
            for buffer in result.buffers:
                yield from decode_records(bytes(buffer))
            queue_offset = max(queue_offset + 1, result.next_begin_offset)

    def _find_published(self) -> None:
        """For publishes that are committed and not finished: how many of their messages are in the log.

        They were put in order, so they are a prefix; they lie behind the record of the commit.
        """
        commits = {
            atomic_id: joined.commit
            for atomic_id, joined in self.table.participations.items()
            if joined.commit is not None
        }
        if not commits:
            return
        topics = {
            topic
            for atomic_id in commits
            for part in self.table.participations[atomic_id].parts.values()
            for topic in part.topics
        }
        begin = min(commit.phy_offset for commit in commits.values())
        for raw in self._records_of(topics, begin):
            found = get_property(properties_from_bytes(decode_record(raw).raw_properties), ATOMIC_PROPERTY)
            atomic_id, _, number = (found or "").rpartition(":")
            commit = commits.get(atomic_id)
            if commit is not None and number.isdecimal():
                commit.published = max(commit.published, int(number) + 1)

    def _records_of(self, topics: set[str], phy_offset: int) -> Iterator[bytes]:
        """The records with the mark of a published copy, from `phy_offset` on."""
        scanner = LogScanner(self._log, (), max_record_bytes=self._log.file_bytes)
        at: int | None = phy_offset
        while at is not None:
            damaged_at = None
            for found in scanner.records(at, self._log.max_phy_offset):
                if isinstance(found, BadRecord):
                    damaged_at = found.phy_offset
                elif found.topic in topics:
                    raw = self._log.read(found.phy_offset, found.size)
                    if raw is not None and _MARK in raw:
                        yield raw
            at = None
            if damaged_at is not None:
                at = scanner.next_record(damaged_at + 1, self._log.max_phy_offset)

    # -- putting again -----------------------------------------------------------------------------

    @property
    def begin_phy_offset(self) -> int | None:
        """Where the oldest live record lies: retention must not delete it. None: none is."""
        begin = self.table.begin
        unit = None if begin is None else self.queue.unit(begin)
        return unit.phy_offset if unit is not None and unit.is_message else None

    async def put_again(self, *, max_age_ms: int) -> bool:
        """Put live records again that are older than that, or if many that are not live lie behind them; on
        return they are stored. Whether there may be more. StorageError: they cannot be stored."""
        items, size_bytes = 0, 0
        stored: asyncio.Future[PutStatus] | None = None
        is_more = True
        for queue_offset, live in list(islice(self.table.oldest(), _ROUND_ITEMS)):
            length = self.queue.next_queue_offset - queue_offset
            is_long = length > max(_SHORT, _LIVE_SHARE * self.table.live_items)
            if not is_long and self._now_ms() - await self._stored_ms(queue_offset) <= max_age_ms:
                is_more = False
                break
            if any(self.is_busy(key) for _, key, _ in live):
                is_more = False  # the next round finds it finished
                break
            for item in live:
                record = await self._again(item, queue_offset)
                # Again: it may have ended while it was read.
                if record is None or not self.table.is_live(queue_offset, item) or self.is_busy(item[1]):
                    continue
                stored = asyncio.get_running_loop().create_future()
                body = encode_journal_record(record)
                self._put(body, record, partial(_resolve, stored))
                items, size_bytes = items + 1, size_bytes + len(body)
            self.end_cycle_if_large()
            if items >= _ROUND_ITEMS or size_bytes >= _ROUND_BYTES:
                break
        else:
            is_more = items > 0
        if stored is not None and not (status := await stored).is_stored:
            raise StorageError(status.remark or status.name)
        return is_more and items > 0

    async def _again(self, item: LiveItem, queue_offset: int) -> JournalRecord | None:
        """The record that is put in place of an old one; None: none is needed, or it cannot be read."""
        kind, key, number = item
        if not self.table.is_live(queue_offset, item):
            return None
        if kind != "S":
            return self.table.record_again(item)
        try:
            return await self.read_part(key, number)
        except (StorageError, ProtocolError) as error:
            if self.table.is_live(queue_offset, item) and queue_offset not in self._unreadable:
                self._unreadable.add(queue_offset)
                _log.error("%s/0, offset %d is not put again: %s", ATOMIC_TOPIC, queue_offset, error)
            return None

    async def _stored_ms(self, queue_offset: int) -> int:
        """When a record of the journal was stored."""
        return await self._records.read(lambda reads: reads.message_time(self.queue, queue_offset))


def _resolve(future: asyncio.Future[PutStatus], status: PutStatus) -> None:
    if not future.done():
        future.set_result(status)
