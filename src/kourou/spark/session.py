"""local_session: Spark in this process and its JVM, with the format `rocketmq`; for pipelines and tests.

What it sets is small and can be set otherwise: Java is looked for (java.py), workers run this Python
(worker_python.py), and the session stays on this machine. With the master of a cluster it is a driver that
others can reach. A session made as Spark's documentation says does as well: `kourou.spark` is found wherever
it is installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from kourou.errors import ConfigError
from kourou.spark.java import find_java
from kourou.spark.worker_python import quick_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALL: Final = "Spark pipelines need PySpark and pyarrow: pip install 'kourou[spark]'"
_QUIET_LOOPBACK: Final = "127.0.0.1"

CLUSTER_SETTINGS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    # Without this Python sources may not see the filters of a query.
    "spark.sql.python.filterPushdown.enabled": "true",
    # A few milliseconds less for each micro-batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # What other readers of Parquet, delta-rs and pyiceberg among them, understand.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""What a driver of a cluster is, unless told otherwise."""

SETTINGS: Final[dict[str, str]] = {
    **CLUSTER_SETTINGS,
    # Nobody else is to talk to it, and the machine's name need not lead anywhere.
    "spark.driver.host": _QUIET_LOOPBACK,
    "spark.driver.bindAddress": _QUIET_LOOPBACK,
    # On one machine more partitions than cores only cost time.
    "spark.sql.shuffle.partitions": "2",
}
"""What a local session is, unless told otherwise."""

FAST_START: Final[dict[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
}
"""For short runs: the JVM starts in half the time, and is slower for hours of work."""


def local_session(
    app_name: str = "kourou",
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    fast_start: bool = False,
    environ: MutableMapping[str, str] = os.environ,
) -> SparkSession:
    """A SparkSession that knows `rocketmq`; the one that runs already, if there is one.

    `settings` are Spark's, before ours. ConfigError when there is no Java, or it cannot be started.
    """
    try:
        import pyarrow  # noqa: F401
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    from kourou.spark import register

    is_new = SparkSession.getActiveSession() is None
    if is_new:
        _prepare(environ, master)
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in session_settings(settings, fast_start=fast_start, master=master).items():
        builder = builder.config(name, value)
    try:
        with _quick_workers(environ, master) if is_new else nullcontext():
            spark = builder.getOrCreate()
    except PySparkException as error:
        raise ConfigError(f"Spark did not start: {str(error).strip().splitlines()[0]}") from error
    # Spark finds the module by itself, once the format is asked for; to register as well only costs time.
    if importlib.util.find_spec("pyspark_kourou") is None:
        register(spark)
    return spark


def session_settings(
    settings: Mapping[str, str] | None = None, *, fast_start: bool = False, master: str = "local[*]"
) -> dict[str, str]:
    """The settings of a session, with those of the caller, which count more."""
    ours = SETTINGS if _is_local(master) else CLUSTER_SETTINGS
    return {**ours, **(FAST_START if fast_start else {}), **(settings or {})}


def _is_local(master: str) -> bool:
    """Whether executors are on this machine only; those of a cluster have to reach the driver."""
    return master.startswith("local")


def _prepare(environ: MutableMapping[str, str], master: str) -> None:
    """PySpark takes Java and its workers' Python from the environment, and only from there."""
    environ["JAVA_HOME"] = str(find_java(environ).home)
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Sources that Spark finds by itself are run with this one, on executors as well: it may be a notebook's.
    environ["PYSPARK_DRIVER_PYTHON"] = environ["PYSPARK_PYTHON"]
    if _is_local(master):
        environ.setdefault("SPARK_LOCAL_IP", _QUIET_LOOPBACK)


@contextmanager
def _quick_workers(environ: MutableMapping[str, str], master: str) -> Iterator[None]:
    """Workers of a session that is made inside start sooner, where they run on this machine. The session and
    its JVM keep what they find; what is started later, perhaps for a cluster, finds what was there before.
    """
    python = environ["PYSPARK_PYTHON"]
    if _is_local(master):
        environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = quick_python(python, environ)
    try:
        yield
    finally:
        environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = python
