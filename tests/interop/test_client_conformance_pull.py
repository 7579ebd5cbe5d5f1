"""Consumers of ours that pull, async and plain, at our broker and at Apache's of both lines: the conformance
suite's scenarios of pull and lite pull consumers and of bulk reads."""

from __future__ import annotations

import asyncio
import time

import pytest

from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.pull.pulls import PullStatus
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message
from tests.interop.kit.client_kit import ClientKit
from tests.interop.kit.client_messages import names, send_all, send_around, send_colours
from tests.interop.kit.kourou_broker import BROKER_NAME

pytestmark = pytest.mark.interop


async def test_a_pull_consumer_reads_where_it_says(kit: ClientKit) -> None:
    topic = await kit.new_topic("pull", queues=2)
    async with kit.producer() as producer, kit.pull_consumer() as consumer:
        results = [
            await producer.send(
                Message(topic, body, tags="even" if number % 2 == 0 else "odd"),
                queue=MessageQueue(topic, BROKER_NAME, 0),
            )
            for number, body in enumerate(names("m", 6))
        ]
        await kit.stored(topic, 6)
        queue, empty = await consumer.fetch_queues(topic)
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 6)
        found = await consumer.pull(queue, queue_offset=2, max_messages=3)
        assert (found.status, found.next_begin_offset, found.max_offset) == (PullStatus.FOUND, 5, 6)
        assert [message.body for message in found.messages()] == names("m", 6)[2:5]
        assert [message.msg_id for message in found.messages()] == [r.msg_id for r in results[2:5]]
        odd = await consumer.pull(queue, "odd", queue_offset=0)
        assert [message.body for message in odd.messages()] == names("m", 6)[1::2]
        nothing = await consumer.pull(queue, queue_offset=6)
        assert (nothing.status, nothing.next_begin_offset) == (PullStatus.NO_NEW_MSG, 6)
        beyond = await consumer.pull(queue, queue_offset=100)
        assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 6)
        waiting = asyncio.ensure_future(consumer.pull_block_if_not_found(empty, queue_offset=0))
        await send_all(producer, topic, [b"waited for"], queue_id=1)
        assert [message.body for message in (await waiting).messages()] == [b"waited for"]


async def test_offsets_of_a_pull_consumer(kit: ClientKit) -> None:
    topic = await kit.new_topic("pull-offsets", queues=1)
    when = await send_around(kit, topic)
    async with kit.pull_consumer() as consumer:
        (queue,) = await consumer.fetch_queues(topic)
        assert await consumer.search_offset(queue, when) == 4
        # 4.9 says 0 of what was never committed, as long as the queue is young.
        assert await consumer.committed(queue) in (None, 0)
        await consumer.commit(queue, 3)
        assert await consumer.committed(queue) == 3


async def _poll(consumer: AsyncLitePullConsumer, count: int) -> list[bytes]:
    """So many messages, in the order they come; more is an error."""
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        found += [message.body for message in await consumer.poll(timeout_ms=1_000)]
        assert time.monotonic() < deadline, f"{found} of {count}"
    assert len(found) == count, found
    return found


async def test_a_lite_pull_consumer_with_assigned_queues(kit: ClientKit) -> None:
    topic, group = await kit.new_topic("assign", queues=2), kit.new_name("pollers")
    when = await send_around(kit, topic)
    async with kit.producer() as producer:
        await send_all(producer, topic, names("q0", 6), queue_id=0)
    stored = await kit.stored(topic, 14)
    in_queue = [m.body for m in sorted(stored.values(), key=lambda m: m.queue_offset) if m.queue_id == 0]
    async with kit.lite_pull_consumer(group, consume_from="first", auto_commit=False) as consumer:
        queue, _ = await consumer.fetch_queues(topic)
        await consumer.assign([queue])
        assert consumer.assignment() == [queue]
        assert await _poll(consumer, len(in_queue)) == in_queue
        assert consumer.position(queue) == len(in_queue)
        await consumer.seek(queue, 3)
        assert await _poll(consumer, len(in_queue) - 3) == in_queue[3:]
        await consumer.seek_to_time(queue, when)
        since = await consumer.search_offset(queue, when)
        assert await _poll(consumer, len(in_queue) - since) == in_queue[since:]
        assert not any(body.startswith(b"old") for body in in_queue[since:]) and since > 0
        await consumer.seek_to_begin(queue)
        assert await _poll(consumer, len(in_queue)) == in_queue
        await consumer.seek_to_end(queue)
        assert await consumer.poll(timeout_ms=50) == []
        with pytest.raises(ValueError, match="outside"):
            await consumer.seek(queue, 1_000)
        await consumer.commit({queue: 5})
        assert await consumer.committed(queue) == 5
        await consumer.commit()
        assert await consumer.committed(queue) == len(in_queue)
        await consumer.commit({queue: 5})
    async with kit.lite_pull_consumer(group) as consumer:
        await consumer.assign([queue])
        assert await _poll(consumer, len(in_queue) - 5) == in_queue[5:]


async def test_a_lite_pull_consumer_that_subscribes(kit: ClientKit) -> None:
    topic, group = await kit.new_topic("lite", queues=2), kit.new_name("pollers")
    async with kit.producer() as producer:
        await send_colours(producer, topic)
        async with kit.lite_pull_consumer(group, consume_from="first") as consumer:
            await consumer.subscribe(topic, "red || green")
            assert len(set(await _poll(consumer, 6))) == 6
            consumer.pause(consumer.assignment())
            await send_colours(producer, topic)
            assert await consumer.poll(timeout_ms=300) == []
            consumer.resume(consumer.assignment())
            assert len(await _poll(consumer, 6)) == 6
        # Auto-commit: leaving in order says that all was done with.
        await send_colours(producer, topic)
        async with kit.lite_pull_consumer(group, consume_from="first") as consumer:
            await consumer.subscribe(topic, "size = 4", expression_type="SQL92")
            assert await _poll(consumer, 1) == [b"green 4"]


async def test_a_queue_is_read_in_bulk(kit: ClientKit) -> None:
    topic = await kit.new_topic("bulk", queues=1)
    bodies = [body.ljust(500, b".") for body in names("bulk", 200)]
    async with kit.producer() as producer:
        await producer.send_many(
            Message(topic, body, tags="even" if number % 2 == 0 else "odd")
            for number, body in enumerate(bodies)
        )
    stored = {message.queue_offset: message.body for message in (await kit.stored(topic, 200)).values()}
    assert sorted(stored.values()) == sorted(bodies)
    expected = [stored[number] for number in range(200)]
    async with kit.pull_consumer() as consumer:
        (queue,) = await consumer.fetch_queues(topic)
        chunks = await kit.adapter.read(consumer, queue, max_bytes=16 * 1_024)
        assert [message.body for chunk in chunks for message in chunk.messages()] == expected
        assert len(chunks) > 1 and chunks[-1].next_offset == 200
        assert [chunk.begin_offset for chunk in chunks[1:]] == [chunk.next_offset for chunk in chunks[:-1]]
        part = await kit.adapter.read(consumer, queue, begin_offset=50, end_offset=120)
        assert [message.body for chunk in part for message in chunk.messages()] == expected[50:120]
        even = await kit.adapter.read(consumer, queue, expression="even", end_offset=100)
        assert [message.body for chunk in even for message in chunk.messages()] == [
            body for body in expected[:100] if int(body.strip(b".").split(b"-")[1]) % 2 == 0
        ]
