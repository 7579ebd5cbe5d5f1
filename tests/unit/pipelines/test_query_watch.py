"""QueryWatch over a query that is played: progress as Spark 4.3 gives it."""

from __future__ import annotations

import io
import json
import os
import signal
from collections import deque
from typing import Any

import pytest

from tests.needed import need_module

need_module("pyspark")

from kourou.spark.pipelines.pipeline_errors import PipelineError  # noqa: E402
from kourou.spark.pipelines.progress import PipelineProgress, ProgressOutput  # noqa: E402
from kourou.spark.pipelines.query_watch import QueryWatch, StopRequest, batch_rows, stop_on_signals  # noqa: E402
from kourou.spark.pipelines.written_rows import WrittenRows  # noqa: E402


class Progress:
    """One of Spark's progress objects, as far as it is looked at."""

    def __init__(
        self, batch_id: int, rows: int, *, begin: int | None, end: int, lag: int = 0, written: int = -1
    ) -> None:
        self.batchId = batch_id
        self.timestamp = f"2026-01-01T00:00:{batch_id:02}.000Z"
        self.numInputRows = rows
        self.processedRowsPerSecond = 10.0
        self.durationMs = {"addBatch": 5, "triggerExecution": 40}
        self.sources = [Source(begin, end, lag)]
        self.sink = Sink(written)


class Sink:
    """Where it goes; -1 as of `foreachBatch`."""

    def __init__(self, written: int) -> None:
        self.numOutputRows = written


class Source:
    """One of its sources."""

    def __init__(self, begin: int | None, end: int, lag: int) -> None:
        self.startOffset = None if begin is None else offsets(begin)
        self.endOffset = offsets(end, began={"t": {"broker-a": {"0": 0}}} if begin is None else None)
        self.latestOffset = json.dumps({"lag": {"messages": lag, "seconds": float(lag)}})


def offsets(at: int, began: Any = None) -> str:
    content = {"version": 1, "offsets": {"t": {"broker-a": {"0": at}}}}
    return json.dumps({**content, "began": began} if began else content)


class Query:
    """A query whose batches come one by one, at each look; then it ends as configured."""

    def __init__(self, batches: list[Progress], error: Exception | None = None, ends: bool = True) -> None:
        self._coming = deque(batches)
        self._error = error
        self._ends = ends
        self.recentProgress: list[Progress] = []
        self.isActive = True
        self.is_stopped = False

    @property
    def lastProgress(self) -> Progress | None:
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def status(self) -> dict[str, bool]:
        return {"isDataAvailable": bool(self._coming)}

    def awaitTermination(self, _timeout: float) -> bool:
        if self._coming:
            self.recentProgress.append(self._coming.popleft())
            return False
        if self._error is not None:
            raise self._error
        return self._ends

    def stop(self) -> None:
        self.is_stopped = True
        self.isActive = False


def watch(query: Query) -> tuple[QueryWatch, io.StringIO]:
    stream = io.StringIO()
    progress = PipelineProgress("job", ProgressOutput(True, stream, False))
    return QueryWatch(query, progress), stream


BATCHES = [Progress(0, 20, begin=None, end=20, lag=30), Progress(1, 60, begin=20, end=50)]


def test_a_query_is_followed_to_its_end() -> None:
    watcher, stream = watch(Query(list(BATCHES)))
    assert watcher.wait() == "finished"
    first, last = map(json.loads, stream.getvalue().splitlines())
    assert (first["rows"], first["lag_messages"], first["batches"]) == (20, 30, 1)
    # The second batch was read twice by its sink; it has thirty messages.
    assert (last["rows"], last["lag_messages"], last["batches"], last["batch_ms"]) == (50, 0, 2, 40)


def test_rows_that_were_written_are_those_that_spark_counts() -> None:
    batches = [
        Progress(0, 20, begin=None, end=20, written=3),
        Progress(1, 30, begin=20, end=50, written=0),
        Progress(2, 10, begin=50, end=60, written=4),
    ]
    watcher, stream = watch(Query(list(batches)))
    watcher.wait()
    assert [json.loads(line)["rows_written"] for line in stream.getvalue().splitlines()] == [3, 3, 7]


def test_or_those_that_the_function_of_a_batch_counts() -> None:
    written, given = WrittenRows(), iter([5, None, 2])
    write = written.counting(lambda _frame, _batch_id: next(given))
    stream = io.StringIO()
    progress = PipelineProgress("job", ProgressOutput(True, stream, False))
    query = Query(list(BATCHES))
    watcher = QueryWatch(query, progress, written)  # type: ignore[arg-type]
    assert written.total is None
    for _ in range(3):
        write(None, 0)  # type: ignore[arg-type]
    watcher.wait()
    assert json.loads(stream.getvalue().splitlines()[-1])["rows_written"] == 7


def test_a_failure_is_reported_in_a_line_and_the_results_are_summed_up() -> None:
    error = RuntimeError(
        "[STREAM_FAILED] Query [id = 1] terminated with exception: the disk is full\n\tat a.b.C(D)"
    )
    watcher, stream = watch(Query(list(BATCHES), error))
    with pytest.raises(PipelineError, match="^job failed: the disk is full$"):
        watcher.wait()
    assert json.loads(stream.getvalue().splitlines()[-1])["ended"] == "failed"


def test_a_stop_request_waits_for_the_running_batch() -> None:
    query = Query(list(BATCHES), ends=False)
    watcher, stream = watch(query)
    stop_request = StopRequest()
    stop_request.note()
    assert watcher.wait(stop_request) == "stopped"
    assert query.is_stopped
    assert len(stream.getvalue().splitlines()) == 2


def test_a_second_stop_request_stops_at_once() -> None:
    query = Query([BATCHES[0], *(Progress(n, 1, begin=n, end=n + 1) for n in range(1, 50))], ends=False)
    watcher, _ = watch(query)
    stop_request = StopRequest()
    stop_request.note()
    stop_request.note()
    assert watcher.wait(stop_request) == "stopped"
    assert len(query.recentProgress) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_stop_requests_and_their_handlers_are_restored(number: signal.Signals) -> None:
    stop_request = StopRequest()
    before = signal.getsignal(number)
    with stop_on_signals(stop_request):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert stop_request.times == 2
    assert signal.getsignal(number) is before


def test_rows_of_other_sources_are_those_that_spark_counts() -> None:
    progress = BATCHES[1]
    other = Progress(1, 60, begin=20, end=50)
    other.sources[0].endOffset = "7"
    assert batch_rows(other) == 60
    assert batch_rows(progress) == 30


def test_idle_looks_are_no_batches() -> None:
    idle = Progress(2, 0, begin=50, end=50)
    idle.durationMs = {"latestOffset": 3, "triggerExecution": 3}
    watcher, stream = watch(Query([*BATCHES, idle]))
    watcher.wait()
    last = json.loads(stream.getvalue().splitlines()[-1])
    assert (last["batches"], last["batch_ms"]) == (2, 40)
