"""RecordView: the fields of one stored record by name, for people to look at.

Takes bytes that are no record too, and names what it can. Not here: what is valid (record.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.message_id import HOST_V4_BYTES, HOST_V6_BYTES, host_text
from kourou.protocol.record import (
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    body_crc,
)

_MAGIC_NAMES = {
    MESSAGE_MAGIC_CODE: "message, V1",
    MESSAGE_MAGIC_CODE_V2: "message, V2",
    BLANK_MAGIC_CODE: "blank: the end of the file",
}
_SINGLE_FLAGS = (
    MessageSysFlag.COMPRESSED,
    MessageSysFlag.MULTI_TAGS,
    MessageSysFlag.BORNHOST_V6,
    MessageSysFlag.STOREHOSTADDRESS_V6,
    MessageSysFlag.NEED_UNWRAP,
    MessageSysFlag.INNER_BATCH,
)
_FLAG_KINDS = {
    0x4: "TRANSACTION_PREPARED_TYPE",
    0x8: "TRANSACTION_COMMIT_TYPE",
    0xC: "TRANSACTION_ROLLBACK_TYPE",
    0x100: "COMPRESSION_LZ4",
    0x200: "COMPRESSION_ZSTD",
    0x300: "COMPRESSION_ZLIB",
}


@dataclass(frozen=True, slots=True)
class RecordField:
    """One field: its name, its first byte in the record, its bytes, and what they mean."""

    name: str
    position: int
    raw: bytes
    text: str


def record_fields(raw: bytes) -> list[RecordField]:
    """The fields of the record that `raw` starts with, as far as the bytes go."""
    return list(_Cursor(raw).fields())


class _Cursor:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._position = 0

    def fields(self) -> Iterator[RecordField]:
        """All fields, in order."""
        size = self._number(4)
        yield self._field("total_size", 4, str(size))
        magic = self._number(4) & 0xFFFFFFFF
        yield self._field("magic", 4, f"{magic:#010x} {_MAGIC_NAMES.get(magic, 'not that of a record')}")
        if magic in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
            yield from self._head()
            yield from self._parts(1 if magic == MESSAGE_MAGIC_CODE else 2)
        if self._position < len(self._raw):
            rest = len(self._raw) - self._position
            yield self._field("rest", rest, f"{rest} bytes")

    def _head(self) -> Iterator[RecordField]:
        self._crc = self._number(4)
        yield self._field("body_crc", 4, str(self._crc))
        yield self._integer("queue_id", 4)
        yield self._integer("flag", 4)
        yield self._integer("queue_offset", 8)
        yield self._integer("phy_offset", 8)
        flags = self._number(4)
        yield self._field("sys_flag", 4, _flags_text(flags))
        yield self._time("born_timestamp")
        yield self._host("born_host", bool(flags & MessageSysFlag.BORNHOST_V6))
        yield self._time("store_timestamp")
        yield self._host("store_host", bool(flags & MessageSysFlag.STOREHOSTADDRESS_V6))
        yield self._integer("reconsume_times", 4)
        yield self._integer("prepared_transaction_offset", 8)

    def _parts(self, topic_length_bytes: int) -> Iterator[RecordField]:
        length = self._number(4)
        yield self._field("body_length", 4, str(length))
        body = self._field("body", length, "")
        matches = "CRC matches" if not body.raw or body_crc(body.raw) == self._crc else "CRC does not match"
        yield RecordField(body.name, body.position, body.raw, matches)
        length = self._number(topic_length_bytes) & (0xFF if topic_length_bytes == 1 else 0xFFFF)
        yield self._field("topic_length", topic_length_bytes, str(length))
        yield self._text("topic", length)
        length = self._number(2)
        yield self._field("properties_length", 2, str(length))
        yield self._text("properties", length)

    def _number(self, size_bytes: int) -> int:
        return int.from_bytes(self._raw[self._position : self._position + size_bytes], "big", signed=True)

    def _field(self, name: str, size_bytes: int, text: str) -> RecordField:
        position = self._position
        raw = self._raw[position : position + max(size_bytes, 0)]
        self._position += len(raw)
        return RecordField(name, position, raw, text if len(raw) == size_bytes else "cut off")

    def _integer(self, name: str, size_bytes: int) -> RecordField:
        return self._field(name, size_bytes, str(self._number(size_bytes)))

    def _time(self, name: str) -> RecordField:
        value = self._number(8)
        return self._field(name, 8, f"{value} {time_text(value)}")

    def _host(self, name: str, is_v6: bool) -> RecordField:
        field = self._field(name, HOST_V6_BYTES if is_v6 else HOST_V4_BYTES, "")
        text = host_text(field.raw) if len(field.raw) in (HOST_V4_BYTES, HOST_V6_BYTES) else "cut off"
        return RecordField(field.name, field.position, field.raw, text)

    def _text(self, name: str, length: int) -> RecordField:
        field = self._field(name, length, "")
        text = field.raw.decode("utf-8", "replace").replace("\x01", "=").replace("\x02", " ")
        return RecordField(field.name, field.position, field.raw, field.text or text)


def _flags_text(flags: int) -> str:
    kinds = (flags & MessageSysFlag.TRANSACTION_MASK, flags & MessageSysFlag.COMPRESSION_MASK)
    names = [flag.name or "" for flag in _SINGLE_FLAGS if flag & flags]
    names += [_FLAG_KINDS[kind] for kind in kinds if kind in _FLAG_KINDS]
    return " ".join((f"{flags:#x}", *names))


def time_text(timestamp_ms: int) -> str:
    """A store time for people, in UTC; a dash where there is none."""
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "-"
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}Z" if timestamp_ms > 0 else "-"
