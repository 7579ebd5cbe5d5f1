"""The result of `doctor`: findings, and what could not be checked."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kourou.admin.replication import SlaveLag


class Severity(enum.StrEnum):
    """The urgency of a finding."""

    PROBLEM = "problem"
    """Messages are lost, rejected or not delivered: fix it now."""
    WARNING = "warning"
    """It works, but not well, or not for long."""
    HINT = "hint"
    """Possibly intended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, its effect and its cure."""

    severity: Severity
    check: str
    where: str
    what: str
    """What was observed."""
    meaning: str
    """What follows from it."""
    cure: str
    """What to do."""
    commands: tuple[str, ...] = ()
    """Complete command lines of the cure, to copy and run."""


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """What is the same in several places, such as on a disk that brokers share, as one finding that names
    them."""
    found: dict[Finding, Finding] = {}
    for finding in findings:
        key = replace(finding, where="", commands=())
        same = found.get(key)
        if same is not None:
            commands = dict.fromkeys((*same.commands, *finding.commands))
            finding = replace(same, where=f"{same.where}, {finding.where}", commands=tuple(commands))
        found[key] = finding
    return list(found.values())


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Something that could not be checked."""

    check: str
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings, the worst first."""

    brokers: int
    topics: int
    groups: int
    findings: list[Finding]
    not_checked: list[NotChecked]
    slaves: list[SlaveLag] = field(default_factory=list)
    """How far each slave is behind its master."""

    @property
    def problems(self) -> int:
        """The number of findings that need a fix."""
        return sum(finding.severity is Severity.PROBLEM for finding in self.findings)
