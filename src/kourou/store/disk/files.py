"""Files: the one place where the store touches the operating system (locks: file_lock.py, by way of here).

One `Files` is handed to every part of the store; tests hand in a faulty twin instead
(testing/faulty_files.py), which works because everything goes through these two classes and
what is composed of smaller steps (`replace`, `remove_tree`, `read`) calls those on `self`.

What holds on return is said as one of three: *in memory* (lost with the process), *in the page
cache* (survives the process, not the machine), *on disk*. A name (file created, renamed,
removed) is on disk only after `sync_folder` of the folder that holds it.
Failures of the operating system come out as OSError: their meaning is up to the caller.
Not here: any format; when to sync.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kourou.store.disk.file_lock import FileLock
from kourou.store.disk.file_system_sync import sync_file_system
from kourou.store.disk.page_cache import FilePages, MappedPages

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

# POSIX asks for 16 at least; Linux and macOS take 1024 parts in one call.
_IOV_MAX: Final = max(os.sysconf("SC_IOV_MAX"), 16)
_READ_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
# macOS has no such call.
_ADVISE: Final[Callable[[int, int, int, int], None] | None] = getattr(os, "posix_fadvise", None)
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_NEW_FILE_MODE: Final = 0o644


def _full_sync(fd: int) -> None:
    # macOS has no fdatasync, and its fsync stops short of the disk itself.
    fcntl.fcntl(fd, getattr(fcntl, "F_FULLFSYNC", 51))


_fdatasync: Final[Callable[[int], None]] = getattr(os, "fdatasync", _full_sync)


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Space of a partition. `free_bytes` counts what only root may use, `usable_bytes` does not."""

    total_bytes: int
    free_bytes: int
    usable_bytes: int

    @property
    def used_ratio(self) -> float:
        """Share in use, between 0 and 1, rounded up to whole percents as RocketMQ computes it."""
        used_bytes = self.total_bytes - self.free_bytes
        within_reach_bytes = used_bytes + self.usable_bytes
        if within_reach_bytes <= 0:
            return 0.0
        return -(-used_bytes * 100 // within_reach_bytes) / 100


FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode: the same for two names, or a name and an open file, only if they are the same file."""


class FileStatus(NamedTuple):
    """An open file as it is now. A file that was removed has no `links`."""

    identity: FileIdentity
    links: int
    length_bytes: int
    modified_ns: int


class OpenFile:
    """An open file, read and written by position. Close it, or use it as a context manager."""

    __slots__ = ("path", "_fd", "_knows_nowait", "_pages")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        # Whether the file system knows RWF_NOWAIT; found out by the first read that asks for it.
        self._knows_nowait = _READ_NOWAIT != 0
        self._pages: FilePages | None = None

    @property
    def descriptor(self) -> int:
        """The open file's number, as long as this is not closed."""
        return self._fd

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data`; on return it is in the page cache. After an OSError any part may be."""
        written = self._write_once(self._fd, data, position)
        view = memoryview(data)
        if written < view.nbytes:
            # tobytes() because a view of records (numpy) has items larger than a byte.
            self._write_rest(memoryview(view.tobytes())[written:], position + written)

    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        """Write `parts` one behind the other, in one system call where their number allows.

        Holds on return, and after an OSError: as `pwrite`.
        """
        for first in range(0, len(parts), _IOV_MAX):
            some = parts[first : first + _IOV_MAX] if len(parts) > _IOV_MAX else parts
            size_bytes = sum(memoryview(part).nbytes for part in some)
            written = self._writev_once(some, position)
            if written < size_bytes:
                self._write_rest(memoryview(b"".join(some))[written:], position + written)
            position += size_bytes

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Read; shorter than asked only at the end of the file. May wait for the disk."""
        data = os.pread(self._fd, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        return self._read_rest(data, size_bytes, position)

    def pread_into(self, target: memoryview, position: int) -> int:
        """Fill `target`; returns how many bytes, fewer only at the end of the file. May wait for the disk."""
        got = 0
        while got < len(target) and (more := os.preadv(self._fd, [target[got:]], position + got)):
            got += more
        return got

    def pread_nowait(self, size_bytes: int, position: int) -> bytes | bytearray | None:
        """Read what lies wholly in the page cache; None when it does not, or the system cannot tell.

        Where the file system does not know RWF_NOWAIT (tmpfs, overlayfs) the pages are asked for first: one
        that is dropped in the microsecond before the read makes that read wait.
        """
        if not self._knows_nowait:
            return self._pread_resident(size_bytes, position)
        data = bytearray(size_bytes)
        try:
            got = os.preadv(self._fd, [data], position, _READ_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            self._knows_nowait = False
            return self._pread_resident(size_bytes, position)
        return data if got == size_bytes else None

    def _pread_resident(self, size_bytes: int, position: int) -> bytes | None:
        if not self.is_resident(position, position + size_bytes):
            return None
        data = os.pread(self._fd, size_bytes, position)
        return data if len(data) == size_bytes else None

    def will_need(self, size_bytes: int, position: int) -> None:
        """Have the system fetch these bytes into the page cache; a hint, without waiting."""
        if _ADVISE is not None:
            _ADVISE(self._fd, position, size_bytes, os.POSIX_FADV_WILLNEED)

    def is_resident(self, position: int, end: int, mapped: MappedPages | None = None) -> bool:
        """Whether these bytes lie in the page cache; False when the system cannot tell. Never waits. Faster
        with the pages of a map of the file."""
        if mapped is not None:
            return mapped.are_resident(position, end)
        if self._pages is None:
            self._pages = FilePages(self._fd, os.fstat(self._fd).st_size)
        return self._pages.are_resident(position, end)

    def map_readonly(self, size_bytes: int) -> mmap.mmap:
        """Map the first bytes of the file. The map outlives `close()`; a read error in it, or a read behind
        the end of a file that was cut short, is a SIGBUS (map_guard.py)."""
        return mmap.mmap(self._fd, size_bytes, access=mmap.ACCESS_READ)

    def sync(self) -> None:
        """On return all that was written before the call is on disk, and the length with it.

        After an OSError it is unknown what is on disk, and a second sync that succeeds proves nothing.
        """
        _fdatasync(self._fd)

    def preallocate(self, size_bytes: int) -> None:
        """Grow to `size_bytes` of zeros with room for all of them; never shrinks.

        A full disk is an OSError here and not at a later write, and the length stays as it was.
        Where the file system cannot reserve room the file only gets its length.
        """
        old_bytes = self.length()
        try:
            os.posix_fallocate(self._fd, 0, size_bytes)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                # The system may have reserved all free space; no other process could write then.
                os.ftruncate(self._fd, old_bytes)
                raise
            self.set_length(max(old_bytes, size_bytes))

    def set_length(self, size_bytes: int) -> None:
        """Cut, or grow by a hole that reads as zeros and takes no room."""
        os.ftruncate(self._fd, size_bytes)

    def length(self) -> int:
        """Length in bytes, holes included."""
        return os.fstat(self._fd).st_size

    def reaches(self, size_bytes: int) -> bool:
        """Whether the file is so long now; takes a fraction of a microsecond."""
        return os.lseek(self._fd, 0, os.SEEK_END) >= size_bytes

    def status(self) -> FileStatus:
        """What the system knows of the open file, whatever became of its name."""
        found = os.fstat(self._fd)
        return FileStatus((found.st_dev, found.st_ino), found.st_nlink, found.st_size, found.st_mtime_ns)

    def data_end(self, position: int = 0) -> int:
        """End of the last data at or behind `position`, `position` if there is only hole.

        Data are whole blocks, so that zeros may stand before this end; behind it are zeros only.
        Where holes cannot be seen it is the length.
        """
        end = position
        try:
            while True:
                start = os.lseek(self._fd, end, os.SEEK_DATA)
                end = os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return end
            if error.errno in _UNSUPPORTED:
                return max(self.length(), position)
            raise

    def close(self) -> None:
        """Give the descriptor back; a second time does nothing."""
        pages, self._pages = self._pages, None
        if pages is not None:
            pages.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The system's own function: each commit cycle calls it.
    _write_once = staticmethod(os.pwrite)

    def _writev_once(self, parts: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._fd, parts, position)

    def _write_rest(self, rest: memoryview, position: int) -> None:
        while rest:
            written = self._write_once(self._fd, rest, position)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            rest = rest[written:]
            position += written

    def _read_rest(self, data: bytes, size_bytes: int, position: int) -> bytes:
        parts = [data]
        got = len(data)
        while got < size_bytes and (data := os.pread(self._fd, size_bytes - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)


class Files:
    """The files of one machine."""

    __slots__ = ()

    def open(
        self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
    ) -> OpenFile:
        """Open a file; with `create` make it, empty, if it is not there, with `exclusive` only then.

        A new file's name is on disk after `sync_folder(path.parent)`.
        """
        return OpenFile(path, os.open(path, open_flags(writable, create, exclusive), _NEW_FILE_MODE))

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, where they are missing. Names as in `open`."""
        if self.is_folder(path):
            return
        self.make_folder(path.parent)
        self._make_one_folder(path)

    def list_names(self, path: Path) -> list[str]:
        """Names in a folder, sorted; none when the folder is not there."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder of that name."""
        return path.exists()

    def is_folder(self, path: Path) -> bool:
        """Whether there is a folder of that name."""
        return path.is_dir()

    def identity(self, path: Path) -> FileIdentity | None:
        """Which file or folder has this name now; None: there is none."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def length(self, path: Path) -> int:
        """Length of a file in bytes, holes included."""
        return os.stat(path).st_size

    def modified_ms(self, path: Path) -> int:
        """When the file was last written to, in Unix milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: Path) -> bytes:
        """The whole of a file."""
        with self.open(path, writable=False) as file:
            return file.pread(file.length(), 0)

    def remove(self, path: Path) -> None:
        """Remove a file; its name is gone from disk after `sync_folder(path.parent)`."""
        os.unlink(path)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; OSError if it is not."""
        os.rmdir(path)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and all in it; nothing happens when it is not there."""
        if not self.is_folder(path):
            return
        for name in self.list_names(path):
            inner = path / name
            if self.is_folder(inner) and not inner.is_symlink():
                self.remove_tree(inner)
            else:
                self.remove(inner)
        self.remove_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in one step, in place of a file that has it already.

        On disk after `sync_folder` of the folder, of both where they differ.
        """
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. OSError where the file system cannot, or the name is taken."""
        os.link(source, target)

    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Set when the file was last written to, in Unix nanoseconds."""
        os.utime(path, ns=(modified_ns, modified_ns))

    def sync_folder(self, path: Path) -> None:
        """On return the names in this folder are on disk; that of the folder itself need not be."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: Path) -> bool:
        """On return everything written to the file system of this folder is on disk, names too.

        False: the system has no such call, and nothing was done. After an OSError: as `OpenFile.sync`.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return sync_file_system(fd)
        finally:
            os.close(fd)

    def replace(self, path: Path, data: Buffer, *, backup: Path | None = None) -> None:
        """Put `data` in place of a small file, whole or not at all; on return it is on disk.

        With `backup` what was there before gets that name. Whenever the machine stops, the old or
        the new content is found whole: under `path`, or, between the two renames, the old one as `backup`.
        """
        temporary = path.with_name(path.name + ".tmp")
        with self.open(temporary, create=True) as file:
            file.set_length(0)
            file.pwrite(data, 0)
            file.sync()
        if backup is not None and self.exists(path):
            self.rename(path, backup)
        self.rename(temporary, path)
        self.sync_folder(path.parent)

    def disk_usage(self, path: Path) -> DiskUsage:
        """Space of the partition that holds `path`, or will hold it when it is made."""
        while not path.exists() and path != path.parent:
            path = path.parent
        space = os.statvfs(path)
        block_bytes = space.f_frsize
        return DiskUsage(
            space.f_blocks * block_bytes, space.f_bfree * block_bytes, space.f_bavail * block_bytes
        )

    def lock(self, path: Path) -> FileLock:
        """Lock a file for this process, made when missing; StoreLockedError when another has it."""
        return FileLock.acquire(path)

    def _make_one_folder(self, path: Path) -> None:
        os.makedirs(path, exist_ok=True)


def open_flags(writable: bool, create: bool, exclusive: bool) -> int:
    """The flags of open(2) for the arguments of `Files.open`."""
    flags = os.O_RDWR if writable else os.O_RDONLY
    if create or exclusive:
        flags |= os.O_CREAT
    return flags | os.O_EXCL if exclusive else flags
