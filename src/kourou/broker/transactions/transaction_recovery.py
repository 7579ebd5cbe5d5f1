"""What a broker knows of its transactions when it starts: read from the op records, without the loop.

From the noted progress on, every op record is taken into the table. If the broker was killed inside
a write, the last record of the log may lack its op record, which lies right behind it: it is put
there before anything else is stored, so that no half ends twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kourou.broker.transactions.half_message_states import OPEN, HalfMessageStates
from kourou.broker.transactions.half_messages import MOVED_TO, moved_from, property_number
from kourou.broker.transactions.transactions import OP_PROPERTIES, Transactions
from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.message import MessageExt
from kourou.protocol.names import (
    CID_SYS_RMQ_TRANS,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from kourou.protocol.record import decode_records
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_log = logging.getLogger(__name__)

_READ_MESSAGES: Final = 1024
_MOVED_TO: Final = MOVED_TO.encode()
_COMMIT: Final = MessageSysFlag.TRANSACTION_COMMIT_TYPE.value


def recover(services: BrokerServices, transactions: Transactions) -> None:
    """Fill the table. Waits for the disk; while it runs nobody else may use the store."""
    half_queue, op_queue = transactions.half_queue, transactions.op_queue
    table = transactions.table = HalfMessageStates(
        _noted(services, RMQ_SYS_TRANS_HALF_TOPIC, half_queue),
        _noted(services, RMQ_SYS_TRANS_OP_HALF_TOPIC, op_queue),
    )
    for record in _records(services.store, op_queue, table.op_queue_offset):
        copy = property_number(record, MOVED_TO) if _MOVED_TO in record.raw_properties else None
        table.load(record.queue_offset, _ended_by(record, half_queue.max_queue_offset), copy)
    if not services.config.is_slave:
        _put_missing_op(services.store, table, services.store_host)


def _noted(services: BrokerServices, topic: str, queue: ConsumeQueue) -> int:
    """The noted progress, as far as the queue still has it."""
    noted = services.offsets.query(CID_SYS_RMQ_TRANS, topic, 0)
    return max(queue.min_queue_offset, min(noted, queue.max_queue_offset))


def _records(store: MessageStore, queue: ConsumeQueue, queue_offset: int) -> Iterator[MessageExt]:
    while queue_offset < queue.max_queue_offset:
        result = store.get_message(queue.topic, queue.queue_id, queue_offset, _READ_MESSAGES)
        for buffer in result.buffers:
            yield from decode_records(bytes(buffer))
        queue_offset = max(queue_offset + 1, result.next_begin_offset)


def _ended_by(op: MessageExt, end_queue_offset: int) -> list[int]:
    """The halves that an op record ends: one, or (5.x) many with a comma behind each."""
    words = op.stored_body.decode("ascii", "replace").split(",")
    numbers = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 18]
    return [queue_offset for queue_offset in numbers if queue_offset < end_queue_offset]


# -- a write that was cut through --------------------------------------------------------------------


def _put_missing_op(store: MessageStore, table: HalfMessageStates, store_host: bytes) -> None:
    last = _last_record(store)
    half = None if last is None else _half_behind(store, last)
    if last is None or half is None:
        return
    half = table.current(half)
    if table.state(half) != OPEN:
        return
    copy = last.queue_offset if last.topic == RMQ_SYS_TRANS_HALF_TOPIC else None
    properties = OP_PROPERTIES if copy is None else f"{OP_PROPERTIES}{MOVED_TO}\x01{copy}\x02"
    result = store.put_message(RMQ_SYS_TRANS_OP_HALF_TOPIC, 0, b"%d" % half, properties, born_host=store_host)
    if not result.status.is_stored:
        # The table knows; a broker that cannot write takes no end of a transaction either.
        _log.error("half message %d has no op record: %s", half, result.status.name)
    table.load(result.queue_offset, [half], copy)
    _log.warning(
        "the log ended with the record at %d: half message %d gets its op record", last.phy_offset, half
    )


def _last_record(store: MessageStore) -> MessageExt | None:
    queue = max(store.queues.items(), key=lambda each: each.max_phy_offset, default=None)
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
