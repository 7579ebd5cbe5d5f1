"""The snapshot of all ConsumeQueues: what they hold, in one file of our own.

Finding the end of 50,000 queues takes seconds; after a clean stop this file says it at once.
After a crash it still tells which queues and files have to be there. RocketMQ ignores it.

Big-endian: magic 8 bytes, file size of the queues i64, phy_offset covered i64, queues i32,
then per queue: topic length i16, topic UTF-8, queue_id i32, start i64, end i64,
min_queue_offset i64, min_phy_offset i64, max_phy_offset i64, sound i8; at last CRC-32 u32.
Not here: when it may be trusted (consume_queues.py).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kourou.store.queue.queue_recovery import QueueState

_MAGIC: Final = b"KOUROUQ1"
_HEAD: Final = struct.Struct(">8sqqi")
_TOPIC_LENGTH: Final = struct.Struct(">H")
_QUEUE: Final = struct.Struct(">iqqqqq?")
_CRC: Final = struct.Struct(">I")

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """Every queue's state when all records below `covered_phy_offset` were in their files."""

    file_bytes: int
    covered_phy_offset: int
    queues: dict[QueueKey, QueueState]


def encode_snapshot(
    file_bytes: int, covered_phy_offset: int, queues: Iterable[tuple[str, int, QueueState]]
) -> bytes:
    """The file's bytes. `queues`: topic, queue_id, state."""
    parts = [b""]
    for topic, queue_id, state in queues:
        # Names come from the file system, where bytes that are no UTF-8 are possible.
        name = topic.encode("utf-8", "surrogateescape")
        parts.append(_TOPIC_LENGTH.pack(len(name)) + name + _QUEUE.pack(queue_id, *state))
    parts[0] = _HEAD.pack(_MAGIC, file_bytes, covered_phy_offset, len(parts) - 1)
    body = b"".join(parts)
    return body + _CRC.pack(zlib.crc32(body))


def decode_snapshot(raw: bytes) -> QueueSnapshot | None:
    """The snapshot, or None when the bytes are not whole: then the files have to be looked at."""
    body = raw[: -_CRC.size]
    if len(raw) < _HEAD.size + _CRC.size or _CRC.unpack(raw[-_CRC.size :])[0] != zlib.crc32(body):
        return None
    magic, file_bytes, covered_phy_offset, count = _HEAD.unpack_from(body)
    if magic != _MAGIC:
        return None
    return QueueSnapshot(file_bytes, covered_phy_offset, dict(_decode_queues(body, count)))


def _decode_queues(body: bytes, count: int) -> Iterable[tuple[QueueKey, QueueState]]:
    position = _HEAD.size
    for _ in range(count):
        (length,) = _TOPIC_LENGTH.unpack_from(body, position)
        position += _TOPIC_LENGTH.size
        topic = body[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        queue_id, *state = _QUEUE.unpack_from(body, position)
        position += _QUEUE.size
        yield (topic, queue_id), QueueState(*state)
