"""MapGuard: a process survives reading a map where the file under it has no bytes any more.

A file that is cut short under a map, or a disk that fails to read, makes the system send SIGBUS, which ends
the process. Before each read of a map the file's length is checked (log_file.py), but a file can be cut
between the check and the read. For that case the handler here puts zeros in the place of the page that cannot
be read, notes that the map is broken, and the read goes on. The handler only runs where the process would
have died; a SIGBUS elsewhere goes to the handler that was there before.

Linux on 64-bit machines; elsewhere a broken map still ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import signal
import sys
import weakref
from typing import Any, Final

import numpy as np

_PAGE: Final = mmap.PAGESIZE
_MAP_FIXED: Final = 0x10
_SA_SIGINFO: Final = 4
# In siginfo_t, behind three numbers and a gap.
_ADDRESS_POSITION: Final = 16
# Others number signals, flags or errors differently, or order `struct sigaction` otherwise (s390x).
_MACHINES: Final = frozenset({"x86_64", "aarch64", "riscv64", "ppc64le"})


class _SigAction(ctypes.Structure):
    """`struct sigaction` of glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class MapGuard:
    """The guard of one map, as long as that lives. `is_broken`: some of it could not be read, and zeros were
    read instead."""

    __slots__ = ("__weakref__", "_end", "_start", "is_broken")

    def __init__(self, mapped: mmap.mmap) -> None:
        self.is_broken = False
        self._start: int = np.frombuffer(mapped, np.uint8).ctypes.data
        self._end = self._start + len(mapped)
        if _install():
            _guards.append(self)
            weakref.finalize(mapped, _guards.remove, self).atexit = False

    def mend(self, address: int) -> bool:
        """Put zeros in place of the page with this address; False if it is not one of the map's."""
        if not self._start <= address < self._end:
            return False
        self.is_broken = True
        page = address - address % _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        return bool(_library.mmap(page, _PAGE, mmap.PROT_READ, flags, -1, 0) == page)


_guards: list[MapGuard] = []
_before = _SigAction()
_installed: list[Any] = []  # what the system calls must not be freed


def _install() -> bool:
    """Have SIGBUS handled, once in a process; False where that cannot be done."""
    if _installed:
        return True
    if sys.platform != "linux" or platform.machine() not in _MACHINES or sys.maxsize < 1 << 32:
        return False
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_handle)
    action = _SigAction(handler=ctypes.cast(callback, ctypes.c_void_p), flags=_SA_SIGINFO)
    if _library.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(_before)):
        return False
    _installed.append(callback)
    return True


def _handle(_: int, info: int, __: int) -> None:
    # In the midst of any read of memory, by the thread that reads: no locks, and nothing that could raise.
    address = ctypes.c_void_p.from_address(info + _ADDRESS_POSITION).value or 0
    for guard in _guards:
        if guard.mend(address):
            return
    # Not ours: the read is tried again when this returns, and fails as it would have without us.
    _library.sigaction(signal.SIGBUS, ctypes.byref(_before), None)


_library: Final = ctypes.CDLL(None)
_library.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_ssize_t,
]
_library.mmap.restype = ctypes.c_void_p
