"""POP consumers at brokers of ours: several brokers at once, handlers that take too long, stops.

Not here: what has to hold at Apache's too (tests/interop/test_client_pop.py), answers that brokers give
seldom (test_pop_answers.py).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou import AsyncPopConsumer, AsyncProducer, Message, MessageExt, MessageQueue
from kourou.admin.doctor.checks_groups import check_subscriptions, check_unheld_queues
from kourou.admin.doctor.cluster_snapshot import take_snapshot
from kourou.admin.groups import all_group_names, group_names, update_group
from kourou.admin.running_info import running_info
from kourou.admin.session import Admin
from kourou.errors import LeaseExpiredError
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import (
    GROUP,
    LIMIT_S,
    TOPIC,
    Notes,
    consumer_of,
    consuming,
    make_topic,
    until,
)

pytestmark = pytest.mark.e2e


def popper(running: Cluster, group: str = "poppers") -> AsyncPopConsumer:
    return AsyncPopConsumer(group, namesrv=running.namesrv_addr, consume_from="first")


async def send_to(running: Cluster, queue: MessageQueue | None, *bodies: bytes) -> None:
    async with AsyncProducer("senders", namesrv=running.namesrv_addr) as producer:
        for body in bodies:
            await producer.send(Message(queue.topic if queue else TOPIC, body), queue=queue)


async def test_a_message_at_any_broker_ends_the_wait(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=3) as running, popper(running) as consumer:
        for topic in (TOPIC, "Other"):
            await make_topic(running, topic)
            await consumer.subscribe(topic)
        places = [(TOPIC, "broker-c"), ("Other", "broker-a"), (TOPIC, "broker-b"), (TOPIC, "broker-b")]
        async with asyncio.timeout(LIMIT_S):
            for number, (topic, broker_name) in enumerate(places):
                waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
                await asyncio.sleep(0.2)
                assert not waiting.done()
                await send_to(running, MessageQueue(topic, broker_name, number % 4), b"%d" % number)
                (message,) = await waiting
                assert (message.topic, message.broker_name, message.body) == (
                    topic,
                    broker_name,
                    b"%d" % number,
                )
                await message.ack()


async def test_messages_of_all_brokers_are_received_in_turn(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as running, popper(running) as consumer:
        await make_topic(running)
        await send_to(running, None, *[b"%d" % number for number in range(16)])
        await consumer.subscribe(TOPIC)
        batches = [await consumer.receive(max_messages=2, wait_ms=0) for _ in range(8)]
        # Neither broker waits until the other is empty.
        assert {message.broker_name for batch in batches[:2] for message in batch} == {"broker-a", "broker-b"}
        assert sorted(int(message.body) for batch in batches for message in batch) == list(range(16))
        assert len(await consumer.receive(wait_ms=0)) == 0


async def test_only_what_a_subscription_selects_is_received(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, popper(running) as consumer:
        await make_topic(running)
        async with AsyncProducer("senders", namesrv=running.namesrv_addr) as producer:
            # "Aa" and "BB" have the same hash, which is all that brokers compare.
            for tag in ("Aa", "BB", "other", "Aa"):
                await producer.send(Message(TOPIC, tag.encode(), tags=tag))
        await consumer.subscribe(TOPIC, "Aa")
        found: list[bytes] = []
        async with asyncio.timeout(LIMIT_S):
            while len(found) < 2:
                async with await consumer.receive(wait_ms=1_000, invisible_ms=1_000) as batch:
                    found += [message.body for message in batch]
        assert found == [b"Aa", b"Aa"]
        # The other one was acknowledged: it does not come again, either.
        assert len(await consumer.receive(wait_ms=3_000)) == 0


async def test_a_handler_that_takes_too_long_does_not_acknowledge(tmp_path: Path) -> None:
    attempts: list[int] = []

    async def handle(message: MessageExt) -> None:
        attempts.append(message.reconsume_times)
        if len(attempts) == 1:
            await until(lambda: len(attempts) == 2, "the second attempt")

    async with cluster(tmp_path) as running:
        await make_topic(running)
        await send_to(running, None, b"slow")
        async with consuming(running, handle, mode="pop", invisible_ms=1_000) as consumer:
            await until(lambda: consumer.stats().consumed == 2 and consumer.stats().in_hand == 0)
        assert attempts == [0, 1]


async def test_tools_see_what_is_popped_and_doctor_finds_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as running:
        await make_topic(running)
        await send_to(running, None, b"one")
        notes = Notes()
        async with (
            popper(running) as consumer,
            consuming(running, notes, mode="pop") as push,
            Admin(namesrv=running.namesrv_addr) as admin,
        ):
            await consumer.subscribe(TOPIC)
            async with await consumer.receive(wait_ms=5_000) as batch:
                assert [message.body for message in batch] == [b"one"]
            await until(lambda: notes.bodies == [b"one"])
            sources = {MessageQueue(TOPIC, name, -1) for name in ("broker-a", "broker-b")}
            for group, client_id in (("poppers", consumer.client_id), (GROUP, push.client_id)):
                info = await running_info(admin, group, client_id, with_stacks=True)
                assert set(info.mq_pop_table) == sources
                assert max(each.last_pop_timestamp for each in info.mq_pop_table.values()) > 0
                assert info.properties["consumerGroup"] == group
                assert "MainThread" in (info.jstack or "")
            # The retry topics of POP are no groups, unless brokers know a group of that name.
            await make_topic(running, f"%RETRY%poppers_{TOPIC}")
            assert await group_names(admin) == sorted([GROUP, "poppers"])
            assert f"poppers_{TOPIC}" not in await all_group_names(admin)
            snapshot = await take_snapshot(admin, None, 0.0)
            assert {view.group for view in snapshot.groups} == {"poppers", GROUP}
            await update_group(
                admin, [running.brokers[0].address], SubscriptionGroupConfig(group_name=f"poppers_{TOPIC}")
            )
            assert f"poppers_{TOPIC}" in await group_names(admin)
            assert [*await check_unheld_queues(snapshot), *await check_subscriptions(snapshot)] == []
            assert snapshot.not_checked == []


async def test_a_message_that_waited_too_long_is_not_handled(tmp_path: Path) -> None:
    released = asyncio.Event()
    handled: list[tuple[bytes, int]] = []

    async def handle(message: MessageExt) -> None:
        handled.append((message.body, message.reconsume_times))
        await released.wait()

    async with cluster(tmp_path) as running:
        await make_topic(running)
        await send_to(running, MessageQueue(TOPIC, "broker-a", 0), b"first", b"second")
        async with consuming(running, handle, mode="pop", concurrency=1, invisible_ms=1_000) as slow:
            await until(lambda: slow.stats().in_hand == 2, "two messages popped")
            other = Notes()
            async with consuming(running, other, mode="pop"):
                await until(lambda: len(other.messages) == 2, "both elsewhere")
                await until(lambda: slow.stats().in_hand == 0, "both given up")
                released.set()
                await until(lambda: slow.stats().running_handlers == 0)
        assert handled == [(b"first", 0)]
        assert {(message.body, message.reconsume_times) for message in other.messages} == {
            (b"first", 1),
            (b"second", 1),
        }


async def test_what_no_handler_has_started_with_is_visible_at_once_after_the_stop(tmp_path: Path) -> None:
    released = asyncio.Event()
    handled: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        handled.append(message.body)
        await released.wait()

    async with cluster(tmp_path) as running:
        await make_topic(running)
        await send_to(running, MessageQueue(TOPIC, "broker-a", 0), b"first", b"second")
        leaving = consumer_of(running, mode="pop", concurrency=1)
        await leaving.subscribe(TOPIC, handle)
        await leaving.start()
        await until(lambda: leaving.stats().in_hand == 2 and handled, "two messages popped")
        stopping = asyncio.create_task(leaving.stop())
        other = Notes()
        # Its invisible time would be a minute.
        async with consuming(running, other, mode="pop"):
            await until(lambda: other.bodies, "the second message")
            released.set()
            await stopping
            assert other.bodies == [b"second"]
    assert handled == [b"first"]


async def test_a_topic_that_is_unsubscribed_from_is_popped_no_more(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        for topic in (TOPIC, "Other"):
            await make_topic(running, topic)
        notes = Notes()
        async with consuming(running, notes, mode="pop", suspend_timeout_ms=500) as consumer:
            await consumer.subscribe("Other", notes)
            await until(lambda: len(consumer.queues) >= 2, "both topics")
            assert {queue.topic for queue in consumer.queues if queue.queue_id == -1} == {TOPIC, "Other"}
            await consumer.unsubscribe(TOPIC)
            await until(lambda: TOPIC not in {queue.topic for queue in consumer.queues})
            consumer.pause()
            await asyncio.sleep(0.6)  # the pops that were under way
            await send_to(running, MessageQueue("Other", "broker-a", 0), b"paused")
            await asyncio.sleep(0.2)
            assert notes.bodies == []
            consumer.resume()
            await until(lambda: notes.bodies == [b"paused"])


async def test_a_message_whose_time_is_over_raises(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, popper(running) as consumer:
        await make_topic(running)
        await send_to(running, None, b"x")
        await consumer.subscribe(TOPIC)
        (message,) = await consumer.receive(invisible_ms=1_000)
        (again,) = await consumer.receive(wait_ms=20_000)
        with pytest.raises(LeaseExpiredError):
            await message.ack()
        assert again.reconsume_times == 1
        await again.ack()
