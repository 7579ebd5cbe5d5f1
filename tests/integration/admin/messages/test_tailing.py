"""Tail follows a topic: new queues, new brokers, brokers that come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kourou import Message, MessageQueue, Producer
from kourou.admin.messages.tailing import Last, Since, Tail
from kourou.admin.session import Admin
from kourou.protocol.message import MessageExt
from kourou.testing import LocalCluster

TOPIC = "Followed"


class Seen:
    """What a tail has brought so far."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.troubles: list[str] = []
        self.is_troubled = asyncio.Event()
        self._more = asyncio.Event()

    def emit(self, message: MessageExt) -> bool:
        self.bodies.append(message.body.decode())
        self._more.set()
        return True

    def on_trouble(self, text: str) -> None:
        self.troubles.append(text)
        self.is_troubled.set()

    async def until(self, *bodies: str) -> None:
        """Wait until exactly these have come, in any order."""
        async with asyncio.timeout(30):
            while len(self.bodies) < len(bodies):
                self._more.clear()
                await self._more.wait()
        assert sorted(self.bodies) == sorted(bodies)


@asynccontextmanager
async def following(mq: LocalCluster, begin: Last | Since) -> AsyncIterator[Seen]:
    seen = Seen()
    async with Admin(namesrv=mq.namesrv) as admin:
        tail = Tail(
            admin,
            TOPIC,
            begin,
            seen.emit,
            on_trouble=seen.on_trouble,
            on_note=pytest.fail,
            route_interval_s=0.05,
        )
        running = asyncio.create_task(tail.run(follows=True))
        try:
            yield seen
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_new_queues_and_brokers_that_come_and_go_are_followed() -> None:
    def send(body: str, broker: str, queue_id: int) -> None:
        producer.send(Message(TOPIC, body.encode()), queue=MessageQueue(TOPIC, broker, queue_id))

    with LocalCluster(brokers=2) as mq, Producer("shop", namesrv=mq.namesrv) as producer:
        mq.create_topic(TOPIC, queues=1)
        send("a-0", "broker-a", 0)
        send("b-0", "broker-b", 0)
        mq.stop_broker(1)
        async with following(mq, Last(10)) as seen:
            await seen.until("a-0")
            send("a-1", "broker-a", 0)
            await seen.until("a-0", "a-1")
            await asyncio.to_thread(mq.start_broker, 1)
            await asyncio.to_thread(mq.create_topic, TOPIC, queues=2)
            send("a-2", "broker-a", 1)
            send("b-1", "broker-b", 0)
            await seen.until("a-0", "a-1", "a-2", "b-1")  # b-0 was stored before, and could not be asked for
            assert seen.troubles == []
            await asyncio.to_thread(mq.restart_broker, 0)
            send("a-3", "broker-a", 1)
            await seen.until("a-0", "a-1", "a-2", "b-1", "a-3")
            assert len(seen.troubles) <= 1  # once for a broker, however many queues it has


@pytest.mark.slow
async def test_a_broker_that_is_silent_is_reported_once_and_read_from_where_it_was() -> None:
    with LocalCluster() as mq, Producer("shop", namesrv=mq.namesrv) as producer:
        mq.create_topic(TOPIC, queues=4)
        producer.send_many([Message(TOPIC, b"0"), Message(TOPIC, b"1")])
        async with following(mq, Since(0)) as seen:
            await seen.until("0", "1")
            await asyncio.to_thread(mq.stop_broker)
            await asyncio.wait_for(seen.is_troubled.wait(), 30)
            await asyncio.to_thread(mq.start_broker)
            producer.send(Message(TOPIC, b"2"))
            await seen.until("0", "1", "2")
        (trouble,) = seen.troubles
        assert trouble.startswith("broker-a: ") and trouble.count(mq.broker_addresses[0]) == 1


async def test_an_output_that_fails_ends_it() -> None:
    def emit(message: MessageExt) -> bool:
        raise BrokenPipeError

    with LocalCluster() as mq, Producer("shop", namesrv=mq.namesrv) as producer:
        mq.create_topic(TOPIC, queues=1)
        async with Admin(namesrv=mq.namesrv) as admin:
            tail = Tail(admin, TOPIC, Last(0), emit, on_trouble=pytest.fail, on_note=pytest.fail)
            running = asyncio.create_task(tail.run(follows=True))
            producer.send(Message(TOPIC, b"0"))
            with pytest.raises(BrokenPipeError):
                await asyncio.wait_for(asyncio.shield(_sending(producer, running)), 30)


async def _sending(producer: Producer, running: asyncio.Task[None]) -> None:
    """Messages until one comes after the tail has begun."""
    while not running.done():
        await asyncio.to_thread(producer.send, Message(TOPIC, b"1"))
        await asyncio.sleep(0.01)
    await running
