"""The process of a Spark worker, made ready for many tasks: what its memory is kept for, and what it prints.

Nothing here changes what is read.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import traceback
from types import SimpleNamespace
from typing import Final

from kourou.spark.spark_processes import worker_daemon

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
    _hide_closed_sockets()


def _keep_freed_memory() -> None:
    """Where the C library is glibc; others have no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _hide_closed_sockets() -> None:
    """Spark closes a worker's socket as soon as it has enough rows (`limit`, `take`, `show`). The worker ends
    then, and its daemon (PySpark 4.3) prints the BrokenPipeError of the last flush though nothing failed. The
    daemon's module reports through its global name `traceback`, which is replaced in this process alone."""
    daemon = worker_daemon()
    if daemon is not None:
        reports = SimpleNamespace(print_exc=_print_failure, format_exc=traceback.format_exc)
        vars(daemon)["traceback"] = reports


def _print_failure() -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        traceback.print_exc()
