"""The lag in a query's progress, and its log."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kourou.spark.source.lag_listener import LagListener, StreamLag, stream_lag  # noqa: E402


def source(messages: int, seconds: float) -> Any:
    latest: dict[str, Any] = {
        "version": 1,
        "offsets": {"orders": {"broker-a": {"0": messages}}, "bills": {"broker-a": {"0": 0}}},
        "lag": {"messages": messages, "seconds": seconds, "queues": {}},
    }
    latest["lag"]["bytes"] = messages * 100
    return SimpleNamespace(latestOffset=json.dumps(latest))


def test_the_lag_of_a_source() -> None:
    assert stream_lag(source(7, 1.5)) == StreamLag(7, 1.5, 700, ("bills", "orders"))
    assert stream_lag({"latestOffset": source(7, 1.5).latestOffset}) == StreamLag(
        7, 1.5, 700, ("bills", "orders")
    )
    of_an_older_version = {"latestOffset": '{"lag": {"messages": 7, "seconds": 1.5}}'}
    assert stream_lag(of_an_older_version) == StreamLag(7, 1.5, 0)


@pytest.mark.parametrize(
    "latest", [None, "", "5", "[]", '{"orders": {"0": 5}}', '{"lag": {"messages": "x"}}']
)
def test_sources_of_other_kinds_have_none(latest: str | None) -> None:
    assert stream_lag(SimpleNamespace(latestOffset=latest)) is None


def test_lag_is_logged_and_much_of_it_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    other = SimpleNamespace(latestOffset="5")
    progress = SimpleNamespace(name="archive", id="x", sources=[source(7, 1.5), other, source(9, 90.0)])
    with caplog.at_level(logging.INFO, "kourou.spark.source.lag_listener"):
        LagListener(warn_seconds=60).onQueryProgress(SimpleNamespace(progress=progress))  # type: ignore[arg-type]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "query archive, topics bills, orders: 7 messages, 700 bytes, 1.5 s behind"),
        ("WARNING", "query archive, topics bills, orders: 9 messages, 900 bytes, 90.0 s behind"),
    ]
