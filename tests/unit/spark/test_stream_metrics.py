"""StreamMetrics: what Spark reports of queries, as Prometheus reads it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from tests.needed import need_module

need_module("pyspark")

from kourou.spark import StreamMetrics  # noqa: E402


def values(metrics: StreamMetrics) -> dict[str, str]:
    """Value by name and labels."""
    lines = [line for line in metrics.text().splitlines() if not line.startswith("#")]
    return {series: value for series, _, value in (line.rpartition(" ") for line in lines)}


def batch(rows: int, *, lag: int | None, name: str | None = "orders", written: int = -1) -> Any:
    offset = None if lag is None else json.dumps({"lag": {"messages": lag, "seconds": 2.5}})
    return SimpleNamespace(
        progress=SimpleNamespace(
            id="id-1",
            name=name,
            numInputRows=rows,
            durationMs={"triggerExecution": 500},
            sources=[SimpleNamespace(latestOffset=offset)],
            sink=SimpleNamespace(numOutputRows=written),
        )
    )


def test_batches_add_up_and_the_last_lag_counts() -> None:
    metrics = StreamMetrics()
    metrics.onQueryStarted(SimpleNamespace(id="id-1", name="orders"))  # type: ignore[arg-type]
    metrics.onQueryProgress(batch(10, lag=90))
    metrics.onQueryProgress(batch(5, lag=7, written=4))
    found = values(metrics)
    assert found['kourou_stream_running{query="orders"}'] == "1"
    assert found['kourou_stream_rows_total{query="orders"}'] == "15"
    assert found['kourou_stream_written_rows_total{query="orders"}'] == "4"
    assert found['kourou_stream_batches_total{query="orders"}'] == "2"
    assert found['kourou_stream_batch_seconds_total{query="orders"}'] == "1.0"
    assert found['kourou_stream_lag_messages{query="orders"}'] == "7"
    assert found['kourou_stream_lag_seconds{query="orders"}'] == "2.5"


def test_a_failed_query_that_starts_again_goes_on_counting() -> None:
    metrics = StreamMetrics()
    metrics.onQueryProgress(batch(1, lag=None, name=None))
    metrics.onQueryTerminated(SimpleNamespace(id="id-1", exception="boom"))  # type: ignore[arg-type]
    found = values(metrics)
    assert found['kourou_stream_running{query="id-1"}'] == "0"
    assert found['kourou_stream_failed_total{query="id-1"}'] == "1"
    assert not any("lag" in series for series in found)  # the source is another one
    metrics.onQueryStarted(SimpleNamespace(id="id-1", name=None))  # type: ignore[arg-type]
    metrics.onQueryProgress(batch(1, lag=None, name=None))
    assert values(metrics)['kourou_stream_rows_total{query="id-1"}'] == "2"
