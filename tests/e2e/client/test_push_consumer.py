"""The push consumer, concurrent and clustering: what it gets, what it stores, how it ends."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.errors import ClientError, ClientStateError, NoNameServerError
from kourou.protocol.message import MessageExt
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.push_kit import (
    GROUP,
    TOPIC,
    Notes,
    consumer_of,
    consuming,
    make_topic,
    queues_of,
    send,
    spread,
    stored_offset,
    until,
)

pytestmark = pytest.mark.e2e


async def test_every_message_is_consumed_once_and_offsets_are_stored(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running)
        bodies = await spread(running, 200)
        notes = Notes()
        async with consuming(running, notes) as consumer:
            await until(lambda: len(notes.messages) == 200)
            await until(lambda: consumer.stats().in_hand == 0)
            assert sorted(notes.bodies) == sorted(bodies)
            stats = consumer.stats()
            assert (stats.consumed, stats.failed, stats.topics[TOPIC].pulled) == (200, 0, 200)
            assert queues_of(consumer) == [0, 1, 2, 3]
        assert [await stored_offset(running, queue_id) for queue_id in range(4)] == [50] * 4


async def test_new_messages_come_at_once_and_a_second_start_goes_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"one"])
        first, second = Notes(), Notes()
        async with consuming(running, first):
            await until(lambda: first.bodies == [b"one"])
            await send(running, [b"two"])
            await until(lambda: first.bodies == [b"one", b"two"])
        await send(running, [b"three"])
        async with consuming(running, second):
            await until(lambda: second.messages)
        assert second.bodies == [b"three"]


async def test_a_plain_handler_runs_in_threads_of_the_consumer(tmp_path: Path) -> None:
    names: set[str] = set()
    together = threading.Barrier(3, timeout=10)

    def handler(message: MessageExt) -> ConsumeResult:
        names.add(threading.current_thread().name)
        together.wait()  # continues only when three run at once
        return ConsumeResult.SUCCESS

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"] * 6)
        async with consuming(running, handler, concurrency=3) as consumer:
            await until(lambda: consumer.stats().consumed == 6)
        assert names == {f"{GROUP}-handler-{number}" for number in (1, 2, 3)}
        assert not [thread for thread in threading.enumerate() if thread.name in names]


async def test_a_batch_handler_gets_lists_and_can_succeed_in_part(tmp_path: Path) -> None:
    batches: list[list[bytes]] = []

    async def handler(messages: list[MessageExt], context: ConsumeContext) -> None:
        batches.append([message.body for message in messages])
        assert context.queue.topic in (TOPIC, f"%RETRY%{GROUP}")
        if len(batches) == 1:
            context.ack_index = 1

    async with cluster(tmp_path, message_delay_level="1s 1s 1s") as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b", b"c", b"d"])
        async with consuming(running, handler, batch_size=3, concurrency=1) as consumer:
            await until(lambda: sum(map(len, batches)) == 5)
            stats = consumer.stats()
        assert batches == [[b"a", b"b", b"c"], [b"d"], [b"c"]]
        assert (stats.failed, stats.consumed) == (1, 4)


async def test_several_topics_tags_and_sql_each_have_their_handler(tmp_path: Path) -> None:
    tagged, chosen = Notes(), Notes()
    async with cluster(tmp_path) as running:
        for topic in ("Orders", "Bills"):
            await make_topic(running, topic, queues=1)
        await send(running, [b"no"], topic="Orders")
        # Both have the same hash: the broker lets them pass, the client looks again.
        await send(running, [b"yes"], topic="Orders", TAGS="Aa")
        await send(running, [b"other"], topic="Orders", TAGS="BB")
        await send(running, [b"cheap"], topic="Bills", price="3")
        await send(running, [b"dear"], topic="Bills", price="30")
        consumer = consumer_of(running)
        await consumer.subscribe("Orders", "Aa || Cc", tagged)
        await consumer.subscribe("Bills", "price > 5", chosen, expression_type="SQL92")
        async with consumer:
            await until(lambda: tagged.messages and chosen.messages)
            await until(lambda: consumer.stats().in_hand == 0)
        assert (tagged.bodies, chosen.bodies) == ([b"yes"], [b"dear"])
        assert await stored_offset(running, topic="Orders") == 3


async def test_an_expression_that_is_none_ends_the_start_with_the_reason(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running)
        consumer = consumer_of(running)
        await consumer.subscribe(TOPIC, "price >", Notes(), expression_type="SQL92")
        with pytest.raises(ClientError, match="price >"):
            await consumer.start()
        with pytest.raises(ClientStateError):
            await consumer.wait()


async def test_topics_come_and_go_while_it_runs(tmp_path: Path) -> None:
    first, second = Notes(), Notes()
    async with cluster(tmp_path) as running:
        for topic in ("Orders", "Bills"):
            await make_topic(running, topic, queues=1)
        async with consuming(running, first, topic="Orders") as consumer:
            await consumer.subscribe("Bills", second)
            await send(running, [b"bill"], topic="Bills")
            await until(lambda: second.bodies == [b"bill"])
            await consumer.unsubscribe("Orders")
            await until(lambda: queues_of(consumer, "Orders") == [])
            await send(running, [b"order"], topic="Orders")
            await send(running, [b"bill 2"], topic="Bills")
            await until(lambda: second.bodies == [b"bill", b"bill 2"])
            assert first.messages == []


async def test_a_pause_keeps_messages_at_the_broker(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        async with consuming(running, notes, suspend_timeout_ms=50) as consumer:
            await send(running, [b"one"])
            await until(lambda: notes.bodies == [b"one"])
            await until(lambda: bool(running.broker.services.holds))
            consumer.pause()
            # The pull that is held at the broker ends, and no other follows.
            await until(lambda: not running.broker.services.holds)
            await send(running, [b"two"])
            pulled = consumer.stats().topics[TOPIC].pulled
            assert (pulled, notes.bodies) == (1, [b"one"])
            consumer.resume()
            await until(lambda: notes.bodies == [b"one", b"two"])


async def test_flow_control_bounds_what_is_in_hand(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def handler(message: MessageExt) -> None:
        await gate.wait()

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"x" * 100] * 100)
        limits = {"pull_threshold_messages": 20, "pull_batch_size": 8}
        async with consuming(running, handler, **limits) as consumer:
            await until(lambda: consumer.stats().in_hand > 20)
            assert consumer.stats().in_hand == 24  # one pull over the limit
            gate.set()
            await until(lambda: consumer.stats().consumed == 100)


@pytest.mark.parametrize("limits", [{"pull_threshold_bytes": 1}, {"max_span": 1}])
async def test_flow_control_by_bytes_and_by_span(tmp_path: Path, limits: dict[str, int]) -> None:
    gate = asyncio.Event()

    async def handler(message: MessageExt) -> None:
        await gate.wait()

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"x"] * 20)
        async with consuming(running, handler, pull_batch_size=5, **limits) as consumer:
            await until(lambda: consumer.stats().in_hand)
            assert consumer.stats().in_hand == 5
            gate.set()
            await until(lambda: consumer.stats().consumed == 20)


async def test_a_consumer_that_was_not_started_or_is_stopped_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running)
        consumer = consumer_of(running)
        await consumer.stop()  # nothing to do
        with pytest.raises(ClientStateError, match="not started"):
            await consumer.wait()
        await consumer.subscribe(TOPIC, Notes())
        async with consumer:
            with pytest.raises(ClientStateError, match="started before"):
                await consumer.start()
        await consumer.stop()
        with pytest.raises(ClientStateError, match="stopped"):
            await consumer.wait()


async def test_no_name_server_is_an_error_that_names_it() -> None:
    from kourou.client.push.push_consumer import AsyncPushConsumer

    consumer = AsyncPushConsumer(GROUP, namesrv="127.0.0.1:1")
    await consumer.subscribe(TOPIC, Notes())
    with pytest.raises(NoNameServerError, match="127.0.0.1:1"):
        await consumer.start()


async def test_a_topic_that_is_made_later_is_found(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path) as running:
        async with consuming(running, notes):
            await make_topic(running, queues=1)
            await send(running, [b"late"])
            await until(lambda: notes.bodies == [b"late"])
