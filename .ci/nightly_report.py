"""The committed report of the last nightly run, and the journal that lets an interrupted run go on.

Not here: which suites run (suites.py), how they are run (runner.py).
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner import NOT_RUN, OK, ROOT, Counts, Result, available_cores, total_counts

REPORT = ROOT / "benchmarks" / "results" / "nightly-latest.md"


def commit() -> str:
    """The commit of this tree; `+changes` if there is more in it than in the commit (but for the report)."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", f":!{REPORT.relative_to(ROOT)}")
    return f"{head}+changes" if changed else head


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


class Journal:
    """The results so far: one line of JSON for each task that ended.

    A result counts if it is of this commit, or of one since `since`. `commits` has the commit of each result.
    """

    def __init__(self, path: Path, since: str | None = None) -> None:
        self._path = path
        self._commit = commit()
        self._counted = {self._commit}
        if since is not None:
            self._counted |= {line[:12] for line in _git("rev-list", f"{since}^..HEAD").splitlines()}
        self.commits: dict[str, str] = {}

    def add(self, result: Result) -> None:
        """Record a result."""
        self.commits[result.name] = self._commit
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a") as journal:
            journal.write(json.dumps({"commit": self._commit, **dataclasses.asdict(result)}) + "\n")

    def passed(self) -> dict[str, Result]:
        """What passed and counts; nothing if the tree has changes, since they may differ."""
        if not self._path.exists() or self._commit.endswith("+changes"):
            return {}
        passed: dict[str, Result] = {}
        for line in self._path.read_text().splitlines():
            row = json.loads(line)
            row_commit = row.pop("commit")
            if row_commit in self._counted and row["outcome"] == OK:
                passed[row["name"]] = _result(row)
                self.commits[row["name"]] = row_commit
        return passed


def _result(row: dict[str, object]) -> Result:
    counts = row.pop("counts")
    slowest = row.pop("slowest")
    return Result(
        **{**row, "loops": tuple(row["loops"]), "failed": tuple(row.get("failed", ()))},  # type: ignore[arg-type]
        counts=Counts(**counts) if counts else None,  # type: ignore[arg-type]
        slowest=tuple((seconds, name) for seconds, name in slowest),  # type: ignore[union-attr]
    )


def write(results: Sequence[Result], wall_s: float, commits: Mapping[str, str]) -> Path:
    """Write the report; returns its path. `commits` has the commit at which each task ran."""
    total = total_counts(results)
    is_ok = all(result.outcome == OK for result in results)
    suites = [result for result in results if result.counts is not None or result.outcome != OK]
    rows = [_row(result, commits.get(result.name, "")) for result in suites]
    loops = [f"- {result.name}: {line}" for result in suites for line in result.loops]
    REPORT.write_text(
        "\n".join(
            [
                "# The last nightly run",
                "",
                f"`make nightly`, {datetime.date.today()}, commit {commit()}, {available_cores()} cores, "
                f"Python {platform.python_version()}: **{'passed' if is_ok else 'failed'}**, "
                f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped, "
                f"{sum(result.wall_s for result in results) / 60:.0f} minutes of suites, some of them side "
                f"by side; the last run took {wall_s / 60:.0f} minutes.",
                "",
                "| suite | commit | outcome | time, s | CPU, s | passed | failed | skipped |",
                "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
                *rows,
                "",
                *(["## Fault loops", "", *loops, ""] if loops else []),
            ]
        )
    )
    return REPORT


def _row(result: Result, commit: str) -> str:
    counts = result.counts or Counts()
    outcome = f"{result.outcome}: {result.reason}" if result.reason else result.outcome
    times = "| | |" if result.outcome == NOT_RUN else f"| {result.wall_s:.0f} | {result.cpu_s:.0f} |"
    numbers = f"{counts.passed} | {counts.failed} | {counts.skipped}"
    return f"| {result.name} | {commit} | {outcome} {times} {numbers} |"
