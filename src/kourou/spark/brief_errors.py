"""What Spark's Python processes report: short errors, and nothing when nothing failed.

`brief_errors`: Spark omits the traceback of its Python process if an environment variable of the process says
so. It is set when the error is one of Kourou's own, whose text is complete. A process of Spark ends after
reporting an error, so no other error loses its traceback; other processes are not changed.

`hide_closed_sockets`: Spark closes the socket of a worker that is no longer needed: when it has enough rows
(`limit`, `take`, `show`), or after a minute without work. The worker daemon (PySpark 4.3) then prints the
BrokenPipeError of the worker's last flush, with its traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final

from kourou.errors import KourouError
from kourou.spark.spark_processes import is_sparks_process, worker_daemon

_HIDE: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def brief_errors() -> Iterator[None]:
    """For methods that Spark calls; also a decorator."""
    try:
        yield
    except KourouError:
        if is_sparks_process():
            os.environ[_HIDE] = "1"
        raise


def hide_closed_sockets() -> None:
    """In a worker, do not print failures that only mean that Spark closed the socket. The daemon's module,
    the worker's `__main__`, uses its global name `traceback`, which is replaced in this process only."""
    daemon = worker_daemon()
    if daemon is not None:
        reports = SimpleNamespace(print_exc=_print_failure, format_exc=traceback.format_exc)
        vars(daemon)["traceback"] = reports


def _print_failure() -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        traceback.print_exc()
