"""The process of a Spark worker, made ready for many tasks: what its memory is kept for.

Nothing here changes what is read; only how often the system is asked for the same memory again.
"""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 64 * 1024 * 1024
"""So much free memory stays with the process: more than the buffers of one batch take."""

_ready_pids: set[int] = set()


def make_worker_ready() -> None:
    """Once in each process. Spark's workers collect garbage after each task: what is imported need not be
    looked at again. And they read batch after batch: to give the memory of one back to the system, and to
    get it again page by page, takes longer than all that is done with it."""
    pid = os.getpid()
    if pid in _ready_pids:
        return
    _ready_pids.add(pid)
    gc.collect()
    gc.freeze()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Where the C library is glibc; others have no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
