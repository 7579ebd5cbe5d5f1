"""The output of the demo: its steps, and topics with rates and lag. Live tables on a terminal, otherwise
lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from kourou.cli.demo.progress import Row

_COLUMNS: Final = ("Topic", "Queues", "Messages", "In/s", "Group", "Out/s", "Lag", "Retries", "Dead")
_TEXTS: Final = ("Topic", "Group")


class DemoView:
    """The view, on a terminal or in a file. Use it in a `with` block; `brokers` is the number of brokers per
    topic."""

    def __init__(self, console: Console, brokers: int) -> None:
        self._console = console
        self._brokers = brokers
        self.titles: Sequence[str] = ()
        """The titles of all steps, in order."""
        self._words: dict[str, str] = {}
        self._done: set[str] = set()
        self._rows: Sequence[Row] = ()
        self._began = time.monotonic()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    @property
    def is_live(self) -> bool:
        """Whether live tables are shown."""
        return self._live is not None

    def say(self, title: str, words: str) -> None:
        """Show the progress of a step."""
        self._words[title] = words
        if self._live is not None:
            self._refresh()
        else:
            self._line(f"{title}: {words}")

    def done(self, title: str, words: str) -> None:
        """Show the outcome of a step."""
        self._done.add(title)
        self.say(title, words)

    def show(self, rows: Sequence[Row]) -> None:
        """Show the state of all topics."""
        self._rows = rows
        if self._live is not None:
            self._refresh()

    def show_line(self, row: Row) -> None:
        """Show the state of one topic, without live tables."""
        if self._live is None:
            self._line(describe_row(row))

    def _line(self, words: str) -> None:
        age_s = time.monotonic() - self._began
        self._console.print(f"{age_s:5.1f} s  {words}", soft_wrap=True, markup=False)

    def _refresh(self) -> None:
        assert self._live is not None
        self._live.update(Group(self._steps(), "", topics_table(self._rows, self._brokers)), refresh=True)

    def _steps(self) -> Table:
        view = Table.grid(padding=(0, 2, 0, 0))
        for title in self.titles:
            is_done, words = title in self._done, self._words.get(title, "")
            mark = "[green]done[/]" if is_done else "[yellow]…[/]" if words else ""
            view.add_row(mark, f"[bold]{title}[/]" if words else f"[dim]{title}[/]", words)
        return view


def topics_table(rows: Sequence[Row], brokers: int) -> Table:
    """A table of all topics."""
    view = Table(box=None, padding=(0, 2, 0, 0))
    for column in _COLUMNS:
        view.add_column(column, justify="left" if column in _TEXTS else "right", no_wrap=True)
    for row in rows:
        flow, progress = row.flow, row.progress
        lag = f"{progress.lag:,}"
        view.add_row(
            flow.topic,
            str(flow.queues * brokers),
            f"{progress.stored:,}",
            f"{row.in_per_s:,.0f}",
            flow.group,
            f"{row.out_per_s:,.0f}",
            f"[yellow]{lag}[/]" if progress.lag > row.in_per_s else lag,
            f"{progress.retries:,}",
            f"[red]{progress.dead:,}[/]" if progress.dead else "0",
        )
    return view


def describe_row(row: Row) -> str:
    """A line about one topic."""
    progress = row.progress
    return (
        f"topic {row.flow.topic}: {progress.stored} messages, group {row.flow.group}: lag {progress.lag}, "
        f"retries {progress.retries}, dead letters {progress.dead}"
    )
