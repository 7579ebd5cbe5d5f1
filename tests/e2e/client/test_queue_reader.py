"""The bulk reader against a broker: every record once, in order, whatever the sizes and limits."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.pull.queue_reader import QueueChunk, QueueReader
from kourou.errors import NoRouteError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.pull_kit import TOPIC, numbered, put, until

pytestmark = pytest.mark.e2e


async def read(running: Cluster, queue: MessageQueue, **options: Any) -> list[QueueChunk]:
    async with QueueReader(queue, namesrv=running.namesrv_addr, **options) as chunks:
        return [chunk async for chunk in chunks]


def offsets(chunks: list[QueueChunk]) -> list[int]:
    return [message.queue_offset for chunk in chunks for message in chunk.messages()]


@pytest.mark.parametrize("in_flight", [1, 2, 5])
async def test_every_record_is_read_once_and_in_order(tmp_path: Path, in_flight: int) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(5_000))
        chunks = await read(running, queue, in_flight=in_flight)
        bodies = [message.body for chunk in chunks for message in chunk.messages()]
        assert bodies == numbered(5_000)
        assert [chunk.begin_offset for chunk in chunks[1:]] == [chunk.next_offset for chunk in chunks[:-1]]
        assert (chunks[0].begin_offset, chunks[-1].next_offset) == (0, 5_000)


async def test_sizes_that_vary_and_small_answers_leave_no_gap(tmp_path: Path) -> None:
    sizes = random.Random(7)
    async with cluster(tmp_path) as running:
        queue = await put(running, [bytes(sizes.choice((1, 100, 20_000))) for _ in range(2_000)])
        for max_bytes in (1, 50_000, 1_000_000):
            chunks = await read(running, queue, max_bytes=max_bytes, in_flight=3)
            assert offsets(chunks) == list(range(2_000))
            assert len(chunks) == 2_000 if max_bytes == 1 else max(len(c.body) for c in chunks) <= max_bytes


async def test_a_part_of_the_queue_is_read_exactly(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(3_000))
        assert offsets(await read(running, queue, begin_offset=100, end_offset=2_100)) == list(
            range(100, 2_100)
        )
        assert await read(running, queue, begin_offset=5, end_offset=5) == []
        assert offsets(await read(running, queue, begin_offset=2_990, end_offset=9_000)) == list(
            range(2_990, 3_000)
        )
        assert await read(running, queue, begin_offset=8_000, end_offset=9_000) == []


async def test_a_filter_selects_and_stops_at_the_end_all_the_same(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        for first in range(0, 2_000, 100):
            tag = "A" if first % 300 == 0 else "B"
            queue = await put(running, numbered(100, first), properties=f"TAGS\x01{tag}\x02")
        wanted = [n for n in range(2_000) if n // 100 % 3 == 0]
        assert offsets(await read(running, queue, expression="A")) == wanted
        part = await read(running, queue, expression="A", begin_offset=50, end_offset=350)
        assert offsets(part) == [n for n in wanted if 50 <= n < 350]
        assert part[-1].next_offset == 350


async def test_an_empty_queue_has_no_chunks(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await put(running, [b"x"], queue_id=0)
        assert await read(running, MessageQueue(TOPIC, "broker-a", 1)) == []


async def test_messages_that_come_while_reading_are_left_for_later(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(1_500))
        async with QueueReader(queue, namesrv=running.namesrv_addr, max_bytes=10_000) as chunks:
            found = []
            async for chunk in chunks:
                if not found:
                    await put(running, numbered(100, 1_500))
                found += [message.queue_offset for message in chunk.messages()]
            assert found == list(range(1_500))
            assert chunks.position == 1_500


async def test_a_reader_that_is_left_early_leaves_nothing_running(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(3_000))
        async with QueueReader(queue, namesrv=running.namesrv_addr, max_bytes=1_000, in_flight=4) as chunks:
            async for chunk in chunks:
                assert chunk.begin_offset == 0
                break
        await until(lambda: not [t for t in asyncio.all_tasks() if t.get_name().startswith("read ")])


async def test_a_reader_may_use_the_connections_of_a_consumer(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(10))
        async with AsyncPullConsumer("readers", namesrv=running.namesrv_addr) as consumer:
            async with QueueReader(queue, consumer=consumer) as chunks:
                assert [len(chunk.messages()) async for chunk in chunks] == [10]
            assert await consumer.max_offset(queue) == 10


async def test_a_broker_that_comes_back_is_read_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(2_000))
        before = running.broker
        async with QueueReader(
            queue,
            namesrv=running.namesrv_addr,
            max_bytes=10_000,
            retry_times=20,
            poll_namesrv_interval_ms=200,
        ) as chunks:
            found: list[int] = []
            async for chunk in chunks:
                if not found:
                    await before.stop()
                    again = type(before)(before.config)
                    await again.start()
                found += [message.queue_offset for message in chunk.messages()]
            assert found == list(range(2_000))
        await again.stop()


async def test_what_will_not_pass_is_raised_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await put(running, [b"x"])
        with pytest.raises(ResponseError, match=r"queueId\[9\] is illegal"):
            await read(running, MessageQueue(TOPIC, "broker-a", 9), begin_offset=0, end_offset=5)
        with pytest.raises(NoRouteError, match="broker-z"):
            await read(running, MessageQueue(TOPIC, "broker-z", 0), retry_times=0)


def test_options_are_checked() -> None:
    queue = MessageQueue(TOPIC, "broker-a", 0)
    with pytest.raises(ValueError, match="in_flight"):
        QueueReader(queue, in_flight=0)
    with pytest.raises(ValueError, match="begin_offset is -1"):
        QueueReader(queue, begin_offset=-1)
