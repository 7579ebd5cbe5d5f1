"""FaultyMachine: counts the calls to a faulty disk, and knows whether the power is on.

Shared by `FaultyFiles` and its open files: serialises calls, raises due faults, and crashes. Every call
begins with `call` (a write: `due_fault`); a change ends with `stop_here`.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from kourou.testing.faults import CHANGES, SYNCS, Fault


class SimulatedCrash(BaseException):
    """The power is off. Not an error to handle: nothing reaches the disk any more."""


class FaultyMachine:
    """`changes` counts the calls that change something; `sync_points` has the number of each sync.

    With `cold` nothing is ever found in the page cache.
    """

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self.changes = 0
        self.sync_points: list[int] = []
        self.faults: list[Fault] = []
        self.crashed = False
        self.cold = False
        self.crash_at: int | None = None
        self.now = 0

    def restart(self) -> None:
        """Turn the power on again, without faults."""
        self.faults.clear()
        self.crashed, self.crash_at = False, None

    def call(self, kind: str, path: Path) -> None:
        """Called at the start of every call but a write; raises a due fault."""
        due = self.due_fault(kind, path)
        if due is not None:
            code = due.error or errno.EIO
            raise OSError(code, os.strerror(code), str(path))

    def due_fault(self, kind: str, path: Path) -> Fault | None:
        """Count a call; returns its fault, if any."""
        with self.turn:
            if self.crashed:
                raise SimulatedCrash
            if kind in CHANGES:
                self.changes += 1
            if kind in SYNCS:
                self.sync_points.append(self.changes)
            due = [fault for fault in self.faults if fault.is_due(kind, path)]
            return due[0] if due else None

    def tick(self) -> int:
        """The time of the next change."""
        self.now += 1
        return self.now

    def stop_here(self) -> None:
        """Called at the end of every change; crashes if power is lost in it."""
        if self.crash_at is not None and self.changes >= self.crash_at:
            self.crashed = True
            raise SimulatedCrash
