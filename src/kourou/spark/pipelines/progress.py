"""Progress of pipelines: a line updated in place on a terminal, lines in a file, or JSON.

    summary = run_query(query, title="archive", output=ProgressOutput.standard(as_json=False))

`run_query` waits for a stream and shows its batches. `PipelineProgress` is for jobs that count rows
themselves. With `as_json` every batch is an object in a line of its own, and the last line is the summary.
Not here: where the numbers of a stream come from (query_watch.py).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TextIO

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.live import Live

LINE_INTERVAL_S: Final = 10.0
"""The interval between lines if the output is not a terminal."""
_REFRESHES_A_SECOND: Final = 4

Ending = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class ProgressOutput:
    """The destination and format of progress."""

    as_json: bool
    stream: TextIO
    is_terminal: bool

    @classmethod
    def standard(cls, *, as_json: bool) -> ProgressOutput:
        """JSON goes to standard output; text goes to standard error, as results go to standard output."""
        stream = sys.stdout if as_json else sys.stderr
        return cls(as_json, stream, not as_json and stream.isatty())


@dataclass(frozen=True, slots=True)
class Reading:
    """The progress of a job. Unknown values are None."""

    rows: int = 0
    """Rows read since the job began."""
    rows_per_second: float = 0.0
    batches: int = 0
    batch_ms: int | None = None
    """The duration of the last batch."""
    lag_messages: int | None = None
    lag_seconds: float | None = None
    note: str = ""
    """What the job is doing, beyond the numbers."""
    rows_written: int | None = None
    """Rows written in total: fewer than `rows` after filtering or grouping."""


@dataclass(frozen=True, slots=True)
class SinkRows:
    """The rows of one sink of a pipeline. Unknown values are None."""

    name: str
    rows: int | None
    """Rows read for it: each sink reads its sources itself."""
    rows_written: int | None


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The rows of a pipeline by sink, and its bad records."""

    sinks: Sequence[SinkRows]
    bad_records: int | None = None
    bad_records_to: str = ""
    """Where bad records go, such as `topic orders-bad`; empty if they fail the pipeline."""

    def rows_words(self) -> str | None:
        """The rows by sink as text; None for one sink, which the total describes."""
        if len(self.sinks) < 2:
            return None
        read = {sink.rows for sink in self.sinks}
        (same,) = read if len(read) == 1 else (None,)
        parts: list[str] = []
        for sink in self.sinks:
            of = "" if sink.rows is None or same is not None else f" of {sink.rows:,}"
            noun = "" if parts else " rows" if same is None else ""
            verb = "" if parts else " written"
            written = "an unknown number" if sink.rows_written is None else f"{sink.rows_written:,}"
            parts.append(f"{written}{of}{noun}{verb} to {sink.name}")
        begin = "" if same is None else f"{_count(same, 'row', 'rows')} read; "
        return begin + ", ".join(parts)

    def bad_words(self) -> str:
        """The end of the text about bad records."""
        if not self.bad_records_to:
            return ""
        if not self.bad_records:
            return "; no bad records" if self.bad_records == 0 else ""
        return f"; {_count(self.bad_records, 'bad record', 'bad records')} to {self.bad_records_to}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a job."""

    title: str
    ended: Ending
    rows: int
    batches: int
    seconds: float
    rows_per_second: float
    lag_messages: int | None
    lag_seconds: float | None
    rows_written: int | None = None
    breakdown: Breakdown | None = None

    def to_json(self) -> dict[str, Any]:
        """The last line of `--json`."""
        fields = asdict(self)
        breakdown = fields.pop("breakdown") or {}
        return {"type": "summary", **fields, **breakdown}

    def words(self) -> str:
        batches = f" in {_count(self.batches, 'batch', 'batches')}" if self.batches else ""
        written = self.rows if self.rows_written is None else self.rows_written
        is_all = written == self.rows
        rate = f" ({self.rows_per_second:,.0f} rows{'' if is_all else ' read'}/s)" if self.rows else ""
        ended = "" if self.ended == "finished" else f"; {self.ended}"
        lag = f"; {_lag(self.lag_messages, self.lag_seconds)}" if self.lag_messages is not None else ""
        rows = _count(written, "row", "rows")
        if not is_all:
            rows = f"{rows} written, {self.rows:,} read"
        bad = ""
        if self.breakdown is not None:
            bad = self.breakdown.bad_words()
            if (by_sink := self.breakdown.rows_words()) is not None:
                rows, rate = by_sink, ""  # a sum over sinks counts a message once for each
        return f"{self.title}: {rows}{batches}, {self.seconds:.1f} s{rate}{bad}{lag}{ended}"


