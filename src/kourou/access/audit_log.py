"""AuditLog: a line of JSON for each refusal and each administrative request.

    {"time":"2026-11-18T20:00:00.123Z","event":"refused","kind":"no permission","user":"alice",
     "address":"10.0.0.1","code":310,"request":"SEND_MESSAGE_V2","resource":"Topic:orders","remark":"…"}
    {"time":…,"event":"admin","user":"root","address":…,"code":17,"request":…,"resource":…,"outcome":0}

The first refusal of a kind, user, address and request is a line at once; those that follow within the
interval are one line with their number, `count`. When too many kinds come at a time, as in an attack
with many users, the rest is counted by kind only: memory and file are bounded. Secrets are never in a line:
of the fields of a request only names are.
Lines wait in memory until `write`, which is called in a disk thread. Not here: when (broker/access/part.py).
"""

from __future__ import annotations

import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from kourou.access.model import AccessCall, AccessRefusedError
from kourou.protocol.codes import RequestCode

_log = logging.getLogger(__name__)

MAX_KINDS: Final = 10_000
"""Kinds of refusals that are counted at a time."""
MAX_LINES: Final = 20_000
"""Lines that wait to be written."""
MAX_REFUSAL_LINES: Final = 200
"""Lines for new kinds of refusals between two writes."""
_MAX_TEXT: Final = 500
_MAX_USER: Final = 128
_NAMES: Final = {int(code): code.name for code in RequestCode}

_Kind = tuple[str, str, str, int]


@dataclass(slots=True)
class _Refusals:
    begun_ms: int
    line: dict[str, object]
    count: int = 0
    """Those that are not in the file yet."""


class AuditLog:
    """What is written, in the order in which it happened. Everything but `write` is called on the loop."""

    def __init__(self, file: RotatedFile, *, interval_ms: int, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._interval_ms = interval_ms
        self._now_ms = now_ms
        self._kinds: OrderedDict[_Kind, _Refusals] = OrderedDict()
        self._lines: list[bytes] = []
        self._new_kinds = 0
        self._uncounted: Counter[str] = Counter()
        self._dropped = 0
        self._problem = ""

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def refused(self, call: AccessCall, error: AccessRefusedError, resource: str) -> None:
        """A request was refused."""
        now_ms = self._now_ms()
        kind = (error.kind.value, (error.user or call.access_key)[:_MAX_USER], call.address, call.code)
        found = self._kinds.get(kind)
        if found is not None:
            found.count += 1
            return
        if self._new_kinds >= MAX_REFUSAL_LINES or len(self._kinds) >= MAX_KINDS:
            self._uncounted[error.kind.value] += 1
            return
        self._new_kinds += 1
        line = {
            "event": "refused",
            "kind": kind[0],
            "user": kind[1],
            "address": call.address,
            "code": call.code,
            "request": name_of(call.code),
            "resource": resource[:_MAX_TEXT],
            "remark": error.remark[:_MAX_TEXT],
        }
        self._kinds[kind] = _Refusals(now_ms, line)
        self._add(now_ms, line)

    def administered(self, *, user: str, address: str, code: int, resource: str, outcome: int | None) -> None:
        """An administrative request has its answer: `outcome` is its code, None if there is no answer."""
        self._add(
            self._now_ms(),
            {
                "event": "admin",
                "user": user[:_MAX_USER],
                "address": address,
                "code": code,
                "request": name_of(code),
                "resource": resource[:_MAX_TEXT],
                "outcome": outcome,
            },
        )

    def take(self, *, is_last: bool = False) -> list[bytes]:
        """The lines to be written now, with those of refusals whose interval is over; of all, at a stop."""
        now_ms = self._now_ms()
        for kind, refusals in list(self._kinds.items()):
            if not is_last and abs(now_ms - refusals.begun_ms) < self._interval_ms:
                break
            del self._kinds[kind]
            if refusals.count:
                self._add(now_ms, {**refusals.line, "count": refusals.count})
        for name, count in self._uncounted.items():
            self._add(now_ms, {"event": "refused", "kind": name, "count": count})
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._lines.append(_encoded(now_ms, {"event": "dropped", "count": dropped}))
        self._uncounted.clear()
        self._new_kinds = 0
        lines, self._lines = self._lines, []
        return lines

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines to the file; what cannot be written is dropped, and logged once. Waits for the
        disk."""
        if not lines:
            return
        try:
            self._file.append(lines)
            self._problem = ""
        except OSError as error:
            problem = f"{self._file.path}: {error.strerror or error}"
            if problem != self._problem:
                _log.error("lines of the audit log are dropped: %s", problem)
            self._problem = problem

    def _add(self, now_ms: int, line: dict[str, object]) -> None:
        if len(self._lines) >= MAX_LINES:
            self._dropped += 1
        else:
            self._lines.append(_encoded(now_ms, line))


def name_of(code: int) -> str:
    """The name of a request code; its number if it has none."""
    return _NAMES.get(code, str(code))


def _encoded(now_ms: int, line: dict[str, object]) -> bytes:
    time = datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return msgspec.json.encode({"time": time.replace("+00:00", "Z"), **line}) + b"\n"


class RotatedFile:
    """A file that becomes `.1` when it is large, `.1` becomes `.2`, up to `backups`. Only its owner reads
    it."""

    def __init__(self, path: Path, *, max_bytes: int, backups: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._backups = backups

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines, in a new file if this one is full. OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with open(fd, "ab") as file:
            file.write(b"".join(lines))
            is_full = file.tell() >= self._max_bytes
        if is_full:
            self._rotate()

    def _rotate(self) -> None:
        for number in range(self._backups, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        if not self._backups:
            self.path.unlink()

    def _numbered(self, number: int) -> Path:
        return self.path if number == 0 else self.path.with_name(f"{self.path.name}.{number}")
