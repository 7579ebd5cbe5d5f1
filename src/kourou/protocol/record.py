"""The stored record: one message's bytes in the CommitLog, and so in every pull response.

Its fields are described in layout.py. Behind the head come body, topic and properties, topic and properties
with their lengths in front; that of the body is the last field of the head.

body_crc is CRC-32 of the stored body without its top bit. V2 is for topics over 127 bytes;
only 5.x reads it. A CommitLog file ends with a blank record.

With `enabledAppendPropCRC` (5.x, off by default) the last 20 bytes are the property
`__CRC32#`: a CRC-32 of all bytes before it, as ten digits with the lowest first.

Not here: single fields of records (record_fields.py), many records at once (record_spans.py), where records
lie (store), which properties they get (broker).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from kourou.errors import ProtocolError
from kourou.protocol.layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    BORN_V6,
    CRC_MASK,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    HOSTS_V6,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MAX_TOPIC_BYTES_V2,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MESSAGE_MAGIC_CODES,
    MIN_RECORD_BYTES,
    PROPERTIES_LENGTH,
    RECORD,
    RECORD_HEADS,
    STORE_V6,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    Buffer,
)
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import RAW_PROPERTY_SEPARATOR, MessageConst, property_start
from kourou.protocol.record_fields import RecordError, mark_problem, record_mark

_NO_HOSTS_V6: Final = ~HOSTS_V6
_MARK: Final = BLANK.struct()
_PROPERTIES_LENGTH: Final = struct.Struct(f">{PROPERTIES_LENGTH.code}")
_TOPIC_LENGTH_V2: Final = struct.Struct(f">{TOPIC_LENGTH_V2.code}")
_TOPIC_LENGTH_V1_BYTES: Final = TOPIC_LENGTH_V1.size
_PROPERTIES_LENGTH_BYTES: Final = PROPERTIES_LENGTH.size
_LENGTHS_V1_BYTES: Final = TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
_HEADS: Final = {flags: head.struct() for flags, head in RECORD_HEADS.items()}
_HEAD_V4: Final = _HEADS[0]
_BODY_POS: Final = RECORD.size
_SYS_FLAG: Final = list(RECORD.offsets).index("sys_flag")
_BODY_LENGTH: Final = list(RECORD.offsets).index("body_length")

PROPERTY_CRC_NAME: Final = property_start(MessageConst.PROPERTY_CRC32).encode()
PROPERTY_CRC_BYTES: Final = len(PROPERTY_CRC_NAME) + 10 + 1


def body_crc(body: Buffer) -> int:
    """The CRC that a record keeps of its body as stored; 0 for an empty one."""
    return zlib.crc32(body) & CRC_MASK


def encode_blank(size_bytes: int) -> bytes:
    """The mark that fills the last `size_bytes` of a CommitLog file; what follows it has no meaning."""
    return _MARK.pack(size_bytes, BLANK_MAGIC_CODE)


class RecordEncoder:
    """Encodes the records of one queue: what its records share is made once. `fixed_bytes` is what a
    record takes beside body, properties and the host it was born at.

    A topic over 127 bytes gets V2 records, which only 5.x reads.
    """

    __slots__ = (
        "_pack_v4",
        "_pack_v6",
        "_queue_id",
        "_store_host",
        "_v6_flag",
        "fixed_bytes",
        "magic",
        "topic_part",
    )

    def __init__(self, topic: str, queue_id: int, store_host: bytes, *, magic: int | None = None) -> None:
        raw_topic = topic.encode("utf-8", "replace")
        if magic is None:
            magic = MESSAGE_MAGIC_CODE if len(raw_topic) <= MAX_TOPIC_BYTES_V1 else MESSAGE_MAGIC_CODE_V2
        self.magic = magic
        self._queue_id = queue_id
        self._store_host = store_host
        self.topic_part = _topic_length(raw_topic, magic) + raw_topic
        _check_host(store_host)
        self._v6_flag = STORE_V6 if len(store_host) == HOST_V6_BYTES else 0
        self._pack_v4 = _HEADS[self._v6_flag].pack
        self._pack_v6 = _HEADS[self._v6_flag | BORN_V6].pack
        head_bytes = _HEADS[self._v6_flag].size - HOST_V4_BYTES
        self.fixed_bytes = head_bytes + len(self.topic_part) + _PROPERTIES_LENGTH.size

    def size(self, body: Buffer, properties: bytes, born_host: bytes) -> int:
        """How many bytes the record of this message takes."""
        return self.fixed_bytes + len(body) + len(properties) + len(born_host)

    def parts(
        self,
        body: bytes,
        properties: bytes,
        queue_offset: int,
        phy_offset: int,
        store_timestamp: int,
        born_timestamp: int,
        born_host: bytes,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """The record in pieces to be joined with others into one write.

        The bits for IPv6 hosts are set by the hosts given, whatever `sys_flag` says: a wrong
        bit would make the record unreadable. ProtocolError where a value does not fit.
        """
        body_bytes = len(body)
        pack = self._pack_v4
        host_flags = self._v6_flag
        if len(born_host) != HOST_V4_BYTES:
            _check_host(born_host)
            pack = self._pack_v6
            host_flags |= BORN_V6
        try:
            head = pack(
                self.fixed_bytes + body_bytes + len(properties) + len(born_host),
                self.magic,
                zlib.crc32(body) & CRC_MASK,
                self._queue_id,
                flag,
                queue_offset,
                phy_offset,
                sys_flag & _NO_HOSTS_V6 | host_flags,
                born_timestamp,
                born_host,
                store_timestamp,
                self._store_host,
                reconsume_times,
                prepared_transaction_offset,
                body_bytes,
            )
            return head, body, self.topic_part, _PROPERTIES_LENGTH.pack(len(properties)), properties
        except struct.error as error:
            raise _does_not_fit(properties, error) from error

    def batch_parts(
        self,
        entries: Iterable[tuple[int, bytes, bytes]],
        queue_offset: int,
        phy_offset: int,
        store_timestamp: int,
        born_timestamp: int,
        born_host: bytes,
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> tuple[list[bytes], list[int]]:
        """The records of a batch one after the other, in pieces, and how many bytes each of them takes.

        Entries are flag, body and properties. As `parts` otherwise: it does the same for each, and this
        without a call for each.
        """
        _check_host(born_host)
        is_v6 = len(born_host) == HOST_V6_BYTES
        pack = self._pack_v6 if is_v6 else self._pack_v4
        pack_length, crc32 = _PROPERTIES_LENGTH.pack, zlib.crc32
        sys_flag = sys_flag & _NO_HOSTS_V6 | self._v6_flag | (BORN_V6 if is_v6 else 0)
        magic, queue_id, store_host, topic_part = (
            self.magic,
            self._queue_id,
            self._store_host,
            self.topic_part,
        )
        fixed_bytes = self.fixed_bytes + len(born_host)
        parts: list[bytes] = []
        sizes: list[int] = []
        properties = b""
        try:
            for flag, body, properties in entries:
                body_bytes, properties_bytes = len(body), len(properties)
                size = fixed_bytes + body_bytes + properties_bytes
                head = pack(
                    size,
                    magic,
                    crc32(body) & CRC_MASK,
                    queue_id,
                    flag,
                    queue_offset,
                    phy_offset,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    store_timestamp,
                    store_host,
                    reconsume_times,
                    0,
                    body_bytes,
                )
                parts += (head, body, topic_part, pack_length(properties_bytes), properties)
                sizes.append(size)
                phy_offset += size
                queue_offset += 1
        except struct.error as error:
            raise _does_not_fit(properties, error) from error
        return parts, sizes


def _check_host(host: bytes) -> None:
    # Packing would fill up or cut off other lengths without a word.
    if len(host) not in (HOST_V4_BYTES, HOST_V6_BYTES):
        raise ValueError(f"a stored host has {HOST_V4_BYTES} or {HOST_V6_BYTES} bytes, not {len(host)}")


def _topic_length(raw_topic: bytes, magic: int) -> bytes:
    is_v1 = magic == MESSAGE_MAGIC_CODE
    kind, limit = (TOPIC_LENGTH_V1, MAX_TOPIC_BYTES_V1) if is_v1 else (TOPIC_LENGTH_V2, MAX_TOPIC_BYTES_V2)
    if len(raw_topic) > limit:
        raise ProtocolError(f"a topic of {len(raw_topic)} bytes does not fit: the record allows {limit}")
    return len(raw_topic).to_bytes(kind.size, "big")


def _does_not_fit(properties: bytes, error: struct.error) -> ProtocolError:
    if len(properties) > MAX_PROPERTIES_BYTES:
        return ProtocolError(
            f"properties of {len(properties)} bytes do not fit: the record allows {MAX_PROPERTIES_BYTES}"
        )
    return ProtocolError(f"a field of the message does not fit its record: {error}")


def encode_record(message: MessageExt) -> bytes:
    """The record of `message` from its stored fields; the CRC and the size are computed again."""
    encoder = RecordEncoder(message.topic, message.queue_id, message.raw_store_host, magic=message.magic)
    parts = encoder.parts(
        message.stored_body,
        message.raw_properties,
        queue_offset=message.queue_offset,
        phy_offset=message.phy_offset,
        store_timestamp=message.store_timestamp,
        born_timestamp=message.born_timestamp,
        born_host=message.raw_born_host,
        sys_flag=message.sys_flag,
        flag=message.flag,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    return b"".join(parts)


def decode_records(buffer: Buffer) -> list[MessageExt]:
    """The records of a pull response, which follow each other without a gap."""
    messages = []
    pos = 0
    end = len(buffer)
    while pos < end:
        message = decode_record(buffer, pos)
        messages.append(message)
        pos += message.store_size
    return messages


def decode_record(
    buffer: Buffer, pos: int = 0, *, verify_body_crc: bool = False, with_body: bool = True
) -> MessageExt:
    """The record that starts at `pos`; ProtocolError says what is wrong with it.

    Invalid UTF-8 is read as Java reads it, with U+FFFD in it: one such message must not keep a consumer from
    those that follow. Without `with_body` the body is not copied, and the message has an empty one.
    """
    left_bytes = len(buffer) - pos
    if left_bytes < MIN_RECORD_BYTES:
        raise RecordError(pos, f"{left_bytes} bytes are left, a record has {MIN_RECORD_BYTES} at least")
    fields = _HEAD_V4.unpack_from(buffer, pos)
    body_pos = pos + _BODY_POS
    if fields[_SYS_FLAG] & HOSTS_V6:
        fields, body_pos = _unpack_v6(buffer, pos, fields[_SYS_FLAG] & HOSTS_V6)
    size, magic, crc = fields[:3]
    body_length = fields[_BODY_LENGTH]
    body_end = body_pos + body_length
    end = pos + size
    if size > left_bytes or body_length < 0 or body_end + _LENGTHS_V1_BYTES > end:
        raise RecordError(pos, _size_problem(size, magic, left_bytes, body_length))
    if magic == MESSAGE_MAGIC_CODE:
        topic_pos, topic_length = body_end + _TOPIC_LENGTH_V1_BYTES, buffer[body_end]
    else:
        topic_pos, topic_length = _topic_v2(buffer, pos, body_end)
    topic_end = topic_pos + topic_length
    properties_pos = topic_end + _PROPERTIES_LENGTH_BYTES
    if properties_pos > end or (topic_length > MAX_TOPIC_BYTES_V1 and magic == MESSAGE_MAGIC_CODE):
        raise RecordError(pos, f"its topic length is {topic_length}")
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(buffer, topic_end)
    if properties_length < 0 or properties_pos + properties_length != end:
        raise RecordError(pos, f"its lengths do not add up to its total size of {size} bytes")
    body = buffer[body_pos:body_end]
    if verify_body_crc and body and body_crc(body) != crc:
        raise RecordError(pos, f"the body does not match its CRC {crc}")
    topic = str(buffer[topic_pos:topic_end], "utf-8", "replace")
    body = bytes(body) if with_body else b""
    return _message(*fields[:_BODY_LENGTH], body, topic, bytes(buffer[properties_pos:end]))


# The checker cannot count the fields of a Struct against those of a class.
_message: Final[Callable[..., MessageExt]] = MessageExt


def _topic_v2(buffer: Buffer, pos: int, length_pos: int) -> tuple[int, int]:
    """Where the topic of a V2 record is, and how long."""
    size, magic = record_mark(buffer, pos)
    if magic != MESSAGE_MAGIC_CODE_V2:
        raise RecordError(pos, mark_problem(size, magic))
    (topic_length,) = _TOPIC_LENGTH_V2.unpack_from(buffer, length_pos)
    if topic_length < 0:
        raise RecordError(pos, f"its topic length is {topic_length}")
    return length_pos + TOPIC_LENGTH_V2.size, topic_length


def _unpack_v6(buffer: Buffer, pos: int, host_flags: int) -> tuple[tuple[Any, ...], int]:
    head = _HEADS[host_flags]
    try:
        return head.unpack_from(buffer, pos), pos + head.size
    except struct.error as error:
        raise RecordError(pos, f"{len(buffer) - pos} bytes are left, its head has {head.size}") from error


def _size_problem(size: int, magic: int, left_bytes: int, body_length: int) -> str:
    if magic not in MESSAGE_MAGIC_CODES or size < MIN_RECORD_BYTES:
        return mark_problem(size, magic)
    if size > left_bytes:
        return f"it is cut off, {size - left_bytes} bytes of {size} are missing"
    return f"its body length is {body_length} in a record of {size} bytes"


def append_property_crc(record: bytes) -> bytes:
    """`record` with the property `__CRC32#` at its end, over all other bytes of the result."""
    message = decode_record(record)
    properties = message.raw_properties
    if properties and not properties.endswith(RAW_PROPERTY_SEPARATOR):
        properties += RAW_PROPERTY_SEPARATOR
    message.raw_properties = properties + bytes(PROPERTY_CRC_BYTES)
    covered = encode_record(message)[:-PROPERTY_CRC_BYTES]
    return covered + _property_crc(covered)


def has_property_crc(record: Buffer) -> bool:
    """Whether `record` ends with the property `__CRC32#`."""
    return bytes(record[-PROPERTY_CRC_BYTES:]).startswith(PROPERTY_CRC_NAME)


def verify_property_crc(record: Buffer) -> bool:
    """Whether `record` ends with `__CRC32#` and it is right; without the property, False."""
    covered = record[:-PROPERTY_CRC_BYTES]
    return bytes(record[-PROPERTY_CRC_BYTES:]) == _property_crc(covered)


def _property_crc(covered: Buffer) -> bytes:
    digits = f"{zlib.crc32(covered) & CRC_MASK:010d}"[::-1]
    return PROPERTY_CRC_NAME + digits.encode() + RAW_PROPERTY_SEPARATOR
