"""Single messages: found by id, delivered to a consumer, sent again.

An id is either the offset id, which contains the record's position, or the producer's unique id. Not here:
searches by key (message_queries.py), reading queues (message_reading.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kourou.admin.messages.message_queries import query_by_unique_key
from kourou.admin.session import Admin
from kourou.client.core.settings import ClientOptions
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult
from kourou.errors import ProtocolError, RemotingError, ResponseError
from kourou.protocol.bodies import ConsumeMessageDirectlyResult, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import ConsumeMessageDirectlyResultRequestHeader, ViewMessageRequestHeader
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.properties import MessageConst
from kourou.protocol.record import decode_record

RESEND_GROUP: Final = "ReSendMsgById"
# Set by the first send and the broker. A half message would wait for an end that never comes.
_OF_THE_FIRST_SEND: Final = (
    MessageConst.PROPERTY_TRANSACTION_PREPARED,
    MessageConst.PROPERTY_PRODUCER_GROUP,
    MessageConst.PROPERTY_MSG_REGION,
    MessageConst.PROPERTY_TRACE_SWITCH,
    MessageConst.PROPERTY_CLUSTER,
    MessageConst.PROPERTY_MIN_OFFSET,
    MessageConst.PROPERTY_MAX_OFFSET,
    MessageConst.PROPERTY_CRC32,
)


async def view_message(admin: Admin, msg_id: str, topic: str | None = None) -> MessageExt:
    """The message with an offset id, from the broker in the id.

    ProtocolError if it is not an offset id, ResponseError if there is no such record.
    """
    place = parse_offset_msg_id(msg_id)
    header = ViewMessageRequestHeader(topic=topic, phy_offset=place.phy_offset)
    answer = await admin.call(place.address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    return decode_record(answer.body)


async def find_message(
    admin: Admin, msg_id: str, topic: str | None = None, *, route_of: str | None = None
) -> MessageExt:
    """The message with an id of either kind; a unique id needs the topic.

    ResponseError NO_MESSAGE if there is none.
    """
    unreachable: RemotingError | None = None
    if is_offset_id(msg_id):
        try:
            return await view_message(admin, msg_id, topic)
        except ResponseError:
            pass  # The record is gone, or a unique id looks like an offset id.
        except RemotingError as error:
            unreachable = error
    if topic is not None:
        try:
            return (await query_by_unique_key(admin, topic, msg_id, route_of=route_of))[0]
        except ResponseError as error:
            if error.code != ResponseCode.NO_MESSAGE:
                raise
    if unreachable is not None:
        raise unreachable
    hint = "" if topic is not None else "; give the topic with -t to search for it as unique id"
    raise ResponseError(ResponseCode.NO_MESSAGE, f"Message not found! msgId={msg_id}{hint}")


def is_offset_id(msg_id: str) -> bool:
    """Whether an id may be an offset id."""
    try:
        parse_offset_msg_id(msg_id)
    except ProtocolError:
        return False
    return True


async def consume_directly(
    admin: Admin, group: str, client_id: str, message: MessageExt
) -> ConsumeMessageDirectlyResult:
    """Deliver a message to a consumer through the broker that stores it, and wait for the result."""
    header = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group=group, client_id=client_id, msg_id=message.offset_msg_id, topic=message.topic
    )
    answer = await admin.call(message.store_host, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    return decode_body(answer.body, ConsumeMessageDirectlyResult)


def copy_of(message: MessageExt) -> Message:
    """A copy of a stored message to send, with the same unique id."""
    copy = Message(message.topic, message.body, flag=message.flag)
    for name, value in message.properties.items():
        if name not in _OF_THE_FIRST_SEND:
            copy.put_property(name, value)
    return copy


async def resend(
    admin: Admin, message: MessageExt, *, topic: str | None = None, unit_name: str | None = None
) -> SendResult:
    """Send a copy of a stored message to its topic, or to another one."""
    copy = copy_of(message)
    copy.topic = topic or message.topic
    async with started_producer(admin, RESEND_GROUP, unit_name=unit_name) as producer:
        return await producer.send(copy)


@asynccontextmanager
async def started_producer(
    admin: Admin, group: str, *, unit_name: str | None = None, trace: bool = False
) -> AsyncIterator[AsyncProducer]:
    """A started producer with the connection options of an Admin."""
    options: ClientOptions = {**admin.options}
    if unit_name:
        options["unit_name"] = unit_name
    async with AsyncProducer(group, trace=trace, **options) as producer:
        yield producer