class PipelineProgress:
    """Shows readings of one job; use it in a `with` block, and call `finish` at its end.

    Readings may be frequent: lines are rate-limited if the output is not a terminal.
    """

    def __init__(
        self, title: str, output: ProgressOutput, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.title = title
        self._output = output
        self._clock = clock
        self._began = self._printed_at = clock()
        self.breakdown: Breakdown | None = None
        """For the summary, if the job has several destinations."""
        self._reading = Reading()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._began = self._printed_at = self._clock()
        if self._output.is_terminal and not self._output.as_json:
            self._live = _live(self._output.stream, self._line)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_live()

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def show(self, reading: Reading) -> None:
        """Show the current progress. With JSON every reading is a line."""
        self._reading = reading
        if self._output.as_json:
            self._write(json.dumps({"type": "progress", "title": self.title, **asdict(reading)}))
        elif self._live is None and self._clock() - self._printed_at >= LINE_INTERVAL_S:
            self._printed_at = self._clock()
            self._write(self._line())

    def add(self, rows: int, note: str = "", *, written: int | None = None) -> None:
        """Count more rows, by default all of them written; for jobs that count themselves."""
        before = self._reading
        total = before.rows + rows
        rate = total / self.seconds if self.seconds > 0 else 0.0
        self.show(
            replace(
                before,
                rows=total,
                rows_per_second=round(rate, 1),
                note=note,
                rows_written=(before.rows_written or 0) + (rows if written is None else written),
            )
        )

    def say(self, words: str) -> None:
        """Print a permanent line, unless the output is JSON."""
        if self._output.as_json:
            return
        if self._live is not None:
            self._live.console.print(f"{self.title}: {words}", markup=False, highlight=False)
        else:
            self._write(f"{self.title}: {words}")

    def finish(self, ended: Ending = "finished", *, note: str = "") -> Summary:
        """Print and return the summary at the end of the job; `note` is added to the text."""
        self._stop_live()
        last, seconds = self._reading, self.seconds
        summary = Summary(
            title=self.title,
            ended=ended,
            rows=last.rows,
            batches=last.batches,
            seconds=round(seconds, 3),
            rows_per_second=round(last.rows / seconds, 1) if seconds > 0 else 0.0,
            lag_messages=last.lag_messages,
            lag_seconds=last.lag_seconds,
            rows_written=last.rows_written,
            breakdown=self.breakdown,
        )
        words = f"{summary.words()}; {note}" if note else summary.words()
        self._write(json.dumps(summary.to_json()) if self._output.as_json else words)
        return summary

    def _line(self) -> str:
        return f"{self.title}: {self.seconds:.0f} s, {describe_reading(self._reading)}"

    def _write(self, line: str) -> None:
        print(line, file=self._output.stream, flush=True)

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def run_query(query: StreamingQuery, *, title: str, output: ProgressOutput) -> Summary:
    """Wait until a stream ends, and show its progress.

    Ctrl-C or SIGTERM stops the stream after the current batch; a second one stops it at once. Both are clean:
    the checkpoint says where to continue. PipelineError if the stream failed.
    """
    from kourou.spark.pipelines.query_watch import QueryWatch

    with PipelineProgress(title, output) as progress:
        ended = QueryWatch(query, progress).wait()
        return progress.finish(ended)


def describe_reading(reading: Reading) -> str:
    words = []
    if reading.rows or not reading.note:
        words.append(f"{_count(reading.rows, 'row', 'rows')}, {reading.rows_per_second:,.0f} rows/s")
    if reading.lag_messages is not None:
        words.append(_lag(reading.lag_messages, reading.lag_seconds))
    if reading.batch_ms is not None:
        words.append(f"batch {reading.batches} took {reading.batch_ms / 1000:.1f} s")
    if reading.note:
        words.append(reading.note)
    return ", ".join(words)


def _lag(messages: int, seconds: float | None) -> str:
    if not messages:
        return "no lag"
    behind = f" ({seconds:,.0f} s)" if seconds is not None else ""
    return f"{_count(messages, 'message', 'messages')}{behind} behind"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _live(stream: TextIO, line: Callable[[], str]) -> Live:
    """A line that is updated in place."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    return Live(
        console=console,
        get_renderable=lambda: Text(line(), no_wrap=True, overflow="ellipsis"),
        refresh_per_second=_REFRESHES_A_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
