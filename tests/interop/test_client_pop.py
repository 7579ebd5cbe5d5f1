"""Our POP consumers at Apache's broker of 5.5.0 and at ours: each scenario is written once, and has to
hold at both.

Most of the time is waiting for messages to become visible again, so the scenarios run side by side. Apache's
broker delivers a message again two to five seconds after its invisible time, and wakes no waiting pop for it:
the next pop gets it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from kourou import AsyncPopConsumer, AsyncProducer, AsyncPushConsumer, MessageQueue, PopConsumer, idempotent
from kourou.client import ConsumeHookContext, ConsumerHook, MemoryStore, metrics_text
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.handlers import MessageHandler
from kourou.errors import LeaseExpiredError
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.names import dlq_topic
from tests.interop.kit import wire
from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.client_kit import until
from tests.interop.kit.kourou_broker import BROKER_NAME
from tests.interop.kit.lanes import KOUROU, LAUNCHERS, Lanes

pytestmark = pytest.mark.interop

BROKERS: Final = (KOUROU, "5.5.0")
_WORKERS: Final = 20
_AGAIN_S: Final = 40
"""How long a scenario waits for a message to become visible again, on a busy machine."""


@dataclass(frozen=True)
class Pops:
    """A topic of one scenario, with a group of its own."""

    cluster: BrokerCluster
    topic: str
    group: str

    def options(self, **options: Any) -> dict[str, Any]:
        """Where to connect, from the first message on."""
        return {"namesrv": self.cluster.namesrv, "consume_from": "first", **options}

    @asynccontextmanager
    async def consumer(self) -> AsyncIterator[AsyncPopConsumer]:
        """A consumer of the topic."""
        async with AsyncPopConsumer(self.group, **self.options()) as consumer:
            await consumer.subscribe(self.topic)
            yield consumer

    async def send(self, *bodies: bytes) -> None:
        """Send to the topic's queues in turn."""
        async with AsyncProducer(f"senders-{self.group}", namesrv=self.cluster.namesrv) as producer:
            for body in bodies:
                assert (await producer.send(Message(self.topic, body))).is_ok


Scenario = Callable[[Pops], Coroutine[Any, Any, None]]


async def receive(consumer: AsyncPopConsumer, count: int, **options: Any) -> list[Any]:
    """Receive until there are so many messages."""
    found: list[Any] = []
    deadline = time.monotonic() + _AGAIN_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} messages of {count}"
        found += await consumer.receive(wait_ms=2_000, **options)
    assert len(found) == count
    return found


async def only_what_is_not_acknowledged_comes_again(pops: Pops) -> None:
    """The acks of half of the messages, merged; the others come again, once each, as their second attempt."""
    bodies = [b"%d" % number for number in range(12)]
    await pops.send(*bodies)
    async with pops.consumer() as consumer:
        first = await receive(consumer, 12, invisible_ms=2_000)
        assert sorted(message.body for message in first) == sorted(bodies)
        assert {(message.topic, message.reconsume_times) for message in first} == {(pops.topic, 0)}
        kept = [message for message in first if int(message.body) % 2]
        await asyncio.gather(*(message.ack() for message in kept))
        again = await receive(consumer, 6, invisible_ms=60_000)
        assert {message.body for message in again} == set(bodies) - {message.body for message in kept}
        assert {(message.topic, message.reconsume_times) for message in again} == {(pops.topic, 1)}
        assert {message.msg_id for message in again} <= {message.msg_id for message in first}
        with pytest.raises(LeaseExpiredError):
            await next(message for message in first if message not in kept).ack()
        await asyncio.gather(*(message.ack() for message in again))
        assert len(await consumer.receive(wait_ms=3_000)) == 0


async def a_returned_message_comes_again_after_its_delay(pops: Pops) -> None:
    """At once, then after a delay; each time as another attempt."""
    await pops.send(b"again")
    async with pops.consumer() as consumer:
        (message,) = await receive(consumer, 1)
        await message.nack(delay_ms=0)
        (message,) = await receive(consumer, 1)
        assert message.reconsume_times == 1
        returned = time.monotonic()
        await message.nack(delay_ms=3_000)
        (message,) = await receive(consumer, 1)
        assert (message.body, message.reconsume_times) == (b"again", 2)
        assert time.monotonic() - returned > 2.5
        await message.extend(60_000)  # of a message that lies in the retry topic
        await message.ack()


async def an_extended_message_stays_invisible_and_can_be_acknowledged(pops: Pops) -> None:
    """Beyond its first invisible time; and its ack, by the new handle, counts."""
    await pops.send(b"slow")
    async with pops.consumer() as consumer:
        (message,) = await receive(consumer, 1, invisible_ms=1_000)
        await message.extend(60_000)
        assert len(await consumer.receive(wait_ms=6_500)) == 0
        await message.extend(1_000)
        await message.ack()
        assert len(await consumer.receive(wait_ms=6_500)) == 0


