"""What the demo shows: topics, rates and lag, as a table that changes or as lines."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from kourou.cli.demo_clients import Flow, Progress

# Rates are those of the last second.
_WINDOW_S: Final = 1.0


@dataclass(frozen=True)
class Row:
    """One flow at one moment."""

    flow: Flow
    progress: Progress
    in_per_s: float
    out_per_s: float


class FlowRates:
    """Turns the counts of one flow into rates."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._samples: deque[tuple[float, Progress]] = deque()

    def add(self, now: float, progress: Progress) -> Row:
        """The flow as it is at `now`, in seconds of a clock that goes forward."""
        self._samples.append((now, progress))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_S:
            self._samples.popleft()
        since, before = self._samples[0]
        seconds = (now - since) or 1.0
        return Row(
            self._flow,
            progress,
            (progress.stored - before.stored) / seconds,
            (progress.consumed - before.consumed) / seconds,
        )


def table(rows: list[Row], title: str) -> Table:
    """All flows, for a terminal."""
    view = Table(title=title, title_justify="left")
    for column in ("Topic", "Queues", "Messages", "In/s", "Group", "Out/s", "Lag"):
        view.add_column(column, justify="left" if column in ("Topic", "Group") else "right", min_width=8)
    for row in rows:
        flow, progress = row.flow, row.progress
        numbers = (
            f"{progress.stored:,}",
            f"{row.in_per_s:,.0f}",
            f"{row.out_per_s:,.0f}",
            f"{progress.lag:,}",
        )
        lag = f"[yellow]{numbers[3]}[/]" if progress.lag > row.in_per_s else numbers[3]
        view.add_row(flow.topic, str(flow.queues), numbers[0], numbers[1], flow.group, numbers[2], lag)
    return view


def line(row: Row, seconds: float) -> str:
    """One flow, for a file."""
    progress = row.progress
    return (
        f"{seconds:4.1f} s  {row.flow.topic:<9} {progress.stored:>6} messages, in {row.in_per_s:>5.0f}/s, "
        f"{row.flow.group} out {row.out_per_s:>5.0f}/s, lag {progress.lag}"
    )
