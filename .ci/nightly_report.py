"""The committed report of the last nightly run, and the journal that lets an interrupted run go on.

Not here: which suites run (suites.py), how they are run (runner.py).
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import subprocess
from collections.abc import Sequence
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
    """The results of this commit so far: one line of JSON for each task that ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._commit = commit()

    def add(self, result: Result) -> None:
        """Note a result."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a") as journal:
            journal.write(json.dumps({"commit": self._commit, **dataclasses.asdict(result)}) + "\n")

    def passed(self) -> dict[str, Result]:
        """What passed on this commit; nothing if the tree has changes, since they may differ."""
        if not self._path.exists() or self._commit.endswith("+changes"):
            return {}
        rows = [json.loads(line) for line in self._path.read_text().splitlines()]
        return {
            row["name"]: _result(row)
            for row in rows
            if row.pop("commit") == self._commit and row["outcome"] == OK
        }


def _result(row: dict[str, object]) -> Result:
    counts = row.pop("counts")
    slowest = row.pop("slowest")
    return Result(
        **{**row, "loops": tuple(row["loops"])},  # type: ignore[arg-type]
        counts=Counts(**counts) if counts else None,  # type: ignore[arg-type]
        slowest=tuple((seconds, name) for seconds, name in slowest),  # type: ignore[union-attr]
    )


def write(results: Sequence[Result], wall_s: float) -> Path:
    """Write the report; returns its path."""
    total = total_counts(results)
    is_ok = all(result.outcome == OK for result in results)
    suites = [result for result in results if result.counts is not None or result.outcome != OK]
    rows = [_row(result) for result in suites]
    loops = [f"- {result.name}: {line}" for result in suites for line in result.loops]
    REPORT.write_text(
        "\n".join(
            [
                "# The last nightly run",
                "",
                f"`make nightly`, {datetime.date.today()}, commit {commit()}, {available_cores()} cores, "
                f"Python {platform.python_version()}: **{'passed' if is_ok else 'failed'}**, "
                f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped, "
                f"{wall_s / 60:.0f} minutes.",
                "",
                "| suite | outcome | time, s | CPU, s | passed | failed | skipped |",
                "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
                *rows,
                "",
                *(["## Fault loops", "", *loops, ""] if loops else []),
            ]
        )
    )
    return REPORT


def _row(result: Result) -> str:
    counts = result.counts or Counts()
    outcome = f"{result.outcome}: {result.reason}" if result.reason else result.outcome
    times = "| | |" if result.outcome == NOT_RUN else f"| {result.wall_s:.0f} | {result.cpu_s:.0f} |"
    return f"| {result.name} | {outcome} {times} {counts.passed} | {counts.failed} | {counts.skipped} |"