async def blocks_acknowledge_or_return(pops: Pops) -> None:
    """A block that ends acknowledges, one that fails returns the message for ten seconds."""
    await pops.send(b"good", b"bad")
    async with pops.consumer() as consumer:
        began = time.monotonic()
        for message in await receive(consumer, 2):
            try:
                async with message:
                    if message.body == b"bad":
                        raise KeyError("price")
            except KeyError:
                continue
        (message,) = await receive(consumer, 1)
        assert (message.body, message.reconsume_times) == (b"bad", 1)
        assert time.monotonic() - began > 9
        await message.ack()


async def every_worker_gets_work_of_four_queues(pops: Pops) -> None:
    """More workers than queues; each message is handled once."""
    calls: dict[int, list[bytes]] = defaultdict(list)

    def handler_of(worker: int) -> MessageHandler:
        async def handle(message: MessageExt) -> None:
            calls[worker].append(message.body)
            await asyncio.sleep(0.1)

        def handle_in_thread(message: MessageExt) -> None:
            calls[worker].append(message.body)
            time.sleep(0.1)

        return handle if worker % 2 else handle_in_thread

    async with AsyncExitStack() as workers:
        for worker in range(_WORKERS):
            consumer = AsyncPushConsumer(pops.group, **pops.options(mode="pop", concurrency=1))
            await consumer.subscribe(pops.topic, handler_of(worker))
            await workers.enter_async_context(consumer)
        bodies = [b"%d" % number for number in range(12 * _WORKERS)]
        await pops.send(*bodies)
        await until(lambda: sum(map(len, calls.values())) >= len(bodies), "all messages handled")
    assert sorted(body for handled in calls.values() for body in handled) == sorted(bodies)
    assert len(calls) == _WORKERS, sorted((worker, len(handled)) for worker, handled in calls.items())


async def failed_messages_come_again_then_go_to_the_dead_letters(pops: Pops) -> None:
    """A handler that fails once, and one that always fails."""
    attempts: Counter[tuple[bytes, int]] = Counter()

    async def handle(message: MessageExt, context: ConsumeContext) -> None:
        attempts[message.body, message.reconsume_times] += 1
        context.delay_level = 1
        if message.body == b"always" or (message.body == b"once" and not message.reconsume_times):
            raise KeyError("price")

    await pops.send(b"always", b"once", b"never")
    options = pops.options(mode="pop", max_reconsume_times=1, suspend_timeout_ms=2_000)
    async with AsyncPushConsumer(pops.group, **options) as consumer:
        await consumer.subscribe(pops.topic, handle)
        await until(lambda: attempts.total() >= 5, f"five attempts, not {attempts}", _AGAIN_S)
        cluster = pops.cluster
        await asyncio.to_thread(
            wire.wait_route, cluster.namesrv, dlq_topic(pops.group), cluster.broker.address
        )
        async with AsyncPopConsumer(f"{pops.group}-undertakers", **pops.options()) as undertaker:
            await undertaker.subscribe(dlq_topic(pops.group))
            (dead,) = await receive(undertaker, 1)
    assert attempts == Counter([(b"always", 0), (b"always", 1), (b"once", 0), (b"once", 1), (b"never", 0)])
    assert dead.body == b"always"


