"""LogCopy: the CommitLog in a backup, up to its last whole record.

Files that lie wholly below the durable offset do not change any more. They are linked: to the store's own
file, or to the same one in an earlier backup; where neither is possible they are copied, like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kourou.errors import StorageError, StoreFormatError
from kourou.store.backup.backup_writer import BackupWriter
from kourou.store.backup.file_copies import copy_file, crc_of, try_link
from kourou.store.backup.manifest import STORE_NAME, BackupFile, Manifest
from kourou.store.check.log_end import LogEnd, find_log_end, read_checkpoint
from kourou.store.disk.files import Files, FileStatus
from kourou.store.log.log_file import log_file_name
from kourou.store.log.log_reader import LogReader
from kourou.store.store_layout import SegmentFile, StoreLayout, find_layout


class CopiedLog(NamedTuple):
    """The part of the log in a backup, and how many of its files were linked and copied."""

    min_phy_offset: int
    end_phy_offset: int
    linked: int
    copied: int


class Base:
    """An earlier backup of the same store."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._final = {file.path: file for file in manifest.files if file.is_final}

    def find(self, name: str, status: FileStatus, size_bytes: int) -> BackupFile | None:
        """The entry of a file that has not changed since: the same inode, time and size."""
        file = self._final.get(name)
        if file is None:
            return None
        is_same = (file.inode, file.modified_ns, file.size_bytes) == (
            status.identity[1],
            status.modified_ns,
            size_bytes,
        )
        return file if is_same else None

    def path(self, name: str) -> Path:
        """Where the backup has the file."""
        return self._folder / STORE_NAME / name


class LogCopy:
    """One copy of one log."""

    def __init__(
        self,
        files: Files,
        root: Path,
        log_folders: Sequence[Path],
        writer: BackupWriter,
        *,
        base: Base | None,
        copies_only: bool,
    ) -> None:
        self._files = files
        self._root = root
        self._log_folders = log_folders
        self._writer = writer
        self._base = base
        self._copies_only = copies_only
        self._linked: set[str] = set()

    def run(self) -> CopiedLog:
        """Copy the log. StorageError when it is not the same any more at the end."""
        layout = find_layout(self._files, self._root, self._log_folders)
        with LogReader(self._files, layout.log_files) as reader:
            end = find_log_end(self._files, layout, reader, read_checkpoint(self._files, layout).checkpoint)
        segments = _row(layout, end.phy_offset)
        self._writer.total_bytes = sum(min(end.phy_offset - file.start, file.length) for file in segments)
        copies: dict[str, SegmentFile] = {}
        first = segments[0].start if segments else end.phy_offset
        for segment in segments:
            name = f"commitlog/{log_file_name(segment.start)}"
            try:
                self._copy(segment, name, end)
                copies[name] = SegmentFile(self._writer.folder / name, segment.start, segment.length)
            except FileNotFoundError:
                if segment is segments[-1]:
                    raise
                # Deleted since, and with it those before: the log begins behind it now.
                for gone in copies:
                    self._writer.remove(gone)
                copies.clear()
                first = segment.start + segment.length
        self._check_tail(list(copies.values()), end)
        linked = len(self._linked & copies.keys())
        return CopiedLog(first, end.phy_offset, linked, len(copies) - linked)

    def _copy(self, segment: SegmentFile, name: str, end: LogEnd) -> None:
        size = min(end.phy_offset - segment.start, segment.length)
        is_final = segment.start + segment.length <= end.durable_phy_offset
        with self._files.open(segment.path, writable=False) as file:
            status = file.status()
        target = self._writer.place(name)
        known = None if self._base is None else self._base.find(name, status, size)
        if is_final and self._link(segment.path, target, name, is_known=known is not None):
            self._linked.add(name)
            if known is not None:
                crc = known.crc32
                self._writer.count(size)
            else:
                crc = crc_of(self._files, target, size, self._writer.count)
        else:
            crc = copy_file(
                self._files,
                segment.path,
                target,
                size_bytes=size,
                length_bytes=segment.length,
                on_bytes=self._writer.count,
            )
        self._writer.add(
            BackupFile(
                path=name,
                size_bytes=size,
                length_bytes=segment.length,
                crc32=crc,
                is_final=is_final,
                modified_ns=status.modified_ns,
                inode=status.identity[1],
            )
        )

    def _link(self, original: Path, target: Path, name: str, *, is_known: bool) -> bool:
        if not self._copies_only and try_link(self._files, original, target):
            return True
        if self._base is None or not is_known or not self._files.exists(self._base.path(name)):
            return False
        return try_link(self._files, self._base.path(name), target)

    def _check_tail(self, copies: Sequence[SegmentFile], end: LogEnd) -> None:
        """StorageError when the copy lacks records behind what was durable: a broker that is killed and
        started meanwhile cuts them off."""
        with LogReader(self._files, copies) as reader:
            copied_end, _ = reader.find_end(end.begin_phy_offset)
        if copied_end != end.phy_offset:
            raise StorageError(
                f"{self._root}: the CommitLog ended at {end.phy_offset}, and was cut to {copied_end} while "
                "it was copied: the broker was restarted; run the backup again",
                self._root,
            )


def _row(layout: StoreLayout, end_phy_offset: int) -> list[SegmentFile]:
    """The files of the log up to its end; StoreFormatError when one is missing between them."""
    segments = [file for file in layout.log_files if file.start < end_phy_offset]
    for file, following in zip(segments, segments[1:], strict=False):
        if file.start + file.length != following.start:
            raise StoreFormatError(
                following.path, f"the CommitLog has no file from {file.start + file.length} on before it"
            )
    return segments
