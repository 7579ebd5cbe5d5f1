"""Priorities in pull mode: a high one is next whatever waits before it, and low ones get their share."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.client.pop.pop_consumer import AsyncPopConsumer
from kourou.client.producer.producer import AsyncProducer
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.push.consume_result import ConsumeResult
from kourou.protocol.message import Message, MessageExt
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.push_kit import consuming, make_topic, until

pytestmark = pytest.mark.e2e

TOPIC = "jobs"
QUEUES = 8
LOW, HIGH = 0, 7


def of(priority: int, count: int) -> list[Message]:
    return [Message(TOPIC, b"%d" % number, priority=priority) for number in range(count)]


class Gate:
    """A handler that notes the priority of each message; from the tenth on it waits until it is opened."""

    def __init__(self) -> None:
        self.priorities: list[int | None] = []
        self.is_waiting = threading.Event()
        self.opened = threading.Event()

    def plain(self, message: MessageExt) -> None:
        self._note(message)
        if self.is_waiting.is_set():
            self.opened.wait(20)

    async def asynchronous(self, message: MessageExt) -> None:
        self._note(message)
        while self.is_waiting.is_set() and not self.opened.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    def _note(self, message: MessageExt) -> None:
        self.priorities.append(message.priority)
        if len(self.priorities) == 10:
            self.is_waiting.set()


@pytest.mark.parametrize("backlog", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("handler", [Gate.plain, Gate.asynchronous])
async def test_a_high_one_is_next_for_a_push_consumer(
    tmp_path: Path, handler: Callable[[Gate, MessageExt], Any], backlog: int
) -> None:
    gate = Gate()
    async with cluster(tmp_path) as running, AsyncProducer("PG", namesrv=running.namesrv_addr) as producer:
        await make_topic(running, TOPIC, QUEUES, "+message.type=PRIORITY")
        await producer.send_many(of(LOW, backlog), timeout_ms=60_000)
        bound = handler.__get__(gate)
        async with consuming(running, bound, topic=TOPIC, concurrency=1) as consumer:
            await until(lambda: gate.is_waiting.is_set() and consumer.stats().in_hand > 1_000)
            in_hand = consumer.stats().in_hand
            await producer.send(Message(TOPIC, b"now", priority=HIGH))
            await until(lambda: consumer.stats().in_hand > in_hand)
            gate.opened.set()
            await until(lambda: len(gate.priorities) > 100)
    assert gate.priorities[:12] == [LOW] * 10 + [HIGH, LOW]


@pytest.mark.parametrize("backlog", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_a_high_one_is_next_for_a_lite_pull_consumer(tmp_path: Path, backlog: int) -> None:
    async with cluster(tmp_path) as running, AsyncProducer("PG", namesrv=running.namesrv_addr) as producer:
        await make_topic(running, TOPIC, QUEUES, "+message.type=PRIORITY")
        await producer.send_many(of(LOW, backlog), timeout_ms=60_000)
        consumer = AsyncLitePullConsumer("CG", namesrv=running.namesrv_addr, consume_from="first")
        await consumer.subscribe(TOPIC)
        async with consumer:
            assert {each.priority for each in await consumer.poll(10_000)} == {LOW}
            await until(lambda: consumer.stats().in_hand > 1_000)
            in_hand = consumer.stats().in_hand
            await producer.send(Message(TOPIC, b"now", priority=HIGH))
            await until(lambda: consumer.stats().in_hand > in_hand)
            assert [each.body for each in await consumer.poll()] == [b"now"]
            assert {each.priority for each in await consumer.poll()} == {LOW}


@pytest.mark.parametrize("backlog", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_a_high_one_is_next_for_a_pop_consumer(tmp_path: Path, backlog: int) -> None:
    async with cluster(tmp_path) as running, AsyncProducer("PG", namesrv=running.namesrv_addr) as producer:
        await make_topic(running, TOPIC, QUEUES, "+message.type=PRIORITY")
        await producer.send_many(of(LOW, backlog), timeout_ms=60_000)
        async with AsyncPopConsumer("CG", namesrv=running.namesrv_addr, consume_from="first") as consumer:
            await consumer.subscribe(TOPIC)
            low = await consumer.receive(max_messages=32)
            await producer.send(Message(TOPIC, b"now", priority=HIGH))
            high = await consumer.receive(max_messages=1)
            assert {each.priority for each in low} == {LOW}
            assert [each.priority for each in high] == [HIGH]
            assert [each.priority for each in await consumer.receive(max_messages=1)] == [LOW]


async def test_retries_of_a_high_one_have_a_queue_of_their_own(tmp_path: Path) -> None:
    """In pull mode: so that it does not wait behind low ones that failed."""
    first: list[int | None] = []
    again: list[MessageExt] = []

    def failing_once(message: MessageExt) -> ConsumeResult:
        if message.reconsume_times:
            again.append(message)
            return ConsumeResult.SUCCESS
        first.append(message.priority)
        return ConsumeResult.LATER

    async with (
        cluster(tmp_path, message_delay_level=" ".join(["1s"] * 18)) as running,
        AsyncProducer("PG", namesrv=running.namesrv_addr) as producer,
    ):
        await make_topic(running, TOPIC, QUEUES, "+message.type=PRIORITY")
        await producer.send_many([*of(LOW, 20), *of(HIGH, 1)])
        async with consuming(running, failing_once, topic=TOPIC, concurrency=1) as consumer:
            await until(lambda: len(again) == 21)
            retries = {queue.queue_id for queue in consumer.queues if queue.topic == "%RETRY%billing"}
    assert len(first) == 21
    assert retries == set(range(QUEUES))
    high = next(each for each in again if each.priority == HIGH)
    assert high.queue_id == HIGH


async def test_low_ones_are_not_starved(tmp_path: Path) -> None:
    gate = Gate()
    async with cluster(tmp_path) as running, AsyncProducer("PG", namesrv=running.namesrv_addr) as producer:
        await make_topic(running, TOPIC, QUEUES, "+message.type=PRIORITY")
        await producer.send_many([*of(LOW, 500), *of(3, 500), *of(HIGH, 500)])
        async with consuming(running, gate.asynchronous, topic=TOPIC, concurrency=1) as consumer:
            await until(lambda: gate.is_waiting.is_set() and consumer.stats().in_hand >= 1_490)
            gate.opened.set()
            await until(lambda: len(gate.priorities) == 1_500)
    assert Counter(gate.priorities[10:330]) == {HIGH: 280, 3: 20, LOW: 20}


async def test_lite_pulls_leave_low_ones_a_share(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, AsyncProducer("PG", namesrv=running.namesrv_addr) as producer:
        await make_topic(running, TOPIC, QUEUES, "+message.type=PRIORITY")
        await producer.send_many([*of(LOW, 300), *of(HIGH, 300)])
        consumer = AsyncLitePullConsumer(
            "CG", namesrv=running.namesrv_addr, consume_from="first", pull_batch_size=10
        )
        await consumer.subscribe(TOPIC)
        async with consumer:
            await until(lambda: consumer.stats().in_hand == 600)
            polls = [(await consumer.poll())[0].priority for _ in range(24)]
    assert Counter(polls) == {HIGH: 21, LOW: 3}
    assert polls[0] == HIGH


@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_the_queue_is_the_priority_in_batches_and_of_idempotent_producers_too(
    tmp_path: Path, is_idempotent: bool
) -> None:
    async with (
        cluster(tmp_path, brokers=2) as running,
        AsyncProducer("PG", namesrv=running.namesrv_addr, idempotent=is_idempotent) as producer,
    ):
        await make_topic(running, TOPIC, QUEUES, "+message.type=PRIORITY")
        mixed = [Message(TOPIC, b"x", priority=number % 10) for number in range(40)]
        results = await producer.send_many(mixed)
        results += [await producer.send(message) for message in of(2, 4)]
        alone = await producer.send(Message(TOPIC, b"x", priority=9))
    queues = [result.queue.queue_id for result in results]
    assert queues == [min(number % 10, HIGH) for number in range(40)] + [2] * 4
    assert alone.queue.queue_id == HIGH
    assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
