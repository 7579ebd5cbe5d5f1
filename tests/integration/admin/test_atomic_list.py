"""`mqadmin atomicList` against a cluster."""

from __future__ import annotations

import json

import pytest

from kourou import AsyncProducer, Message
from kourou.testing.local_cluster import LocalCluster
from tests.unit.admin.command_line import run_line

pytestmark = pytest.mark.e2e


async def test_open_publishes_are_listed_as_text_and_json() -> None:
    async with (
        LocalCluster(brokers=2) as cluster,
        AsyncProducer("loaders", namesrv=cluster.namesrv, name="loader") as producer,
    ):
        await cluster.create_topic("orders", queues=1)
        shown = await run_line(cluster.namesrv, "atomicList")
        assert shown.lines[-1] == "no atomic publish is open, abandoned or incomplete"
        async with producer.atomic() as batch:
            await batch.send(Message("orders", b"1"), queue=(await producer.queues("orders"))[0])
            (broker_name,) = batch._open
            await batch._stage(broker_name)
            (line,) = (await run_line(cluster.namesrv, "atomicList")).lines[1:]
            assert line.split()[:4] == [
                broker_name,
                "undecided",
                batch.handle.atomic_id,
                batch.handle.coordinator,
            ]
            assert "group loaders; topics orders" in line
            brokers = json.loads((await run_line(cluster.namesrv, "atomicList", "--json")).stdout)
            (entry,) = [entry for broker in brokers for entry in broker["publishes"]]
            assert (entry["messages"], entry["topics"]) == (1, ["orders"])
