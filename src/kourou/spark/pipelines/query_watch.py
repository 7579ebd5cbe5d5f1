"""QueryWatch: waits for the end of a stream, reads its progress, and stops it on request.

Numbers come from Spark's progress, the lag from our source's part of it (stream_driver.py).
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kourou.errors import KourouError
from kourou.spark.pipelines.pipeline_errors import PipelineError, short_reason
from kourou.spark.pipelines.progress import Ending, PipelineProgress, Reading
from kourou.spark.pipelines.written_rows import WrittenRows
from kourou.spark.source.lag_listener import stream_lag
from kourou.spark.source.offsets import Positions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.25
OBSERVED_ROWS: Final = "kourou_rows"
"""The observation that counts the rows of a stream whose sink does not report them."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Counts requests to stop: the first one lets a running batch finish, the second does not."""

    def __init__(self) -> None:
        self.times = 0

    def note(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Count a request; also a signal handler."""
        self.times += 1


class QueryWatch:
    """Follows one query; `written` has the rows counted by the writer of its batches, if Spark does not count
    them."""

    def __init__(
        self, query: StreamingQuery, progress: PipelineProgress, written: WrittenRows | None = None
    ) -> None:
        self._query = query
        self._progress = progress
        self._written = written
        self._seen: tuple[int, str] = (-1, "")
        self._reading = Reading()

    def wait(self, stop_request: StopRequest | None = None) -> Ending:
        """Wait until the query ends, fails (PipelineError), or is stopped by the user."""
        stop_request = stop_request or StopRequest()
        with stop_on_signals(stop_request):
            try:
                while not self._query.awaitTermination(_POLL_S):
                    self.look()
                    if stop_request.times:
                        return self._stop(stop_request)
            except Exception as error:
                raise self._failure(error) from error
        self.look()
        return "finished"

    def look(self) -> None:
        """Show the batches that have ended since the last call."""
        last = self._query.lastProgress
        if last is None or _mark(last) == self._seen:
            return
        for progress in self._query.recentProgress:
            if _mark(progress) > self._seen:
                self._seen = _mark(progress)
                self._take(progress)

    def _take(self, progress: Any) -> None:
        before = self._reading
        rows = batch_rows(progress)
        lag = [found for found in map(stream_lag, progress.sources) if found is not None]
        ran = rows > 0 or "addBatch" in progress.durationMs
        self._reading = Reading(
            rows=before.rows + rows,
            rows_per_second=round(_rate(progress), 1),
            batches=before.batches + ran,
            batch_ms=int(progress.durationMs.get("triggerExecution", 0)) if ran else before.batch_ms,
            lag_messages=sum(each.messages for each in lag) if lag else before.lag_messages,
            lag_seconds=max(each.seconds for each in lag) if lag else before.lag_seconds,
            rows_written=self._rows_written(progress),
        )
        self._progress.show(self._reading)

    def _rows_written(self, progress: Any) -> int | None:
        if self._written is not None:
            return self._written.total
        observed = (getattr(progress, "observedMetrics", None) or {}).get(OBSERVED_ROWS)
        rows = progress.sink.numOutputRows if observed is None else observed["rows"]
        before, written = self._reading.rows_written, int(rows)
        # -1: this sink does not report it.
        return before if written < 0 else (before or 0) + written

    def _stop(self, stop_request: StopRequest) -> Ending:
        """Stop after the current batch, or at once on a second request."""
        self._progress.say("stopping after this batch (again: at once)")
        seen = self._seen
        while stop_request.times < 2 and self._query.isActive and self._is_busy() and self._seen == seen:
            if self._query.awaitTermination(_POLL_S):
                break
            self.look()
        self._query.stop()
        self.look()
        return "stopped"

    def _is_busy(self) -> bool:
        return bool(self._query.status.get("isDataAvailable", False))

    def _failure(self, error: Exception) -> PipelineError:
        self.look()
        self._progress.finish("failed")
        return PipelineError(f"{self._progress.title} failed: {short_reason(error)}")


@contextmanager
def stop_on_signals(stop_request: StopRequest) -> Iterator[None]:
    """Record SIGINT and SIGTERM instead of raising: PySpark's own handler would cancel the jobs of the
    batch."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop_request.note) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def batch_rows(progress: Any) -> int:
    """The number of rows read by a batch. Spark counts rows twice that a batch reads twice, as for two sinks;
    the number of offsets is the limit."""
    counted = int(progress.numInputRows)
    messages = [_messages(source) for source in progress.sources]
    known = [each for each in messages if each is not None]
    return min(counted, sum(known)) if known and len(known) == len(messages) else counted


def _messages(source: Any) -> int | None:
    """The number of messages between the offsets of a rocketmq source; None for others."""
    try:
        end = Positions.from_json(_tree(source.endOffset))
        # The very first batch has none.
        start = _tree(source.startOffset)
        begin = (Positions({}) if start is None else Positions.from_json(start)).batch_begin(end)
    except (KourouError, AttributeError, TypeError, ValueError):  # the format of other sources
        return None
    return sum(max(0, at - begin.get(queue, at)) for queue, at in end.offsets.items())


def _tree(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset


def _mark(progress: Any) -> tuple[int, str]:
    return int(progress.batchId), str(progress.timestamp)


def _rate(progress: Any) -> float:
    rate = progress.processedRowsPerSecond
    return float(rate) if rate is not None and rate == rate and rate != float("inf") else 0.0
