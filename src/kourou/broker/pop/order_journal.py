"""OrderJournal: what orderly POP hands out, in the log: rmq_sys_kourou_order/0.

The table is written every few seconds; a record for each queue that changed in a commit cycle keeps what a
kill would lose. Its body is MessagePack, an OrderRecord: the whole entry, and how far the group is. So the
last record of a queue says all, in whatever state the file is. Slaves have the journal in their log, and read
it into their tables from time to time; a slave that is made master reads the rest, as a master does after a
kill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.broker.pop.order_info import OrderedPop, OrderKey
from kourou.broker.pop.order_table import JournalPlace, OrderTable
from kourou.broker.tables.offsets import NONE
from kourou.errors import ProtocolError
from kourou.protocol.message import MessageExt
from kourou.protocol.names import ORDER_TOPIC
from kourou.protocol.record import decode_records
from kourou.store.config_tables import OrderInfo
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.steps import Steps

if TYPE_CHECKING:
    from kourou.broker.pop.contracts import PopStored
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.message_store import MessageStore
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

_READ_MESSAGES: Final = 512
_READ_BYTES: Final = 1024 * 1024
_QUEUE_ID: Final = 0
_HOST: Final = "orderly POP"


class OrderRecord(msgspec.Struct, array_like=True, frozen=True):
    """One record. `committed`: where the group continues, -1 if it has not begun. `is_reset`: an
    administrator has moved the group, perhaps back."""

    topic: str
    group: str
    queue_id: int
    committed: int
    is_reset: bool
    entry: OrderInfo | None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(OrderRecord).decode


class _Change:
    """A queue that has changed in the open commit cycle."""

    __slots__ = ("is_reset", "waiting")

    def __init__(self) -> None:
        self.is_reset = False
        self.waiting: list[PopStored] = []


class OrderJournal:
    """The journal of one broker."""

    def __init__(
        self,
        *,
        table: OrderTable,
        offsets: ConsumerOffsetManager,
        store: MessageStore,
        queues: ConsumeQueues,
        appender: LogAppender,
        cycles: Cycles,
        commit_cycle: CommitCycle,
        store_host: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self.table = table
        self._offsets = offsets
        self._store = store
        self._queues = queues
        self._appender = appender
        self._cycles = cycles
        self._store_host = store_host
        self._now_ms = now_ms
        self._changes: dict[OrderKey, _Change] = {}
        self._before_write = commit_cycle.before_write

    # -- writing ---------------------------------------------------------------------------------

    def note(self, key: OrderKey, done: PopStored | None = None, *, is_reset: bool = False) -> None:
        """The entry of a queue, or the offset of its group, has changed: the open commit cycle, or a new one,
        stores what they are at its end. `done` is called once, when that is stored or has failed."""
        self._cycles.open()
        change = self._changes.get(key)
        if change is None:
            if not self._changes:
                self._before_write.append(self._put_changes)
            change = self._changes[key] = _Change()
        change.is_reset |= is_reset
        if done is not None:
            change.waiting.append(done)
        self.table.is_dirty = True

    def _put_changes(self) -> None:
        changes, self._changes = self._changes, {}
        for key, change in changes.items():
            try:
                self._put(key, change)
            except PutRefusedError as error:
                _answer(change.waiting, error.status)

    def _put(self, key: OrderKey, change: _Change) -> None:
        entry = self.table.pops.entry(key)
        record = OrderRecord(
            key.topic,
            key.group,
            key.queue_id,
            self._committed(key),
            change.is_reset,
            None if entry is None else entry.stored(),
        )

        def done(status: PutStatus, phy_offset: int, queue_offset: int) -> None:
            if status.is_stored:
                self.table.place = JournalPlace(queue_offset + 1, phy_offset)
                self.table.is_dirty = True
            _answer(change.waiting, status)

        now_ms, host = self._now_ms(), self._store_host
        queue = self._queues.get(ORDER_TOPIC, _QUEUE_ID)
        self._appender.put(queue, _encode(record), b"", 0, (), now_ms, host, 0, 0, 0, 0, done, True)

    def _committed(self, key: OrderKey) -> int:
        """Without a pending reset: the table has it, too, but only a pop makes it effective."""
        queues = self._offsets.query_all(key.group, key.topic)
        return NONE if queues is None else queues.get(key.queue_id, NONE)

    # -- reading ---------------------------------------------------------------------------------

    def read_steps(self) -> Steps[None]:
        """Bring table and consumer offsets up to the end of the journal."""
        queue = self._queues.find(ORDER_TOPIC, _QUEUE_ID)
        if queue is None:
            if self.table.place != JournalPlace(0):
                self._set_place(JournalPlace(0))
            return
        place = self._first_place()
        if self.table.place != place:
            self._set_place(place)
        while place.queue_offset < queue.max_queue_offset:
            result = self._store.get_message(
                ORDER_TOPIC,
                _QUEUE_ID,
                place.queue_offset,
                _READ_MESSAGES,
                max_bytes=_READ_BYTES,
                wait=False,
            )
            try:
                # Also if nothing has to be loaded: whoever works meanwhile on the loop is to get on.
                yield result.load
                for buffer in result.buffers:
                    self._apply_all(decode_records(bytes(buffer)))
            finally:
                result.release()
            next_offset = max(place.queue_offset + 1, result.next_begin_offset)
            place = JournalPlace(next_offset, self._phy_offset(next_offset - 1))
            self._set_place(place)

    def _set_place(self, place: JournalPlace) -> None:
        self.table.place = place
        self.table.is_dirty = True

    def _first_place(self) -> JournalPlace:
        """Where to read on: where the table ends. At the end of the journal if Apache's broker has written
        the table since; at its beginning if the log was cut, and has others of the records that the table
        counts."""
        queue, place = self._queues.get(ORDER_TOPIC, _QUEUE_ID), self.table.place
        if place is None:
            end = queue.max_queue_offset
            return JournalPlace(end, self._phy_offset(end - 1))
        last = place.queue_offset - 1
        is_cut = place.queue_offset > queue.max_queue_offset or (
            last >= queue.min_queue_offset and self._phy_offset(last) != place.phy_offset
        )
        if is_cut:
            _log.info("%s/%d is another one than the table counts, read anew", ORDER_TOPIC, _QUEUE_ID)
            return JournalPlace(queue.min_queue_offset)
        if place.queue_offset < queue.min_queue_offset:
            return JournalPlace(queue.min_queue_offset)
        return place

    def _phy_offset(self, queue_offset: int) -> int:
        unit = self._queues.get(ORDER_TOPIC, _QUEUE_ID).unit(queue_offset) if queue_offset >= 0 else None
        return -1 if unit is None else unit.phy_offset

    def _apply_all(self, messages: Iterable[MessageExt]) -> None:
        for message in messages:
            try:
                self._apply(_decode(message.stored_body))
            except (msgspec.MsgspecError, ProtocolError) as error:
                _log.error("%s/%d, offset %d: %s", ORDER_TOPIC, _QUEUE_ID, message.queue_offset, error)

    def _apply(self, record: OrderRecord) -> None:
        key = OrderKey(record.topic, record.group, record.queue_id)
        self.table.pops.set(key, None if record.entry is None else OrderedPop.of(record.entry))
        committed = self._committed(key)
        # The offsets on disk may be newer than the record: those of a group go forward, but for resets.
        if record.committed > committed or (record.is_reset and record.committed != committed):
            self._offsets.commit(key.group, key.topic, key.queue_id, record.committed, _HOST)


def _answer(waiting: Iterable[PopStored], status: PutStatus) -> None:
    for done in waiting:
        done(status)
