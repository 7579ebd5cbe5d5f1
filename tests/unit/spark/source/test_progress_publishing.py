"""When the progress of a stream is published."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kourou.spark import ProgressPublisher  # noqa: E402


def test_the_first_batch_is_published_at_once_and_a_quick_one_with_the_next_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    published: list[int | None] = []
    publisher = ProgressPublisher("127.0.0.1:1", clock=lambda: now_s)

    class NoProducer:
        def send_oneway(self, message: Any) -> None:
            published.append(publisher._last["q"][1].batch_id)

    monkeypatch.setattr(publisher, "_producer", NoProducer())
    query: Any = SimpleNamespace(id="q", runId="r", name="shop")

    def batch(number: int) -> Any:
        sink = SimpleNamespace(description="noop")
        numbers = {"numInputRows": 1, "processedRowsPerSecond": 1.0, "durationMs": {}}
        return SimpleNamespace(
            progress=SimpleNamespace(
                id="q", runId="r", name="shop", batchId=number, sources=[], sink=sink, **numbers
            )
        )

    publisher.onQueryStarted(query)
    publisher.onQueryProgress(batch(0))
    assert published == [None, 0]
    now_s += 0.5
    publisher.onQueryProgress(batch(1))
    assert published == [None, 0]
    now_s += 10
    publisher.onQueryIdle(query)
    assert published == [None, 0, 1]
