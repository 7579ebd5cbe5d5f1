"""A program that starts and stops clients again and again, and looks at what they leave.

Run in a process of its own, in which nothing else opens files or starts threads:
`python -m tests.e2e.client.kit.lives asyncio|uvloop|plain NAMESRV COUNT FOLDER`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.sync.lite_pull_consumer import LitePullConsumer
from kourou.client.sync.producer import Producer
from kourou.client.sync.pull_consumer import PullConsumer
from kourou.client.sync.push_consumer import PushConsumer
from kourou.client.sync.transaction_producer import TransactionProducer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt

TOPIC = "TopicTest"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
# Each such life does what the client is for; the others end at once, in the middle of their beginning.
USED_EVERY = 10
LIMIT_S = 20.0


def commit(_: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


def open_things() -> tuple[list[str], list[str]]:
    """What this process has open, and its threads."""
    gc.collect()
    targets = []
    for number in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # the one of the listing itself
    kinds = sorted(target for target in targets if not target.startswith("/proc"))
    return [kind.split("[")[0] for kind in kinds], threads()


def threads() -> list[str]:
    """Those that are left, without the loop's own pool, which ends with the loop."""
    names = [each.name for each in threading.enumerate()]
    return sorted(name for name in names if not name.startswith(("asyncio_", "uvloop_")))


# -- async ---------------------------------------------------------------------------------------------


class AsyncLives:
    """One life of each async client."""

    def __init__(self, namesrv: str, folder: str) -> None:
        self._namesrv = namesrv
        self._folder = folder

    async def producer(self, is_used: bool) -> None:
        async with AsyncProducer("producers", namesrv=self._namesrv) as producer:
            if is_used:
                await producer.send(Message(TOPIC, b"hello"))

    async def transaction_producer(self, is_used: bool) -> None:
        async with AsyncTransactionProducer("tx", namesrv=self._namesrv, check=commit) as producer:
            if is_used:
                async with producer.transaction(Message(TOPIC, b"hello")):
                    pass
                await producer.send_in_transaction(Message(TOPIC, b"hello"), _commit_locally)

    async def push_consumer(self, is_used: bool) -> None:
        async with self._pushing("pushed", is_used):
            pass

    async def broadcasting_push_consumer(self, is_used: bool) -> None:
        async with self._pushing("heard", is_used, model="broadcasting", offset_store_dir=self._folder):
            pass

    async def orderly_push_consumer(self, is_used: bool) -> None:
        async with self._pushing("orderly", is_used, orderly=True):
            pass

    @asynccontextmanager
    async def _pushing(self, group: str, is_used: bool, **options: object) -> AsyncIterator[None]:
        seen = threading.Event()
        consumer = AsyncPushConsumer(group, namesrv=self._namesrv, consume_from="first", **options)  # type: ignore[arg-type]
        await consumer.subscribe(TOPIC, lambda message: seen.set())  # plain: in a thread of the consumer
        async with consumer:
            if is_used:
                await self.producer(True)
                async with asyncio.timeout(LIMIT_S):
                    while not seen.is_set():  # noqa: ASYNC110 (set by a thread)
                        await asyncio.sleep(0.002)
            yield

    async def pull_consumer(self, is_used: bool) -> None:
        async with AsyncPullConsumer("readers", namesrv=self._namesrv) as consumer:
            if is_used:
                assert (await consumer.pull(QUEUE, queue_offset=0)).messages()
                await consumer.commit(QUEUE, 1)

    async def lite_pull_consumer(self, is_used: bool) -> None:
        consumer = AsyncLitePullConsumer("polled", namesrv=self._namesrv, consume_from="first")
        await consumer.subscribe(TOPIC)
        async with consumer:
            if is_used:
                await self.producer(True)
                assert await consumer.poll(int(LIMIT_S * 1000))

    async def assigned_lite_pull_consumer(self, is_used: bool) -> None:
        consumer = AsyncLitePullConsumer("assigned", namesrv=self._namesrv)
        await consumer.assign([QUEUE])
        async with consumer:
            if is_used:
                await consumer.seek(QUEUE, 0)
                assert await consumer.poll(int(LIMIT_S * 1000))

    def all(self, count: int) -> dict[Callable[[bool], Awaitable[None]], int]:
        """How many lives of each: fewer of those that are another's in other clothes."""
        return {
            self.producer: count,
            self.transaction_producer: count,
            self.push_consumer: count,
            self.broadcasting_push_consumer: count // 10,
            self.orderly_push_consumer: count // 10,
            self.pull_consumer: count,
            self.lite_pull_consumer: count,
            self.assigned_lite_pull_consumer: count // 10,
        }


async def _commit_locally(_: Message) -> TransactionState:
    return TransactionState.COMMIT


async def live_async(namesrv: str, count: int, folder: str) -> None:
    lives = AsyncLives(namesrv, folder).all(count)
    for live in lives:
        await live(True)
    before = open_things()
    assert before[1] == ["MainThread"], before
    for live, times in lives.items():
        for number in range(times):
            await live(number % USED_EVERY == 0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, (live, number, left)
        after = open_things()
        assert before == after, (live, before, after)


# -- plain ---------------------------------------------------------------------------------------------


class PlainLives:
    """One life of each plain client."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv

    def producer(self, is_used: bool) -> None:
        with Producer("producers", namesrv=self._namesrv) as producer:
            if is_used:
                producer.send(Message(TOPIC, b"hello"))

    def transaction_producer(self, is_used: bool) -> None:
        with TransactionProducer("tx", namesrv=self._namesrv, check=commit) as producer:
            if is_used:
                with producer.transaction(Message(TOPIC, b"hello")):
                    pass

    def push_consumer(self, is_used: bool) -> None:
        seen = threading.Event()
        consumer = PushConsumer("pushed", namesrv=self._namesrv, consume_from="first")
        consumer.subscribe(TOPIC, lambda message: seen.set())
        with consumer:
            if is_used:
                self.producer(True)
                assert seen.wait(LIMIT_S)

    def pull_consumer(self, is_used: bool) -> None:
        with PullConsumer("readers", namesrv=self._namesrv) as consumer:
            if is_used:
                assert consumer.pull(QUEUE, queue_offset=0).messages()
                consumer.commit(QUEUE, 1)

    def lite_pull_consumer(self, is_used: bool) -> None:
        consumer = LitePullConsumer("polled", namesrv=self._namesrv, consume_from="first")
        consumer.subscribe(TOPIC)
        with consumer:
            if is_used:
                self.producer(True)
                assert consumer.poll(int(LIMIT_S * 1000))

    def all(self) -> list[Callable[[bool], None]]:
        return [
            self.producer,
            self.transaction_producer,
            self.push_consumer,
            self.pull_consumer,
            self.lite_pull_consumer,
        ]


def live_plain(namesrv: str, count: int) -> None:
    lives = PlainLives(namesrv).all()
    for live in lives:
        live(True)
    before = open_things()
    assert before[1] == ["MainThread"], before
    for live in lives:
        for number in range(count):
            live(number % USED_EVERY == 0)
            assert threads() == ["MainThread"], (live, number, threads())
        after = open_things()
        assert before == after, (live, before, after)


def main(kind: str, namesrv: str, count: str, folder: str) -> None:
    """Live so many lives of each client."""
    if kind == "plain":
        live_plain(namesrv, int(count))
    elif kind == "uvloop":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(live_async(namesrv, int(count), folder))
    else:
        asyncio.run(live_async(namesrv, int(count), folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
