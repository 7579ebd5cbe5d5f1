"""The snapshot of a ProducerTable: the file `config/kourouProducers`, and the log it covers.

    directory size       4 bytes, big-endian
    directory            MessagePack: version, phy_offset, producers, and for each queue its slots
    windows              compressed with zlib: the blocks of SequenceWindows, little-endian words
    CRC-32 of all that   4 bytes, big-endian

`phy_offset` is where the scan of the log begins: all records before it are in the snapshot. Records behind it
may be, too: noting a sequence twice changes nothing.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from typing import Final

import msgspec

from kourou.errors import ProtocolError
from kourou.protocol.producer_sequence import ProducerOpening
from kourou.store.producers.producer_table import ProducerTable
from kourou.store.producers.sequence_windows import BLOCK_BYTES, BLOCK_SLOTS, SLOT_BYTES

SNAPSHOT_NAME: Final = "kourouProducers"
_VERSION: Final = 1
_SIZE_BYTES: Final = 4
# Bits of windows that are full compress to almost nothing at any level.
_LEVEL: Final = 1


class _Producer(msgspec.Struct, array_like=True):
    id: str
    epoch: int
    opened_ms: int
    allows_gaps: bool
    nonces: dict[str, int] = {}


class _Queue(msgspec.Struct, array_like=True):
    topic: str
    queue_id: int
    producers: list[int]
    slots: list[int]


class _Directory(msgspec.Struct, array_like=True):
    version: int
    phy_offset: int
    slot_bytes: int
    producers: list[_Producer]
    queues: list[_Queue]


class ProducerSnapshot:
    """What a table knew at one moment: a copy, which `encode` turns into bytes in any thread."""

    def __init__(self, table: ProducerTable, phy_offset: int) -> None:
        self.phy_offset = phy_offset
        numbers = {one.identity: number for number, one in enumerate(table.producers.values())}
        self._directory = msgspec.msgpack.encode(
            _Directory(
                _VERSION,
                phy_offset,
                SLOT_BYTES,
                [
                    _Producer(producer_id, one.epoch, one.opened_ms, one.allows_gaps, one.nonces)
                    for producer_id, one in table.producers.items()
                ],
                [
                    _Queue(topic, queue_id, list(map(numbers.__getitem__, of_queue)), list(of_queue.values()))
                    for topic, queue_id, of_queue in table.queues()
                    if of_queue
                ],
            )
        )
        self._blocks = table.windows.written_blocks()

    def encode(self) -> bytes:
        """The contents of the file."""
        compressor = zlib.compressobj(_LEVEL)
        parts = [len(self._directory).to_bytes(_SIZE_BYTES, "big"), self._directory]
        parts += [compressor.compress(_swapped(block)) for block in self._blocks]
        body = b"".join((*parts, compressor.flush()))
        return body + zlib.crc32(body).to_bytes(_SIZE_BYTES, "big")


def restore_producers(table: ProducerTable, raw: bytes) -> int:
    """Fill an empty table; where the scan of the log begins. ProtocolError if the bytes are no snapshot, and
    the table is as it was."""
    directory, blocks = _decode(raw)
    slots = [slot for queue in directory.queues for slot in queue.slots]
    _note_producers(table, directory)
    table.windows.load(blocks, set(slots))
    for queue in directory.queues:
        of_queue = table.slots.setdefault(queue.topic, {}).setdefault(queue.queue_id, {})
        for number, slot in zip(queue.producers, queue.slots, strict=True):
            of_queue[table.producers[directory.producers[number].id].identity] = slot
    return directory.phy_offset


def merge_producers(table: ProducerTable, raw: bytes) -> None:
    """Add what another copy of the table knows, of a log that is part of this one. ProtocolError as above."""
    directory, blocks = _decode(raw)
    _note_producers(table, directory)
    for queue in directory.queues:
        for number, slot in zip(queue.producers, queue.slots, strict=True):
            one = directory.producers[number]
            if one.id not in table.producers or _is_forgotten(table, one):
                continue  # there are too many of them, or it was given up since
            at = slot % BLOCK_SLOTS * SLOT_BYTES
            window = bytes(blocks[slot // BLOCK_SLOTS][at : at + SLOT_BYTES])
            table.merge_window(one.id, queue.topic, queue.queue_id, window)


def snapshot_phy_offset(raw: bytes) -> int:
    """Up to where a snapshot covers the log. ProtocolError as above."""
    return _decode(raw)[0].phy_offset


def _note_producers(table: ProducerTable, directory: _Directory) -> None:
    for one in directory.producers:
        if _is_forgotten(table, one):
            continue
        table.note_opened(ProducerOpening(one.id, one.epoch, one.allows_gaps), one.opened_ms)
        if one.nonces and one.id in table.producers:
            table.note_nonces(one.id, one.nonces)


def _is_forgotten(table: ProducerTable, one: _Producer) -> bool:
    return table.forgotten.get(one.id, -1) >= one.epoch


def _decode(raw: bytes) -> tuple[_Directory, list[bytearray]]:
    body, crc = raw[:-_SIZE_BYTES], raw[-_SIZE_BYTES:]
    if len(raw) < 2 * _SIZE_BYTES or zlib.crc32(body) != int.from_bytes(crc, "big"):
        raise ProtocolError(f"{SNAPSHOT_NAME}: its checksum is wrong")
    windows_at = _SIZE_BYTES + int.from_bytes(body[:_SIZE_BYTES], "big")
    try:
        directory = msgspec.msgpack.decode(body[_SIZE_BYTES:windows_at], type=_Directory)
        windows = zlib.decompress(body[windows_at:])
    except (msgspec.MsgspecError, zlib.error) as error:
        raise ProtocolError(f"{SNAPSHOT_NAME}: {error}") from None
    if directory.version != _VERSION or directory.slot_bytes != SLOT_BYTES:
        raise ProtocolError(f"{SNAPSHOT_NAME}: version {directory.version} is not supported")
    blocks = [_swapped(windows[at : at + BLOCK_BYTES]) for at in range(0, len(windows), BLOCK_BYTES)]
    end = len(windows) // SLOT_BYTES
    for queue in directory.queues:
        is_fine = len(queue.producers) == len(queue.slots) and all(0 <= slot < end for slot in queue.slots)
        if not is_fine or not all(0 <= number < len(directory.producers) for number in queue.producers):
            raise ProtocolError(f"{SNAPSHOT_NAME}: {queue.topic}, queue {queue.queue_id}: no such window")
    return directory, blocks


def _swapped(block: bytes | bytearray) -> bytearray:
    """Words of this machine as little-endian ones, or the reverse."""
    if sys.byteorder == "little":
        return bytearray(block)
    words = array("Q", bytes(block))
    words.byteswap()
    return bytearray(words.tobytes())
