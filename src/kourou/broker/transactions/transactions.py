"""Transactions: how a half message ends, each way in one commit cycle with the op record that says so.

Op record: RMQ_SYS_TRANS_OP_HALF_TOPIC/0, tag `d`, the body is the half's queue_offset as text: one
half per record, which both Apache versions read. It lies right behind what it belongs to:

    commit   message, op            given up   record for TRANS_CHECK_MAX_TIME_TOPIC, op
    rollback          op            put again  copy of the half, op with __KOUROU_MOVED_TO

A commit cycle is written as a whole, so the two share one fate; of a write that a kill cut through, only
the op record can be missing, at the end of the log. `recover` puts it there before anything else is stored,
so that no half ends twice; from the recorded progress on it takes every op record into the table.
Not here: decisions (end_transaction_processor.py, transaction_check.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.storage.inner_message import InnerMessage, MessageWriter
from kourou.broker.transactions.half_message_states import (
    OPEN,
    CachedHalfMessage,
    HalfMessageCache,
    HalfMessageStates,
)
from kourou.broker.transactions.half_messages import (
    MOVED_TO,
    committed,
    committed_recent,
    committed_sys_flag,
    copy_of,
    given_up,
    moved_from,
    property_number,
)
from kourou.protocol.codes import MessageSysFlag, PermName
from kourou.protocol.message import MessageExt
from kourou.protocol.names import (
    CID_SYS_RMQ_TRANS,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from kourou.protocol.op_record import ended_halves
from kourou.protocol.properties import MessageConst, encode_properties, property_pair
from kourou.protocol.record import decode_records
from kourou.protocol.tags import tags_code
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_appender import LogAppender
from kourou.store.log.put_batch import PutDone
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues

if TYPE_CHECKING:
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.transport.cycles import Cycles

OP_PROPERTIES: Final = encode_properties(
    {MessageConst.PROPERTY_WAIT_STORE_MSG_OK: "true", MessageConst.PROPERTY_TAGS: "d"}
)

_OP_RAW: Final = OP_PROPERTIES.encode()
_OP_TAGS_CODE: Final = tags_code("d")

_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)

_log = logging.getLogger(__name__)
_READ_MESSAGES: Final = 1024
_MOVED_TO: Final = MOVED_TO.encode()
_COMMIT: Final = MessageSysFlag.TRANSACTION_COMMIT_TYPE.value


class Transactions:
    """The halves of one broker. A half is ended when its table says OPEN, and only then."""

    def __init__(
        self,
        *,
        store: MessageStore,
        log: CommitLog,
        queues: ConsumeQueues,
        appender: LogAppender,
        cycles: Cycles,
        writer: MessageWriter,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        store_host: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._log = log
        self._queues = queues
        self._cycles = cycles
        self._writer = writer
        self._topics = topics
        self._offsets = offsets
        self._store_host = store_host
        self._now_ms = now_ms
        self._queue = queues.get
        self._put = appender.put
        self._unsettled: tuple[int, int, int] | None = None
        self.table = HalfMessageStates()
        self.recent = HalfMessageCache()
        self.half_queue = queues.get(RMQ_SYS_TRANS_HALF_TOPIC, 0)
        self.op_queue = queues.get(RMQ_SYS_TRANS_OP_HALF_TOPIC, 0)

    # -- ends ------------------------------------------------------------------------------------

    def commit(self, half: MessageExt, done: PutDone | None) -> int:
        """Let consumers have the message. Nothing is stored on return: `done` tells, once, what became of
        it. How many bytes are pending. PutRefusedError, ProtocolError: nothing happens. The half is open.
        """
        self._writer.put(committed(half), None)
        return self._put_op(half.queue_offset, done)

    def commit_recent(self, half: CachedHalfMessage, done: PutDone | None) -> int:
        """The same for a half that is at hand, as nearly all are: without the steps in between."""
        self._cycles.open()
        self._put(
            self._queue(half.topic, half.queue_id),
            half.body,
            committed_recent(half.properties),
            half.tags_code,
            half.keys,
            half.born_timestamp,
            half.born_host,
            committed_sys_flag(half.sys_flag),
            half.flag,
            half.reconsume_times,
            half.phy_offset,
            None,
            False,
        )
        return self._put_op(half.queue_offset, done)

    def roll_back(self, half: MessageExt | CachedHalfMessage, done: PutDone | None) -> int:
        """Drop the message, which was never visible. As `commit`."""
        return self._put_op(half.queue_offset, done)

    def give_up(self, half: MessageExt, done: PutDone | None) -> None:
        """Move the half to TRANS_CHECK_MAX_TIME_TOPIC. As `commit`."""
        self._topics.create_in_send_back(RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, 1, _READ_WRITE)
        self._writer.put_now(given_up(half), None)
        self._put_op(half.queue_offset, done)

    def put_again(self, half: MessageExt, *, is_checked: bool, done: PutDone | None) -> InnerMessage:
        """Put the half behind all others, to be looked at later; the copy. `done` gets the copy's
        position. As `commit`."""
        places: list[int] = []
        copy = copy_of(half, is_checked=is_checked)
        copy_queue_offset = self.half_queue.next_queue_offset
        self._writer.put_now(copy, lambda _, phy_offset, __: places.append(phy_offset), wait=True)

        def both_done(status: PutStatus, _: int, __: int) -> None:
            if done is not None:
                done(status, places[0], copy_queue_offset)

        self._put_op(half.queue_offset, both_done, copy_queue_offset)
        return copy

    def _put_op(self, queue_offset: int, done: PutDone | None, copy_queue_offset: int | None = None) -> int:
        properties = _OP_RAW
        if copy_queue_offset is not None:
            properties += property_pair(MOVED_TO, copy_queue_offset).encode()
        self._cycles.open()
        self.table.begin(queue_offset, copy_queue_offset=copy_queue_offset)
        try:
            return self._put(
                self.op_queue,
                b"%d" % queue_offset,
                properties,
                _OP_TAGS_CODE,
                (),
                self._now_ms(),
                self._store_host,
                0,
                0,
                0,
                0,
                partial(self._op_done, queue_offset, done),
                True,
            )
        except BaseException:
            self.table.failed(queue_offset)
            raise

    def _op_done(
        self,
        queue_offset: int,
        done: PutDone | None,
        status: PutStatus,
        phy_offset: int,
        op_queue_offset: int,
    ) -> None:
        if status.is_stored:
            self.table.stored(queue_offset, op_queue_offset)
        else:
            self.table.failed(queue_offset)
        if done is not None:
            done(status, phy_offset, op_queue_offset)

    # -- recovery --------------------------------------------------------------------------------

    def recover(self, *, is_slave: bool) -> None:
        """Fill the table. Waits for the disk; while it runs nothing else may use the store."""
        half_queue, op_queue = self.half_queue, self.op_queue
        table = self.table = HalfMessageStates(self._noted(half_queue), self._noted(op_queue))
        for record in _records(self._store, op_queue, table.op_queue_offset):
            copy = property_number(record, MOVED_TO) if _MOVED_TO in record.raw_properties else None
            ended = [half for half in ended_halves(record) if half < half_queue.max_queue_offset]
            table.load(record.queue_offset, ended, copy)
        if not is_slave:
            _put_missing_op(self._store, self._queues, table, self._store_host)

    def _noted(self, queue: ConsumeQueue) -> int:
        """The recorded progress, as far as the queue still has it."""
        noted = self._offsets.query(CID_SYS_RMQ_TRANS, queue.topic, 0)
        return max(queue.min_queue_offset, min(noted, queue.max_queue_offset))

    # -- progress --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Forget what is settled, and note for the next start how far that is.

        What is noted must not come to disk before the op records that it rests on, so it is noted
        when the log that had them is flushed: at one of the next calls.
        """
        log, table, half_queue = self._log, self.table, self.half_queue
        table.advance(half_queue.max_queue_offset, half_queue.min_queue_offset)
        if self._unsettled is not None and log.flushed_phy_offset >= self._unsettled[2]:
            self._note(*self._unsettled[:2])
            self._unsettled = None
        if self._unsettled is None:
            self._unsettled = (table.half_queue_offset, table.op_queue_offset, log.max_phy_offset)

    def _note(self, half_queue_offset: int, op_queue_offset: int) -> None:
        offsets = self._offsets
        noted = (
            (RMQ_SYS_TRANS_HALF_TOPIC, half_queue_offset),
            (RMQ_SYS_TRANS_OP_HALF_TOPIC, op_queue_offset),
        )
        for topic, queue_offset in noted:
            if offsets.query(CID_SYS_RMQ_TRANS, topic, 0) != queue_offset:
                offsets.commit(CID_SYS_RMQ_TRANS, topic, 0, queue_offset, "transactions")


