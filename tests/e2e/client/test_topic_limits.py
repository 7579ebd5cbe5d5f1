"""Topics whose backlog is over its limit: producers wait as the broker says, or raise, as they are
configured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from kourou import AsyncProducer, Message, MessageQueue, Producer
from kourou.broker.controller import BrokerController
from kourou.errors import NoRouteError, SendFailedError, TopicLimitError
from kourou.protocol.bodies import TopicConfig
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import until

pytestmark = pytest.mark.e2e

LIMITED = {"+overflow.policy": "reject", "+overflow.messages": "3"}


@contextlib.asynccontextmanager
async def full(folder: Path, brokers: int = 1, full_brokers: int = 1) -> AsyncIterator[Cluster]:
    """Brokers with topic T of one queue each, the first ones with a backlog at its limit."""
    async with cluster(folder, brokers=brokers) as running:
        for broker in running.brokers:
            broker.services.topics.update(TopicConfig("T", 1, 1, attributes=LIMITED))
        async with asyncio.timeout(10):
            while await _queue_count(running) < brokers:  # noqa: ASYNC110 (nothing tells us)
                await asyncio.sleep(0.05)
        async with AsyncProducer("setup", namesrv=running.namesrv_addr) as producer:
            await producer.send(Message("Other", b"first"))
            for broker in running.brokers[:full_brokers]:
                queue = MessageQueue("T", broker.config.broker_name, 0)
                for number in range(3):
                    await producer.send(Message("T", b"%d" % number), queue=queue)
                broker.services.offsets.commit("billing", "T", 0, 0, "here")
                await until(partial(broker.admission.sees_messages_of, "T"))
        yield running


async def _queue_count(running: Cluster) -> int:
    """How many queues of the topic the name server knows; a producer keeps its routes."""
    async with AsyncProducer("look", namesrv=running.namesrv_addr) as producer:
        try:
            return len(await producer.queues("T"))
        except NoRouteError:
            return 0


def consume(broker: BrokerController) -> None:
    broker.services.offsets.commit("billing", "T", 0, 3, "here")


async def test_a_send_waits_until_consumers_have_caught_up(tmp_path: Path) -> None:
    async with full(tmp_path) as running, AsyncProducer("p", namesrv=running.namesrv_addr) as producer:
        sending = asyncio.ensure_future(producer.send(Message("T", b"later"), timeout_ms=10_000))
        await asyncio.sleep(0.3)
        assert not sending.done()
        consume(running.brokers[0])
        assert (await sending).queue_offset == 3
        assert (await producer.send(Message("Other", b"not concerned"))).status.name == "SEND_OK"


async def test_sends_to_other_topics_do_not_wait(tmp_path: Path) -> None:
    async with full(tmp_path) as running, AsyncProducer("p", namesrv=running.namesrv_addr) as producer:
        sending = asyncio.ensure_future(producer.send(Message("T", b"later"), timeout_ms=10_000))
        await asyncio.sleep(0.1)
        await producer.send(Message("Other", b"now"))
        assert not sending.done()
        consume(running.brokers[0])
        await sending


@pytest.mark.parametrize("timeout_ms", [100, 3_000])
async def test_a_send_raises_at_once_when_it_may_not_wait(tmp_path: Path, timeout_ms: int) -> None:
    """Since it is configured so, or has less time than the broker names."""
    waits = timeout_ms == 100
    async with (
        full(tmp_path) as running,
        AsyncProducer("p", namesrv=running.namesrv_addr, wait_for_topic_limit=waits) as producer,
    ):
        with pytest.raises(
            SendFailedError, match="the backlog of group billing has 3 of 3 messages"
        ) as caught:
            await producer.send(Message("T", b"now"), timeout_ms=timeout_ms)
        cause = caught.value.__cause__
        assert isinstance(cause, TopicLimitError)
        assert cause.topic == "T" and cause.wait_ms == 1_000
        assert not caught.value.may_be_stored


async def test_another_broker_takes_it(tmp_path: Path) -> None:
    async with full(tmp_path, brokers=2) as running:
        free = running.brokers[1].config.broker_name
        async with AsyncProducer("p", namesrv=running.namesrv_addr) as producer:
            results = [await producer.send(Message("T", b"x")) for _ in range(6)]
        assert {result.queue.broker_name for result in results} == {free}


async def test_the_blocking_producer_waits_or_raises_too(tmp_path: Path) -> None:
    async with full(tmp_path) as running:

        def send(waits: bool) -> int:
            with Producer("p", namesrv=running.namesrv_addr, wait_for_topic_limit=waits) as producer:
                return producer.send(Message("T", b"later"), timeout_ms=10_000).queue_offset

        with pytest.raises(SendFailedError) as caught:
            await asyncio.to_thread(send, False)
        assert isinstance(caught.value.__cause__, TopicLimitError)
        sending = asyncio.ensure_future(asyncio.to_thread(send, True))
        await asyncio.sleep(0.5)
        assert not sending.done()
        consume(running.brokers[0])
        assert await sending == 3
