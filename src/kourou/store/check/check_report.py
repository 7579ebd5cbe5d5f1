"""CheckReport: what a check of a store found.

Three kinds of findings. A violation breaks an invariant and is not repaired automatically. What the
next start of a broker repairs (after a kill, mostly) is listed under `recovery`. Notes are worth
knowing and harm nothing. Not here: the checks (check.py and its siblings).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from kourou.store.check.invariants import Invariant

# Findings of one kind in one place that are listed singly; one cause often breaks thousands.
MAX_ALIKE: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found: in which file, at which byte of it (None: the file as a whole), what."""

    path: Path
    position: int | None
    what: str
    invariant: Invariant | None = None

    def text(self, root: Path) -> str:
        """One line, with the path as seen from `root`."""
        where = str(relative(self.path, root))
        return (
            f"{where}: {self.what}"
            if self.position is None
            else f"{where}: byte {self.position}: {self.what}"
        )

    def as_json(self, root: Path) -> dict[str, Any]:
        """The same as plain values."""
        found: dict[str, Any] = {
            "file": str(relative(self.path, root)),
            "position": self.position,
            "what": self.what,
        }
        if self.invariant is not None:
            found["invariant"] = self.invariant.name
        return found


def relative(path: Path, root: Path) -> Path:
    """`path` as seen from the store's folder, where it lies in it."""
    return path.relative_to(root) if path.is_relative_to(root) else path


@dataclass(slots=True)
class CheckCounts:
    """How much was looked at."""

    log_files: int = 0
    log_bytes: int = 0
    records: int = 0
    queues: int = 0
    queue_files: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0


@dataclass(slots=True)
class CheckReport:
    """The outcome. `unreadable` are violations, too: their contents were not checked."""

    root: Path
    is_clean: bool = True
    in_use: bool = False
    log_min_phy_offset: int = 0
    log_end_phy_offset: int = 0
    violations: list[Finding] = field(default_factory=list)
    recovery: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    counts: CheckCounts = field(default_factory=CheckCounts)

    @property
    def ok(self) -> bool:
        """Nothing is wrong except what a start would repair."""
        return not self.violations

    @property
    def unreadable(self) -> list[Finding]:
        """The violations that are files which cannot be read."""
        return [found for found in self.violations if found.invariant is Invariant.READABLE]

    @property
    def bytes(self) -> int:
        """Bytes of the CommitLog that were looked at."""
        return self.counts.log_bytes

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "root": str(self.root),
            "ok": self.ok,
            "cleanExit": self.is_clean,
            "inUse": self.in_use,
            "commitLog": {"minOffset": self.log_min_phy_offset, "maxOffset": self.log_end_phy_offset},
            "counts": {_camel_case(name): value for name, value in asdict(self.counts).items()},
            "violations": [found.as_json(self.root) for found in self.violations],
            "recovery": [found.as_json(self.root) for found in self.recovery],
            "notes": [found.as_json(self.root) for found in self.notes],
        }


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


class Findings:
    """Collects what is found into a report, and keeps floods out of it."""

    __slots__ = ("_alike", "report")

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        self._alike: Counter[tuple[Path, Invariant | None, bool]] = Counter()

    def violation(self, invariant: Invariant, path: Path, position: int | None, what: str) -> None:
        """Report a broken invariant."""
        self._add(self.report.violations, Finding(path, position, what, invariant))

    def recovery(self, path: Path, position: int | None, what: str) -> None:
        """Report what the next start will repair; `what` continues "recovery will"."""
        self._add(self.report.recovery, Finding(path, position, f"recovery will {what}"))

    def note(self, path: Path, position: int | None, what: str) -> None:
        """Report something that is not an error."""
        self._add(self.report.notes, Finding(path, position, what))

    def unreadable(self, path: Path, error: OSError) -> None:
        """A file cannot be read."""
        self.violation(Invariant.READABLE, path, None, f"cannot be read: {error.strerror or error}")

    def _add(self, found: list[Finding], finding: Finding) -> None:
        key = (finding.path, finding.invariant, found is self.report.notes)
        self._alike[key] += 1
        if self._alike[key] <= MAX_ALIKE:
            found.append(finding)

    def close(self) -> None:
        """Say how much was left out, and put violations in the order of files and bytes."""
        self.report.violations.sort(key=lambda found: (str(found.path), found.position or 0))
        for (path, invariant, is_note), count in self._alike.items():
            if count > MAX_ALIKE:
                more = Finding(path, None, f"{count - MAX_ALIKE} more like these", invariant)
                (self.report.violations if invariant else self._plain(is_note)).append(more)

    def _plain(self, is_note: bool) -> list[Finding]:
        return self.report.notes if is_note else self.report.recovery
