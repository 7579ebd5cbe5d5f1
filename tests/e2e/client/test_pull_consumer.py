"""The pull consumer against a broker: what it gets, from where, and how far it says it is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kourou.broker.groups import client_manage_processor
from kourou.client.core.lag import lag
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.pull.pulls import PullStatus
from kourou.errors import ClientStateError, NoNameServerError, NoRouteError, RemotingError
from kourou.protocol.bodies import MessageQueue
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.pull_kit import TOPIC, numbered, put, until

pytestmark = pytest.mark.e2e


def consumer_of(running: Cluster, group: str = "readers", **options: int) -> AsyncPullConsumer:
    return AsyncPullConsumer(group, namesrv=running.namesrv_addr, client_ip="127.0.0.1", **options)  # type: ignore[misc]


async def test_messages_come_in_order_and_the_end_is_reported(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        queue = await put(running, numbered(100))
        found, queue_offset = [], 0
        while True:
            result = await consumer.pull(queue, queue_offset=queue_offset, max_messages=30)
            queue_offset = result.next_begin_offset
            if result.status is not PullStatus.FOUND:
                break
            found += result.messages()
        assert result.status is PullStatus.NO_NEW_MSG
        assert [message.body for message in found] == numbered(100)
        assert {message.broker_name for message in found} == {"broker-a"}
        assert [lag(message).messages for message in found] == list(range(99, -1, -1))


async def test_a_broker_that_announces_large_pulls_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(50))
        async with consumer_of(running) as consumer:
            assert len((await consumer.pull(queue, queue_offset=0, max_messages=50)).messages()) == 50
        monkeypatch.setattr(client_manage_processor, "_FEATURES", None)  # as Apache's
        async with consumer_of(running) as consumer:
            assert len((await consumer.pull(queue, queue_offset=0, max_messages=50)).messages()) == 32


async def test_queues_of_all_brokers_are_fetched(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as running, consumer_of(running) as consumer:
        await put(running, [b"a"], broker=0)
        await put(running, [b"b"], broker=1)
        queues = await consumer.fetch_queues(TOPIC)
        assert queues == [MessageQueue(TOPIC, name, n) for name in ("broker-a", "broker-b") for n in range(4)]
        with pytest.raises(NoRouteError, match="no route to topic 'Unknown'"):
            await consumer.fetch_queues("Unknown")


async def test_offsets_are_found_by_end_and_by_time(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        queue = await put(running, numbered(10))
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 10)
        now = datetime.now(UTC)
        assert await consumer.search_offset(queue, now - timedelta(hours=1)) == 0
        message = (await consumer.pull(queue, queue_offset=4, max_messages=1)).messages()[0]
        assert await consumer.search_offset(queue, message.store_timestamp) <= 4
        assert await consumer.search_offset(queue, now + timedelta(hours=1)) == 10


async def test_a_committed_offset_is_there_for_the_next_consumer(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(10))
        async with consumer_of(running) as consumer:
            assert await consumer.committed(queue) is None
            assert await consumer.committed(MessageQueue(queue.topic, queue.broker_name, 1)) is None, (
                "an empty queue"
            )
            await consumer.commit(queue, 7)
            with pytest.raises(ValueError, match="not a valid offset to commit"):
                await consumer.commit(queue, -1)
        async with consumer_of(running) as consumer:
            assert await consumer.committed(queue) == 7
        async with consumer_of(running, "others") as consumer:
            assert await consumer.committed(queue) is None


async def test_tags_are_filtered_by_the_broker_and_looked_at_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        # "Aa" and "BB" have the same hash, which is all that the broker compares.
        for tag in ("Aa", "BB", "C"):
            queue = await put(running, [tag.encode()], properties=f"TAGS\x01{tag}\x02")
        result = await consumer.pull(queue, "Aa || D", queue_offset=0)
        assert [message.body for message in result.messages()] == [b"Aa"]
        assert result.next_begin_offset == 3
        result = await consumer.pull(queue, "D", queue_offset=0)
        assert (result.status, result.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 3)


async def test_sql_expressions_select_by_property(tmp_path: Path) -> None:
    async with cluster(tmp_path, enable_property_filter=True) as running, consumer_of(running) as consumer:
        for number in range(5):
            queue = await put(running, [b"%d" % number], properties=f"n\x01{number}\x02")
        result = await consumer.pull(queue, "n > 2", queue_offset=0, expression_type="SQL92")
        assert [message.body for message in result.messages()] == [b"3", b"4"]


async def test_an_offset_outside_of_the_queue_is_corrected_by_the_result(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        queue = await put(running, numbered(3))
        result = await consumer.pull(queue, queue_offset=1000)
        assert (result.status, result.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
        with pytest.raises(ValueError, match="offset >= 0"):
            await consumer.pull(queue, queue_offset=-1)


async def test_a_blocking_pull_ends_when_a_message_comes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        queue = await put(running, [b"old"])
        pulling = asyncio.ensure_future(consumer.pull_block_if_not_found(queue, queue_offset=1))
        await until(lambda: len(running.broker.services.holds) == 1)
        await put(running, [b"new"])
        result = await asyncio.wait_for(pulling, 5)
        assert [message.body for message in result.messages()] == [b"new"]


async def test_a_blocking_pull_ends_without_a_message_after_its_time(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running, suspend_ms=50) as consumer:
        queue = await put(running, [b"old"])
        result = await asyncio.wait_for(consumer.pull_block_if_not_found(queue, queue_offset=1), 10)
        assert (result.status, result.next_begin_offset) == (PullStatus.NO_NEW_MSG, 1)


async def test_names_in_a_namespace_are_hidden_from_the_user(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await put(running, [b"inside"], topic=f"shop%{TOPIC}")
        options = {"namesrv": running.namesrv_addr, "namespace": "shop"}
        async with AsyncPullConsumer("readers", **options) as consumer:  # type: ignore[arg-type]
            queue = (await consumer.fetch_queues(TOPIC))[0]
            assert queue == MessageQueue(TOPIC, "broker-a", 0)
            result = await consumer.pull(queue, queue_offset=0)
            assert [(m.topic, m.body) for m in result.messages()] == [(TOPIC, b"inside")]
            await consumer.commit(queue, 1)
        inner = MessageQueue(f"shop%{TOPIC}", "broker-a", 0)
        async with AsyncPullConsumer("shop%readers", namesrv=running.namesrv_addr) as consumer:
            assert await consumer.committed(inner) == 1


async def test_the_broker_knows_the_group_while_it_runs(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        async with consumer_of(running) as consumer:
            await consumer.pull(await put(running, [b"x"]), queue_offset=0)
            await consumer.instance.heartbeat()
            group = running.broker.services.consumers.get("readers")
            assert group is not None and TOPIC in group.subscriptions
        assert running.broker.services.consumers.get("readers") is None


async def test_a_consumer_is_used_between_start_and_stop_only(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, [b"x"])
        consumer = consumer_of(running)
        with pytest.raises(ClientStateError, match="not started"):
            await consumer.pull(queue, queue_offset=0)
        async with consumer:
            pass
        with pytest.raises(ClientStateError, match="is stopped"):
            await consumer.pull(queue, queue_offset=0)


async def test_a_name_server_or_broker_that_is_gone_is_reported(tmp_path: Path, unused_tcp_port: int) -> None:
    with pytest.raises(NoNameServerError, match="connection refused"):
        await AsyncPullConsumer("readers", namesrv=f"127.0.0.1:{unused_tcp_port}").start()
    async with cluster(tmp_path) as running, consumer_of(running, pull_timeout_ms=500) as consumer:
        queue = await put(running, [b"x"])
        with pytest.raises(NoRouteError, match="no broker 'broker-z'"):
            await consumer.pull(MessageQueue(TOPIC, "broker-z", 0), queue_offset=0)
        await consumer.pull(queue, queue_offset=0)
        await running.broker.stop()
        with pytest.raises(RemotingError):
            await consumer.pull(queue, queue_offset=0)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="blank"):
        AsyncPullConsumer(" ")
    with pytest.raises(ValueError, match="suspended_pull_timeout_ms"):
        AsyncPullConsumer("readers", suspend_ms=30_000)
