"""Copies of single files, checked by CRC-32 while they are read; zeros are not written.

What is written is in the page cache on return; `sync_tree` makes a whole folder durable.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kourou.errors import StorageError
from kourou.store.disk.files import Files, FileStatus, OpenFile

_PIECE_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_PIECE_BYTES)
# So many single syncs take longer than one of the whole file system.
_MANY_SYNCS: Final = 256

OnBytes = Callable[[int], None]
"""Called with the number of bytes that were read."""


def copy_file(
    files: Files, source: Path, target: Path, *, size_bytes: int, length_bytes: int, on_bytes: OnBytes
) -> int:
    """Copy the first `size_bytes` of a file to a new one of `length_bytes`; returns their CRC-32. Time of
    modification as the original's. StorageError when the original is shorter."""
    with files.open(source, writable=False) as original, files.open(target, exclusive=True) as copy:
        crc = 0
        for position, raw in _pieces(original, size_bytes, on_bytes):
            crc = zlib.crc32(raw, crc)
            if raw != _ZEROS[: len(raw)]:
                copy.pwrite(raw, position)
        copy.set_length(length_bytes)
        modified_ns = original.status().modified_ns
    files.set_modified(target, modified_ns)
    return crc


def crc_of(files: Files, path: Path, size_bytes: int, on_bytes: OnBytes) -> int:
    """The CRC-32 of the first bytes of a file. StorageError when it is shorter."""
    with files.open(path, writable=False) as file:
        crc = 0
        for _, raw in _pieces(file, size_bytes, on_bytes):
            crc = zlib.crc32(raw, crc)
    return crc


def try_link(files: Files, source: Path, target: Path) -> bool:
    """Give a file a second name if the file system allows it."""
    try:
        files.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, one without links, too many of them, another owner
        return False
    return True


def write_file(files: Files, target: Path, raw: bytes) -> int:
    """Write a small new file; returns its CRC-32."""
    with files.open(target, exclusive=True) as file:
        file.pwrite(raw, 0)
    return zlib.crc32(raw)


def data_status(files: Files, path: Path) -> tuple[FileStatus, int]:
    """What the system knows of a file, and where its data ends: behind it are zeros only."""
    with files.open(path, writable=False) as file:
        status = file.status()
        return status, min(file.data_end(), status.length_bytes)


def sync_tree(files: Files, folder: Path) -> None:
    """On return all files and names in a folder are on disk."""
    paths = list(_walk(files, folder))
    if len(paths) > _MANY_SYNCS and files.sync_all(folder):
        return
    for path in paths:
        if files.is_folder(path):
            files.sync_folder(path)
        else:
            with files.open(path, writable=False) as file:
                file.sync()


def _walk(files: Files, folder: Path) -> Iterator[Path]:
    yield folder
    for name in files.list_names(folder):
        path = folder / name
        if files.is_folder(path):
            yield from _walk(files, path)
        else:
            yield path


def _pieces(file: OpenFile, size_bytes: int, on_bytes: OnBytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < size_bytes:
        raw = file.pread(min(_PIECE_BYTES, size_bytes - position), position)
        if not raw:
            raise StorageError(
                f"{file.path}: it ends at {position}, {size_bytes} bytes are expected", file.path
            )
        yield position, raw
        position += len(raw)
        on_bytes(len(raw))
