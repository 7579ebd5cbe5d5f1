"""DispatchRequest: what ConsumeQueue and index need to know of one stored record.

Read straight from the record's bytes, checked on the way. Used by recovery.py and
dispatcher.py. Not here: what is done with it (dispatcher.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    MAX_TOPIC_FOLDER_BYTES,
    MESSAGE_MAGIC_CODES,
    MIN_RECORD_BYTES,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Buffer,
)
from kourou.protocol.properties import (
    RAW_PROPERTY_SEPARATOR,
    MessageConst,
    PropertyScanner,
    properties_from_bytes,
)
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import RecordError, record_mark
from kourou.protocol.tags import tags_code
from kourou.store.delay_levels import SCHEDULE_TOPIC, deliver_timestamp

# The smallest piece of a write that a power loss keeps or drops.
_SECTOR_BYTES: Final = 512
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
    try:
        record = decode_record(buffer, position, verify_body_crc=check_crc, with_body=False)
    except RecordError as error:
        return _blank_at(buffer, position, error)
    if record.phy_offset != phy_offset:
        raise ProtocolError(f"the record belongs at {record.phy_offset}")
    topic, queue_id, properties = record.topic, record.queue_id, record.raw_properties
    # A topic is the name of a folder. Headers have no CRC: one that cannot be is damage.
    if topic in _NO_FOLDER_NAMES or "/" in topic or "\0" in topic or queue_id < 0 or _is_long(topic):
        raise ProtocolError(f"there can be no queue {topic!r}/{queue_id}")
    if b"\0" in properties and _is_cut(properties, phy_offset + record.store_size - len(properties)):
        raise ProtocolError("the properties end with zeros, or a sector of them is zero")
    tags, keys, uniq_key, delay = _scan(properties_from_bytes(properties))
    return DispatchRequest(
        topic,
        queue_id,
        record.queue_offset,
        phy_offset,
        record.store_size,
        stored_tags_code(topic, tags, delay, record.store_timestamp, delay_levels),
        record.store_timestamp,
        record.sys_flag,
        index_keys(uniq_key, keys),
    )


def _blank_at(buffer: Buffer, position: int, error: RecordError) -> Blank:
    """The blank that is there instead of a record; ProtocolError says why neither is."""
    left = len(buffer) - position
    if left < BLANK.size:
        raise ProtocolError(f"{left} bytes are left, too few for a record") from error
    size, magic = record_mark(buffer, position)
    if magic == BLANK_MAGIC_CODE:
        return Blank(size)
    if magic not in MESSAGE_MAGIC_CODES:
        raise ProtocolError(f"magic {magic:#010x} is not that of a record") from error
    if size < MIN_RECORD_BYTES or size > left:
        raise ProtocolError(f"total size {size} does not fit {left} bytes") from error
    # Without the position in the buffer, which means nothing to the caller.
    raise ProtocolError(error.reason) from error


def _is_long(topic: str) -> bool:
    return len(topic.encode()) > MAX_TOPIC_FOLDER_BYTES


def close_properties(properties: bytes) -> bytes:
    """Properties as they may be stored: with a zero at their end they would pass for cut off. The
    separator behind it means nothing."""
    return properties + RAW_PROPERTY_SEPARATOR if properties[-1:] == b"\0" else properties


def _is_cut(raw: bytes, phy_offset: int) -> bool:
    """Whether `raw` ends with a zero, as a write leaves it that failed half-way, or all its bytes in one
    sector are zero, as a power loss leaves them.

    Properties are what no CRC of the record covers, and text: zeros are not in it by chance.
    """
    first = -(phy_offset % _SECTOR_BYTES)
    return raw[-1] == 0 or any(
        not any(raw[max(0, at) : at + _SECTOR_BYTES]) for at in range(first, len(raw), _SECTOR_BYTES)
    )
