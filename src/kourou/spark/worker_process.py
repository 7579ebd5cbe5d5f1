"""Prepares the process of a Spark worker for many tasks: garbage collection and memory.

Changes performance only, not results.
"""

from __future__ import annotations

import gc
import os
from typing import Final

from kourou.freed_memory import keep_freed_memory

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
    keep_freed_memory(_KEPT_BYTES, _KEPT_BYTES)
