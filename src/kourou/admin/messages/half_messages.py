"""Half messages: transactions that have not ended, and those that brokers gave up.

Every half message is a record of RMQ_SYS_TRANS_HALF_TOPIC. An end is a record of RMQ_SYS_TRANS_OP_HALF_TOPIC
whose body has the queue offsets of half messages. Brokers keep, as a group's progress in both, where
everything before has ended. A half message that was checked and is still open is written again behind the
others, with the number of checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.admin.messages.message_reading import QueuePlace, QueueSpan, read_all
from kourou.admin.session import Admin
from kourou.errors import ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from kourou.protocol.names import (
    CID_SYS_RMQ_TRANS,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)
from kourou.protocol.op_record import ended_halves
from kourou.protocol.properties import MessageConst

_MOST_HALVES: Final = 1_000
_MOST_OPS: Final = 5_000
_MOST_GIVEN_UP: Final = 100


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A message whose transaction has not ended."""

    topic: str
    """Where a commit delivers it to."""
    producer_group: str
    msg_id: str
    keys: str
    tags: str
    born_timestamp: int
    check_times: int
    """How often the broker has asked a producer."""
    broker_name: str
    stored_topic: str
    """The system topic that has it now."""
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class BrokerHalfMessages:
    """The half messages of one broker."""

    broker_name: str
    open: list[HalfMessage]
    """The oldest first."""
    is_complete: bool
    """Whether `open` has all of them."""
    given_up_count: int
    """Not committed, not rolled back, and not asked for any more."""
    given_up: list[HalfMessage]
    """The newest of them."""


async def broker_half_messages(admin: Admin, broker_name: str, address: str) -> BrokerHalfMessages:
    """The half messages of a master; none if it never had one."""
    halves, has_all_halves = await _unsettled(
        admin, _place(RMQ_SYS_TRANS_HALF_TOPIC, broker_name, address), _MOST_HALVES
    )
    ops, has_all_ops = await _unsettled(
        admin, _place(RMQ_SYS_TRANS_OP_HALF_TOPIC, broker_name, address), _MOST_OPS
    )
    ended = {offset for op in ops for offset in ended_halves(op)}
    given_up_count, given_up = await _given_up(admin, broker_name, address)
    return BrokerHalfMessages(
        broker_name,
        [_half(message) for message in halves if message.queue_offset not in ended],
        has_all_halves and has_all_ops,
        given_up_count,
        given_up,
    )


def _place(topic: str, broker_name: str, address: str) -> QueuePlace:
    return QueuePlace(MessageQueue(topic, broker_name, 0), address)


async def _bounds(admin: Admin, place: QueuePlace) -> tuple[int, int]:
    """Where a queue begins and ends; 0 and 0 if the topic does not exist yet."""
    try:
        return (
            await admin.api.min_offset(place.address, place.queue),
            await admin.api.max_offset(place.address, place.queue),
        )
    except ResponseError:
        return 0, 0  # brokers of RocketMQ 4 create these topics with the first transaction


async def _unsettled(admin: Admin, place: QueuePlace, most: int) -> tuple[list[MessageExt], bool]:
    """The records behind the broker's progress, and whether these are all."""
    begin, end = await _bounds(admin, place)
    if begin == end:
        return [], True
    settled = await admin.api.consumer_offset(place.address, CID_SYS_RMQ_TRANS, place.queue)
    begin = max(begin, settled or 0)
    last = min(end, begin + most)
    return await read_all(admin, QueueSpan(place, begin, last)), last == end


async def _given_up(admin: Admin, broker_name: str, address: str) -> tuple[int, list[HalfMessage]]:
    place = _place(RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, broker_name, address)
    begin, end = await _bounds(admin, place)
    if begin == end:
        return 0, []
    newest = await read_all(admin, QueueSpan(place, max(begin, end - _MOST_GIVEN_UP), end))
    return end - begin, [_half(message) for message in reversed(newest)]


def _half(message: MessageExt) -> HalfMessage:
    checks = message.get_property(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES) or "0"
    return HalfMessage(
        topic=message.get_property(MessageConst.PROPERTY_REAL_TOPIC) or "",
        producer_group=message.get_property(MessageConst.PROPERTY_PRODUCER_GROUP) or "",
        msg_id=message.msg_id,
        keys=" ".join(message.keys),
        tags=message.tags or "",
        born_timestamp=message.born_timestamp,
        check_times=int(checks) if checks.isdecimal() else 0,
        broker_name=message.broker_name,
        stored_topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
    )
