"""TimerCheckpoint: how far the timer messages are, as the file `config/timercheck` keeps it.

4096 bytes, big-endian i64s: last_read_ms @0 (slots before it are delivered), log_pos @8 (the TimerLog
is on disk up to there), queue_offset @16 (of rmq_sys_wheel_timer, the next to be entered), the
master's queue offset @24, a DataVersion @32 (state version, timestamp, counter). Behind them, where
Apache neither reads nor writes, a note of ours @64: magic, phy_offset of the CommitLog's end at that
time, first_pos of the oldest unit of the TimerLog that may wait, length of the TimerLog's files, CRC-32 of
these and Apache's fields. If the CRC does not fit, either Apache has written since or the file is damaged:
nothing is believed then (`is_doubtful`). A note of the first versions has neither first_pos nor length.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from kourou.store.disk.files import Files

TIMER_CHECKPOINT_BYTES: Final = 4096

_FIELDS: Final = Struct(">7q")
APACHE_FIELDS_BYTES: Final = _FIELDS.size
_NOTE: Final = Struct(">Qqqq")
_FIRST_NOTE: Final = Struct(">Qq")
_CRC: Final = Struct(">I")
_NOTE_POS: Final = 64
_NOTE_MAGIC: Final = 0x4B4F55524F555F55  # KOUROU_U
_FIRST_NOTE_MAGIC: Final = 0x4B4F55524F555F54  # KOUROU_T


class TimerCheckpoint(NamedTuple):
    """A moment of the timers. None: the file does not say."""

    last_read_ms: int
    log_pos: int
    queue_offset: int
    noted_phy_offset: int | None = None
    version_ms: int = 0
    version_counter: int = 0
    first_pos: int | None = None
    file_bytes: int | None = None
    is_doubtful: bool = False

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
            note = _NOTE.pack(_NOTE_MAGIC, self.noted_phy_offset, self.first_pos or 0, self.file_bytes or 0)
            raw += note + _CRC.pack(zlib.crc32(fields + note))
        return raw.ljust(TIMER_CHECKPOINT_BYTES, b"\0")


def decode_timer_checkpoint(raw: bytes) -> TimerCheckpoint | None:
    """What the bytes of the file say; None when there are too few."""
    if len(raw) < _NOTE_POS + _NOTE.size + _CRC.size:
        return None
    fields = raw[: _FIELDS.size]
    read_ms, log_pos, queue_offset, _, _, version_ms, counter = _FIELDS.unpack(fields)
    found = TimerCheckpoint(read_ms, log_pos, queue_offset, None, version_ms, counter)
    magic, noted, first_pos, file_bytes = _NOTE.unpack_from(raw, _NOTE_POS)
    if magic == _NOTE_MAGIC and _is_whole(fields, raw, _NOTE.size):
        return found._replace(noted_phy_offset=noted, first_pos=first_pos, file_bytes=file_bytes or None)
    if magic == _FIRST_NOTE_MAGIC and _is_whole(fields, raw, _FIRST_NOTE.size):
        return found._replace(noted_phy_offset=noted)
    return found._replace(is_doubtful=magic in (_NOTE_MAGIC, _FIRST_NOTE_MAGIC))


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


def remove_timer_checkpoint(files: Files, path: Path) -> None:
    """From now on the other files are not believed; on disk on return."""
    if files.exists(path):
        files.remove(path)
        files.sync_folder(path.parent)


def _is_whole(fields: bytes, raw: bytes, note_bytes: int) -> bool:
    """Whether the CRC behind the note fits. The first version left the magic out of it."""
    end = _NOTE_POS + note_bytes
    begin = _NOTE_POS if note_bytes == _NOTE.size else _NOTE_POS + 8
    crc: int = _CRC.unpack_from(raw, end)[0]
    return crc == zlib.crc32(fields + raw[begin:end])
