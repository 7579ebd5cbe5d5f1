"""Pipelines that publish their progress: the messages, and what the console makes of them."""

from __future__ import annotations

import time

from kourou import AsyncProducer, Message
from kourou.admin.pipelines import SILENT_AFTER_MS, fold
from kourou.protocol.pipeline_status import PIPELINES_TOPIC, RUNNING, STOPPED, PipelineStatus
from kourou.testing.cluster import Cluster
from tests.integration.console.kit import Console


def status(query_id: str, time_ms: int, **fields: object) -> PipelineStatus:
    given = {"name": query_id, "run_id": "r", "application": "", "host": "h", "state": RUNNING, **fields}
    return PipelineStatus(query_id=query_id, time_ms=time_ms, **given)  # type: ignore[arg-type]


def test_the_last_status_counts_in_whatever_order_they_are_read() -> None:
    items = fold([status("a", 3, rows=3), status("a", 1, rows=1), status("b", 2, state=STOPPED)], 4)
    assert [(item.status.query_id, item.status.time_ms, item.is_silent) for item in items] == [
        ("a", 3, False),
        ("b", 2, False),
    ]


def test_a_running_pipeline_without_news_is_silent_a_stopped_one_is_not() -> None:
    items = fold([status("a", 0), status("b", 0, state=STOPPED)], SILENT_AFTER_MS + 1)
    assert [item.is_silent for item in items] == [True, False]


async def test_pipelines_are_listed(running: Cluster, console: Console) -> None:
    page = await console.get("/pipelines")
    assert page["items"] == []
    assert page["commands"] == [f"mqadmin printMsg -n {running.namesrv_addr} -t {PIPELINES_TOPIC}"]
    now_ms = time.time_ns() // 1_000_000
    bodies = [b"not a status", status("q1", now_ms, rows=7, topics=["Orders"]).encode()]
    async with AsyncProducer("spark", namesrv=running.namesrv_addr) as producer:
        for body in bodies:
            await producer.send(Message(PIPELINES_TOPIC, body))
    console.context.sessions.forget()
    (item,) = (await console.get("/pipelines"))["items"]
    assert (item["status"]["name"], item["status"]["rows"], item["is_silent"]) == ("q1", 7, False)
