"""keep_freed_memory: the C library keeps freed memory for the next buffers of a process.

By default glibc maps large buffers when they are allocated, and unmaps the free end of the heap when buffers
are freed, so each new buffer of a megabyte costs hundreds of page faults.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Final

# Parameters of mallopt.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_VARIABLES: Final = ("MALLOC_", "GLIBC_TUNABLES")


def keep_freed_memory(
    kept_bytes: int, max_buffer_bytes: int, *, environ: Mapping[str, str] = os.environ
) -> bool:
    """Have up to `kept_bytes` kept, of buffers up to `max_buffer_bytes`, in one heap for all threads: each of
    several would keep as much. More stays as long as something small lies behind it. False where that is not
    possible, or where the environment has settings of its own."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name.startswith(_VARIABLES) for name in environ):
        return False
    parameters = {_M_TRIM_THRESHOLD: kept_bytes, _M_MMAP_THRESHOLD: max_buffer_bytes, _M_ARENA_MAX: 1}
    return all([mallopt(parameter, value) for parameter, value in parameters.items()])
