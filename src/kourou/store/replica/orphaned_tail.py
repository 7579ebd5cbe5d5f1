"""Orphaned tails: the end of a log that the set's new master does not have, kept when it is cut off.

A file `orphaned/START-END-epoch-EPOCH.tail` in the store: a head (ORPHANED_TAIL in protocol/layout.py), the
name of the broker set, and the log's own bytes from START to END, blanks at the end of its files included.
`epoch` is the one in which the log ended, 0 if it had none. A file is complete under its name: it is written
and synced under another one before. Nothing here removes or overwrites one.
Not here: cutting (log_cut.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

from kourou.errors import ProtocolError, StoreFormatError
from kourou.protocol.layout import ORPHANED_TAIL, ORPHANED_TAIL_MAGIC
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_record
from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS
from kourou.store.disk.files import Files, OpenFile
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.log.log_snapshot import MAX_RECORD_BYTES

ORPHANED_FOLDER: Final = "orphaned"
"""In the folder of the store."""

_SUFFIX: Final = ".tail"
_TEMPORARY: Final = ".tmp"
_PIECE_BYTES: Final = 4 * 1024 * 1024
_HEAD: Final = ORPHANED_TAIL.struct()
_CRC_END: Final = ORPHANED_TAIL.end("head_crc")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTail:
    """A tail that is kept in a file."""

    path: Path
    set_name: str
    epoch: int
    start_phy_offset: int
    end_phy_offset: int
    file_bytes: int
    """Length of the files of the log that it was cut off."""
    saved_ms: int
    records_crc: int

    @property
    def size_bytes(self) -> int:
        """How many bytes of the log there are."""
        return self.end_phy_offset - self.start_phy_offset

    @property
    def head_bytes(self) -> int:
        """Where they begin in the file."""
        return _HEAD.size + len(self.set_name.encode())

    def encode_head(self) -> bytes:
        """The bytes in front of the log's."""
        name = self.set_name.encode()
        fields = (self.epoch, self.start_phy_offset, self.end_phy_offset, self.file_bytes, self.saved_ms)
        head = _HEAD.pack(ORPHANED_TAIL_MAGIC, 0, self.records_crc, len(name), *fields) + name
        crc = zlib.crc32(head[_CRC_END:])
        return _HEAD.pack(ORPHANED_TAIL_MAGIC, crc, self.records_crc, len(name), *fields) + name


# -- saving ----------------------------------------------------------------------------------------


def save_tail(
    files: Files, root: Path, log: CommitLog, start_phy_offset: int, *, set_name: str, epoch: int, now_ms: int
) -> SavedTail:
    """Keep the log from `start_phy_offset` on in a file of the store in `root`; on disk on return. A file
    that an interrupted cut left is used if it has these bytes. OSError: nothing is kept."""
    folder = root / ORPHANED_FOLDER
    files.make_folder(folder)
    saved = _find_saved(files, folder, log, start_phy_offset, set_name)
    if saved is None:
        saved = SavedTail(
            path=_free_path(files, folder, start_phy_offset, log.max_phy_offset, epoch),
            set_name=set_name,
            epoch=epoch,
            start_phy_offset=start_phy_offset,
            end_phy_offset=log.max_phy_offset,
            file_bytes=log.file_bytes,
            saved_ms=now_ms,
            records_crc=_crc(log, start_phy_offset),
        )
        _write(files, saved, log)
    # Also if it was there: its writer may have been killed before this line.
    with files.open(saved.path) as file:
        file.sync()
    files.sync_folder(folder)
    files.sync_folder(root)
    return saved


def _free_path(files: Files, folder: Path, start: int, end: int, epoch: int) -> Path:
    stem = f"{start:020d}-{end:020d}-epoch-{epoch}"
    path, number = folder / f"{stem}{_SUFFIX}", 1
    while files.exists(path):
        number += 1
        path = folder / f"{stem}-{number}{_SUFFIX}"
    return path


def _write(files: Files, saved: SavedTail, log: CommitLog) -> None:
    for name in files.list_names(saved.path.parent):
        if name.endswith(_TEMPORARY):
            files.remove(saved.path.parent / name)
    temporary = saved.path.with_name(saved.path.name + _TEMPORARY)
    try:
        with files.open(temporary, exclusive=True) as file:
            file.pwrite(saved.encode_head(), 0)
            for at, raw in _pieces(log, saved.start_phy_offset, saved.end_phy_offset):
                file.pwrite(raw, saved.head_bytes + at - saved.start_phy_offset)
            file.sync()
        files.rename(temporary, saved.path)
    except OSError:
        with suppress(OSError):
            files.remove(temporary)
        raise


def _crc(log: CommitLog, start_phy_offset: int) -> int:
    crc = 0
    for _, raw in _pieces(log, start_phy_offset, log.max_phy_offset):
        crc = zlib.crc32(raw, crc)
    return crc


