"""Figures of several rounds and brokers as a table: medians, ratios with their spread, the machine."""

from __future__ import annotations

import datetime
import math
import os
import platform
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

NOTHING = "–"


@dataclass(frozen=True)
class Figure:
    """One number of one row, over all rounds and brokers. A round that failed is NaN."""

    row: str
    unit: str
    more_is_better: bool
    rounds: dict[str, list[float]] = field(default_factory=dict)
    kind: str = ""

    def add(self, name: str, value: float) -> None:
        """Another round of a broker."""
        self.rounds.setdefault(name, []).append(value)

    def put(self, name: str, round_number: int, value: float) -> None:
        """The value of a round, counted from 0; rounds that were left out before it have failed."""
        values = self.rounds.setdefault(name, [])
        values += [math.nan] * (round_number - len(values))
        values.append(value)

    def median(self, name: str) -> float:
        """The middle of all rounds of a broker; NaN if there is none."""
        values = [value for value in self.rounds.get(name, []) if not math.isnan(value)]
        return statistics.median(values) if values else math.nan

    def ratios(self, ours: str, theirs: str) -> list[float]:
        """How much better ours is, round by round: what ran within the same minute is compared."""
        pairs = zip(self.rounds.get(ours, []), self.rounds.get(theirs, []), strict=False)
        found = [_better(mine, other, self.more_is_better) for mine, other in pairs]
        return [ratio for ratio in found if not math.isnan(ratio)]


def _better(mine: float, other: float, more_is_better: bool) -> float:
    above, below = (mine, other) if more_is_better else (other, mine)
    if math.isnan(above) or math.isnan(below):
        return math.nan
    return above / below if below else math.inf


def table(figures: list[Figure], names: list[str]) -> str:
    """Markdown: a line per figure, a column per broker, and how the first compares with each other one."""
    ours, *others = names
    heads = ["", "unit", *names, *(f"{ours} : {name}" for name in others)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for figure in figures:
        cells = [figure.row, figure.unit, *(number(figure.median(name)) for name in names)]
        cells += [spread(figure.ratios(ours, name)) for name in others]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def spread(ratios: list[float]) -> str:
    """The median of ratios, with the smallest and the largest where there are several."""
    if not ratios:
        return NOTHING
    middle = f"{statistics.median(ratios):.2f}"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f}–{max(ratios):.2f})"


def number(value: float) -> str:
    """As many digits as are worth reading."""
    if math.isnan(value):
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cpu_model() -> str:
    """What the processor calls itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> str:
    """What it ran on."""
    return (
        f"{datetime.date.today()}, {cpu_model()}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def machine_name(model: str, cores: int) -> str:
    """Processor and cores as part of a file's name, such as `xeon-2.50ghz-2c`."""
    plain = re.sub(r"\((R|TM|C)\)|\b(CPU|Processor|Intel|AMD|with|\d+-Core)\b", " ", model, flags=re.I)
    words = re.findall(r"[a-z0-9.]+", plain.lower())
    return "-".join([*words[:4], f"{cores}c"])
