"""A message of a gRPC producer, checked, as brokers get it.

What a broker could not store, or consumers could not read, is refused here with a code of its own. A body
that the client has compressed by gzip becomes a zlib stream, the only one that all consumers read; it is not
compressed anew, as both frame the same bytes.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Final

from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.compression import MAX_BODY_BYTES
from kourou.protocol.properties import (
    KEY_SEPARATOR,
    MAX_SENT_PROPERTIES_BYTES,
    MessageConst,
    encode_properties,
)
from kourou.proxy.messages.limits import MessageLimits
from kourou.proxy.messages.message_types import SYSTEM_PROPERTIES
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.messages.times import MAX_TIME_MS, timestamp_ms
from kourou.proxy.wire.rocketmq_v2 import Code, Encoding, Message, MessageType, SystemProperties

_COMPRESSED: Final = MessageSysFlag.COMPRESSED.value
_PREPARED: Final = MessageSysFlag.TRANSACTION_PREPARED_TYPE.value
# Plain numbers and texts: this runs for each message.
_GZIP: Final = Encoding.GZIP.value
_TRANSACTION: Final = MessageType.TRANSACTION.value
_LITE: Final = MessageType.LITE.value
_UNIQ_KEY: Final = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_BORN_TIMESTAMP: Final = MessageConst.PROPERTY_BORN_TIMESTAMP
_BORN_HOST: Final = MessageConst.PROPERTY_BORN_HOST
_PRODUCER_GROUP: Final = MessageConst.PROPERTY_PRODUCER_GROUP
_SHARDING_KEY: Final = MessageConst.PROPERTY_SHARDING_KEY
_MAX_CHARACTER_BYTES: Final = 4
"""In UTF-8."""
_MAX_TEXTS: Final = MAX_SENT_PROPERTIES_BYTES // 2
"""User properties or keys, whatever the limits are: a record has no room for more."""
# Java's ISO control characters; those that separate properties are two of them.
_find_control: Final = re.compile("[\x00-\x1f\x7f-\x9f]").search
_ADLER: Final = struct.Struct(">I")
# A zlib header that says: deflate, a window of 32 KiB, default level.
_ZLIB_HEADER: Final = b"\x78\x9c"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_PIECE_BYTES: Final = 1 << 18


class Published:
    """One message, ready to be sent to a broker."""

    __slots__ = ("body", "born_ms", "kind", "message_group", "message_id", "properties", "sys_flag", "topic")

    def __init__(
        self,
        *,
        topic: str,
        body: bytes,
        properties: str,
        sys_flag: int,
        message_id: str,
        kind: MessageType,
        message_group: str,
        born_ms: int,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        """The property string."""
        self.sys_flag = sys_flag
        self.message_id = message_id
        self.kind = kind
        """Its type, as its properties say."""
        self.message_group = message_group
        """Empty: it has none."""
        self.born_ms = born_ms


def publish(message: Message, topic: str, *, limits: MessageLimits, now_ms: int, peer: str) -> Published:
    """Check a message. `topic` is its topic, `peer` is `host:port` of the client. StatusError."""
    system = message.system_properties
    sys_flag = 0
    body = message.body
    _check_body(body, limits)
    if system.body_encoding == _GZIP:
        body, sys_flag = _zlib_stream(body), _COMPRESSED
    message_id, message_group = system.message_id, system.message_group
    user = _user_properties(message, limits)
    if user:
        _check_user(user)
    properties = {_UNIQ_KEY: message_id, **user}
    _put_searched(properties, system)
    born_ms = timestamp_ms(system.born_timestamp)
    if 0 < born_ms <= MAX_TIME_MS:
        properties[_BORN_TIMESTAMP] = str(born_ms)
    else:
        born_ms = now_ms
    born_host, context = system.born_host, system.trace_context
    properties[_BORN_HOST] = born_host if born_host.strip() else peer
    # Brokers ask the producers of this group what becomes of a transaction.
    properties[_PRODUCER_GROUP] = topic
    if system.delivery_attempt > 0:
        properties[MessageConst.PROPERTY_RECONSUME_TIME] = str(system.delivery_attempt)
    if context:
        properties[MessageConst.PROPERTY_TRACE_CONTEXT] = context
    kind = MessageType.NORMAL
    # In the order of their precedence, from the lowest, as message_types.py has it.
    if system.HasField("priority"):
        kind = MessageType.PRIORITY
        properties[MessageConst.PROPERTY_PRIORITY] = _priority(system)
    if message_group:
        kind = MessageType.FIFO
        _check_group(message_group, limits)
        properties[_SHARDING_KEY] = message_group
    elif _SHARDING_KEY in user:  # the only one of these properties that users may set
        kind = MessageType.FIFO
    if system.HasField("delivery_timestamp"):
        kind = MessageType.DELAY
        properties[MessageConst.PROPERTY_TIMER_DELIVER_MS] = _deliver_ms(system, limits, now_ms)
    if system.message_type == _TRANSACTION:
        kind, sys_flag = MessageType.TRANSACTION, sys_flag | _PREPARED
        _put_transaction(properties, system, limits)
    if system.lite_topic or system.message_type == _LITE:
        raise StatusError(Code.UNSUPPORTED, "lite topics are not supported")
    if not message_id.strip():
        raise StatusError(Code.ILLEGAL_MESSAGE_ID, "message_id is blank")
    if not "".join((*properties, *properties.values())).isprintable():
        _check_characters(user, system)
    text = encode_properties(properties)
    # Short text need not be encoded to be measured.
    if len(text) * _MAX_CHARACTER_BYTES > limits.max_user_property_bytes > 0:
        _check_size(user, system, limits)
    if len(text) * _MAX_CHARACTER_BYTES > MAX_SENT_PROPERTIES_BYTES:
        _check_room(text)
    return Published(
        topic=topic,
        body=body,
        properties=text,
        sys_flag=sys_flag,
        message_id=message_id,
        kind=kind,
        message_group=message_group,
        born_ms=born_ms,
    )


def _user_properties(message: Message, limits: MessageLimits) -> dict[str, str]:
    found = message.user_properties
    if not found:  # most have none: the empty map need not be made a dict
        return {}
    # Counted before anything looks at them: a request has room for millions.
    if len(found) > (limits.max_user_properties if limits.max_user_properties > 0 else _MAX_TEXTS):
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the message has {len(found)} user properties; "
            f"at most {limits.max_user_properties or _MAX_TEXTS} are allowed",
        )
    return dict(found)


def _check_body(body: bytes, limits: MessageLimits) -> None:
    if not body and limits.refuses_empty_bodies:
        raise StatusError(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    if 0 < limits.max_body_bytes < len(body):
        raise StatusError(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"the body has {len(body)} bytes; at most {limits.max_body_bytes} are allowed",
        )


def _check_room(text: str) -> None:
    """StatusError: no record has room for these properties."""
    size_bytes = len(text.encode())
    if size_bytes > MAX_SENT_PROPERTIES_BYTES:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"all properties together have {size_bytes} bytes; "
            f"at most {MAX_SENT_PROPERTIES_BYTES} are allowed",
        )


def _put_searched(properties: dict[str, str], system: SystemProperties) -> None:
    """Tag and keys."""
    tag, keys = system.tag, system.keys
    if tag:
        if not tag.strip() or "|" in tag:
            raise StatusError(Code.ILLEGAL_MESSAGE_TAG, f"tag {tag!r:.100} is blank or contains |")
        properties[MessageConst.PROPERTY_TAGS] = tag
    if keys:
        if len(keys) > _MAX_TEXTS:
            raise StatusError(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"the message has {len(keys)} keys; at most {_MAX_TEXTS} are allowed",
            )
        # Empty ones are no keys, blank ones are an error.
        if not all(map(str.strip, keys)) and any(key and not key.strip() for key in keys):
            raise StatusError(Code.ILLEGAL_MESSAGE_KEY, "a key is blank")
        if joined_keys := KEY_SEPARATOR.join(keys):
            properties[MessageConst.PROPERTY_KEYS] = joined_keys


def _check_size(user: dict[str, str], system: SystemProperties, limits: MessageLimits) -> None:
    """Tag and keys share a limit with the user's properties."""
    size_bytes = len("".join((system.tag, *system.keys, *user, *user.values())).encode())
    if size_bytes > limits.max_user_property_bytes:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys have {size_bytes} bytes; "
            f"at most {limits.max_user_property_bytes} are allowed",
        )


