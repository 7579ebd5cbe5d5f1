"""Logging of a server process: a rotating file and the console, written by a thread of their own.

For entry points only; a library never sets handlers. The event loop puts its records into a queue: it never
waits for the disk. The queue is bounded; when the disk cannot keep up, records are dropped and counted, and
the count is logged.
"""

from __future__ import annotations

import logging
import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import Final

from kourou.errors import ConfigError

FILE_ONLY: Final = {"is_told_already": True}
"""`extra` of a record that is not shown on the console, where it is printed in another way."""

Records = queue.Queue[logging.LogRecord | None]

_LINE = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s - %(message)s"
_CONSOLE_LINE = "%(levelname)s: %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"


class LogLevel(StrEnum):
    """The least severe level that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class LogConfig:
    """Where log lines go. `path` None means the console only."""

    path: Path | None
    level: LogLevel = LogLevel.INFO
    # On the console only what an operator has to act on; the rest is in the file.
    console_level: LogLevel = LogLevel.WARNING
    # Apache's name server keeps about as much: files of 100 MB, the last few of them.
    max_bytes: int = 100 * 1024 * 1024
    backups: int = 5
    # Some seconds of a busy log; a record is about 1 KiB in memory.
    queue_records: int = 10_000


@contextmanager
def logging_to(config: LogConfig) -> Iterator[None]:
    """Log as configured; on leaving, everything logged so far is in the file.

    ConfigError if the file cannot be written.
    """
    handlers = _handlers(config)
    records: Records = queue.Queue(config.queue_records)
    listener = _WaitingListener(records, *handlers)
    root = logging.getLogger()
    entrance = _DroppingHandler(records)
    before = root.level
    root.addHandler(entrance)
    root.setLevel(min(handler.level for handler in handlers))
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(entrance)
        root.setLevel(before)
        listener.stop()
        for handler in handlers:
            handler.close()


def _handlers(config: LogConfig) -> list[logging.Handler]:
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(logging.Formatter(_CONSOLE_LINE))
    console.setLevel(config.console_level.upper())
    console.addFilter(lambda record: not getattr(record, "is_told_already", False))
    if config.path is None:
        console.setFormatter(logging.Formatter(_LINE, _TIME))
        console.setLevel(config.level.upper())
        return [console]
    return [_file_handler(config, config.path), console]


def can_write(path: Path) -> bool:
    """Whether a log file can be opened there; makes the file and its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError:
        return False
    return True


def _file_handler(config: LogConfig, path: Path) -> logging.Handler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(
            path, maxBytes=config.max_bytes, backupCount=config.backups, encoding="utf-8"
        )
    except OSError as error:
        raise ConfigError(f"log file {path}: cannot be written: {error.strerror or error}") from error
    handler.setFormatter(logging.Formatter(_LINE, _TIME))
    handler.setLevel(config.level.upper())
    return handler


class _DroppingHandler(QueueHandler):
    """Puts records into the queue, never waiting: a full queue drops the record and counts it."""

    def __init__(self, records: Records) -> None:
        super().__init__(records)
        self._dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                self.queue.put_nowait(self._dropped_record())
                self._dropped = 0
            self.queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def _dropped_record(self) -> logging.LogRecord:
        message = f"{self._dropped} log lines dropped: the log file cannot be written fast enough"
        return logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, None, None)


class _WaitingListener(QueueListener):
    """Waits for room to announce the end, where the queue is full at that moment."""

    def __init__(self, records: Records, *handlers: logging.Handler) -> None:
        super().__init__(records, *handlers, respect_handler_level=True)
        self._records = records

    def enqueue_sentinel(self) -> None:
        self._records.put(None)
