"""What a doctor says: findings, and what it could not look at."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """How bad it is."""

    PROBLEM = "problem"
    """Messages are lost, refused, or do not arrive: mend it now."""
    WARNING = "warning"
    """It works, but not as it should, or not for long."""
    HINT = "hint"
    """It may be meant so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that an expert would point at."""

    severity: Severity
    check: str
    where: str
    what: str
    """What there is to see."""
    meaning: str
    """What comes of it."""
    cure: str
    """What to do."""
    commands: tuple[str, ...] = ()
    """Command lines of the cure, complete: to be copied and run."""


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Something that could not be looked at."""

    check: str
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All that was found, the worst first."""

    brokers: int
    topics: int
    groups: int
    findings: list[Finding]
    not_checked: list[NotChecked]

    @property
    def problems(self) -> int:
        """How many findings have to be mended."""
        return sum(finding.severity is Severity.PROBLEM for finding in self.findings)