def _check_user(user: dict[str, str]) -> None:
    if not SYSTEM_PROPERTIES.isdisjoint(user):
        (name, *_) = SYSTEM_PROPERTIES.intersection(user)
        raise StatusError(
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name!r} belongs to RocketMQ; choose another name"
        )
    if not all(map(str.strip, user)):
        raise StatusError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "a property has no name")


def _check_characters(user: dict[str, str], system: SystemProperties) -> None:
    """StatusError for control characters: two of them separate properties, Apache refuses all."""
    for code, what, texts in (
        (Code.ILLEGAL_MESSAGE_ID, "message_id", (system.message_id,)),
        (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "a user property", (*user, *user.values())),
        (Code.ILLEGAL_MESSAGE_TAG, "tag", (system.tag,)),
        (Code.ILLEGAL_MESSAGE_KEY, "a key", tuple(system.keys)),
        (Code.ILLEGAL_MESSAGE_GROUP, "message_group", (system.message_group,)),
        (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "trace_context", (system.trace_context,)),
        (Code.BAD_REQUEST, "born_host", (system.born_host,)),
    ):
        if any(map(_find_control, texts)):
            raise StatusError(code, f"{what} contains control characters")


def _priority(system: SystemProperties) -> str:
    if system.priority < 0:
        raise StatusError(Code.BAD_REQUEST, f"priority is {system.priority}; it must be 0 or more")
    return str(system.priority)


