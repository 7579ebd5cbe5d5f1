"""Prepares the process of a Spark worker for many tasks: garbage collection and memory.

Changes performance only, not results.
"""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Free memory that the process keeps: more than the buffers of one batch."""

_ready_pids: set[int] = set()


def make_worker_ready() -> None:
    """Runs once per process. Spark's workers collect garbage after each task: imported objects need no
    further checks. And they read batch after batch: returning memory to the system and faulting it in
    again, page by page, takes longer than the work itself."""
    pid = os.getpid()
    if pid in _ready_pids:
        return
    _ready_pids.add(pid)
    gc.collect()
    gc.freeze()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """For glibc; other C libraries have no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
