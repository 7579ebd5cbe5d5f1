"""StreamMetrics: counts the progress of a session's streams, as text for Prometheus.

metrics = StreamMetrics()
spark.streams.addListener(metrics)
...
metrics.text()          # for the driver's own HTTP server, or a push gateway
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kourou.metrics.exposition import exposition
from kourou.metrics.families import Metric
from kourou.spark.source import stream_metric_names as names
from kourou.spark.source.lag_listener import stream_lag


@dataclass(slots=True)
class _Query:
    name: str
    is_running: bool = True
    failures: int = 0
    batches: int = 0
    rows: int = 0
    rows_out: int = 0
    batch_s: float = 0.0
    lag_messages: int | None = None
    lag_s: float | None = None


_COLUMNS: Final[tuple[tuple[Metric, Callable[[_Query], float | None]], ...]] = (
    (names.RUNNING, lambda query: int(query.is_running)),
    (names.FAILED, lambda query: query.failures),
    (names.BATCHES, lambda query: query.batches),
    (names.ROWS, lambda query: query.rows),
    (names.ROWS_OUT, lambda query: query.rows_out),
    (names.BATCH_SECONDS, lambda query: query.batch_s),
    (names.LAG, lambda query: query.lag_messages),
    (names.LAG_SECONDS, lambda query: query.lag_s),
)


class StreamMetrics(StreamingQueryListener):
    """Counts for every query of a session, by its name, or by its id where it has none. A query that is
    started again goes on counting. Spark calls it in a thread of its own."""

    def __init__(self) -> None:
        self._queries: dict[str, _Query] = {}
        self._lock = threading.Lock()

    def text(self) -> str:
        """The counters in Prometheus' format."""
        with self._lock:
            queries = list(self._queries.values())
            families = [
                metric.family(
                    [((query.name,), found) for query in queries if (found := value(query)) is not None]
                )
                for metric, value in _COLUMNS
            ]
        return "".join(exposition(families))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """A query runs."""
        with self._lock:
            query = self._queries.setdefault(str(event.id), _Query(event.name or str(event.id)))
            query.is_running = True

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a batch."""
        progress = event.progress
        lags = [lag for lag in map(stream_lag, progress.sources) if lag is not None]
        with self._lock:
            key = str(progress.id)
            query = self._queries.setdefault(key, _Query(progress.name or key))
            query.batches += 1
            query.rows += int(progress.numInputRows)
            query.rows_out += max(0, int(progress.sink.numOutputRows or 0))  # -1: it does not report them
            query.batch_s += int(progress.durationMs.get("triggerExecution", 0)) / 1000
            if lags:
                query.lag_messages = sum(lag.messages for lag in lags)
                query.lag_s = max(lag.seconds for lag in lags)

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended."""
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is not None:
                query.is_running = False
                query.failures += int(event.exception is not None)
