"""MessageView: a stored message for display, ready for JSON; MessageSummary: the same for a row of a list."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Self

from kourou.errors import ProtocolError
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst

_SHOWN_BODY: Final = 200


@dataclass(frozen=True, slots=True)
class _StoredMessage:
    """What a row and the message itself show. `msg_id` is the id that users see, `offset_msg_id` the position
    of the record."""

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


def _shared(message: MessageExt) -> dict[str, Any]:
    """The fields of _StoredMessage."""
    return {
        "keys": message.get_property(MessageConst.PROPERTY_KEYS),
        **{name: getattr(message, name) for name in _SAME_NAMES},
    }


_SAME_NAMES: Final = tuple(field.name for field in fields(_StoredMessage) if field.name != "keys")


@dataclass(frozen=True, slots=True)
class MessageView(_StoredMessage):
    """One message."""

    phy_offset: int
    store_size: int
    store_host: str
    sys_flag: int
    flag: int
    body_crc: int
    prepared_transaction_offset: int
    transaction_id: str | None
    properties: dict[str, str]
    body: bytes
    """Decompressed; as stored if that fails."""

    @classmethod
    def of(cls, message: MessageExt) -> Self:
        """From a stored record."""
        return cls(
            **_shared(message),
            phy_offset=message.phy_offset,
            store_size=message.store_size,
            store_host=message.store_host,
            sys_flag=message.sys_flag,
            flag=message.flag,
            body_crc=message.body_crc,
            prepared_transaction_offset=message.prepared_transaction_offset,
            transaction_id=message.transaction_id,
            properties=dict(message.properties),
            body=body_or_stored(message),
        )


@dataclass(frozen=True, slots=True)
class MessageSummary(_StoredMessage):
    """One message without its properties, and with the beginning of its body."""

    body_size: int
    """Decompressed."""
    body_start: str
    """As UTF-8 text; what is not UTF-8 is replaced."""

    @classmethod
    def of(cls, message: MessageExt) -> Self:
        """From a stored record."""
        body = body_or_stored(message)
        return cls(**_shared(message), body_size=len(body), body_start=text_start(body, _SHOWN_BODY))


def text_start(body: bytes, chars: int) -> str:
    """The beginning of a body as text."""
    return body[: 4 * chars].decode("utf-8", "replace")[:chars]


def body_or_stored(message: MessageExt) -> bytes:
    """The body, decompressed; as stored if that fails."""
    try:
        return message.body
    except ProtocolError:
        return message.stored_body
