"""DispatchRequest: what ConsumeQueue and index need to know of one stored record.

Read straight from the record's bytes, checked on the way. Not here: who asks for it
(recovery.py, dispatcher.py), what is done with it (dispatcher.py).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.properties import MessageConst, PropertyScanner, properties_from_bytes
from kourou.protocol.record import (
    BLANK_MAGIC_CODE,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    Buffer,
)
from kourou.protocol.tags import tags_code
from kourou.store.delay_levels import SCHEDULE_TOPIC, deliver_timestamp

TRANSACTION_MASK: Final = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_ROLLBACK: Final = 0xC
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20

# total_size magic crc queue_id flag queue_offset phy_offset sys_flag born_timestamp
_HEAD: Final = struct.Struct(">iIiiiqqiq")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_I16: Final = struct.Struct(">h")
# The smallest piece of a write that a power loss keeps or drops.
_SECTOR_BYTES: Final = 512
_MAX_FOLDER_BYTES: Final = 255
_NO_FOLDER_NAMES: Final = frozenset({"", ".", ".."})

_scan = PropertyScanner(
    MessageConst.PROPERTY_TAGS,
    MessageConst.PROPERTY_KEYS,
    MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
).values


class DispatchRequest(NamedTuple):
    """One record, as the derived files see it."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    sys_flag: int
    keys: tuple[str, ...]

    @property
    def in_consume_queue(self) -> bool:
        """False for prepared and rolled back transaction records of the old kind."""
        return self.sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)

    @property
    def in_index(self) -> bool:
        """False for rolled back ones only."""
        return self.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK


class Blank(NamedTuple):
    """The end of a CommitLog file: `size` bytes to the next one."""

    size: int


def index_keys(uniq_key: str | None, keys: str | None) -> tuple[str, ...]:
    """The words a record is indexed under: its unique id, then each business key."""
    if uniq_key and keys and " " not in keys:
        return uniq_key, keys
    words = tuple(filter(None, keys.split(" "))) if keys else ()
    return (uniq_key, *words) if uniq_key else words


def stored_tags_code(
    topic: str, tags: str | None, delay: str | None, store_timestamp: int, delay_levels: tuple[int, ...]
) -> int:
    """What the ConsumeQueue keeps as tags code: the hash of the tags, or when a delayed message is due."""
    if topic == SCHEDULE_TOPIC and delay and delay.isascii() and delay.isdigit() and int(delay) > 0:
        return deliver_timestamp(delay_levels, int(delay), store_timestamp)
    return tags_code(tags)


def read_dispatch_request(
    buffer: Buffer, position: int, phy_offset: int, delay_levels: tuple[int, ...], *, check_crc: bool = True
) -> DispatchRequest | Blank:
    """The record at `position`, which lies at `phy_offset` of the log.

    ProtocolError when it is not a whole, valid record: wrong magic or lengths, a body that
    does not match its CRC, properties that were not written whole, a topic or queue that cannot be,
    or a stored physical offset that is not where it lies (old bytes of a file used before).
    """
    left = len(buffer) - position
    if left < 8:
        raise ProtocolError(f"{left} bytes are left, too few for a record")
    size, magic = _I32.unpack_from(buffer, position)[0], int.from_bytes(buffer[position + 4 : position + 8])
    if magic == BLANK_MAGIC_CODE:
        return Blank(size)
    if magic != MESSAGE_MAGIC_CODE and magic != MESSAGE_MAGIC_CODE_V2:
        raise ProtocolError(f"magic {magic:#010x} is not that of a record")
    if size < MIN_RECORD_BYTES or size > left:
        raise ProtocolError(f"total size {size} does not fit {left} bytes")
    return _read_record(buffer, position, phy_offset, size, magic, delay_levels, check_crc)


def _read_record(
    buffer: Buffer,
    position: int,
    phy_offset: int,
    size: int,
    magic: int,
    delay_levels: tuple[int, ...],
    check_crc: bool,
) -> DispatchRequest:
    _, _, crc, queue_id, _, queue_offset, stored_phy, sys_flag, _ = _HEAD.unpack_from(buffer, position)
    if stored_phy != phy_offset:
        raise ProtocolError(f"the record says it lies at {stored_phy}")
    store_at = position + (68 if sys_flag & _BORN_V6 else 56)
    body_at = store_at + 32 + (12 if sys_flag & _STORE_V6 else 0)
    end = position + size
    body_end, topic_at, topic_end = _places(buffer, body_at, end, magic)
    if check_crc and body_end > body_at and zlib.crc32(buffer[body_at:body_end]) & 0x7FFFFFFF != crc:
        raise ProtocolError(f"the body does not match its CRC {crc}")
    topic = _topic(buffer[topic_at:topic_end], magic, queue_id)
    properties = bytes(buffer[topic_end + 2 : end])
    if b"\0" in properties and _is_cut(properties, phy_offset + topic_end + 2 - position):
        raise ProtocolError("the properties end with zeros, or a sector of them is zero")
    tags, keys, uniq_key, delay = _scan(properties_from_bytes(properties))
    (store_timestamp,) = _I64.unpack_from(buffer, store_at)
    return DispatchRequest(
        topic,
        queue_id,
        queue_offset,
        phy_offset,
        size,
        stored_tags_code(topic, tags, delay, store_timestamp, delay_levels),
        store_timestamp,
        sys_flag,
        index_keys(uniq_key, keys),
    )


def _places(buffer: Buffer, body_at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Where the body ends, and the topic begins and ends; the properties follow up to `end`."""
    try:
        (body_length,) = _I32.unpack_from(buffer, body_at - 4)
        body_end = body_at + body_length
        if body_length < 0 or body_end >= end:
            raise ProtocolError(f"body length {body_length} does not fit the record")
        topic_at = body_end + (1 if magic == MESSAGE_MAGIC_CODE else 2)
        topic_end = topic_at + int.from_bytes(buffer[body_end:topic_at])
        (properties_length,) = _I16.unpack_from(buffer, topic_end)
    except struct.error as error:
        raise ProtocolError("the record's fields go beyond its end") from error
    if topic_end + 2 + properties_length != end or properties_length < 0:
        raise ProtocolError("the record's lengths do not add up to its size")
    return body_end, topic_at, topic_end


def _topic(raw: Buffer, magic: int, queue_id: int) -> str:
    """The topic, which is the name of a folder. Headers have no CRC: one that cannot be is damage."""
    topic = str(raw, "utf-8", "replace")
    limit = MAX_TOPIC_BYTES_V1 if magic == MESSAGE_MAGIC_CODE else _MAX_FOLDER_BYTES
    if len(raw) > limit or topic in _NO_FOLDER_NAMES or "/" in topic or "\0" in topic or queue_id < 0:
        raise ProtocolError(f"there can be no queue {topic!r}/{queue_id}")
    return topic


def close_properties(properties: bytes) -> bytes:
    """Properties as they may be stored: with a zero at their end they would pass for cut off. The
    separator behind it means nothing."""
    return properties + b"\x02" if properties[-1:] == b"\0" else properties


def _is_cut(raw: bytes, phy_offset: int) -> bool:
    """Whether `raw` ends with a zero, as a write leaves it that failed half-way, or all its bytes in one
    sector are zero, as a power loss leaves them.

    Properties are what no CRC of the record covers, and text: zeros are not in it by chance.
    """
    first = -(phy_offset % _SECTOR_BYTES)
    return raw[-1] == 0 or any(
        not any(raw[max(0, at) : at + _SECTOR_BYTES]) for at in range(first, len(raw), _SECTOR_BYTES)
    )
