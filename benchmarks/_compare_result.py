"""What a run of `compare` found: as tables (.md), and as data (.json) for the README and the plots."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._broker_report import Figure, number, spread, table

SECTIONS = (
    ("Rates", ("rate", "share")),
    ("Latency", ("latency",)),
    ("Server CPU a message", ("cpu",)),
    ("Start and memory", ("time", "memory")),
)
PERCENTILES = ("p50", "p99", "p99.9", "worst")
# Of the README's table; the results file has all.
HEADLINES = (
    "send, async flush, 1×1",
    "send, async flush, 16×64",
    "send, sync flush, 16×64",
    "pull of 32, 4×8",
    "read a backlog of 1 KiB messages, cold",
    "start to first accepted send",
)


@dataclass
class Result:
    """One run, while it goes on and when it is over."""

    names: list[str]
    form: str
    command: str
    date: str
    machine: str
    setting: str
    figures: list[Figure] = field(default_factory=list)
    other_cores: dict[str, list[float]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)
    took_s: float = 0.0

    def figure(self, name: str, unit: str, kind: str, *, more_is_better: bool) -> Figure:
        """The figure of this name, a new one at its first value."""
        for figure in self.figures:
            if figure.row == name:
                return figure
        self.figures.append(Figure(name, unit, more_is_better, kind=kind))
        return self.figures[-1]

    def curves(self) -> dict[str, list[list[float]]]:
        """Of each broker, the ramp that went furthest: rate asked, rate, p50 and p99 in ms."""
        found: dict[str, list[list[float]]] = {}
        for detail in self.details:
            curve = detail["detail"].get("curve", [])
            if len(curve) > len(found.get(detail["name"], [])):
                found[detail["name"]] = [list(step) for step in curve]
        return found

    def to_json(self) -> str:
        """All of it; a round that failed is null."""
        # On one line each: what a reader looks for is in the report, and the details are long.
        parts = _without_nan(asdict(self)).items()
        lines = [f"{json.dumps(key)}: {json.dumps(part, ensure_ascii=False)}" for key, part in parts]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        """What to_json made."""
        raw = json.loads(text)
        figures = [Figure(**figure) for figure in raw.pop("figures")]
        for figure in figures:
            for name, values in figure.rounds.items():
                figure.rounds[name] = [math.nan if value is None else value for value in values]
        return cls(**raw, figures=figures)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown(result: Result, plots: list[str]) -> str:
    """The whole report."""
    lines = ["# Brokers side by side", "", f"`{result.command}`", "", result.setting, "", noise(result), ""]
    lines += [f"![{name}]({name})" for name in plots] + ([""] if plots else [])
    for title, kinds in SECTIONS:
        figures = [figure for figure in result.figures if figure.kind in kinds]
        if figures:
            shown = (
                latency_table(figures, result.names) if "latency" in kinds else table(figures, result.names)
            )
            lines += [f"## {title}", "", shown, ""]
    if result.other_cores:
        lines += ["## What else the machine did", "", _noise_table(result), ""]
    lines += _listed("Notes", result.notes) + _listed("Left out", result.left_out)
    lines += _listed("Troubles", result.troubles)
    return "\n".join(lines)


def latency_table(figures: list[Figure], names: list[str]) -> str:
    """A line per row with its percentiles, compared by the 99th; times that stand alone come after them."""
    by_name = {figure.row: figure for figure in figures}
    rows = [name.removesuffix(", p99") for name in by_name if name.endswith(", p99")]
    ours, *others = names
    heads = ["ms", *(f"{name}: {' / '.join(PERCENTILES)}" for name in names)]
    heads += [f"p99, {ours} : {name}" for name in others]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        parts = [by_name[f"{row}, {percentile}"] for percentile in PERCENTILES]
        cells = [row, *(" / ".join(number(part.median(name)) for part in parts) for name in names)]
        cells += [spread(by_name[f"{row}, p99"].ratios(ours, name)) for name in others]
        lines.append("| " + " | ".join(cells) + " |")
    grouped = {f"{row}, {percentile}" for row in rows for percentile in PERCENTILES}
    alone = [figure for figure in figures if figure.row not in grouped]
    tables = ["\n".join(lines)] if rows else []
    return "\n\n".join(tables + ([table(alone, names)] if alone else []))


def noise(result: Result) -> str:
    """One sentence on what everything else used meanwhile."""
    values = [value for cores in result.other_cores.values() for value in cores]
    if not values:
        return "What else the machine did was not measured."
    return (
        "Everything else on the machine, idle brokers included, used "
        f"{statistics.median(values):.2f} cores meanwhile (median), at most {max(values):.2f}. "
        "Much above 0.1 the rates mean little, and the CPU rows are the fairer ones."
    )


def _noise_table(result: Result) -> str:
    lines = ["| row | cores used by others: median | most |", "|---|---|---|"]
    for row, values in result.other_cores.items():
        lines.append(f"| {row} | {statistics.median(values):.2f} | {max(values):.2f} |")
    return "\n".join(lines)


def _listed(title: str, items: list[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {item}" for item in items), ""] if items else []


def headline_table(result: Result) -> str:
    """The README's table: what a reader wants to know first."""
    ours, *others = result.names
    heads = ["", *result.names, *(f": {name.removeprefix('Apache ')}" for name in others)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    by_name = {figure.row: figure for figure in result.figures}
    for figure in (by_name[name] for name in HEADLINES if name in by_name):
        cells = [figure.row, *(_with_unit(figure, name) for name in result.names)]
        cells += [spread(figure.ratios(ours, name)) for name in others]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _with_unit(figure: Figure, name: str) -> str:
    value = figure.median(name)
    if math.isnan(value):
        return number(value)
    return f"{number(value)}/s" if figure.unit == "1/s" else f"{number(value)} {figure.unit}"


def write(result: Result, folder: Path, stem: str, plots: list[str]) -> Path:
    """Both files; returns the one with the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.json").write_text(result.to_json())
    report = folder / f"{stem}.md"
    report.write_text(markdown(result, plots))
    return report
