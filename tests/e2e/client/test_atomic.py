"""Atomic publishes by the client: all or none, over restarts of brokers, and one program for each name."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator

import pytest

from kourou import AsyncProducer, Message, MessageQueue, Producer
from kourou.broker.groups import client_manage_processor
from kourou.client import SinkBatch
from kourou.client.producer.atomic_sessions import atomic_name
from kourou.errors import (
    AtomicRolledBackError,
    ClientError,
    ClientStateError,
    MessageRefusedError,
    ProducerFencedError,
    ResponseError,
    SinkTakenError,
)
from kourou.protocol.atomic import MAX_OPEN, Outcome, StagedGroup
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.e2e


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        for topic in ("orders", "stock"):
            running.create_topic(topic, queues=2)
        yield running


def bodies(cluster: LocalCluster, topic: str = "orders") -> list[bytes]:
    return sorted(message.body for message in cluster.messages(topic))


def wait_for(cluster: LocalCluster, topic: str, expected: list[bytes]) -> None:
    deadline = time.monotonic() + 10
    while (found := bodies(cluster, topic)) != sorted(expected):
        assert time.monotonic() < deadline, f"{topic} has {found[:10]}"
        time.sleep(0.01)


def everywhere(producer: Producer) -> list[MessageQueue]:
    """A queue of each broker."""
    return list({queue.broker_name: queue for queue in producer.queues("orders")}.values())


def test_a_block_publishes_to_topics_and_brokers_when_it_is_left(cluster: LocalCluster) -> None:
    with Producer("g", namesrv=cluster.namesrv) as producer:
        queues = everywhere(producer)
        assert len(queues) == 2
        with producer.atomic() as batch:
            ids = [batch.send(Message("orders", b"%d" % n), queue=queue) for n, queue in enumerate(queues)]
            batch.send(Message("stock", b"s", tags="A", keys="k"), sharding_key="x")
            time.sleep(0.05)
            assert bodies(cluster) == []
        wait_for(cluster, "orders", [b"0", b"1"])
        wait_for(cluster, "stock", [b"s"])
        assert {message.msg_id for message in cluster.messages("orders")} == set(ids)
        (stock,) = cluster.messages("stock")
        assert (stock.tags, stock.keys) == ("A", ("k",))


def test_an_exception_rolls_back(cluster: LocalCluster) -> None:
    with Producer("g", namesrv=cluster.namesrv) as producer:
        with pytest.raises(ZeroDivisionError), producer.atomic() as batch:
            batch.send(Message("orders", b"x" * 700_000))
            batch.send(Message("orders", b"y" * 700_000))
            batch.send(Message("orders", b"z"), queue=everywhere(producer)[0])
            raise ZeroDivisionError
        with producer.atomic() as batch:
            batch.send(Message("orders", b"next"))
        wait_for(cluster, "orders", [b"next"])


def test_large_and_compressed_messages_keep_their_order(cluster: LocalCluster) -> None:
    with Producer("g", namesrv=cluster.namesrv) as producer:
        queue = everywhere(producer)[0]
        expected = [b"%d" % n + b"a" * (50_000 if n % 3 else 10) for n in range(100)]
        with producer.atomic() as batch:
            for body in expected:
                batch.send(Message("orders", body), queue=queue)
        wait_for(cluster, "orders", expected)
        found = sorted(cluster.messages("orders"), key=lambda message: message.queue_offset)
        assert [message.body for message in found] == expected


def test_bad_messages_are_refused_with_the_reason(cluster: LocalCluster) -> None:
    delayed = Message("orders", b"1", delay_time_level=3)
    nowhere = MessageQueue("orders", "broker-a", 77)
    with Producer("g", namesrv=cluster.namesrv) as producer:
        with producer.atomic() as batch:
            with pytest.raises(MessageRefusedError, match="no delayed messages"):
                batch.send(delayed)
            with pytest.raises(MessageRefusedError, match="are allowed"):
                batch.send(Message("orders", os.urandom(4 * 1024 * 1024 - 100)))
            with pytest.raises(TypeError):
                batch.send("text")  # type: ignore[arg-type]
        with pytest.raises(ClientStateError, match="inside its `with` block"):
            batch.send(Message("orders", b"late"))
        with pytest.raises(ResponseError, match="queueId"), producer.atomic() as batch:
            batch.send(Message("orders", b"1"), queue=nowhere)
        assert bodies(cluster) == []


def test_a_broker_that_does_not_exist_is_named_at_once(cluster: LocalCluster) -> None:
    with (
        Producer("g", namesrv=cluster.namesrv) as producer,
        pytest.raises(MessageRefusedError, match="broker-z"),
    ):
        with producer.atomic() as batch:
            batch.send(Message("orders", b"x"), queue=MessageQueue("orders", "broker-z", 0))


def test_two_programs_with_one_name_the_older_is_fenced(cluster: LocalCluster) -> None:
    with (
        Producer("g", namesrv=cluster.namesrv, name="loader") as older,
        Producer("g", namesrv=cluster.namesrv, name="loader") as newer,
    ):
        with pytest.raises(ProducerFencedError, match="newer program"), older.atomic() as zombie:
            zombie.send(Message("orders", b"old"))
            with newer.atomic() as batch:
                batch.send(Message("orders", b"new"))
        with pytest.raises(ProducerFencedError), older.atomic():
            pass
        wait_for(cluster, "orders", [b"new"])


def test_the_coordinator_of_a_name_stays_and_is_needed(cluster: LocalCluster) -> None:
    coordinators = set()
    for _ in range(2):
        with Producer("g", namesrv=cluster.namesrv, name="loader") as producer, producer.atomic() as batch:
            coordinators.add(batch._batch.handle.coordinator)
            batch.send(Message("orders", b"1"))
    (coordinator,) = coordinators
    cluster.stop_broker("ab".index(coordinator[-1]))
    with Producer("g", namesrv=cluster.namesrv, name="loader") as producer:
        with pytest.raises(ClientError, match=f"'{coordinator}' coordinates the atomic publishes of"):
            with producer.atomic():
                pass
    cluster.start_broker("ab".index(coordinator[-1]))
    wait_for(cluster, "orders", [b"1", b"1"])


def test_a_commit_waits_for_a_coordinator_that_restarts(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with AsyncProducer("g", namesrv=cluster.namesrv, name="loader") as producer:
            async with producer.atomic() as batch:
                for queue in await producer.queues("orders"):
                    await batch.send(Message("orders", b"1"), queue=queue)
                for broker_name in list(batch._open):
                    await batch._stage(broker_name)
                for index in range(2):
                    await asyncio.to_thread(cluster.stop_broker, index)
                restart = [asyncio.to_thread(cluster.start_broker, index) for index in range(2)]
                restarting = asyncio.gather(*restart)
            await restarting

    asyncio.run(run())
    wait_for(cluster, "orders", [b"1"] * 4)


def test_a_block_that_takes_too_long_is_rolled_back(cluster: LocalCluster) -> None:
    with Producer("g", namesrv=cluster.namesrv) as producer:
        with pytest.raises(AtomicRolledBackError, match="nothing is published"):
            with producer.atomic(timeout_ms=300) as batch:
                batch.send(Message("orders", b"x" * 900_000))
                batch.send(Message("orders", b"y" * 900_000), queue=everywhere(producer)[0])
                batch.send(Message("orders", b"z" * 900_000), queue=everywhere(producer)[0])
                time.sleep(2.5)
        assert bodies(cluster) == []


def test_brokers_sign_what_they_say_to_each_other_about_an_atomic_publish() -> None:
    with LocalCluster(brokers=2, auth=True) as cluster:
        cluster.create_topic("orders", queues=1)
        with Producer("g", namesrv=cluster.namesrv, credentials=cluster.credentials) as producer:
            with producer.atomic() as batch:
                for queue in everywhere(producer):
                    batch.send(Message("orders", queue.broker_name.encode()), queue=queue)
            wait_for(cluster, "orders", [b"broker-a", b"broker-b"])


def test_brokers_without_atomic_publishes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_manage_processor, "_FEATURES", "idempotentProducers,largePull")
    with LocalCluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        with pytest.raises(ClientError, match="no broker of the cluster supports atomic publishes"):
            with producer.atomic():
                pass


def test_many_publishes_at_once_of_one_producer(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with AsyncProducer("g", namesrv=cluster.namesrv) as producer:

            async def publish(number: int) -> None:
                async with producer.atomic() as batch:
                    await batch.send(Message("orders", b"%d" % number))
                    await batch.send(Message("stock", b"%d" % number))

            await asyncio.gather(*map(publish, range(3 * MAX_OPEN)))

    asyncio.run(run())
    expected = [b"%d" % number for number in range(3 * MAX_OPEN)]
    wait_for(cluster, "orders", expected)
    wait_for(cluster, "stock", expected)


def test_a_publish_that_waits_for_others_says_so_once(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with AsyncProducer("busy", namesrv=cluster.namesrv) as producer:
            oldest, *others = [await producer.begin_atomic() for _ in range(MAX_OPEN)]
            waiting = [asyncio.create_task(producer.begin_atomic()) for _ in range(2)]
            for publish in others:
                await publish.roll_back({})
            assert not any(task.done() for task in waiting)
            (line,) = [
                record.message for record in caplog.records if "an atomic publish waits" in record.message
            ]
            assert f"until {oldest.handle.atomic_id} is decided" in line
            await oldest.roll_back({})
            for publish in await asyncio.gather(*waiting):
                await publish.roll_back({})

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())


def test_several_processes_stage_and_one_commits_once_for_a_sink(cluster: LocalCluster) -> None:
    def group(body: bytes) -> StagedGroup:
        return StagedGroup("orders", 0, 0, 1, encode_batch_entries([BatchEntry(0, body, b"")]))

    async def run() -> None:
        async with (
            AsyncProducer("g", namesrv=cluster.namesrv, name="sink") as driver,
            AsyncProducer("g", namesrv=cluster.namesrv) as task,
        ):
            broker_name = (await task.queues("orders"))[0].broker_name
            for attempt in range(2):
                publish = await driver.begin_atomic()
                await task.join_atomic(publish.handle).stage(broker_name, 0, [group(b"row")])
                sink = SinkBatch("orders-sink", "q1", 5)
                outcome = await publish.commit({broker_name: [0]}, sink=sink)
                assert outcome is (Outcome.ALREADY_COMMITTED if attempt else Outcome.COMMITTED)
                assert await publish.commit({broker_name: [0]}, sink=sink) is outcome
            with pytest.raises(SinkTakenError, match="belongs to query 'q1'"):
                await publish.commit({}, sink=SinkBatch("orders-sink", "q2", 6))
            await publish.roll_back({broker_name: [0]})

    asyncio.run(run())
    wait_for(cluster, "orders", [b"row"])


def test_names_of_atomic_publishes_fit() -> None:
    long = "n" * 64
    assert len(atomic_name(long)) == 64
    assert atomic_name(long) != atomic_name("n" * 63)
