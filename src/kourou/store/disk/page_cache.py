"""Whether bytes of a file can be read without waiting for the disk.

The system can tell (`mincore`) on Linux, macOS and the BSDs; where it cannot, no page counts as being in
memory. It answers for a map. `MappedPages` uses the map through which a file is read: its page tables answer
four times as fast. `FilePages` has a map of its own, for a file that is not mapped: it allows no access
(PROT_NONE), takes no descriptor and no page tables, and nothing can be read through it, so that a file cut
short under it does no harm. Pages of tmpfs that were swapped out are not in memory.

The answer holds for the moment: a page may be gone a second later, and reading it then waits for the disk.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

_PAGE: Final = mmap.PAGESIZE
_PROT_NONE: Final = 0
# The same number on Linux, macOS and the BSDs; Python knows it on all of them.
_MAP_SHARED: Final[int] = getattr(mmap, "MAP_SHARED", 1)
_MAP_FAILED: Final = ctypes.c_void_p(-1).value


class _Calls(NamedTuple):
    """What is asked of the system."""

    mmap: Callable[[int | None, int, int, int, int, int], int | None]
    munmap: Callable[[int, int], int]
    mincore: Callable[[int, int, int], int]


def _find_calls() -> _Calls | None:
    try:
        library = ctypes.CDLL(None, use_errno=True)
        calls = _Calls(library.mmap, library.munmap, library.mincore)
    except (OSError, AttributeError, TypeError):  # no such library, or no such function in it
        return None
    library.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_ssize_t,  # off_t, as wide as a pointer where this runs; always 0 here
    ]
    library.mmap.restype = ctypes.c_void_p
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return calls


_calls: Final = _find_calls()


class MappedPages:
    """The pages of a map, which must live as long as this is asked."""

    __slots__ = ("_address", "_size_bytes")

    def __init__(self, address: int | None, size_bytes: int) -> None:
        self._address = address
        self._size_bytes = size_bytes

    @classmethod
    def of(cls, mapped: memoryview) -> MappedPages:
        """The pages of this map."""
        view = np.frombuffer(mapped, np.uint8)
        return cls(view.ctypes.data, len(view))

    def are_resident(self, position: int, end: int) -> bool:
        """Whether all bytes from `position` to `end` are in memory; False when the system cannot tell."""
        if not 0 <= position < end <= self._size_bytes or _calls is None or self._address is None:
            return False
        begin = position - position % _PAGE
        found = np.empty(-(-(end - begin) // _PAGE), np.uint8)
        if _calls.mincore(self._address + begin, end - begin, found.ctypes.data):
            return False
        return bool((found & 1).all())


class FilePages(MappedPages):
    """The pages of an open file, as long as it was when this was made, in a map of its own. Close it before
    the address may be asked about by another thread."""

    __slots__ = ()

    def __init__(self, fd: int, size_bytes: int) -> None:
        super().__init__(None, 0)
        if _calls is None or size_bytes <= 0:
            return
        address = _calls.mmap(None, size_bytes, _PROT_NONE, _MAP_SHARED, fd, 0)
        if address not in (None, _MAP_FAILED):  # the file system knows no maps, or there are too many
            self._address, self._size_bytes = address, size_bytes

    def close(self) -> None:
        """Give the map back; a second time does nothing."""
        address, self._address = self._address, None
        if address is not None and _calls is not None:
            _calls.munmap(address, self._size_bytes)
        self._size_bytes = 0
