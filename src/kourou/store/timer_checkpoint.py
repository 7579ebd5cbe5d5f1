"""TimerCheckpoint: how far the timer messages are, as the file `config/timercheck` keeps it.

4096 bytes, big-endian i64s: last_read_ms @0 (slots before it are delivered), log_pos @8 (the TimerLog
is on disk up to there), queue_offset @16 (of rmq_sys_wheel_timer, the next to be entered), the
master's queue offset @24, a DataVersion @32 (state version, timestamp, counter). Behind them, where
Apache neither reads nor writes, a note of ours @64: magic, phy_offset of the CommitLog's end at that
time, CRC-32 of both and Apache's fields. If Apache has written since, the CRC does not fit.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from kourou.store.files import Files

TIMER_CHECKPOINT_BYTES: Final = 4096

_FIELDS: Final = Struct(">7q")
APACHE_FIELDS_BYTES: Final = _FIELDS.size
_NOTE: Final = Struct(">QqI")
_NOTE_POS: Final = 64
_NOTE_MAGIC: Final = 0x4B4F55524F555F54  # KOUROU_T


class TimerCheckpoint(NamedTuple):
    """A moment of the timers. `noted_phy_offset` None: the file does not say."""

    last_read_ms: int
    log_pos: int
    queue_offset: int
    noted_phy_offset: int | None = None
    version_ms: int = 0
    version_counter: int = 0

    def encode(self) -> bytes:
        """The bytes of the file."""
        fields = _FIELDS.pack(
            self.last_read_ms,
            self.log_pos,
            self.queue_offset,
            self.queue_offset,
            0,
            self.version_ms,
            self.version_counter,
        )
        raw = fields.ljust(_NOTE_POS, b"\0")
        if self.noted_phy_offset is not None:
            crc = _crc(fields, self.noted_phy_offset)
            raw += _NOTE.pack(_NOTE_MAGIC, self.noted_phy_offset, crc)
        return raw.ljust(TIMER_CHECKPOINT_BYTES, b"\0")


def decode_timer_checkpoint(raw: bytes) -> TimerCheckpoint | None:
    """What the bytes of the file say; None when there are too few."""
    if len(raw) < _NOTE_POS + _NOTE.size:
        return None
    read_ms, log_pos, queue_offset, _, _, version_ms, counter = _FIELDS.unpack_from(raw)
    magic, noted, crc = _NOTE.unpack_from(raw, _NOTE_POS)
    is_ours = magic == _NOTE_MAGIC and crc == _crc(raw[: _FIELDS.size], noted)
    return TimerCheckpoint(read_ms, log_pos, queue_offset, noted if is_ours else None, version_ms, counter)


def load_timer_checkpoint(files: Files, path: Path) -> TimerCheckpoint | None:
    """What the file says; None when there is none. OSError as it comes."""
    return decode_timer_checkpoint(files.read(path)) if files.exists(path) else None


def save_timer_checkpoint(files: Files, path: Path, checkpoint: TimerCheckpoint) -> None:
    """Write the file, in place as Apache does; on disk on return."""
    is_new = not files.exists(path)
    if is_new:
        files.make_folder(path.parent)
    with files.open(path, create=True) as file:
        file.pwrite(checkpoint.encode(), 0)
        file.sync()
    if is_new:
        files.sync_folder(path.parent)


def _crc(fields: bytes, phy_offset: int) -> int:
    return zlib.crc32(fields + phy_offset.to_bytes(8, "big", signed=True))
