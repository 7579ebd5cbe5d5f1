"""RecordView: the fields of one stored record by name, for people to look at.

Takes bytes that are no record too, and names what it can. Not here: what is valid (record.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    HOST_V4,
    HOST_V4_BYTES,
    HOST_V6,
    HOST_V6_BYTES,
    HOSTS_V6,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MESSAGE_MAGIC_CODES,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH,
    PROPERTY_SEPARATOR,
    RECORD,
    RECORD_HEADS,
    TOPIC_LENGTH_V1,
    U2,
    Field,
)
from kourou.protocol.message_id import host_text
from kourou.protocol.record import body_crc

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
        self._number = 0

    def fields(self) -> Iterator[RecordField]:
        size, magic = BLANK.fields
        yield self._integer(size)
        yield (found := self._integer(magic))
        number = int.from_bytes(found.raw, "big")
        if number in MESSAGE_MAGIC_CODES:
            yield from self._message(is_v1=number == MESSAGE_MAGIC_CODE)
        if self._position < len(self._raw):
            rest = len(self._raw) - self._position
            yield self._field("rest", rest, f"{rest} bytes")

    def _message(self, *, is_v1: bool) -> Iterator[RecordField]:
        sys_flag = int.from_bytes(self._raw[RECORD.at("sys_flag") : RECORD.end("sys_flag")], "big")
        for field in RECORD_HEADS[sys_flag & HOSTS_V6].fields[len(BLANK.fields) :]:
            yield self._host(field) if field.kind in (HOST_V4, HOST_V6) else self._integer(field)
        body = self._field("body", self._number, "")
        crc = int.from_bytes(self._raw[RECORD.at("body_crc") : RECORD.end("body_crc")], "big", signed=True)
        matches = "CRC matches" if not body.raw or body_crc(body.raw) == crc else "CRC does not match"
        yield RecordField(body.name, body.position, body.raw, matches)
        yield self._integer(Field("topic_length", TOPIC_LENGTH_V1 if is_v1 else U2))
        yield self._text("topic", self._number)
        yield self._integer(Field("properties_length", PROPERTIES_LENGTH))
        yield self._text("properties", self._number)

    def _field(self, name: str, size_bytes: int, text: str) -> RecordField:
        position = self._position
        raw = self._raw[position : position + max(size_bytes, 0)]
        self._position += len(raw)
        return RecordField(name, position, raw, text if len(raw) == size_bytes else "cut off")

    def _integer(self, field: Field) -> RecordField:
        """The next field; its number is kept for what follows."""
        name, kind = field
        raw = self._raw[self._position : self._position + kind.size]
        self._number = int.from_bytes(raw, "big", signed=kind.is_signed)
        describe = _DESCRIBED.get(name, str)
        return self._field(name, kind.size, describe(self._number))

    def _host(self, field: Field) -> RecordField:
        found = self._field(field.name, field.kind.size, "")
        text = host_text(found.raw) if len(found.raw) in (HOST_V4_BYTES, HOST_V6_BYTES) else "cut off"
        return RecordField(found.name, found.position, found.raw, text)

    def _text(self, name: str, length: int) -> RecordField:
        field = self._field(name, length, "")
        text = field.raw.decode("utf-8", "replace")
        text = text.replace(NAME_VALUE_SEPARATOR, "=").replace(PROPERTY_SEPARATOR, " ")
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


def _time(timestamp_ms: int) -> str:
    return f"{timestamp_ms} {time_text(timestamp_ms)}"


def _magic(magic: int) -> str:
    return f"{magic:#010x} {_MAGIC_NAMES.get(magic, 'not that of a record')}"


_DESCRIBED: Final[dict[str, Callable[[int], str]]] = {
    "magic": _magic,
    "sys_flag": _flags_text,
    "born_timestamp": _time,
    "store_timestamp": _time,
}
