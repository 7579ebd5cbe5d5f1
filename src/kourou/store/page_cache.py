"""PageCache: whether bytes of a mapped file can be read without waiting for the disk.

The system can tell (`mincore`) on Linux, macOS and the BSDs; where it cannot, nothing is said to be in
memory. The answer holds for the moment: a page may be gone a second later, and reading it then waits for
the disk.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Final

import numpy as np

_PAGE: Final = mmap.PAGESIZE


def _find_mincore() -> Callable[[int, int, int], int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).mincore
    except (OSError, AttributeError, TypeError):  # no such library, or no such function in it
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    found.restype = ctypes.c_int
    call: Callable[[int, int, int], int] = found
    return call


_mincore: Final = _find_mincore()


class MappedPages:
    """The pages of one map. Keeps it alive."""

    __slots__ = ("_address", "_array", "_size_bytes")

    def __init__(self, mapped: memoryview) -> None:
        self._array = np.frombuffer(mapped, np.uint8)
        self._address: int = self._array.ctypes.data
        self._size_bytes = len(mapped)

    def are_resident(self, position: int, end: int) -> bool:
        """Whether all bytes from `position` to `end` are in memory, as far as anybody can tell."""
        if _mincore is None or not 0 <= position < end <= self._size_bytes:
            return False
        begin = position - position % _PAGE
        pages = -(-(end - begin) // _PAGE)
        found = np.empty(pages, np.uint8)
        if _mincore(self._address + begin, end - begin, found.ctypes.data):
            return False
        return bool((found & 1).all())
