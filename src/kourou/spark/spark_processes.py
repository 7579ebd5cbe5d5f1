"""Which of Spark's Python processes this is.

Spark runs a data source in several: some plan reads or writes, some commit, some work on tasks. What it lets
a process do is seen by the modules of PySpark that are loaded there, and by nothing public: tests with a real
Spark notice when those change.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

_DAEMON: Final = "pyspark.daemon"
_PLANS_WRITES: Final = "pyspark.sql.worker.write_into_data_source"


def is_sparks_process() -> bool:
    """Whether this process was started by Spark, and not by the user."""
    return _main_name().startswith("pyspark.")


def plans_writes() -> bool:
    """Whether Spark lets this process plan writes: those that commit make writers, too."""
    return is_sparks_process() and (_PLANS_WRITES in sys.modules or _main_name() == _PLANS_WRITES)


def worker_daemon() -> ModuleType | None:
    """The module of the daemon that forked this worker; None in processes that are no such worker."""
    return sys.modules["__main__"] if _main_name() == _DAEMON else None


def _main_name() -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else str(spec.name)