def _pieces(log: CommitLog, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The bytes of the log between the two, and where they lie."""
    while start < end:
        size = min(_PIECE_BYTES, end - start, log.file_bytes - start % log.file_bytes)
        raw = log.read(start, size)
        if raw is None:
            raise StoreFormatError(log.folders[0], f"the CommitLog from {start} to {start + size} is missing")
        yield start, raw
        start += size


def _find_saved(
    files: Files, folder: Path, log: CommitLog, start_phy_offset: int, set_name: str
) -> SavedTail | None:
    """A file that has the log's tail. A cut that was interrupted may have shortened the log already."""
    for name in files.list_names(folder):
        if not name.endswith(_SUFFIX):
            continue
        try:
            with OrphanedTail.open(files, folder / name) as tail:
                saved = tail.saved
                is_from_here = (saved.start_phy_offset, saved.set_name) == (start_phy_offset, set_name)
                if is_from_here and saved.end_phy_offset >= log.max_phy_offset and _has_all(tail, log):
                    return saved
        except StoreFormatError:
            continue
    return None


def _has_all(tail: OrphanedTail, log: CommitLog) -> bool:
    if tail.problem() is not None:
        return False
    pieces = _pieces(log, tail.saved.start_phy_offset, log.max_phy_offset)
    return all(tail.read(at, len(raw)) == raw for at, raw in pieces)


# -- reading ---------------------------------------------------------------------------------------


class _Part(NamedTuple):
    start_phy_offset: int
    end_phy_offset: int


class OrphanedTail:
    """A saved tail, open for reading: a log of its own to a LogScanner. Close it, or use it as a context
    manager."""

    def __init__(self, file: OpenFile, saved: SavedTail) -> None:
        self._file = file
        self.saved = saved
        self.file_bytes = saved.file_bytes

    @classmethod
    def open(cls, files: Files, path: Path) -> Self:
        """Open a file; StoreFormatError if it is not a saved tail."""
        file = files.open(path, writable=False)
        try:
            return cls(file, _decode_head(file))
        except BaseException:
            file.close()
            raise

    def file_at(self, phy_offset: int) -> _Part | None:
        """The part of the tail that lies in the same file of the log."""
        saved = self.saved
        if not saved.start_phy_offset <= phy_offset < saved.end_phy_offset:
            return None
        begin = phy_offset - phy_offset % saved.file_bytes
        return _Part(max(begin, saved.start_phy_offset), min(begin + saved.file_bytes, saved.end_phy_offset))

    def read(self, phy_offset: int, size_bytes: int) -> bytes | None:
        """Bytes of the log; None when the tail does not have all of them."""
        saved = self.saved
        if phy_offset < saved.start_phy_offset or phy_offset + size_bytes > saved.end_phy_offset:
            return None
        raw = self._file.pread(size_bytes, saved.head_bytes + phy_offset - saved.start_phy_offset)
        return raw if len(raw) == size_bytes else None

    def problem(self) -> str | None:
        """What is wrong with the bytes of the log; None if they are as they were saved. Reads all of them."""
        crc, position = 0, self.saved.head_bytes
        while raw := self._file.pread(_PIECE_BYTES, position):
            crc, position = zlib.crc32(raw, crc), position + len(raw)
        left_bytes = position - self.saved.head_bytes
        if left_bytes != self.saved.size_bytes:
            return f"{left_bytes} bytes of the log are there, {self.saved.size_bytes} were saved"
        return None if crc == self.saved.records_crc else "the checksum of its records is wrong"

    def messages(self) -> Iterator[MessageExt]:
        """Its messages in the order of the log; damaged ones are passed over."""
        scanner = LogScanner(self, DEFAULT_DELAY_LEVELS, max_record_bytes=MAX_RECORD_BYTES)
        at: int | None = self.saved.start_phy_offset
        end = self.saved.end_phy_offset
        while at is not None:
            following: int | None = None
            for found in scanner.records(at, end):
                if isinstance(found, BadRecord):
                    following = scanner.next_record(found.phy_offset + 1, end)
                elif (raw := self.read(found.phy_offset, found.size)) is not None:
                    yield decode_record(raw)
            at = following

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _decode_head(file: OpenFile) -> SavedTail:
    try:
        return _decode(file)
    except ProtocolError as error:
        raise StoreFormatError(file.path, str(error)) from None


def _decode(file: OpenFile) -> SavedTail:
    raw = file.pread(_HEAD.size, 0)
    if len(raw) < _HEAD.size:
        raise ProtocolError(f"not a saved tail of a CommitLog: it has {len(raw)} bytes")
    magic, head_crc, records_crc, set_length, epoch, start, end, file_bytes, saved_ms = _HEAD.unpack(raw)
    if magic != ORPHANED_TAIL_MAGIC:
        raise ProtocolError("not a saved tail of a CommitLog: its first bytes are others")
    name = file.pread(set_length, _HEAD.size)
    if len(name) < set_length or head_crc != zlib.crc32(raw[_CRC_END:] + name):
        raise ProtocolError("a saved tail of a CommitLog whose head is damaged: its checksum is wrong")
    return SavedTail(
        path=file.path,
        set_name=name.decode("utf-8", "replace"),
        epoch=epoch,
        start_phy_offset=start,
        end_phy_offset=end,
        file_bytes=file_bytes,
        saved_ms=saved_ms,
        records_crc=records_crc,
    )