def _records(store: MessageStore, queue: ConsumeQueue, queue_offset: int) -> Iterator[MessageExt]:
    while queue_offset < queue.max_queue_offset:
        result = store.get_message(queue.topic, queue.queue_id, queue_offset, _READ_MESSAGES)
        for buffer in result.buffers:
            yield from decode_records(bytes(buffer))
        queue_offset = max(queue_offset + 1, result.next_begin_offset)


# -- a write that was cut through --------------------------------------------------------------------


def _put_missing_op(
    store: MessageStore, queues: ConsumeQueues, table: HalfMessageStates, store_host: bytes
) -> None:
    last = _last_record(store, queues)
    half = None if last is None else _half_behind(store, last)
    if last is None or half is None:
        return
    half = table.current(half)
    if table.state(half) != OPEN:
        return
    copy = last.queue_offset if last.topic == RMQ_SYS_TRANS_HALF_TOPIC else None
    properties = OP_PROPERTIES if copy is None else OP_PROPERTIES + property_pair(MOVED_TO, copy)
    result = store.put_message(RMQ_SYS_TRANS_OP_HALF_TOPIC, 0, b"%d" % half, properties, born_host=store_host)
    if not result.status.is_stored:
        # The table knows; a broker that cannot write takes no end of a transaction either.
        _log.error("half message %d has no op record: %s", half, result.status.name)
    table.load(result.queue_offset, [half], copy)
    _log.warning(
        "the log ended with the record at %d: half message %d gets its op record", last.phy_offset, half
    )


def _last_record(store: MessageStore, queues: ConsumeQueues) -> MessageExt | None:
    queue = max(queues.items(), key=lambda each: each.max_phy_offset, default=None)
    if queue is None or queue.max_phy_offset < 0:
        return None
    records = list(_records(store, queue, queue.max_queue_offset - 1))
    return records[-1] if records else None


def _half_behind(store: MessageStore, record: MessageExt) -> int | None:
    """The queue_offset of the half that `record` ends or replaces, if it does."""
    if record.topic in (RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC):
        return moved_from(record)
    if record.transaction_type != _COMMIT:
        return None
    half = store.look_message(record.prepared_transaction_offset)
    if half is None or half.topic != RMQ_SYS_TRANS_HALF_TOPIC or half.msg_id != record.msg_id:
        return None
    return half.queue_offset
