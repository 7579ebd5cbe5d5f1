"""What Spark's Python processes report: failures in a few lines, and nothing where nothing failed.

`brief_errors`: Spark leaves the stack of its Python process out where an environment variable of the process
says so. Ours says so when the error is one of Kourou's own, whose text is complete. A process of Spark's that
reports an error ends with it, so no other error loses its stack; processes of users are left as they are.

`hide_closed_sockets`: Spark closes the socket of a worker that it needs no more: when it has enough rows
(`limit`, `take`, `show`), or after a minute without work. The daemon of workers (PySpark 4.3) then prints the
BrokenPipeError of the worker's last flush, with its stack.
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
    """For methods that Spark calls; a decorator, too."""
    try:
        yield
    except KourouError:
        if is_sparks_process():
            os.environ[_HIDE] = "1"
        raise


def hide_closed_sockets() -> None:
    """In a worker, print no failure that is only a socket closed by Spark. The daemon's module, which is the
    worker's `__main__`, reports by its global name `traceback`: it is replaced in this process alone."""
    daemon = worker_daemon()
    if daemon is not None:
        reports = SimpleNamespace(print_exc=_print_failure, format_exc=traceback.format_exc)
        vars(daemon)["traceback"] = reports


def _print_failure() -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        traceback.print_exc()
