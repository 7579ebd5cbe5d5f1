"""local_session: Spark in this process and its JVM, with the format `rocketmq`; for pipelines and tests.

It sets little, and everything can be overridden: Java is located (java.py), workers run this Python, and the
session stays on this machine. With the master of a cluster it is a driver that executors can reach. A session
created as in Spark's documentation works as well: `kourou.spark` is found wherever it is installed.

Python workers start from compiled code. Spark puts PySpark as an archive, `pyspark.zip`, first on the path of
its Python processes. Its modules were never compiled, so each process compiles PySpark anew: most of its
start-up time, and Spark gives up on a stream whose process takes longer than 10 s. Where the same PySpark is
installed with its compiled modules, a launcher removes Spark's archives from PYTHONPATH and then becomes the
requested Python. This applies to executors on this machine only: others may not have the launcher's path.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.errors import ConfigError
from kourou.spark.java import find_java
from kourou.spark.launchers import launcher_folder, script_name, write_launcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALL: Final = "Spark pipelines need PySpark and pyarrow: pip install 'kourou[spark]'"
_QUIET_LOOPBACK: Final = "127.0.0.1"

CLUSTER_SETTINGS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    # Without this Python sources may not see the filters of a query.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Saves a few milliseconds per micro-batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # Understood by other readers of Parquet, such as delta-rs and pyiceberg.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Defaults for the driver of a cluster."""

SETTINGS: Final[dict[str, str]] = {
    **CLUSTER_SETTINGS,
    # Only this machine connects to it, and the host name may not resolve.
    "spark.driver.host": _QUIET_LOOPBACK,
    "spark.driver.bindAddress": _QUIET_LOOPBACK,
    # On one machine more partitions than cores only cost time.
    "spark.sql.shuffle.partitions": "2",
}
"""Defaults for a local session."""

FAST_START: Final[dict[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
}
"""For short runs: the JVM starts in half the time, but is slower in long runs."""
_LAUNCHER: Final = """#!/bin/sh
# Starts Python without the archives of Spark, whose modules it has installed and compiled.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case "$entry" in
    {home}/*) ;;
    *) kept="$kept:$entry" ;;
  esac
done
unset IFS
if [ -n "$kept" ]; then
  export PYTHONPATH="${{kept#:}}"
else
  unset PYTHONPATH
fi
exec {python} "$@"
"""
_ARCHIVE: Final = Path("python", "lib", "pyspark.zip")


def local_session(
    app_name: str = "kourou",
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    fast_start: bool = False,
    environ: MutableMapping[str, str] = os.environ,
) -> SparkSession:
    """A SparkSession with the format `rocketmq`; the active one, if there is one.

    `settings` are Spark's and override ours. ConfigError if there is no Java, or it cannot be started.
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
    # Spark finds the module by itself on first use of the format; registering it as well only costs time.
    if importlib.util.find_spec("pyspark_kourou") is None:
        register(spark)
    return spark


def session_settings(
    settings: Mapping[str, str] | None = None, *, fast_start: bool = False, master: str = "local[*]"
) -> dict[str, str]:
    """The settings of a session; the caller's take precedence."""
    ours = SETTINGS if _is_local(master) else CLUSTER_SETTINGS
    return {**ours, **(FAST_START if fast_start else {}), **(settings or {})}


def _is_local(master: str) -> bool:
    """Whether executors are on this machine only; those of a cluster must reach the driver."""
    return master.startswith("local")


def _prepare(environ: MutableMapping[str, str], master: str) -> None:
    """PySpark takes Java and its workers' Python from the environment only."""
    environ["JAVA_HOME"] = str(find_java(environ).home)
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Sources that Spark finds by itself run with this one, even on executors: it may be a notebook's.
    environ["PYSPARK_DRIVER_PYTHON"] = environ["PYSPARK_PYTHON"]
    if _is_local(master):
        environ.setdefault("SPARK_LOCAL_IP", _QUIET_LOOPBACK)


@contextmanager
def _quick_workers(environ: MutableMapping[str, str], master: str) -> Iterator[None]:
    """Let the workers of a session created inside start faster, if they run on this machine. The session
    and its JVM keep this environment; the previous one is restored afterwards."""
    python = environ["PYSPARK_PYTHON"]
    if _is_local(master):
        environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = quick_python(python, environ)
    try:
        yield
    finally:
        environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = python


def quick_python(python: str, environ: Mapping[str, str]) -> str:
    """The command to run instead of `python`: a launcher that starts faster, or `python` itself.

    It is `python` itself if that is not the running Python, if Spark is not part of the installed PySpark
    (SPARK_HOME), if a new process would not find PySpark by itself, or if no launcher can be written or run.
    """
    home = _home_of_installed_spark()
    if python != sys.executable or home is None:
        return python
    script = python_script(python, home)
    try:
        launcher = launcher_folder(environ) / script_name("python", script) / "python"
        write_launcher(launcher, script)
    except OSError:
        return python
    # Spark's scripts split paths at spaces; and some caches are mounted noexec.
    is_usable = os.access(launcher, os.X_OK) and not any(each.isspace() for each in str(launcher))
    return str(launcher) if is_usable else python


def python_script(python: str, home: Path) -> str:
    """A launcher of `python` that drops entries in Spark's home from PYTHONPATH."""
    return _LAUNCHER.format(home=shlex.quote(str(home)), python=shlex.quote(python))


def _home_of_installed_spark() -> Path | None:
    """The home of the Spark to start, if it belongs to a PySpark that any new process can import."""
    from pyspark.find_spark_home import _find_spark_home

    home = Path(_find_spark_home())
    package = _installed("pyspark")
    if package is None or _installed("py4j") is None or package.resolve() not in (home, *home.parents):
        return None
    return home if (home / _ARCHIVE).exists() else None


def _installed(name: str) -> Path | None:
    """The folder of a package, if it is in a site folder."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return folder if folder.parent in _site_folders() else None


def _site_folders() -> set[Path]:
    folders = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return {Path(folder) for folder in folders}
