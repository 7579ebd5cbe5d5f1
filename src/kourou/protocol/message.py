"""Message, what an application sends, and MessageExt, what a consumer gets back.

Tags, keys, delays and the like travel as properties under reserved names; here they are
attributes. Not here: the bytes (record.py, batch.py, properties.py), sending and receiving.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import index
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kourou.argument_types import is_int, wrong_type
from kourou.clock import EARLIEST_TIME_MS, seconds_hint
from kourou.errors import MessageRefusedError
from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.compression import MAX_BODY_BYTES, inflate_body
from kourou.protocol.message_id import host_text, offset_msg_id
from kourou.protocol.names import topic_problem
from kourou.protocol.priority import MAX_PRIORITY, parse_priority
from kourou.protocol.properties import (
    KEY_SEPARATOR,
    MessageConst,
    decode_properties,
    encode_properties,
    properties_from_bytes,
    property_problem,
)

# A plain number: operations on IntFlag members cost a microsecond each.
_TRANSACTION_MASK: Final = MessageSysFlag.TRANSACTION_MASK.value
_NO_FLAG: Final = 0
_TAGS: Final = MessageConst.PROPERTY_TAGS


class Message:
    """A message to send.

    >>> Message("TopicTest", b"hello", tags="TagA", keys=["order-1"])
    Message('TopicTest', 5 bytes, tags='TagA', keys=('order-1',))

    `keys` are words for finding the message later; `properties` are the application's own.
    At most one delay: a `delay_time_level` (1 to 18: 1s 5s 10s 30s 1m … 2h), `delay_time_ms`
    from now, or `deliver_time_ms`, a datetime or milliseconds since 1970; the last two need a
    broker of version 5.
    `priority` is 0 or more, higher is delivered first: for topics with `message.type=PRIORITY`
    that are read by POP; needs RocketMQ 5.5 or Kourou.
    With `wait_store_msg_ok=False` the broker answers without waiting for flush or replica.
    """

    __slots__ = ("_properties", "body", "flag", "topic")

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        flag: int = 0,
        properties: Mapping[str, str] | None = None,
        delay_time_level: int = 0,
        delay_time_ms: int = 0,
        deliver_time_ms: int | datetime = 0,
        priority: int | None = None,
        wait_store_msg_ok: bool = True,
    ) -> None:
        if problem := topic_problem(_text(topic, "a topic")):
            raise MessageRefusedError(problem)
        self.topic = topic
        self.body = _checked_body(body)
        if flag is not _NO_FLAG:  # most messages have none
            _check_flag(flag)
        self.flag = flag
        self._properties: dict[str, str] = {}
        if properties:
            try:
                pairs = properties.items()
            except AttributeError:
                raise wrong_type("properties", "a dict", properties) from None
            for name, value in pairs:
                self.put_user_property(name, value)
        if tags:
            _text(tags, "tags")
            if "||" in tags or tags == "*":
                raise MessageRefusedError(
                    f"tags={tags!r}: a message has one tag; || and * are for expressions that select tags"
                )
            self._properties[_TAGS] = tags
        if joined_keys := _joined_keys(keys):
            self.put_property(MessageConst.PROPERTY_KEYS, joined_keys)
        if delay_time_level or delay_time_ms or deliver_time_ms:
            self._put_delay(delay_time_level, delay_time_ms, deliver_time_ms)
        if priority is not None:
            self.put_property(MessageConst.PROPERTY_PRIORITY, str(_checked_priority(priority)))
        # Absent means true, to every broker.
        if wait_store_msg_ok is not True:
            if wait_store_msg_ok is not False:
                raise wrong_type("wait_store_msg_ok", "a bool", wait_store_msg_ok)
            self.put_property(MessageConst.PROPERTY_WAIT_STORE_MSG_OK, "false")

    def _put_delay(self, delay_time_level: int, delay_time_ms: int, deliver_time_ms: int | datetime) -> None:
        given = [
            (MessageConst.PROPERTY_DELAY_TIME_LEVEL, "delay_time_level", delay_time_level),
            (MessageConst.PROPERTY_TIMER_DELAY_MS, "delay_time_ms", delay_time_ms),
            (MessageConst.PROPERTY_TIMER_DELIVER_MS, "deliver_time_ms", deliver_time_ms),
        ]
        given = [each for each in given if each[2]]
        if len(given) > 1:
            raise MessageRefusedError(
                "give one of delay_time_level, delay_time_ms and deliver_time_ms, not several"
            )
        for name, argument, value in given:
            if name == MessageConst.PROPERTY_TIMER_DELIVER_MS:
                self.put_property(name, str(_time_ms(value)))
            else:
                self.put_property(name, str(_delay(argument, value)))

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, reserved ones included; change them by `put_user_property`."""
        return MappingProxyType(self._properties)

    @property
    def tags(self) -> str | None:
        """The tag that subscriptions select by."""
        return self._properties.get(MessageConst.PROPERTY_TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The words that the message can be found by."""
        return _split_keys(self._properties)

    @property
    def delay_time_level(self) -> int:
        """The delay level, 0 for none."""
        return int(self._properties.get(MessageConst.PROPERTY_DELAY_TIME_LEVEL, 0))

    @property
    def priority(self) -> int | None:
        """The priority; None if it has none."""
        return parse_priority(self._properties.get(MessageConst.PROPERTY_PRIORITY))

    @property
    def wait_store_msg_ok(self) -> bool:
        """Whether the answer waits until the message is flushed and replicated as configured."""
        return self._properties.get(MessageConst.PROPERTY_WAIT_STORE_MSG_OK) != "false"

    def get_property(self, name: str) -> str | None:
        """One property, reserved or not."""
        return self._properties.get(name)

    def put_user_property(self, name: str, value: str) -> None:
        """Set a property of the application; MessageRefusedError for reserved names and blanks."""
        _text(value, f"the value of property {_text(name, 'the name of a property')!r}")
        if problem := property_problem(name, value):
            raise MessageRefusedError(problem)
        self._properties[name] = value

    def put_property(self, name: str, value: str) -> None:
        """Set any property: for RocketMQ's own names, which the client fills in."""
        self._properties[name] = value

    def clear_property(self, name: str) -> None:
        """Remove a property, if it is there."""
        self._properties.pop(name, None)

    def encode_properties(self) -> str:
        """The property string for the wire; ValueError where a separator hides in a value."""
        return encode_properties(self._properties)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self.topic, self.body, self.flag, self._properties) == (
            other.topic,
            other.body,
            other.flag,
            other._properties,
        )

    __hash__ = None  # type: ignore[assignment]  # properties may change

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.body)} bytes{_shown(self.tags, self.keys)})"


