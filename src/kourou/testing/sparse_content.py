"""SparseContent: the bytes of a file without its holes, to recreate the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kourou.store.disk.files import OpenFile


class SparseContent:
    """Length and data of a file."""

    __slots__ = ("length", "pieces")

    def __init__(self, length: int, pieces: list[tuple[int, bytes]]) -> None:
        self.length = length
        self.pieces = pieces

    @classmethod
    def of(cls, path: Path) -> SparseContent:
        with OpenFile(path, os.open(path, os.O_RDONLY)) as file:
            pieces: list[tuple[int, bytes]] = []
            end = 0
            while (found := _next_data(file._fd, end)) is not None:
                start, end = found
                pieces.append((start, file.pread(end - start, start)))
            return cls(file.length(), pieces)

    def restore_at(self, path: Path) -> None:
        """Create a new file with this content, replacing an existing one."""
        path.unlink(missing_ok=True)
        with OpenFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)) as file:
            file.set_length(self.length)
            for position, data in self.pieces:
                file.pwrite(data, position)


def _next_data(fd: int, position: int) -> tuple[int, int] | None:
    try:
        start = os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise
    return start, os.lseek(fd, start, os.SEEK_HOLE)
