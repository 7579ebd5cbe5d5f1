"""Single fields of stored records, and where records and their properties lie; nothing else is decoded.

For filters, searches and walks, which look at many records and need little of each. Fields are described in
layout.py. Not here: whole records (record.py), many records at once (record_spans.py).
"""

from __future__ import annotations

import struct
from typing import Final

from kourou.errors import ProtocolError
from kourou.protocol.layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    HOSTS_V6,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MESSAGE_MAGIC_CODES,
    MIN_RECORD_BYTES,
    PROPERTIES_LENGTH,
    RECORD,
    RECORD_HEADS,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    Buffer,
)

RAW_MAGIC_CODES: Final = tuple(magic.to_bytes(4, "big") for magic in MESSAGE_MAGIC_CODES)
"""The magic codes of messages as they are stored."""
_MARK: Final = BLANK.struct()
_LENGTHS: Final = RECORD.part("total_size", "magic", "sys_flag", "body_length")
_BODY_LENGTHS: Final = {flags: head.part("body_length") for flags, head in RECORD_HEADS.items()}
_STORE_TIMESTAMPS: Final = {flags: head.part("store_timestamp") for flags, head in RECORD_HEADS.items()}
_PREPARED_OFFSETS: Final = {
    flags: head.part("prepared_transaction_offset") for flags, head in RECORD_HEADS.items()
}
_SYS_FLAG: Final = RECORD.part("sys_flag")
_QUEUE_OFFSET: Final = RECORD.part("queue_offset")
_PHY_OFFSET: Final = RECORD.part("phy_offset")
_TOPIC_LENGTH_V2: Final = struct.Struct(f">{TOPIC_LENGTH_V2.code}")
_BODY_POS: Final = RECORD.size
# The lengths of topic and properties.
_LENGTHS_V1_BYTES: Final = TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
_LENGTHS_V2_BYTES: Final = TOPIC_LENGTH_V2.size + PROPERTIES_LENGTH.size


class RecordError(ProtocolError):
    """The bytes at `pos` are not a record; `reason` is the message without that position."""

    def __init__(self, pos: int, reason: str) -> None:
        super().__init__(f"no record at byte {pos}: {reason}")
        self.reason = reason


def record_mark(buffer: Buffer, pos: int = 0) -> tuple[int, int]:
    """Total size and magic of the record or blank at `pos`, unchecked."""
    try:
        size, magic = _MARK.unpack_from(buffer, pos)
    except struct.error as error:
        raise RecordError(pos, f"{len(buffer) - pos} bytes are left, too few for a mark") from error
    return size, magic


def record_queue_offset(buffer: Buffer, pos: int = 0) -> int:
    """The queue_offset of the record at `pos`, of which the head is there."""
    queue_offset: int = _QUEUE_OFFSET.unpack_from(buffer, pos)[0]
    return queue_offset


def record_phy_offset(buffer: Buffer, pos: int = 0) -> int:
    """The phy_offset in the record at `pos`, whose head must be present."""
    phy_offset: int = _PHY_OFFSET.unpack_from(buffer, pos)[0]
    return phy_offset


def record_store_timestamp(buffer: Buffer, pos: int = 0) -> int:
    """When the record at `pos`, of which the head is there, was stored."""
    host_flags = _SYS_FLAG.unpack_from(buffer, pos)[0] & HOSTS_V6
    store_timestamp: int = _STORE_TIMESTAMPS[host_flags].unpack_from(buffer, pos)[0]
    return store_timestamp


def record_prepared_offset(buffer: Buffer, pos: int = 0) -> int:
    """The prepared transaction offset of the record at `pos`, which is whole."""
    host_flags = _SYS_FLAG.unpack_from(buffer, pos)[0] & HOSTS_V6
    prepared_offset: int = _PREPARED_OFFSETS[host_flags].unpack_from(buffer, pos)[0]
    return prepared_offset


def record_positions(buffer: Buffer) -> list[int]:
    """Where each record of a pull answer starts, and where the last one ends; nothing is decoded.

    Record i is `buffer[positions[i] : positions[i + 1]]`.
    """
    positions = [0]
    pos = 0
    end = len(buffer)
    last = end - BLANK.size
    unpack_mark = _MARK.unpack_from
    while pos < end:
        size, magic = unpack_mark(buffer, pos) if pos <= last else record_mark(buffer, pos)
        if size < MIN_RECORD_BYTES or (magic != MESSAGE_MAGIC_CODE and magic != MESSAGE_MAGIC_CODE_V2):
            raise RecordError(pos, mark_problem(size, magic))
        pos += size
        positions.append(pos)
    if pos > end:
        raise RecordError(positions[-2], f"it is cut off, {pos - end} bytes are missing")
    return positions


def record_body(record: memoryview) -> tuple[memoryview, int]:
    """The body of a whole record as it is stored, without a copy, and the sysFlag, which says how."""
    sys_flag: int = _SYS_FLAG.unpack_from(record)[0]
    flags = sys_flag & HOSTS_V6
    (length,) = _BODY_LENGTHS[flags].unpack_from(record)
    start = RECORD_HEADS[flags].size
    return record[start : start + length], sys_flag


def properties_start(buffer: Buffer, pos: int, size_bytes: int) -> int:
    """Where the property string of the record at `pos` begins, which ends with the record; -1 when no
    record of this size is there."""
    try:
        total_size, magic, sys_flag, body_length = _LENGTHS.unpack_from(buffer, pos)
        topic_pos = pos + _BODY_POS + body_length
        if sys_flag & HOSTS_V6:
            flags = sys_flag & HOSTS_V6
            (body_length,) = _BODY_LENGTHS[flags].unpack_from(buffer, pos)
            topic_pos = pos + RECORD_HEADS[flags].size + body_length
        # A broken length may point anywhere, also in front of the buffer, where Python counts from the end.
        if total_size != size_bytes or body_length < 0:
            return -1
        if magic == MESSAGE_MAGIC_CODE:
            start: int = topic_pos + _LENGTHS_V1_BYTES + buffer[topic_pos]
        elif magic == MESSAGE_MAGIC_CODE_V2:
            start = topic_pos + _LENGTHS_V2_BYTES + _TOPIC_LENGTH_V2.unpack_from(buffer, topic_pos)[0]
        else:
            return -1
        return start if start <= pos + size_bytes else -1
    except (struct.error, IndexError):
        return -1


def mark_problem(size: int, magic: int) -> str:
    """What is wrong with a size or magic that is not that of a message."""
    if magic == BLANK_MAGIC_CODE:
        return f"a blank of {size} bytes is there, the end of a CommitLog file"
    if magic not in MESSAGE_MAGIC_CODES:
        return f"its magic is {magic:#010x} instead of {MESSAGE_MAGIC_CODE:#010x}"
    return f"its total size is {size} bytes"
