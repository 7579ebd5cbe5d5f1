"""The kinds of Spark's Python processes.

Spark runs a data source in several: some plan reads or writes, some commit, some run tasks. The kind can be
seen only from the PySpark modules that are loaded, which is not a public interface: tests with a real Spark
detect changes.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

_DAEMON: Final = "pyspark.daemon"
_PLANS_WRITES: Final = "pyspark.sql.worker.write_into_data_source"


def is_sparks_process() -> bool:
    """Whether this process was started by Spark, not by the user."""
    return _main_name().startswith("pyspark.")


def plans_writes() -> bool:
    """Whether Spark lets this process plan writes; processes that commit create writers, too."""
    return is_sparks_process() and (_PLANS_WRITES in sys.modules or _main_name() == _PLANS_WRITES)


def worker_daemon() -> ModuleType | None:
    """The module of the daemon that forked this worker; None in other processes."""
    return sys.modules["__main__"] if _main_name() == _DAEMON else None


def _main_name() -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else str(spec.name)
