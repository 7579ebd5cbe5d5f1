"""The metrics of Spark streams; without an import of PySpark, for the documentation."""

from __future__ import annotations

from typing import Final

from kourou.metrics.families import Kind, Metric

_QUERY: Final = ("query",)

RUNNING: Final = Metric(
    "kourou_stream_running", Kind.GAUGE, "1 while the query runs, 0 when it has ended.", _QUERY
)
FAILED: Final = Metric("kourou_stream_failed_total", Kind.COUNTER, "How often the query failed.", _QUERY)
BATCHES: Final = Metric("kourou_stream_batches_total", Kind.COUNTER, "Batches.", _QUERY)
ROWS: Final = Metric("kourou_stream_rows_total", Kind.COUNTER, "Rows read from all sources.", _QUERY)
ROWS_OUT: Final = Metric(
    "kourou_stream_written_rows_total", Kind.COUNTER, "Rows written, of sinks that report them.", _QUERY
)
BATCH_SECONDS: Final = Metric(
    "kourou_stream_batch_seconds_total", Kind.COUNTER, "Time of batches, added up.", _QUERY
)
LAG: Final = Metric(
    "kourou_stream_lag_messages", Kind.GAUGE, "Messages that were left after the last batch.", _QUERY
)
LAG_SECONDS: Final = Metric(
    "kourou_stream_lag_seconds", Kind.GAUGE, "Since when the oldest of them has been stored.", _QUERY
)
