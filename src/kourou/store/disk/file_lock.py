"""FileLock: an exclusive lock on the first byte of a file, for as long as the process lives.

The same kind of lock (POSIX record lock, byte 0) that Apache's broker takes, so that either keeps
the other off a store. Where the system has it the lock belongs to the open file, not the process:
then a second lock in the same process fails too, and closing some other descriptor does not lose it.
Not here: which file a store locks (store_lock.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import struct
from pathlib import Path
from typing import Final

from kourou.errors import StoreLockedError

# struct flock of 64-bit Linux: type, whence, (pad) start, length, pid, padded to a whole i64.
_FLOCK: Final = struct.Struct("@hhqqi0q")
_SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_GET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None)
_IN_USE: Final = frozenset({errno.EACCES, errno.EAGAIN})
_PID: Final = re.compile(rb"\d+")


class FileLock:
    """A lock that is held. Ends with `release()`, with the context, or with the process."""

    __slots__ = ("path", "_fd")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def acquire(cls, path: Path) -> FileLock:
        """Lock `path` at once and note this process in it, or StoreLockedError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _set_lock(fd)
        except OSError as error:
            holder_pid = _holder_pid(fd) if error.errno in _IN_USE else None
            os.close(fd)
            if error.errno in _IN_USE:
                raise StoreLockedError(path, holder_pid) from None
            raise
        lock = cls(path, fd)
        # It only informs: a disk without room for it must not keep a store from opening.
        with contextlib.suppress(OSError):
            lock._note_holder()
        return lock

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the file that is locked."""
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def release(self) -> None:
        """Let others have it; a second time does nothing. The file stays."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _note_holder(self) -> None:
        # Apache writes `lock`, and reads nothing. Through this very descriptor: where locks belong
        # to the process, closing another one would lose them.
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"lock\n{os.getpid()}\n".encode(), 0)


def is_locked(path: Path) -> bool | None:
    """Whether some process, this one included, holds the lock on `path`; None if unknown.

    Found out without locking and without writing. Where locks belong to the process and not to the open
    file nothing is asked: closing the file again would end a lock that this process holds.
    """
    if _GET_LOCK is None:
        return None
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        return _found_lock(fd, _GET_LOCK)[0] != fcntl.F_UNLCK
    except OSError:
        return None
    finally:
        os.close(fd)


def check_unlocked(path: Path) -> None:
    """StoreLockedError if some process holds the lock on `path`, as far as that can be determined without
    locking; see `is_locked`."""
    if is_locked(path):
        fd = os.open(path, os.O_RDONLY)
        try:
            raise StoreLockedError(path, _holder_pid(fd))
        finally:
            os.close(fd)


def _found_lock(fd: int, get_lock: int) -> tuple[int, int]:
    """Type and process of the lock that stands in the way of locking `fd`."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(fd, get_lock, asked))
    return kind, pid


def _set_lock(fd: int) -> None:
    if _SET_LOCK is None:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    else:
        fcntl.fcntl(fd, _SET_LOCK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def _holder_pid(fd: int) -> int | None:
    """The process that holds the lock: as the system tells, else as it noted in the file."""
    if _GET_LOCK is not None:
        _, pid = _found_lock(fd, _GET_LOCK)
        if pid > 0:
            return pid
    noted = _PID.search(os.pread(fd, 64, 0))
    return int(noted.group()) if noted else None
