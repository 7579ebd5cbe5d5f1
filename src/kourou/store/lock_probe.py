"""Whether a process has a store locked, found out without locking and without writing.

Asks the system for the holder of the lock that `FileLock` takes. Not here: taking it (file_lock.py).
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

# As in file_lock.py: struct flock of 64-bit Linux.
_FLOCK: Final = struct.Struct("@hhqqi0q")
_GET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None)


def is_locked(path: Path) -> bool | None:
    """Whether some process, this one included, holds the lock on `path`; None when nobody can tell.

    Where locks belong to the process and not to the open file nothing is asked: closing the file
    again would end a lock that this process holds.
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
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        found, *_ = _FLOCK.unpack(fcntl.fcntl(fd, _GET_LOCK, asked))
        return bool(found != fcntl.F_UNLCK)
    except OSError:
        return None
    finally:
        os.close(fd)
