"""pipeline_session: a Spark session for one command, with Spark's log in a file.

The JVM's warnings and stack traces would drown the command's own output. So its standard error goes to a
file, which is removed on success and named in the error message otherwise.
"""

from __future__ import annotations

import logging
import os
import re
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
_STACK_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more)")
_ERASED_LINE: Final = "\r\x1b[K"
_QUIET: Final = {
    # Progress is shown by progress.py.
    "spark.ui.showConsoleProgress": "false",
}
# PySpark logs each error that it raises.
_LOGGERS_OF_RAISED: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def pipeline_session(
    app_name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    fast_start: bool = False,
) -> Iterator[SparkSession]:
    """A session for one command, stopped at its end. An existing session is used and left running.

    A PipelineError raised inside gets a line with the path of Spark's log. ConfigError if Spark did not
    start.
    """
    if _prepare():
        yield local_session(app_name, master=master, settings=settings)
        return
    folder = Path(tempfile.mkdtemp(prefix="kourou-spark-"))
    log, warehouse = folder / "spark.log", folder / "warehouse"
    # Spark creates a warehouse folder even if unused; keep it out of the working directory.
    ours = {**_QUIET, "spark.sql.warehouse.dir": str(warehouse), **(settings or {})}
    try:
        with _default_interrupts():
            with _starting_notice(), _stderr_to(log):
                spark = _start(app_name, master, ours, fast_start, log)
            try:
                yield spark
            finally:
                with suppress(Exception):  # the JVM may be gone already
                    spark.stop()
    except PipelineError as error:
        shutil.rmtree(warehouse, ignore_errors=True)
        raise PipelineError(f"{error}\nSpark's log: {log}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _prepare() -> bool:
    """Whether a session exists already. ConfigError if PySpark is missing."""
    try:
        from pyspark import SparkContext
        from pyspark.logger import PySparkLogger
    except ImportError as error:
        raise ConfigError(f"{_INSTALL} ({error})") from error
    for name in _LOGGERS_OF_RAISED:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_py4js)
    # Not the active session, which is per thread: a session of another thread must not be stopped.
    return SparkContext._active_spark_context is not None


def _start(
    app_name: str, master: str, settings: Mapping[str, str], fast_start: bool, log: Path
) -> SparkSession:
    try:
        spark = local_session(app_name, master=master, settings=settings, fast_start=fast_start)
    except ConfigError as error:
        raise ConfigError(*error.problems, *_last_messages(log.read_text(errors="replace"))) from error
    except KeyboardInterrupt as interrupt:
        _kill_jvm(interrupt)
        raise
    _use_default_handler()  # PySpark has installed its own handler
    return spark


def _last_messages(log: str) -> list[str]:
    """The last lines of Spark's log that are not those of a stack trace."""
    lines = [line for line in log.splitlines() if line.strip() and not _STACK_FRAME.match(line)]
    return lines[-_TAIL_LINES:]


def _kill_jvm(interrupt: KeyboardInterrupt) -> None:
    """Kill a JVM whose start was interrupted: it would never end while PySpark waits for it. PySpark keeps it
    in its gateway once it answers, and before that in a local variable of the waiting function."""
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
    """Show a line on a terminal while Spark starts."""
    if not sys.stderr.isatty():
        yield
        return
    print("Starting Spark …", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(_ERASED_LINE, end="", file=sys.stderr, flush=True)


@contextmanager
def _default_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt only. PySpark's own handler calls the JVM, perhaps from within
    another call."""
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
    """Py4J logs interrupted calls and a lost JVM to the root logger, with stack traces; the caller gets an
    exception anyway."""
    return "py4j" not in Path(record.pathname).parts


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Child processes started inside write their standard error to the file."""
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
