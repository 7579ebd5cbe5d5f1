"""One sync for a whole file system, where the system has it and tells of its failures.

Linux: `syncfs`. Before version 5.8 of the kernel it kept silent about data that could not be written, so it
is not used there. Thousands of small files are on disk after one such call; one by one each would wait for
the journal.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Callable
from typing import Final

# The first that reports errors of writing back.
_FIRST_HONEST: Final = (5, 8)


def _find_syncfs() -> Callable[[int], int] | None:
    if platform.system() != "Linux" or _kernel_version(platform.release()) < _FIRST_HONEST:
        return None
    try:
        found = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):  # no such library, or no such function in it
        return None
    found.argtypes = [ctypes.c_int]
    found.restype = ctypes.c_int
    call: Callable[[int], int] = found
    return call


def _kernel_version(release: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


_syncfs: Final = _find_syncfs()


def sync_file_system(fd: int) -> bool:
    """All that was written to the file system that holds the open file is on disk on return, names too.

    False: this cannot be done here, and nothing was. After an OSError it is unknown what is on disk.
    """
    if _syncfs is None:
        return False
    if _syncfs(fd):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return True
