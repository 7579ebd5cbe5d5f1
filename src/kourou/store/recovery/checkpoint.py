"""StoreCheckpoint: up to where the other files of a store were on disk when it was last written.

`checkpoint`, one page of 4096 bytes, big-endian. As in RocketMQ:

    0  physic_msg_timestamp i64     store time of the last message flushed in the CommitLog
    8  logics_msg_timestamp i64     of the last one flushed in the ConsumeQueues
    16 index_msg_timestamp i64      of the last one in the last full IndexFile
    24 master_flushed_offset i64    5.x
    32 confirm_phy_offset i64       5.x
    40 logics_physical_offset i64   5.5: CommitLog byte up to which the ConsumeQueues are complete

and of our own, which Apache neither reads nor changes:

    48 durable_phy_offset i64       CommitLog byte up to which all was on disk
    56 indexed_phy_offset i64       CommitLog byte up to which the IndexFiles are complete
    64 index_end_phy_offset i64     a byte behind where the last indexed record began then, 0: none
    72 copy of bytes 0 to 47, as they were when the rest was written
    120 magic "KRC2", 124 CRC-32 u32 of bytes 48 to 123

All of it lies in one sector, so that a power loss leaves it old or new. It may be lost: a store
without it is walked from its first file. When the copy differs from what it is of, Apache has worked
on the store since: its part is believed as Apache believes it, and ours says nothing any more, since
Apache may have cut the log. A single byte that differs is damage: no run of a broker changes just one.
Not here: what recovery makes of it (recovery.py).
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Final

from kourou.store.disk.files import Files, OpenFile

PAGE_BYTES: Final = 4096
"""Apache maps this much, and would find less of a file too short."""

CLOCK_SLACK_MS: Final = 3000
"""RocketMQ steps back by this much, as flushes of the log and of the queues do not meet in time."""

MAGIC: Final = b"KRC2"
_NAMES: Final = (
    "physic_msg_timestamp",
    "logics_msg_timestamp",
    "index_msg_timestamp",
    "master_flushed_offset",
    "confirm_phy_offset",
    "logics_physical_offset",
    "durable_phy_offset",
    "indexed_phy_offset",
    "index_end_phy_offset",
)
_APACHE: Final = struct.Struct(">6q")
_OURS: Final = struct.Struct(">3q48s4s")
_CRC: Final = struct.Struct(">I")

APACHE_BYTES: Final = _APACHE.size
CRC_POSITION: Final = APACHE_BYTES + _OURS.size
SEALED_BYTES: Final = CRC_POSITION + _CRC.size
"""So much of the page has a meaning."""


class StoreCheckpoint:
    """The checkpoint in memory; `save` writes what the attributes say.

    `is_ours` is true when what was loaded is as Kourou wrote it: else the attributes of our own are 0.
    `is_taken_over`: it was once, and another broker has changed its part since.
    `problem` says why a checkpoint that is there was not used, for the log.
    """

    __slots__ = (*_NAMES, "is_ours", "is_taken_over", "problem", "_files", "_path", "_file", "_is_named")

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int
    logics_physical_offset: int
    durable_phy_offset: int
    indexed_phy_offset: int
    index_end_phy_offset: int
    is_ours: bool
    is_taken_over: bool
    problem: str | None

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._file: OpenFile | None = None
        self._is_named = False
        self._forget(None)

    @property
    def min_timestamp(self) -> int:
        """Messages stored before this are in the log and in the queues on disk."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - CLOCK_SLACK_MS)

    def load(self) -> None:
        """Take the values from disk; all are 0 when there is no file, or none that can be believed."""
        try:
            raw = self._files.read(self._path)
        except FileNotFoundError:
            return self._forget(None)
        self.decode(raw)

    def decode(self, raw: bytes) -> None:
        """Take the values from the bytes of a checkpoint file."""
        if len(raw) < SEALED_BYTES:
            self._forget(f"{len(raw)} bytes are too short")
        elif any(raw[APACHE_BYTES:PAGE_BYTES]):
            self._decode_ours(raw)
        else:
            self._decode_apache(raw)

    def encode(self) -> bytes:
        """The bytes of the file."""
        values = [getattr(self, name) for name in _NAMES]
        apache = _APACHE.pack(*values[:6])
        ours = _OURS.pack(*values[6:], apache, MAGIC)
        return (apache + ours + _CRC.pack(zlib.crc32(ours))).ljust(PAGE_BYTES, b"\0")

    def save(self) -> None:
        """Write the values; on return they are in the page cache.

        Not synced, since an older checkpoint only means more to recover: see `sync`. The file stays open.
        """
        if self._file is None:
            self._file = self._files.open(self._path, create=True)
        self._file.pwrite(self.encode(), 0)
        self.is_ours = True

    def sync(self) -> None:
        """What was saved is on disk on return, and so is the file's name."""
        if self._file is not None:
            self._file.sync()
            if not self._is_named:
                self._files.sync_folder(self._path.parent)
                self._is_named = True

    def close(self) -> None:
        """Give the descriptor back; saves nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _decode_ours(self, raw: bytes) -> None:
        (crc,) = _CRC.unpack_from(raw, CRC_POSITION)
        *ours, _, magic = _OURS.unpack_from(raw, APACHE_BYTES)
        if magic != MAGIC or crc != zlib.crc32(raw[APACHE_BYTES:CRC_POSITION]):
            return self._forget("it is damaged")
        changed = changed_bytes(raw)
        if len(changed) == 1:
            return self._forget(f"its byte {changed[0]} is damaged")
        if changed:
            self._decode_apache(raw)
            self.is_taken_over = self.problem is None
            return
        self._take([*_APACHE.unpack_from(raw), *ours])
        self.is_ours = True

    def _decode_apache(self, raw: bytes) -> None:
        values = _APACHE.unpack_from(raw)
        if min(values) < 0:
            return self._forget("it has a value below zero")
        self._take([*values, 0, 0, 0])

    def _take(self, values: list[int]) -> None:
        self._forget(None)
        for name, value in zip(_NAMES, values, strict=True):
            setattr(self, name, value)

    def _forget(self, problem: str | None) -> None:
        for name in _NAMES:
            setattr(self, name, 0)
        self.is_ours = self.is_taken_over = False
        self.problem = problem


def changed_bytes(raw: bytes) -> list[int]:
    """Positions in Apache's part that are not as in Kourou's copy of it."""
    copy = raw[APACHE_BYTES + 24 :]
    return [at for at in range(APACHE_BYTES) if raw[at] != copy[at]]
