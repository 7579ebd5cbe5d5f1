"""pipeline_session: the Spark of a command, whose own words go to a file.

A JVM that starts, warns of what it lacks, and logs stacks of what its user hears in one line would drown what
the command itself prints. So the JVM gets a file for its standard error. The file is removed if all went
well, and named in the error if not.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.errors import ConfigError
from kourou.spark.pipelines.pipeline_errors import PipelineError
from kourou.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALL: Final = "pipelines need PySpark and pyarrow: pip install 'kourou[spark]'"
_STDERR: Final = 2
_TAIL_LINES: Final = 5
_ERASED_LINE: Final = "\r\x1b[K"
_QUIET: Final = {
    # Progress is shown by progress.py.
    "spark.ui.showConsoleProgress": "false",
}
# Spark's Python side logs each error that it raises.
_LOGGERS_OF_RAISED: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def pipeline_session(
    app_name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    fast_start: bool = False,
) -> Iterator[SparkSession]:
    """A session for one command, stopped at its end. One that runs already is used, and left running.

    A PipelineError inside gets a line that says where Spark's log is. ConfigError: Spark did not start.
    """
    if _prepare():
        yield local_session(app_name, master=master, settings=settings)
        return
    folder = Path(tempfile.mkdtemp(prefix="kourou-spark-"))
    log, warehouse = folder / "spark.log", folder / "warehouse"
    # Spark makes a folder for tables that nobody asked for; not where the command is run.
    ours = {**_QUIET, "spark.sql.warehouse.dir": str(warehouse), **(settings or {})}
    try:
        with _default_interrupts():
            with _starting_notice(), _stderr_to(log):
                spark = _start(app_name, master, ours, fast_start, log)
            try:
                yield spark
            finally:
                with suppress(Exception):  # a JVM that is gone already
                    spark.stop()
    except PipelineError as error:
        shutil.rmtree(warehouse, ignore_errors=True)
        raise PipelineError(f"{error}\nSpark's log: {log}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _prepare() -> bool:
    """Whether a session runs already. ConfigError: there is no PySpark."""
    try:
        from pyspark import SparkContext
        from pyspark.logger import PySparkLogger
    except ImportError as error:
        raise ConfigError(f"{_INSTALL} ({error})") from error
    for name in _LOGGERS_OF_RAISED:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_py4js)
    # Not the active session: that is one of a thread, and a session of another thread is not ours to stop.
    return SparkContext._active_spark_context is not None


def _start(
    app_name: str, master: str, settings: Mapping[str, str], fast_start: bool, log: Path
) -> SparkSession:
    try:
        spark = local_session(app_name, master=master, settings=settings, fast_start=fast_start)
    except ConfigError as error:
        tail = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-_TAIL_LINES:]
        raise ConfigError(*error.problems, *tail) from error
    except KeyboardInterrupt as interrupt:
        _kill_jvm(interrupt)
        raise
    _use_default_handler()  # PySpark has put its own handler in place
    return spark


def _kill_jvm(interrupt: KeyboardInterrupt) -> None:
    """End a JVM whose start was interrupted: where PySpark still waits for it, it would never end by itself.
    PySpark has it in its gateway once it answers, and before that in a variable of what waits."""
    from pyspark import SparkContext

    found = [getattr(SparkContext._gateway, "proc", None)]
    for frame, _ in traceback.walk_tb(interrupt.__traceback__):
        found += frame.f_locals.values()
    for process in found:
        if isinstance(process, subprocess.Popen):
            process.kill()
            process.wait()


@contextmanager
def _starting_notice() -> Iterator[None]:
    """A line for whoever waits at a terminal, as long as Spark starts."""
    if not sys.stderr.isatty():
        yield
        return
    print("Spark starts …", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(_ERASED_LINE, end="", file=sys.stderr, flush=True)


@contextmanager
def _default_interrupts() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt and no more. PySpark's own handler calls the JVM, perhaps from within a
    call to it."""
    before = signal.getsignal(signal.SIGINT)
    _use_default_handler()
    try:
        yield
    finally:
        if _is_main_thread():
            signal.signal(signal.SIGINT, before)


def _use_default_handler() -> None:
    if _is_main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Py4J logs to the root logger, with all stacks, whatever comes of an interrupted call or a JVM that has
    ended; the caller gets an exception."""
    return "py4j" not in Path(record.pathname).parts


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Programs that are started inside write their errors to the file, as long as they run."""
    sys.stderr.flush()
    ours = os.dup(_STDERR)
    with log.open("ab") as file:
        os.dup2(file.fileno(), _STDERR)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, _STDERR)
        os.close(ours)
