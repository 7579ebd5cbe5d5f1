"""`mqadmin atomicForget` and `producerForget` against a cluster."""

from __future__ import annotations

import pytest

from kourou import AsyncProducer, Message, MessageQueue
from kourou.testing.local_cluster import LocalCluster
from tests.unit.admin.command_line import run_line

pytestmark = pytest.mark.e2e


async def test_a_broker_that_is_gone_is_forgotten() -> None:
    async with (
        LocalCluster() as cluster,
        AsyncProducer("loaders", namesrv=cluster.namesrv, name="loader") as producer,
    ):
        await cluster.create_topic("orders", queues=1)
        publish = await producer.begin_atomic()
        await publish.commit({"broker-a": [], "broker-z": [7]})
        line = (await run_line(cluster.namesrv, "atomicList")).lines[1]
        assert "decided" in line and "waits for " in line and "broker-z" in line
        refused = await run_line(cluster.namesrv, "atomicForget", "-b", "broker-a", "--yes")
        assert "broker 'broker-a' is registered" in refused.problem
        done = await run_line(cluster.namesrv, "atomicForget", "-b", "broker-z", "--yes")
        assert done.exit_code == 0 and done.lines[-1].endswith(": 1 decision forgotten")
        for _ in range(2):
            shown = await run_line(cluster.namesrv, "atomicList")
            assert "broker-z" not in shown.stdout
            again = await run_line(cluster.namesrv, "atomicForget", "-b", "broker-z", "--yes")
            assert again.lines == ["no decision waits for broker broker-z"]
            await cluster.restart_broker()


async def test_the_name_of_a_producer_is_forgotten() -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    async with LocalCluster() as cluster:
        await cluster.create_topic("orders", queues=1)
        for number in range(2):
            async with AsyncProducer("loaders", namesrv=cluster.namesrv, name="loader") as producer:
                assert await producer.last_sequence(queue) == -1
                await producer.send(Message("orders", b"%d" % number), queue=queue)
                async with producer.atomic() as batch:
                    await batch.send(Message("orders", b"x"), queue=queue)
            done = await run_line(cluster.namesrv, "producerForget", "-p", "loader", "--yes")
            assert done.exit_code == 0 and done.lines[-1].endswith(": 2 producers forgotten")
            await cluster.restart_broker()
            again = await run_line(cluster.namesrv, "producerForget", "-p", "loader", "--yes")
            assert again.lines == ["no broker knows a producer with the name loader"]
        wrong = await run_line(cluster.namesrv, "producerForget", "-p", "a b", "--yes")
        assert "producer name 'a b'" in wrong.problem
