"""The snapshot of a ProducerTable: the file `config/kourouProducers`, and the log it covers.

MessagePack, then a CRC-32 of it, four bytes, big-endian. `phy_offset` is where the scan of the log begins:
all records before it are in the snapshot. Records behind it may be, too: noting a sequence twice changes
nothing. A snapshot that cannot be read, or that lies beyond the end of the log, is not used: the whole log is
scanned.
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from kourou.errors import ProtocolError
from kourou.store.producers.producer_table import ProducerTable
from kourou.store.producers.sequence_windows import WindowState

SNAPSHOT_NAME: Final = "kourouProducers"
_VERSION: Final = 1
_CRC_BYTES: Final = 4


class _Producer(msgspec.Struct, array_like=True):
    id: str
    epoch: int
    opened_ms: int
    allows_gaps: bool


class _Window(msgspec.Struct, array_like=True):
    producer: int
    topic: int
    queue_id: int
    high: int
    used_ms: int
    missing: list[int]
    marks: list[tuple[int, int]]


class _Snapshot(msgspec.Struct, array_like=True):
    version: int
    phy_offset: int
    producers: list[_Producer]
    topics: list[str]
    windows: list[_Window]


def encode_producers(table: ProducerTable, phy_offset: int) -> bytes:
    """The bytes of a snapshot that covers the log up to `phy_offset`."""
    ids = {producer_id: number for number, producer_id in enumerate(table.producers)}
    topics = {topic: number for number, topic in enumerate(table.slots)}
    snapshot = _Snapshot(
        _VERSION,
        phy_offset,
        [
            _Producer(producer_id, one.epoch, one.opened_ms, one.allows_gaps)
            for producer_id, one in table.producers.items()
        ],
        list(topics),
        [
            _Window(
                ids[producer_id],
                topics[topic],
                queue_id,
                state.high,
                state.used_ms,
                list(state.missing),
                list(state.marks),
            )
            for producer_id, topic, queue_id, state in table.states()
        ],
    )
    body = msgspec.msgpack.encode(snapshot)
    return body + zlib.crc32(body).to_bytes(_CRC_BYTES, "big")


def restore_producers(table: ProducerTable, raw: bytes) -> int:
    """Fill an empty table; where the scan of the log begins. ProtocolError if the bytes are no snapshot, and
    the table is as it was."""
    body, crc = raw[:-_CRC_BYTES], raw[-_CRC_BYTES:]
    if len(raw) < _CRC_BYTES or zlib.crc32(body) != int.from_bytes(crc, "big"):
        raise ProtocolError(f"{SNAPSHOT_NAME}: its checksum does not fit")
    try:
        snapshot = msgspec.msgpack.decode(body, type=_Snapshot)
        if snapshot.version != _VERSION:
            raise ProtocolError(f"{SNAPSHOT_NAME}: version {snapshot.version} is not known")
        windows = [
            (snapshot.producers[one.producer].id, snapshot.topics[one.topic], one) for one in snapshot.windows
        ]
    except (msgspec.MsgspecError, IndexError) as error:
        raise ProtocolError(f"{SNAPSHOT_NAME}: {error}") from None
    for producer in snapshot.producers:
        table.note_opened(producer.id, producer.epoch, producer.opened_ms, allows_gaps=producer.allows_gaps)
    for producer_id, topic, window in windows:
        state = WindowState(window.high, window.used_ms, tuple(window.missing), tuple(window.marks))
        table.restore(producer_id, topic, window.queue_id, state)
    return snapshot.phy_offset
