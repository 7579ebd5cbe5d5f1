"""The stored record: one message's bytes in the CommitLog, and so in every pull answer.

Big-endian; positions are those with IPv4 hosts (8 bytes; IPv6 hosts take 20):

     0 total_size i32         28 phy_offset i64       64 store_host 8
     4 magic u32              36 sys_flag i32         72 reconsume_times i32
     8 body_crc i32           40 born_timestamp i64   76 prepared_transaction_offset i64
    12 queue_id i32           48 born_host 8          84 body length i32, body
    16 flag i32               56 store_timestamp i64     topic length u8 (V2: i16), topic
    20 queue_offset i64                                  properties length i16, properties

body_crc is CRC-32 of the stored body without its top bit. V2 is for topics over 127 bytes;
only 5.x reads it. A CommitLog file ends with a blank record: bytes left i32, magic u32.

With `enabledAppendPropCRC` (5.x, off by default) the last 20 bytes are the property
`__CRC32#`: a CRC-32 of all bytes before it, as ten digits with the lowest first.

Not here: where records lie (store), which properties they get (broker).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from kourou.errors import ProtocolError
from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import HOST_V4_BYTES, HOST_V6_BYTES
from kourou.protocol.properties import MAX_PROPERTIES_BYTES, MessageConst

Buffer: TypeAlias = bytes | bytearray | memoryview

MESSAGE_MAGIC_CODE: Final = 0xDAA320A7
MESSAGE_MAGIC_CODE_V2: Final = 0xDAA320AB
BLANK_MAGIC_CODE: Final = 0xCBD43194

TOTAL_SIZE_POS: Final = 0
MAGIC_POS: Final = 4
BODY_CRC_POS: Final = 8
QUEUE_ID_POS: Final = 12
FLAG_POS: Final = 16
QUEUE_OFFSET_POS: Final = 20
PHY_OFFSET_POS: Final = 28
SYS_FLAG_POS: Final = 36
BORN_TIMESTAMP_POS: Final = 40
BORN_HOST_POS: Final = 48
# Positions from here on move by HOST_V6_EXTRA_BYTES for each IPv6 host before them.
STORE_TIMESTAMP_POS: Final = 56
STORE_HOST_POS: Final = 64
RECONSUME_TIMES_POS: Final = 72
PREPARED_TRANSACTION_OFFSET_POS: Final = 76
BODY_LENGTH_POS: Final = 84
BODY_POS: Final = 88
HOST_V6_EXTRA_BYTES: Final = HOST_V6_BYTES - HOST_V4_BYTES

# A V1 record with IPv4 hosts and without body, topic and properties.
MIN_RECORD_BYTES: Final = 91
BLANK_RECORD_BYTES: Final = 8
MAX_TOPIC_BYTES_V1: Final = 127
# A 5.x reader takes the two bytes for a signed number.
MAX_TOPIC_BYTES_V2: Final = 32767

# Plain numbers: operations on IntFlag members cost a microsecond each.
_BORN_V6: Final = MessageSysFlag.BORNHOST_V6.value
_STORE_V6: Final = MessageSysFlag.STOREHOSTADDRESS_V6.value
_HOSTS_V6: Final = _BORN_V6 | _STORE_V6
_NO_HOSTS_V6: Final = ~_HOSTS_V6
_CRC_MASK: Final = 0x7FFFFFFF

_MARK: Final = struct.Struct(">iI")
_LENGTH: Final = struct.Struct(">h")
_HEADS: Final = {
    flags: struct.Struct(f">iIiiiqqiq{20 if flags & _BORN_V6 else 8}sq{20 if flags & _STORE_V6 else 8}siqi")
    for flags in (0, _BORN_V6, _STORE_V6, _HOSTS_V6)
}
_HEAD_V4: Final = _HEADS[0]

_CRC_NAME: Final = f"{MessageConst.PROPERTY_CRC32}\x01".encode()
PROPERTY_CRC_BYTES: Final = len(_CRC_NAME) + 10 + 1


def body_crc(body: Buffer) -> int:
    """The CRC that a record keeps of its body as stored; 0 for an empty one."""
    return zlib.crc32(body) & _CRC_MASK


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
        self._v6_flag = _STORE_V6 if len(store_host) == HOST_V6_BYTES else 0
        self._pack_v4 = _HEADS[self._v6_flag].pack
        self._pack_v6 = _HEADS[self._v6_flag | _BORN_V6].pack
        head_bytes = _HEADS[self._v6_flag].size - HOST_V4_BYTES
        self.fixed_bytes = head_bytes + len(self.topic_part) + _LENGTH.size

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
            host_flags |= _BORN_V6
        try:
            head = pack(
                self.fixed_bytes + body_bytes + len(properties) + len(born_host),
                self.magic,
                zlib.crc32(body) & _CRC_MASK,
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
            return head, body, self.topic_part, _LENGTH.pack(len(properties)), properties
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
        pack, pack_length, crc32 = (self._pack_v6 if is_v6 else self._pack_v4), _LENGTH.pack, zlib.crc32
        sys_flag = sys_flag & _NO_HOSTS_V6 | self._v6_flag | (_BORN_V6 if is_v6 else 0)
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
                    crc32(body) & _CRC_MASK,
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
    length_bytes, limit = (1, MAX_TOPIC_BYTES_V1) if magic == MESSAGE_MAGIC_CODE else (2, MAX_TOPIC_BYTES_V2)
    if len(raw_topic) > limit:
        raise ProtocolError(f"a topic of {len(raw_topic)} bytes does not fit: the record allows {limit}")
    return len(raw_topic).to_bytes(length_bytes, "big")


def _does_not_fit(properties: bytes, error: struct.error) -> ProtocolError:
    if len(properties) > MAX_PROPERTIES_BYTES:
        return ProtocolError(
            f"properties of {len(properties)} bytes do not fit: the record allows {MAX_PROPERTIES_BYTES}"
        )
    return ProtocolError(f"a field of the message does not fit its record: {error}")


def encode_record(message: MessageExt) -> bytes:
    """The record of `message` from its stored fields; the CRC and the size are made anew."""
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


def record_mark(buffer: Buffer, pos: int = 0) -> tuple[int, int]:
    """Total size and magic of the record or blank at `pos`, unchecked."""
    try:
        size, magic = _MARK.unpack_from(buffer, pos)
    except struct.error as error:
        raise _problem(pos, f"{len(buffer) - pos} bytes are left, too few for a mark") from error
    return size, magic


def record_positions(buffer: Buffer) -> list[int]:
    """Where each record of a pull answer starts, and where the last one ends; nothing is decoded.

    Record i is `buffer[positions[i] : positions[i + 1]]`.
    """
    positions = [0]
    pos = 0
    end = len(buffer)
    unpack_mark = _MARK.unpack_from
    while pos < end:
        size, magic = unpack_mark(buffer, pos) if pos + 8 <= end else record_mark(buffer, pos)
        if size < MIN_RECORD_BYTES or (magic != MESSAGE_MAGIC_CODE and magic != MESSAGE_MAGIC_CODE_V2):
            raise _problem(pos, _mark_problem(size, magic))
        pos += size
        positions.append(pos)
    if pos > end:
        raise _problem(positions[-2], f"it is cut off, {pos - end} bytes are missing")
    return positions


def decode_records(buffer: Buffer) -> list[MessageExt]:
    """The records of a pull answer, which follow each other without a gap."""
    messages = []
    pos = 0
    end = len(buffer)
    while pos < end:
        message = decode_record(buffer, pos)
        messages.append(message)
        pos += message.store_size
    return messages


def decode_record(buffer: Buffer, pos: int = 0, *, verify_body_crc: bool = False) -> MessageExt:
    """The record that starts at `pos`; ProtocolError says what is wrong with it.

    Text that is not UTF-8 is read as Java reads it, with U+FFFD in it: one odd message must
    not keep a consumer from those behind it.
    """
    left_bytes = len(buffer) - pos
    if left_bytes < MIN_RECORD_BYTES:
        raise _problem(pos, f"{left_bytes} bytes are left, a record has {MIN_RECORD_BYTES} at least")
    fields = _HEAD_V4.unpack_from(buffer, pos)
    body_pos = pos + BODY_POS
    if fields[7] & _HOSTS_V6:
        fields, body_pos = _unpack_v6(buffer, pos, fields[7] & _HOSTS_V6)
    size, magic, crc = fields[:3]
    body_length = fields[14]
    body_end = body_pos + body_length
    end = pos + size
    if size > left_bytes or body_length < 0 or body_end + 3 > end:
        raise _problem(pos, _size_problem(size, magic, left_bytes, body_length))
    if magic == MESSAGE_MAGIC_CODE:
        topic_pos, topic_length = body_end + 1, buffer[body_end]
    else:
        topic_pos, topic_length = _topic_v2(buffer, pos, body_end)
    topic_end = topic_pos + topic_length
    properties_pos = topic_end + 2
    if properties_pos > end or (topic_length > MAX_TOPIC_BYTES_V1 and magic == MESSAGE_MAGIC_CODE):
        raise _problem(pos, f"its topic length is {topic_length}")
    (properties_length,) = _LENGTH.unpack_from(buffer, topic_end)
    if properties_length < 0 or properties_pos + properties_length != end:
        raise _problem(pos, f"its lengths do not add up to its total size of {size} bytes")
    body = bytes(buffer[body_pos:body_end])
    if verify_body_crc and body and body_crc(body) != crc:
        raise _problem(pos, f"its body has CRC {body_crc(body)}, the record says {crc}")
    topic = str(buffer[topic_pos:topic_end], "utf-8", "replace")
    return _message(*fields[:14], body, topic, bytes(buffer[properties_pos:end]))


# The checker cannot count the fields of a Struct against those of a class.
_message: Final[Callable[..., MessageExt]] = MessageExt


def _topic_v2(buffer: Buffer, pos: int, length_pos: int) -> tuple[int, int]:
    """Where the topic of a V2 record is, and how long."""
    size, magic = record_mark(buffer, pos)
    if magic != MESSAGE_MAGIC_CODE_V2:
        raise _problem(pos, _mark_problem(size, magic))
    (topic_length,) = _LENGTH.unpack_from(buffer, length_pos)
    if topic_length < 0:
        raise _problem(pos, f"its topic length is {topic_length}")
    return length_pos + 2, topic_length


def _unpack_v6(buffer: Buffer, pos: int, host_flags: int) -> tuple[tuple[Any, ...], int]:
    head = _HEADS[host_flags]
    try:
        return head.unpack_from(buffer, pos), pos + head.size
    except struct.error as error:
        raise _problem(pos, f"{len(buffer) - pos} bytes are left, its head has {head.size}") from error


def _mark_problem(size: int, magic: int) -> str:
    if magic == BLANK_MAGIC_CODE:
        return f"a blank of {size} bytes is there, the end of a CommitLog file"
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        return f"its magic is {magic:#010x} instead of {MESSAGE_MAGIC_CODE:#010x}"
    return f"its total size is {size} bytes"


def _size_problem(size: int, magic: int, left_bytes: int, body_length: int) -> str:
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2) or size < MIN_RECORD_BYTES:
        return _mark_problem(size, magic)
    if size > left_bytes:
        return f"it is cut off, {size - left_bytes} bytes of {size} are missing"
    return f"its body length is {body_length} in a record of {size} bytes"


def _problem(pos: int, problem: str) -> ProtocolError:
    return ProtocolError(f"no record at byte {pos}: {problem}")


def append_property_crc(record: bytes) -> bytes:
    """`record` with the property `__CRC32#` at its end, over all other bytes of the result."""
    message = decode_record(record)
    properties = message.raw_properties
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    message.raw_properties = properties + bytes(PROPERTY_CRC_BYTES)
    covered = encode_record(message)[:-PROPERTY_CRC_BYTES]
    return covered + _property_crc(covered)


def has_property_crc(record: Buffer) -> bool:
    """Whether `record` ends with the property `__CRC32#`."""
    return bytes(record[-PROPERTY_CRC_BYTES:]).startswith(_CRC_NAME)


def verify_property_crc(record: Buffer) -> bool:
    """Whether `record` ends with `__CRC32#` and it is right; without the property, False."""
    covered = record[:-PROPERTY_CRC_BYTES]
    return bytes(record[-PROPERTY_CRC_BYTES:]) == _property_crc(covered)


def _property_crc(covered: Buffer) -> bytes:
    digits = f"{zlib.crc32(covered) & _CRC_MASK:010d}"[::-1]
    return _CRC_NAME + digits.encode() + b"\x02"
