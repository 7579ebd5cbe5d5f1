"""doctor's findings, with their cures."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import msgspec

from kourou.admin.doctor.findings import DoctorReport, Severity
from kourou.admin.doctor.process import diagnose_apart
from kourou.admin.session import Admin, command_line
from kourou.clock import wall_ms
from kourou.console.endpoints import Call, Endpoint, NoBody, Read
from kourou.console.refusals import readable
from kourou.console.shared_read import SharedRead

# Two looks at the cluster, and a request for every group in between: not for each visit of the page.
_KEEP_S: Final = 300.0


class FindingCounts(msgspec.Struct, frozen=True):
    """How many findings there are of each severity."""

    problems: int
    warnings: int
    hints: int
    as_of: int


class Examination(msgspec.Struct, frozen=True):
    """A report, and when it was made."""

    report: DoctorReport
    as_of: int
    commands: list[str]


class Doctor:
    """Examines the cluster for all users of an account together. `limiter` bounds the examinations at the
    same time, of all accounts: each is a process."""

    def __init__(self, admin: Admin, *, limiter: asyncio.Semaphore, watch_s: float) -> None:
        self._admin = admin
        self._limiter = limiter
        self._watch_s = watch_s
        self._shared = SharedRead(self._examine, _KEEP_S)
        self._last: Examination | None = None

    def counts(self) -> FindingCounts | None:
        """The findings of the last examination; None if there was none."""
        if self._last is None:
            return None
        by_severity = [finding.severity for finding in self._last.report.findings]
        return FindingCounts(
            problems=by_severity.count(Severity.PROBLEM),
            warnings=by_severity.count(Severity.WARNING),
            hints=by_severity.count(Severity.HINT),
            as_of=self._last.as_of,
        )

    async def examination(self, *, is_new: bool) -> Examination:
        """The last examination, or a new one; takes some seconds then."""
        return await self._shared.get(is_new=is_new)

    async def stop(self) -> None:
        """Abort an examination that is under way."""
        await self._shared.stop()

    async def _examine(self) -> Examination:
        async with self._limiter:
            report = await diagnose_apart(self._admin, watch_s=self._watch_s)
        not_checked = [replace(one, reason=readable(one.reason)) for one in report.not_checked]
        report = replace(report, not_checked=not_checked)
        commands = [command_line(self._admin.namesrvs, "doctor")]
        self._last = Examination(report, wall_ms(), commands)
        return self._last


class DoctorQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether to examine again."""

    new: bool = False


async def _report(call: Call[DoctorQuery, NoBody]) -> Examination:
    return await call.session.doctor.examination(is_new=call.query.new)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/doctor",
        summary="Problems of the cluster and how to fix them; takes some seconds",
        query=DoctorQuery,
        handler=_report,
        returns=Examination,
    ),
)
