"""Transactions: how a half message ends, each way in one commit cycle with the op record that says so.

Op record: RMQ_SYS_TRANS_OP_HALF_TOPIC/0, tag `d`, the body is the half's queue_offset as text: one
half per record, which both Apache versions read. It lies right behind what it belongs to:

    commit   message, op            given up   record for TRANS_CHECK_MAX_TIME_TOPIC, op
    rollback          op            put again  copy of the half, op with __KOUROU_MOVED_TO

A commit cycle is written as a whole, so the two share one fate; of a write that a kill cut through, only
the op record can be missing, at the end of the log (transaction_recovery.py puts it there).
Not here: who decides (end_transaction_processor.py, transaction_check.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.send.inner_message import InnerMessage, put, put_now
from kourou.broker.transactions.half_message_cache import CachedHalfMessage, HalfMessageCache
from kourou.broker.transactions.half_message_states import HalfMessageStates
from kourou.broker.transactions.half_messages import (
    MOVED_TO,
    committed,
    committed_recent,
    committed_sys_flag,
    copy_of,
    given_up,
)
from kourou.protocol.codes import PermName
from kourou.protocol.message import MessageExt
from kourou.protocol.names import (
    CID_SYS_RMQ_TRANS,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from kourou.protocol.tags import tags_code
from kourou.store.log.put_batch import PutDone
from kourou.store.log.put_status import PutStatus

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

OP_PROPERTIES: Final = "WAIT\x01true\x02TAGS\x01d\x02"

_OP_RAW: Final = OP_PROPERTIES.encode()
_OP_TAGS_CODE: Final = tags_code("d")

_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)


class Transactions:
    """The halves of one broker. A half is ended when its table says OPEN, and only then."""

    def __init__(self, services: BrokerServices) -> None:
        queues = services.store.queues
        self._services = services
        self._queue = queues.get
        self._put = services.store.put
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
        put(self._services, committed(half), None)
        return self._put_op(half.queue_offset, done)

    def commit_recent(self, half: CachedHalfMessage, done: PutDone | None) -> int:
        """The same for a half that is at hand, as nearly all are: without the steps in between."""
        self._services.cycles.open()
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
        """Let nobody ever see the message. As `commit`."""
        return self._put_op(half.queue_offset, done)

    def give_up(self, half: MessageExt, done: PutDone | None) -> None:
        """Leave the half to whoever looks after such. As `commit`."""
        self._services.topics.create_in_send_back(RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, 1, _READ_WRITE)
        put_now(self._services, given_up(half), None)
        self._put_op(half.queue_offset, done)

    def put_again(self, half: MessageExt, *, is_checked: bool, done: PutDone | None) -> InnerMessage:
        """Put the half behind all others, to be looked at later; the copy. `done` hears of the copy's
        place. As `commit`."""
        places: list[int] = []
        copy = copy_of(half, is_checked=is_checked)
        copy_queue_offset = self.half_queue.next_queue_offset
        put_now(self._services, copy, lambda _, phy_offset, __: places.append(phy_offset), wait=True)

        def both_done(status: PutStatus, _: int, __: int) -> None:
            if done is not None:
                done(status, places[0], copy_queue_offset)

        self._put_op(half.queue_offset, both_done, copy_queue_offset)
        return copy

    def _put_op(self, queue_offset: int, done: PutDone | None, copy_queue_offset: int | None = None) -> int:
        services = self._services
        properties = _OP_RAW
        if copy_queue_offset is not None:
            properties += b"%s\x01%d\x02" % (MOVED_TO.encode(), copy_queue_offset)
        services.cycles.open()
        self.table.begin(queue_offset, copy_queue_offset=copy_queue_offset)
        try:
            return self._put(
                self.op_queue,
                b"%d" % queue_offset,
                properties,
                _OP_TAGS_CODE,
                (),
                services.now_ms(),
                services.store_host,
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

    # -- progress --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Forget what is settled, and note for the next start how far that is.

        What is noted must not come to disk before the op records that it rests on, so it is noted
        when the log that had them is flushed: at one of the next calls.
        """
        log, table, half_queue = self._services.store.log, self.table, self.half_queue
        table.advance(half_queue.max_queue_offset, half_queue.min_queue_offset)
        if self._unsettled is not None and log.flushed_phy_offset >= self._unsettled[2]:
            self._note(*self._unsettled[:2])
            self._unsettled = None
        if self._unsettled is None:
            self._unsettled = (table.half_queue_offset, table.op_queue_offset, log.max_phy_offset)

    def _note(self, half_queue_offset: int, op_queue_offset: int) -> None:
        offsets = self._services.offsets
        noted = (
            (RMQ_SYS_TRANS_HALF_TOPIC, half_queue_offset),
            (RMQ_SYS_TRANS_OP_HALF_TOPIC, op_queue_offset),
        )
        for topic, queue_offset in noted:
            if offsets.query(CID_SYS_RMQ_TRANS, topic, 0) != queue_offset:
                offsets.commit(CID_SYS_RMQ_TRANS, topic, 0, queue_offset, "transactions")
