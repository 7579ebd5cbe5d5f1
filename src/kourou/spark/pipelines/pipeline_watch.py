"""PipelineWatch: waits for the queries of a pipeline; when one fails, or on a signal, all are stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kourou.spark.pipelines.check.spec import StepSpec
from kourou.spark.pipelines.describe_failure import describe_failure
from kourou.spark.pipelines.pipeline_errors import PipelineError
from kourou.spark.pipelines.progress import (
    Breakdown,
    Ending,
    PipelineProgress,
    ProgressOutput,
    Reading,
    SinkRows,
    Summary,
)
from kourou.spark.pipelines.query_start import start_query
from kourou.spark.pipelines.query_watch import QueryWatch, StopRequest, stop_on_signals
from kourou.spark.pipelines.written_rows import WrittenRows

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.25


class _Part(PipelineProgress):
    """The progress of one query: printed separately with JSON, otherwise part of the total."""

    def __init__(self, title: str, output: ProgressOutput) -> None:
        super().__init__(title, output)
        self.reading = Reading()
        self._as_json = output.as_json

    def show(self, reading: Reading) -> None:
        """Record it, and print it if the output is JSON."""
        self.reading = reading
        if self._as_json:
            super().show(reading)


class TotalProgress(PipelineProgress):
    """The progress of a pipeline: with JSON only its summary is printed, as the queries print theirs."""

    def __init__(self, title: str, output: ProgressOutput) -> None:
        super().__init__(title, output)
        self.output = output

    def show(self, reading: Reading) -> None:
        """Show the progress of all sinks together."""
        if self.output.as_json:
            self._reading = reading
        else:
            super().show(reading)


class PipelineWatch:
    """Starts and follows the queries of one pipeline, by the names of their sinks."""

    def __init__(
        self,
        starts: Mapping[str, Callable[[], StreamingQuery]],
        beside: Collection[str],
        progress: TotalProgress,
        written: Mapping[str, WrittenRows] | None = None,
        steps: Sequence[StepSpec] = (),
        *,
        bad_records_to: str = "",
    ) -> None:
        """`starts` start the queries; `beside` names those of bad records, which go to `bad_records_to` and
        are counted separately. `written` has the counts of sinks that count their own rows. A failure names
        the step in `steps` that caused it."""
        self._starts = starts
        self._beside = beside
        self._progress = progress
        self._written = written or {}
        self._steps = steps
        self._bad_records_to = bad_records_to
        self._queries: dict[str, StreamingQuery] = {}
        self._parts: dict[str, _Part] = {}
        self._watches: dict[str, QueryWatch] = {}
        self._shown = Reading()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def start(self) -> None:
        """Start all queries, one after the other. Spark's exceptions propagate."""
        for name, start in self._starts.items():
            self._queries[name] = query = start_query(start)
            part = _Part(f"{self._progress.title}/{name}", self._progress.output)
            self._parts[name] = part
            self._watches[name] = QueryWatch(query, part, self._written.get(name))

    def wait(self, stop_request: StopRequest | None = None) -> Summary:
        """Wait until all have ended, or a stop is requested. PipelineError if one failed."""
        stop_request = stop_request or StopRequest()
        ended: Ending = "finished"
        with stop_on_signals(stop_request):
            while running := self._running():
                if stop_request.times:
                    self._stop_in_order(stop_request)
                    ended = "stopped"
                    break
                _pause(running[0])
                self._look()
        self._look()
        failed = self._failed()
        if failed is not None:
            self._stop()
            self._progress.finish("failed")
            raise PipelineError(self._words(failed))
        return self._progress.finish(ended)

    def _running(self) -> list[StreamingQuery]:
        """The running queries; none once one has failed."""
        if self._failed() is not None:
            return []
        return [query for query in self._queries.values() if query.isActive]

    def _failed(self) -> str | None:
        """The name of a failed query."""
        return next((name for name, query in self._queries.items() if query.exception() is not None), None)

    def _words(self, name: str) -> str:
        error = self._queries[name].exception()
        others = "" if len(self._queries) == 1 else "; the other sinks were stopped"
        return f"{name} failed: {describe_failure(str(error), self._steps)}{others}"

    def _look(self) -> None:
        for watch in self._watches.values():
            watch.look()
        readings = {name: part.reading for name, part in self._parts.items() if name not in self._beside}
        bad = [_written(self._parts[name].reading) for name in self._parts if name in self._beside]
        self._progress.breakdown = Breakdown(
            [SinkRows(name, reading.rows, _written(reading)) for name, reading in readings.items()],
            None if None in bad else sum(filter(None, bad)),
            self._bad_records_to,
        )
        total = together(list(readings.values()))
        if total != self._shown:
            self._shown = total
            self._progress.show(total)

    def _stop_in_order(self, stop_request: StopRequest) -> None:
        """Stop after the current batches, or at once on a second request."""
        self._progress.say("stopping after this batch (again: at once)")
        busy = {name: part.reading for name, part in self._parts.items()}
        while busy and stop_request.times < 2:
            for name in list(busy):
                query = self._queries[name]
                self._watches[name].look()
                is_done = self._parts[name].reading != busy[name]
                if is_done or not query.isActive or not query.status.get("isDataAvailable", False):
                    query.stop()
                    del busy[name]
            if busy:
                _pause(self._queries[next(iter(busy))])
        self._stop()

    def _stop(self) -> None:
        for query in self._queries.values():
            with suppress(Exception):  # the JVM may be gone already, or the query failed
                query.stop()


def together(readings: list[Reading]) -> Reading:
    """The combined reading of several queries: the sum of rows and batches, the largest lag."""
    lags = [each.lag_messages for each in readings if each.lag_messages is not None]
    seconds = [each.lag_seconds for each in readings if each.lag_seconds is not None]
    batch_ms = [each.batch_ms for each in readings if each.batch_ms is not None]
    written = [each.rows_written for each in readings if each.rows_written is not None]
    is_known = written and all(each.rows_written is not None or not each.rows for each in readings)
    return Reading(
        rows=sum(each.rows for each in readings),
        rows_per_second=round(sum(each.rows_per_second for each in readings), 1),
        batches=sum(each.batches for each in readings),
        batch_ms=max(batch_ms, default=None),
        lag_messages=max(lags, default=None),
        lag_seconds=max(seconds, default=None),
        rows_written=sum(written) if is_known else None,
    )


def _written(reading: Reading) -> int | None:
    """The rows written; none if nothing was read yet."""
    return 0 if reading.rows_written is None and not reading.rows else reading.rows_written


def _pause(query: StreamingQuery) -> None:
    from pyspark.errors import PySparkException

    try:
        query.awaitTermination(_POLL_S)
    except PySparkException:
        pass  # also available as its `exception`
