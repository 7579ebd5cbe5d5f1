"""Plots of a result of `compare`: rate and latency side by side, and the ramp. Needs matplotlib."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

from benchmarks._broker_report import Figure
from benchmarks._compare_result import Result

COLOURS = ("#c0392b", "#2c3e50", "#95a5a6", "#16a085")
BAR = 0.8
DPI = 110


def write_plots(result: Result, folder: Path, stem: str) -> list[str]:
    """PNG files of what can be drawn; their names, or none where matplotlib is missing."""
    try:
        pyplot = _pyplot()
    except ImportError:
        print("no plots: pip install 'kourou[bench]' brings matplotlib", file=sys.stderr)
        return []
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    if drawn_rates(result) and drawn_latencies(result):
        written.append(_save(_bars(pyplot, result), folder / f"{stem}.png", pyplot))
    if result.curves():
        written.append(_save(_ramp(pyplot, result), folder / f"{stem}-ramp.png", pyplot))
    return written


def _pyplot() -> Any:
    # No window, whatever the machine has.
    importlib.import_module("matplotlib").use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def drawn_rates(result: Result) -> list[Figure]:
    """The rates that every broker has."""
    return [figure for figure in result.figures if figure.kind == "rate" and _is_whole(figure, result)]


def drawn_latencies(result: Result) -> list[Figure]:
    """The 99th percentiles that every broker has."""
    return [
        figure
        for figure in result.figures
        if figure.kind == "latency" and figure.row.endswith(", p99") and _is_whole(figure, result)
    ]


def _is_whole(figure: Figure, result: Result) -> bool:
    return all(figure.median(name) > 0 for name in result.names)


def _bars(pyplot: Any, result: Result) -> Any:
    rates, latencies = drawn_rates(result), drawn_latencies(result)
    height = 1.5 + 0.42 * max(len(rates), len(latencies))
    drawing, (left, right) = pyplot.subplots(1, 2, figsize=(17, height), layout="constrained")
    _draw(left, rates, result.names, "messages/s (more is better)")
    _draw(right, latencies, result.names, "99th percentile, ms (less is better)")
    drawing.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=len(result.names))
    return drawing


def _draw(axes: Any, figures: list[Figure], names: list[str], title: str) -> None:
    width = BAR / len(names)
    for index, name in enumerate(names):
        at = [row + (index - (len(names) - 1) / 2) * width for row in range(len(figures))]
        values = [figure.median(name) for figure in figures]
        axes.barh(at, values, width, label=name, color=COLOURS[index % len(COLOURS)])
    axes.set_yticks(range(len(figures)), [figure.row.removesuffix(", p99") for figure in figures], fontsize=8)
    axes.margins(y=0.01)
    axes.set_xscale("log")
    # Bars that begin at a power of ten: lengths can be compared between plots.
    smallest = min(figure.median(name) for figure in figures for name in names)
    axes.set_xlim(left=10 ** math.floor(math.log10(smallest)))
    axes.set_xlabel(title)
    axes.grid(axis="x", alpha=0.3)
    # The first row on top.
    axes.invert_yaxis()


def _ramp(pyplot: Any, result: Result) -> Any:
    drawing, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for index, name in enumerate(result.names):
        steps = [step for step in result.curves().get(name, []) if math.isfinite(step[3]) and step[3] > 0]
        rates, worst = [step[1] for step in steps], [step[3] for step in steps]
        axes.plot(rates, worst, marker="o", label=name, color=COLOURS[index % len(COLOURS)])
    axes.set_yscale("log")
    axes.set_xlabel("messages/s, from producer to consumer")
    axes.set_ylabel("99th percentile, ms")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return drawing


def _save(drawing: Any, path: Path, pyplot: Any) -> str:
    drawing.savefig(path, dpi=DPI)
    pyplot.close(drawing)
    return path.name
