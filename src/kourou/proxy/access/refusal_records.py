"""RefusalRecords: what a proxy of its own writes of the calls that it refuses: the audit log, and a line with
their number in the log.

Not here: what is refused (access/gate.py), the lines of the audit log (access/audit_log.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from kourou.access.audit_log import AuditLog
from kourou.access.gate import AccessGate
from kourou.access.model import RefusalKind
from kourou.wording import counted

_log = logging.getLogger(__name__)

_WRITE_S: Final = 1.0
_LOG_EVERY: Final = 10
"""Writes from one line in the log to the next."""


class RefusalRecords:
    """The records of one gate."""

    def __init__(self, gate: AccessGate, audit_log: AuditLog | None) -> None:
        self._gate = gate
        self._audit_log = audit_log
        self._logged: Counter[RefusalKind] = Counter()
        self._pause = 0

    async def write_forever(self) -> None:
        """Write what has happened again and again."""
        while True:
            await asyncio.sleep(_WRITE_S)
            await self.write()

    async def write(self, *, is_last: bool = False) -> None:
        """Write the lines of the audit log, and count what was refused; the last time all of it."""
        log = self._audit_log
        if log is not None and (lines := log.take(is_last=is_last)):
            await asyncio.to_thread(log.write, lines)
        self._pause = max(0, self._pause - 1)
        if is_last or not self._pause:
            self._count()

    def _count(self) -> None:
        new = self._gate.refusals - self._logged
        if not new:
            return
        self._logged = Counter(self._gate.refusals)
        self._pause = _LOG_EVERY
        kinds = ", ".join(f"{kind.value} {new[kind]}" for kind in RefusalKind if new[kind])
        where = "accessAuditLogEnable is false" if self._audit_log is None else f"see {self._audit_log.path}"
        _log.warning("%s refused: %s; %s", counted(new.total(), "gRPC call"), kinds, where)