def _check_group(message_group: str, limits: MessageLimits) -> None:
    size_bytes = len(message_group.encode())
    if not message_group.strip():
        raise StatusError(Code.ILLEGAL_MESSAGE_GROUP, "message_group is blank")
    if 0 < limits.max_message_group_bytes <= size_bytes:
        raise StatusError(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"message_group has {size_bytes} bytes; it must have less than {limits.max_message_group_bytes}",
        )


def _deliver_ms(system: SystemProperties, limits: MessageLimits, now_ms: int) -> str:
    deliver_ms = timestamp_ms(system.delivery_timestamp)
    if not 0 <= deliver_ms <= MAX_TIME_MS:
        raise StatusError(Code.ILLEGAL_DELIVERY_TIME, "delivery_timestamp is no time from 1970 to 9999")
    if 0 < limits.max_delay_ms < deliver_ms - now_ms:
        raise StatusError(
            Code.ILLEGAL_DELIVERY_TIME,
            f"the message would wait {deliver_ms - now_ms} ms; at most {limits.max_delay_ms} ms are allowed",
        )
    return str(deliver_ms)


def _put_transaction(properties: dict[str, str], system: SystemProperties, limits: MessageLimits) -> None:
    properties[MessageConst.PROPERTY_TRANSACTION_PREPARED] = "true"
    if system.HasField("orphaned_transaction_recovery_duration"):
        recovery_s = system.orphaned_transaction_recovery_duration.seconds
        if 0 < limits.max_recovery_s < recovery_s:
            raise StatusError(
                Code.BAD_REQUEST,
                f"orphaned_transaction_recovery_duration is {recovery_s} s; "
                f"at most {limits.max_recovery_s} s are allowed",
            )
        properties[MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(recovery_s)


def _zlib_stream(body: bytes) -> bytes:
    """A compressed body as a zlib stream."""
    if body[:2] != _GZIP_MAGIC:
        if len(body) > 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0:
            return body
        raise _corrupted("it is neither gzip nor zlib")
    stream = body[_gzip_header_bytes(body) :]
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    checksum, size_bytes, rest = zlib.adler32(b""), 0, stream
    try:
        while not inflater.eof:
            piece = inflater.decompress(rest, _PIECE_BYTES)
            rest = inflater.unconsumed_tail
            checksum = zlib.adler32(piece, checksum)
            size_bytes += len(piece)
            if not piece and not inflater.eof:
                raise _corrupted("it is cut off")
            if size_bytes > MAX_BODY_BYTES:
                raise _corrupted(f"it inflates to more than {MAX_BODY_BYTES} bytes")
    except zlib.error as error:
        raise _corrupted(str(error)) from error
    if len(inflater.unused_data) != 8:
        raise _corrupted("it has other data behind its one gzip member")
    return b"".join((_ZLIB_HEADER, stream[:-8], _ADLER.pack(checksum)))


def _gzip_header_bytes(body: bytes) -> int:
    """Where the deflated data of a gzip member begins (RFC 1952)."""
    flags = body[3] if len(body) > 10 else -1
    if flags < 0 or body[2] != 8:
        raise _corrupted("its gzip header is not valid")
    position = 10
    if flags & 4:
        position += 2 + int.from_bytes(body[position : position + 2], "little")
    for text_flag in (8, 16):
        if flags & text_flag:
            position = body.find(b"\0", position) + 1
            if not position:
                raise _corrupted("its gzip header is not valid")
    return position + (2 if flags & 2 else 0)


def _corrupted(problem: str) -> StatusError:
    return StatusError(
        Code.MESSAGE_CORRUPTED, f"body_encoding says GZIP, but the body cannot be read: {problem}"
    )
