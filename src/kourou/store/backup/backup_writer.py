"""BackupWriter: the files of a backup that is being made, with the entry of each for the manifest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kourou.store.backup.file_copies import copy_file, data_status, sync_tree, write_file
from kourou.store.backup.manifest import BackupFile
from kourou.store.disk.files import Files

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""


class BackupWriter:
    """Writes to one folder, which has the layout of a store. Names are paths relative to it."""

    def __init__(self, files: Files, folder: Path, progress: Progress | None = None) -> None:
        self._files = files
        self._folder = folder
        self._progress = progress
        self._written: dict[str, BackupFile] = {}
        self._done_bytes = 0
        self.total_bytes = 0  # of the files that progress is reported for; 0: not known yet

    @property
    def folder(self) -> Path:
        """The folder that is written to."""
        return self._folder

    @property
    def written(self) -> list[BackupFile]:
        """What was written, by name."""
        return sorted(self._written.values(), key=lambda file: file.path)

    def copy(self, path: Path, name: str, *, most_bytes: int | None = None) -> None:
        """Copy a file, or its first bytes; the rest of the copy is zeros then."""
        status, data_end = data_status(self._files, path)
        size = data_end if most_bytes is None else min(data_end, most_bytes)
        length = status.length_bytes
        crc = copy_file(
            self._files,
            path,
            self.place(name),
            size_bytes=size,
            length_bytes=length,
            on_bytes=self.count,
        )
        self.add(BackupFile(path=name, size_bytes=size, length_bytes=length, crc32=crc))

    def write(self, name: str, raw: bytes) -> None:
        """Write a small file."""
        crc = write_file(self._files, self.place(name), raw)
        self.add(BackupFile(path=name, size_bytes=len(raw), length_bytes=len(raw), crc32=crc))

    def place(self, name: str) -> Path:
        """Where a file is to be; its folder exists."""
        target = self._folder / name
        self._files.make_folder(target.parent)
        return target

    def add(self, file: BackupFile) -> None:
        """Note a file that was written."""
        self._written[file.path] = file

    def remove(self, name: str) -> None:
        """Remove a file that was written."""
        self._files.remove(self._folder / name)
        del self._written[name]

    def start_over(self) -> None:
        """Remove all files."""
        self._files.remove_tree(self._folder)
        self._written.clear()

    def sync(self) -> None:
        """On return all files are on disk."""
        sync_tree(self._files, self._folder)
        self._files.sync_folder(self._folder.parent)

    def count(self, size_bytes: int) -> None:
        """Report progress: so many bytes more."""
        if self.total_bytes:
            self._done_bytes += size_bytes
            if self._progress is not None:
                self._progress(min(self._done_bytes, self.total_bytes), self.total_bytes)
