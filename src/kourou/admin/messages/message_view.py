"""MessageView: a stored message for display, ready for JSON; MessageSummary: the same for a row of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from kourou.errors import ProtocolError
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst

_SHOWN_BODY: Final = 200


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message. `msg_id` is the id that users see, `offset_msg_id` the position of the record."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    store_size: int
    msg_id: str
    offset_msg_id: str
    tags: str | None
    keys: str | None
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    sys_flag: int
    flag: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    transaction_id: str | None
    properties: dict[str, str]
    body: bytes
    """Decompressed; as stored if that fails."""

    @classmethod
    def of(cls, message: MessageExt) -> Self:
        """From a stored record."""
        return cls(
            topic=message.topic,
            broker_name=message.broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            phy_offset=message.phy_offset,
            store_size=message.store_size,
            msg_id=message.msg_id,
            offset_msg_id=message.offset_msg_id,
            tags=message.tags,
            keys=message.get_property(MessageConst.PROPERTY_KEYS),
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=message.store_timestamp,
            store_host=message.store_host,
            sys_flag=message.sys_flag,
            flag=message.flag,
            body_crc=message.body_crc,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            transaction_id=message.transaction_id,
            properties=dict(message.properties),
            body=body_or_stored(message),
        )


@dataclass(frozen=True, slots=True)
class MessageSummary:
    """One message without its properties, and with the beginning of its body."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    tags: str | None
    keys: str | None
    born_timestamp: int
    born_host: str
    store_timestamp: int
    reconsume_times: int
    body_size: int
    """Decompressed."""
    body_start: str
    """As UTF-8 text; what is not UTF-8 is replaced."""

    @classmethod
    def of(cls, message: MessageExt) -> Self:
        """From a stored record."""
        body = body_or_stored(message)
        return cls(
            topic=message.topic,
            broker_name=message.broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            msg_id=message.msg_id,
            offset_msg_id=message.offset_msg_id,
            tags=message.tags,
            keys=message.get_property(MessageConst.PROPERTY_KEYS),
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=message.store_timestamp,
            reconsume_times=message.reconsume_times,
            body_size=len(body),
            body_start=text_start(body, _SHOWN_BODY),
        )


def text_start(body: bytes, chars: int) -> str:
    """The beginning of a body as text."""
    return body[: 4 * chars].decode("utf-8", "replace")[:chars]


def body_or_stored(message: MessageExt) -> bytes:
    """The body, decompressed; as stored if that fails."""
    try:
        return message.body
    except ProtocolError:
        return message.stored_body
