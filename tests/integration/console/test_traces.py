"""Traces of messages: by id and by key, with and without a trace topic."""

from __future__ import annotations

import asyncio
from typing import Any

from kourou import Message
from kourou.testing.cluster import Cluster
from tests.e2e.client.kit.push_kit import Notes, make_topic, until
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.admin.messages.test_redrive import consumer
from tests.integration.console.kit import Console
from tests.integration.console.test_messages import send

TOPIC = "Orders"
TRACES = "MyTraces"


async def trace_of(console: Console, attempts: int, **query: Any) -> Any:
    """The trace with that many deliveries; clients write their records with a delay."""
    while True:
        found = await console.get("/traces", trace_topic=TRACES, **query)
        groups = [group for item in found["items"] for group in item["trace"]["consumers"]]
        if sum(len(group["attempts"]) for group in groups) == attempts:
            return found
        await asyncio.sleep(0.05)


async def test_by_id_and_by_key(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    await make_topic(running, TRACES, queues=1)
    notes = Notes()
    options: dict[str, Any] = {"trace": True, "trace_topic": TRACES}
    async with consumer(running, notes, **options):
        first, second = await send(
            running, *(Message(TOPIC, b"order", keys=["same"]) for _ in range(2)), **options
        )
        await until(lambda: len(notes.messages) == 2)
    found = await trace_of(console, 1, id=first)
    (item,) = found["items"]
    trace = item["trace"]
    assert (trace["msg_id"], trace["topic"], item["is_complete"]) == (first, TOPIC, True)
    assert [send["status"] for send in trace["sends"]] == ["success"]
    assert [group["consumer_group"] for group in trace["consumers"]] == ["billing"]
    assert found["commands"] == [
        f"mqadmin queryMsgTraceById -n {running.namesrv_addr} -i {first} -t {TRACES}"
    ]
    by_key = await trace_of(console, 2, key="same")
    assert [one["trace"]["msg_id"] for one in by_key["items"]] == [first, second]
    assert (await console.get("/traces", trace_topic=TRACES, key="same", topic="Other"))["items"] == []
    await register_dead_broker(running, TRACES)
    (item,) = (await console.get("/traces", trace_topic=TRACES, id=first))["items"]
    assert not item["is_complete"] and "broker-dead" in item["trace"]["problems"][0]


async def test_nothing_to_find(running: Cluster, console: Console) -> None:
    await make_topic(running, TRACES, queues=1)
    assert (await console.get("/traces", trace_topic=TRACES, id="none"))["items"] == []
    missing = await console.get("/traces", status=404, id="none", trace_topic="NoTraces")
    assert missing["error"]["message"] == "there is no trace topic NoTraces"
    assert "traceTopicEnable" in missing["error"]["hint"]
    for query in ({}, {"id": "a", "key": "b"}):
        await console.get("/traces", status=400, **query)