class Calls(ConsumerHook):
    """Notes how each call ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, str, int, ConsumeResult | None]] = []

    def after_consume(self, context: ConsumeHookContext) -> None:
        """Note it."""
        queue = context.queue
        self.ended.append((queue.topic, queue.broker_name, len(context.messages), context.result))


async def hooks_and_idempotent_handlers_work_as_with_pull(pops: Pops) -> None:
    """A hook around the handler, two messages with one key handled once, counters, and batches."""
    calls = Calls()
    charged: list[tuple[str, ...]] = []
    batches: list[int] = []

    @idempotent(store=MemoryStore())
    def charge(messages: list[MessageExt]) -> None:
        charged.extend(message.keys for message in messages)

    def handle(messages: list[MessageExt]) -> Any:
        batches.append(len(messages))
        return charge(messages)

    async with AsyncProducer(f"senders-{pops.group}", namesrv=pops.cluster.namesrv) as producer:
        for key in ("order-1", "order-1", "order-2"):
            await producer.send(
                Message(pops.topic, b"x", keys=[key]), queue=MessageQueue(pops.topic, BROKER_NAME, 0)
            )
    options = pops.options(mode="pop", hooks=[calls], batch_size=8)
    async with AsyncPushConsumer(pops.group, **options) as consumer:
        await consumer.subscribe(pops.topic, handle)
        await until(lambda: consumer.stats().consumed == 3, "three messages consumed")
        text = metrics_text(consumer)
    assert charged == [("order-1",), ("order-2",)] and batches == [3]
    (line,) = [line for line in text.splitlines() if line.startswith("kourou_client_consumed_total{")]
    assert f'topic="{pops.topic}"' in line and line.endswith(" 3")
    # Spans and traces are hooks, too.
    assert calls.ended == [(pops.topic, BROKER_NAME, 3, ConsumeResult.SUCCESS)]


async def the_sync_consumer_does_the_same(pops: Pops) -> None:
    """Receive, return, extend, acknowledge."""

    def program() -> list[tuple[bytes, int]]:
        handled = []
        with PopConsumer(pops.group, **pops.options()) as consumer:
            consumer.subscribe(pops.topic)
            for message in consumer.messages():
                with message:
                    message.extend(30_000)
                    handled.append((message.body, message.reconsume_times))
                    if not message.reconsume_times:
                        message.nack(delay_ms=0)
                if len(handled) == 4:
                    return handled
        raise AssertionError("the messages have no end")

    await pops.send(b"a", b"b")
    handled = await asyncio.to_thread(program)
    assert sorted(handled) == [(b"a", 0), (b"a", 1), (b"b", 0), (b"b", 1)]


SCENARIOS: Final[tuple[Scenario, ...]] = (
    only_what_is_not_acknowledged_comes_again,
    a_returned_message_comes_again_after_its_delay,
    an_extended_message_stays_invisible_and_can_be_acknowledged,
    blocks_acknowledge_or_return,
    every_worker_gets_work_of_four_queues,
    failed_messages_come_again_then_go_to_the_dead_letters,
    hooks_and_idempotent_handlers_work_as_with_pull,
    the_sync_consumer_does_the_same,
)


async def test_scenarios_side_by_side(shared_lanes: Lanes) -> None:
    """At both brokers at once; the topics in an error tell which it is."""
    async with asyncio.TaskGroup() as running:
        for broker in BROKERS:
            cluster = await asyncio.to_thread(shared_lanes.cluster, broker)
            for number, scenario in enumerate(SCENARIOS):
                topic = await asyncio.to_thread(cluster.new_topic, f"pop-{broker}-{number}")
                running.create_task(
                    scenario(Pops(cluster, topic, f"g-{topic}")), name=f"{scenario.__name__} at {broker}"
                )


@pytest.mark.parametrize(
    "broker", [pytest.param(name, marks=[] if name == KOUROU else pytest.mark.nightly) for name in BROKERS]
)
async def test_consumers_go_on_after_the_broker_has_restarted(broker: str, tmp_path: Path) -> None:
    """`kill -9`: both kinds of consumers find it again by themselves, and nothing that was not acknowledged
    is lost. Apache's delivers some acknowledged ones again, since it stores offsets every five seconds."""
    with running_broker(tmp_path, launch_broker=LAUNCHERS[broker]) as cluster:
        got = await _restart(cluster)
    if broker == KOUROU:  # which knows what was popped since it wrote offsets
        assert got == Counter([(b"after", 0), (b"in flight", 1)])


async def _restart(cluster: BrokerCluster) -> Counter[tuple[bytes, int]]:
    """What comes after the restart, and as which attempt."""
    topic = await asyncio.to_thread(cluster.new_topic, "restarted")
    pops, pushed = Pops(cluster, topic, f"g-{topic}"), Pops(cluster, topic, f"pushed-{topic}")
    handled: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        handled.append(message.body)

    options = pushed.options(mode="pop", poll_namesrv_interval_ms=1_000, suspend_timeout_ms=2_000)
    async with pops.consumer() as consumer, AsyncPushConsumer(pushed.group, **options) as push:
        await push.subscribe(topic, handle)
        await pops.send(b"before", b"in flight")
        found = {message.body: message for message in await receive(consumer, 2, invisible_ms=2_000)}
        await found[b"before"].ack()
        await until(lambda: len(handled) == 2, "two messages handled")
        cluster.broker.kill()
        waiting = asyncio.create_task(consumer.receive(wait_ms=_AGAIN_S * 1_000))
        await asyncio.to_thread(cluster.start_again)
        await pops.send(b"after")
        got = Counter((message.body, message.reconsume_times) for message in await waiting)
        deadline = time.monotonic() + _AGAIN_S
        while not {body for body, _ in got} >= {b"after", b"in flight"}:
            assert time.monotonic() < deadline, got
            got += Counter(
                (message.body, message.reconsume_times) for message in await consumer.receive(wait_ms=2_000)
            )
        await until(lambda: b"after" in handled, "the message after the restart")
        return got
