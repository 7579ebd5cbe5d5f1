"""Finding the message that a path names: `/messages/{topic}/{id}`.

An id is the offset id, the unique id of the producer, or a position, `broker:queue:offset`. An offset id
contains the address of a broker; requests are sent only to brokers that the name servers know, so that an id
cannot make the console connect to other servers.
"""

from __future__ import annotations

import re
from typing import Final

from kourou.admin.messages.message_queries import query_by_unique_key
from kourou.admin.messages.message_reading import message_at, queue_place
from kourou.admin.messages.messages import is_offset_id, view_message
from kourou.admin.session import Admin
from kourou.console.api_errors import not_found
from kourou.errors import RemotingError, ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import parse_offset_msg_id

_POSITION: Final = re.compile(r"([^:]+):(\d{1,9}):(\d{1,18})", re.ASCII)


def parse_position(text: str) -> tuple[str, int, int] | None:
    """Broker, queue and offset of a position; None if the text is not one."""
    found = _POSITION.fullmatch(text)
    return (found[1], int(found[2]), int(found[3])) if found else None


async def message_by_id(admin: Admin, topic: str, msg_id: str) -> MessageExt:
    """The message with an id of any kind; its broker name is set. ApiError 404 if there is none."""
    if position := parse_position(msg_id):
        broker, queue_id, queue_offset = position
        place = await queue_place(admin, topic, broker, queue_id)
        return await message_at(admin, place, queue_offset)
    problem = ""
    if is_offset_id(msg_id):
        found = await _by_offset_id(admin, topic, msg_id)
        if not isinstance(found, str):
            return found
        problem = found
    try:
        return (await query_by_unique_key(admin, topic, msg_id))[0]
    except ResponseError as error:
        if error.code != ResponseCode.NO_MESSAGE:
            raise
    hint = "it may have expired, or belong to another topic"
    raise not_found(f"topic {topic} has no message {msg_id}{problem}", hint)


async def _by_offset_id(admin: Admin, topic: str, msg_id: str) -> MessageExt | str:
    """The message, or why there is none; the id may still be a unique one."""
    address = parse_offset_msg_id(msg_id).address
    names = {broker.address: broker.broker_name for broker in await admin.brokers()}
    if address not in names:
        return f"; as an offset id it names broker {address}, which is not registered"
    try:
        message = await view_message(admin, msg_id, topic)
    except ResponseError:
        return ""
    except RemotingError as error:
        return f"; {error}"
    if message.topic != topic:
        return f"; the record with this offset id belongs to topic {message.topic}"
    message.broker_name = names[address]
    return message
