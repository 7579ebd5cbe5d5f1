"""Consumers continue at the slave while the master is away, lose nothing, and return."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou import AsyncLitePullConsumer, AsyncProducer, AsyncPullConsumer, AsyncPushConsumer, Message
from kourou.client.pull.queue_reader import QueueReader
from kourou.errors import KourouError, ResponseError, SlaveBehindError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from tests.e2e.broker.broker_kit import Peer
from tests.e2e.broker.replication_kit import equal, following, log_end, master, namesrv, slave, until

pytestmark = pytest.mark.e2e

TOPIC = "Orders"
GROUP = "billing"
# The route that a client polls rarely has the master still: only requests to it fail.
ROUTES = pytest.mark.parametrize(
    "poll_ms",
    [
        pytest.param(200, id="left the route"),
        pytest.param(60_000, id="in the route", marks=pytest.mark.slow),
    ],
)


class Pair:
    """A slave, and its master that the test stops and starts."""

    def __init__(self, root: Path, namesrv_addr: str, keys: dict[str, Any]) -> None:
        self._root = root
        self.namesrv = namesrv_addr
        self._keys = keys
        self._stack = contextlib.AsyncExitStack()
        self.master: Peer
        self.slave: Peer
        self.producer: AsyncProducer
        self.sent = 0

    async def start_master(self) -> None:
        """Start the master, at the same address each time."""
        running = master(self._root, self.namesrv, broker_role="SYNC_MASTER", **self._keys)
        self.master = await self._stack.enter_async_context(running)
        config = self.master.controller.config
        ports = {"listen_port": config.listen_port, "ha_listen_port": config.ha_listen_port}
        self._keys = {**self._keys, **ports}

    async def stop_master(self) -> None:
        await self._stack.aclose()

    async def send(self, count: int) -> None:
        """Send the next messages: numbers, counted from 0."""
        messages = [Message(TOPIC, b"%d" % (self.sent + number)) for number in range(count)]
        # One by one, so that all queues get some.
        await asyncio.gather(*(self.producer.send(message) for message in messages))
        self.sent += count

    async def until_all(self, seen: Counter[bytes]) -> None:
        """Wait until everything was consumed; nothing may come twice."""
        await until(lambda: len(seen) >= self.sent, f"{self.sent} messages are consumed")
        assert seen == {b"%d" % number: 1 for number in range(self.sent)}

    async def until_committed(self, peer: Peer) -> None:
        """Wait until a broker has the offsets of everything."""
        offsets = peer.controller.services.offsets
        await until(
            lambda: sum((offsets.query_all(GROUP, TOPIC) or {}).values()) == self.sent,
            f"{self.sent} messages are committed",
        )

    async def until_returned(self) -> None:
        """Wait until the pulls of all queues wait at the master, and none at the slave."""
        at_master, at_slave = (peer.controller.services.holds for peer in (self.master, self.slave))
        await until(lambda: len(at_master) >= 4 and not len(at_slave), "the pulls are back at the master")


@contextlib.asynccontextmanager
async def pair(root: Path, **keys: Any) -> AsyncIterator[Pair]:
    """With a topic of 4 queues that the slave knows, and 20 messages in it. `keys` are for both brokers."""
    async with namesrv() as address:
        both = Pair(root, address, keys)
        await both.start_master()
        try:
            async with AsyncProducer("shop", namesrv=address, poll_namesrv_interval_ms=200) as both.producer:
                await both.send(20)
                async with slave(root, address, **keys) as both.slave:
                    await following(both.master, 1)
                    await equal(both.master, both.slave)
                    tables = [peer.controller.services.topics.table for peer in (both.master, both.slave)]
                    await until(lambda: tables[0][TOPIC] == tables[1].get(TOPIC), "the slave has the topic")
                    yield both
        finally:
            await both.stop_master()


async def lives_through_an_outage(both: Pair, seen: Counter[bytes]) -> None:
    """A consumer that counts in `seen` continues while the master is away, and returns."""
    await both.until_all(seen)
    await both.send(20)
    await both.stop_master()
    await both.until_all(seen)
    await both.until_committed(both.slave)
    await both.start_master()
    await both.send(20)
    await both.until_all(seen)
    await both.until_committed(both.master)
    await both.until_returned()


@ROUTES
async def test_a_push_consumer_continues_at_the_slave_and_returns(tmp_path: Path, poll_ms: int) -> None:
    async with pair(tmp_path) as both:
        seen: Counter[bytes] = Counter()
        async with pushing(both, seen, poll_ms):
            await lives_through_an_outage(both, seen)


async def test_a_member_that_starts_without_the_master_begins_where_the_group_is(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        seen: Counter[bytes] = Counter()
        async with pushing(both, seen, 200):
            await both.until_all(seen)
            await both.send(20)
            await both.stop_master()
            await both.until_all(seen)
        await both.until_committed(both.slave)
        end = log_end(both.slave)
        with pytest.raises(KourouError):
            await both.producer.send(Message(TOPIC, b"nowhere"), timeout_ms=500)
        assert log_end(both.slave) == end, "nothing is sent to a slave"
        async with pushing(both, seen, 200):
            await both.start_master()
            await both.send(20)
            await both.until_all(seen)


@contextlib.asynccontextmanager
async def pushing(both: Pair, seen: Counter[bytes], poll_ms: int, **options: Any) -> AsyncIterator[None]:
    """A push consumer that counts what it gets. Its long polls are short, so that it soon returns."""

    async def count(message: MessageExt) -> None:
        seen[message.body] += 1

    consumer = AsyncPushConsumer(
        GROUP,
        namesrv=both.namesrv,
        consume_from="first",
        poll_namesrv_interval_ms=poll_ms,
        persist_interval_ms=50,
        suspend_timeout_ms=300,
        **options,
    )
    await consumer.subscribe(TOPIC, count)
    async with consumer:
        yield


@ROUTES
async def test_a_lite_pull_consumer_continues_at_the_slave_and_returns(tmp_path: Path, poll_ms: int) -> None:
    async with pair(tmp_path) as both:
        seen: Counter[bytes] = Counter()
        consumer = AsyncLitePullConsumer(
            GROUP,
            namesrv=both.namesrv,
            consume_from="first",
            poll_namesrv_interval_ms=poll_ms,
            auto_commit_interval_ms=50,
            suspend_ms=300,
        )
        await consumer.subscribe(TOPIC)
        async with consumer, polling(consumer, seen):
            await lives_through_an_outage(both, seen)


@contextlib.asynccontextmanager
async def polling(consumer: AsyncLitePullConsumer, seen: Counter[bytes]) -> AsyncIterator[None]:
    """Poll and count until the end of the block."""

    async def poll() -> None:
        while True:
            seen.update(message.body for message in await consumer.poll(timeout_ms=100))

    task = asyncio.create_task(poll())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_pull_consumer_reads_and_commits_at_the_slave_and_returns(tmp_path: Path) -> None:
    async with (
        pair(tmp_path) as both,
        AsyncPullConsumer(GROUP, namesrv=both.namesrv, poll_namesrv_interval_ms=60_000) as consumer,
    ):
        queues = await consumer.fetch_queues(TOPIC)
        ends = {queue: await consumer.queue_end(queue) for queue in queues}
        assert sum(end.queue_offset for end in ends.values()) == 20
        assert {end.broker_id for end in ends.values()} == {0}
        await both.stop_master()
        for queue, end in ends.items():
            assert await consumer.queue_end(queue) == (end.queue_offset, 1)
            result = await consumer.pull(queue, queue_offset=0)
            assert (len(result.messages()), result.broker_id) == (end.queue_offset, 1)
            await consumer.commit(queue, result.next_begin_offset)
            assert await consumer.committed(queue) == end.queue_offset
        await both.until_committed(both.slave)
        # A slave's end is not the end of the queue.
        queue = queues[0]
        end = ends[queue].queue_offset
        async with QueueReader(queue, consumer=consumer, end_offset=end) as reader:
            assert [len(chunk.messages()) async for chunk in reader] == [end]
        beyond = QueueReader(queue, consumer=consumer, end_offset=end + 1, retry_times=0)
        async with beyond as reader:
            with pytest.raises(SlaveBehindError, match=f"slave 1 does not have offset {end} yet"):
                assert [len(chunk.messages()) async for chunk in reader] == [end]
        await both.start_master()
        await until_master(consumer, queue)
        await both.send(20)
        async with QueueReader(queue, consumer=consumer, end_offset=end + 1) as reader:
            assert sum([len(chunk.messages()) async for chunk in reader]) == end + 1


async def until_master(consumer: AsyncPullConsumer, queue: MessageQueue) -> None:
    async with asyncio.timeout(10):
        while (await consumer.pull(queue, queue_offset=0)).broker_id:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_an_orderly_consumer_continues_at_the_slave_with_the_lock_of_the_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        seen: Counter[bytes] = Counter()
        async with pushing(both, seen, 200, orderly=True):
            await lives_through_an_outage(both, seen)


async def test_a_consumer_of_old_messages_is_at_the_slave_until_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.broker.settings.memory_bytes", lambda: 4_000)  # of which 40 or 30 %
    async with (
        pair(tmp_path, slave_read_enable=True) as both,
        AsyncPullConsumer(GROUP, namesrv=both.namesrv) as consumer,
    ):
        queue = (await consumer.fetch_queues(TOPIC))[0]
        served: list[int] = []
        for queue_offset in (1, 2, 4, 4):
            result = await consumer.pull(queue, queue_offset=queue_offset, max_messages=1)
            assert [message.queue_offset for message in result.messages()] == [queue_offset]
            served.append(result.broker_id)
        assert served == [0, 1, 1, 0]
        # A slave that does not serve the topic keeps no consumer from its master.
        await consumer.pull(queue, queue_offset=1, max_messages=1)
        both.slave.controller.services.topics.table.pop(TOPIC)
        with pytest.raises(ResponseError, match="not exist"):
            await consumer.pull(queue, queue_offset=1, max_messages=1)
        assert (await consumer.pull(queue, queue_offset=1, max_messages=1)).broker_id == 0
