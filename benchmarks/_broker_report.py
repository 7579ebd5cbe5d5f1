"""Figures of several rounds and brokers as a table: medians, ratios with their spread, the machine."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One number of one row, over all rounds and brokers."""

    row: str
    unit: str
    more_is_better: bool
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Another round of a broker."""
        self.rounds.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        """The middle of all rounds of a broker."""
        return statistics.median(self.rounds[name])

    def ratios(self, ours: str, theirs: str) -> list[float]:
        """How much better ours is, round by round: what ran within the same minute is compared."""
        pairs = zip(self.rounds[ours], self.rounds[theirs], strict=True)
        return [_better(mine, other, self.more_is_better) for mine, other in pairs]


def _better(mine: float, other: float, more_is_better: bool) -> float:
    above, below = (mine, other) if more_is_better else (other, mine)
    return above / below if below else float("inf")


def table(figures: list[Figure], names: list[str]) -> str:
    """Markdown: a line per figure, a column per broker, and how the first compares with each other one."""
    ours, *others = names
    heads = ["", "unit", *names, *(f"{ours} : {name}" for name in others)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for figure in figures:
        cells = [figure.row, figure.unit, *(_number(figure.median(name)) for name in names)]
        cells += [_spread(figure.ratios(ours, name)) for name in others]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(ratios: list[float]) -> str:
    middle = f"{statistics.median(ratios):.2f}"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f}–{max(ratios):.2f})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def machine() -> str:
    """What it ran on."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return (
        f"{datetime.date.today()}, {cpu}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )
