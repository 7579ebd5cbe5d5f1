"""AuditLog: one JSON line for each change that was made or tried through the console.

    {"time": "2026-11-18T10:15:30.123Z", "user": "ada", "address": "10.0.0.7", "operation": "post_topics",
     "path": "/api/topics", "body": {…}, "effects": ["Creates topic orders …"], "outcome": "done",
     "problems": []}

`outcome` is `done`, `partly` (some targets failed) or `failed`.
A line is complete on return of `append`, in the page cache. Files are not rotated here; the usual tools can
do it, since the file is opened for each line.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kourou.config.home import folder_problem
from kourou.errors import ConfigError

_log = logging.getLogger(__name__)

_FILE_MODE: Final = 0o600
_BLOCK_BYTES: Final = 64 * 1024


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    time: str
    user: str
    """Empty without a login."""
    address: str
    operation: str
    path: str
    body: Any = None
    """Without secrets."""
    effects: list[str] = []
    outcome: str = "done"
    problems: list[str] = []


class AuditLog:
    """Appends records to a file, and reads them back, newest first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Create the file if there is none. ConfigError if it cannot be written: changes without a record
        are not allowed."""
        problem = folder_problem(self.path.parent)
        if problem is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._open().close()
                return
            except OSError as error:
                problem = f"{self.path}: {error.strerror}"
        raise ConfigError(f"the audit log cannot be written: {problem}; choose another file with --audit-log")

    def append(self, record: AuditRecord) -> None:
        """Write one line. If the disk refuses, the line goes to the log: the change has happened."""
        line = msgspec.json.encode(record)
        try:
            with self._open() as file:
                file.write(line + b"\n")
        except OSError as error:
            _log.error("%s: cannot write the audit log: %s; record: %s", self.path, error, line.decode())

    def newest_first(self) -> Iterator[AuditRecord]:
        """All records that can be read; others are skipped."""
        for line in _lines_backwards(self.path):
            try:
                yield msgspec.json.decode(line, type=AuditRecord)
            except msgspec.MsgspecError:
                continue

    def _open(self) -> Any:
        return open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _FILE_MODE), "ab")


def _lines_backwards(path: Path) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        at = file.seek(0, os.SEEK_END)
        rest = b""
        while at > 0:
            size = min(_BLOCK_BYTES, at)
            at = file.seek(at - size)
            first, *lines = (file.read(size) + rest).split(b"\n")
            rest = first
            yield from (line for line in reversed(lines) if line)
        if rest:
            yield rest