class MessageExt(msgspec.Struct, eq=False):
    """A stored message: all fields of its record, in their order, under their names.

    `properties` and `body` are made on first use; `raw_properties` and `stored_body` are the
    record's bytes. Hosts are text as `born_host`, bytes as `raw_born_host`.
    """

    store_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    born_timestamp: int
    raw_born_host: bytes
    store_timestamp: int
    raw_store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    stored_body: bytes
    topic: str
    raw_properties: bytes
    broker_name: str = ""
    queue_max_offset: int = -1
    """Where its queue ended when it was pulled: the offset of the next message; -1 if unknown."""
    _properties: dict[str, str] | None = None
    _body: bytes | None = None

    @property
    def properties(self) -> dict[str, str]:
        """All properties. The dictionary is this message's own: changing it changes no bytes."""
        if self._properties is None:
            self._properties = decode_properties(properties_from_bytes(self.raw_properties))
        return self._properties

    @property
    def body(self) -> bytes:
        """The body as it was sent; ProtocolError where a compressed one does not inflate."""
        if self._body is None:
            return self.inflate()
        return self._body

    def inflate(self, max_body_bytes: int = MAX_BODY_BYTES) -> bytes:
        """Decompress `body`, which may not become larger than `max_body_bytes`."""
        self._body = inflate_body(self.stored_body, self.sys_flag, max_body_bytes)
        return self._body

    @property
    def tags(self) -> str | None:
        """The tag that subscriptions select by."""
        return self.properties.get(MessageConst.PROPERTY_TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The words that the message can be found by."""
        return _split_keys(self.properties)

    @property
    def priority(self) -> int | None:
        """The priority that the producer gave; None if it gave none."""
        return parse_priority(self.properties.get(MessageConst.PROPERTY_PRIORITY))

    def get_property(self, name: str) -> str | None:
        """One property, reserved or not."""
        return self.properties.get(name)

    @property
    def msg_id(self) -> str:
        """The id that the producer gave and users see; without one, the offset id."""
        return self.properties.get(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id that the broker gave: it leads to the record."""
        return offset_msg_id(self.raw_store_host, self.phy_offset)

    @property
    def born_host(self) -> str:
        """`host:port` of the producer's connection, as the broker saw it."""
        return host_text(self.raw_born_host)

    @property
    def store_host(self) -> str:
        """`host:port` of the broker that stored the message."""
        return host_text(self.raw_store_host)

    @property
    def transaction_type(self) -> int:
        """The transaction bits of `sys_flag`: 0, or a MessageSysFlag.TRANSACTION_…_TYPE."""
        return self.sys_flag & _TRANSACTION_MASK

    @property
    def transaction_id(self) -> str | None:
        """The producer's id of a transaction message; None for others."""
        if self.properties.get(MessageConst.PROPERTY_TRANSACTION_PREPARED) != "true":
            return None
        return self.properties.get(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)

    def __repr__(self) -> str:
        where = f"queue_id={self.queue_id}, queue_offset={self.queue_offset}, msg_id={self.msg_id!r}"
        size = f"{len(self.stored_body)} bytes"
        return f"MessageExt({self.topic!r}, {size}, {where}{_shown(self.tags, self.keys)})"


def _checked_body(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    hint = "; encode text first, for example body.encode()" if isinstance(body, str) else ""
    raise TypeError(f"a message body is bytes, not {type(body).__name__}{hint}")


def _check_flag(flag: object) -> None:
    if not is_int(flag):
        raise wrong_type("flag", "an int", flag)
    if not -(1 << 31) <= flag < 1 << 31:  # type: ignore[operator]
        raise MessageRefusedError(f"flag {flag} does not fit its 32 bits")


def _checked_priority(value: Any) -> int:
    if not is_int(value):
        raise wrong_type("priority", "an int", value)
    if not 0 <= value <= MAX_PRIORITY:
        raise MessageRefusedError(
            f"priority is {value}; it is from 0, the lowest, to {MAX_PRIORITY}; "
            "priorities at or above the number of a topic's queues are equal"
        )
    return index(value)


def _delay(name: str, value: Any) -> int:
    if not is_int(value):
        raise wrong_type(name, "an int", value)
    if value < 0:
        raise MessageRefusedError(f"a message cannot be delayed by {value}: the delay is negative")
    return index(value)


def _time_ms(value: Any) -> int:
    if isinstance(value, datetime):
        return _delay("deliver_time_ms", int(value.timestamp() * 1000))
    if not is_int(value):
        raise wrong_type("deliver_time_ms", "an int or a datetime", value)
    if 0 <= value < EARLIEST_TIME_MS:
        hint = seconds_hint(value) or "for a delay from now give delay_time_ms"
        raise MessageRefusedError(
            f"deliver_time_ms is a time, in milliseconds since 1970 or as a datetime, not {value}: {hint}"
        )
    return _delay("deliver_time_ms", value)


def _text(value: object, what: str) -> str:
    """Text that can be written as UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is text, not {type(value).__name__} ({value!r:.50})")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MessageRefusedError(f"{what} cannot be written as UTF-8: {value!r:.50}") from None
    return value


def _joined_keys(keys: str | Iterable[str]) -> str:
    if isinstance(keys, str):
        return keys
    try:
        words = list(keys)
    except TypeError:
        raise wrong_type("keys", "a str or a list of str", keys) from None
    for word in words:
        if not _text(word, "a key") or KEY_SEPARATOR in word:
            raise MessageRefusedError(f"key {word!r} is empty or contains a blank, which separates keys")
    return KEY_SEPARATOR.join(words)


def _split_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    text = properties.get(MessageConst.PROPERTY_KEYS)
    return tuple(word for word in text.split(KEY_SEPARATOR) if word) if text else ()


def _shown(tags: str | None, keys: tuple[str, ...]) -> str:
    return (f", tags={tags!r}" if tags else "") + (f", keys={keys!r}" if keys else "")
