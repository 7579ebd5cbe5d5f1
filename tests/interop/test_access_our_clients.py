"""Our clients with keys, at Apache's brokers of both versions and at ours with the same accounts: producers
and consumers of all kinds, and what they say when they are refused."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, Final

import pytest

from kourou import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    ConsumeResult,
    Credentials,
    Message,
    TransactionState,
)
from kourou.errors import KourouError
from tests.interop.kit.access_accounts import NOBODY, OPEN, UNKNOWN, WRONG_KEY, Identity
from tests.interop.kit.access_world import RULES, AccessCluster, AccessWorld, ours, theirs
from tests.interop.kit.client_kit import Inbox

pytestmark = pytest.mark.interop

_numbers: Final = itertools.count(1)


@pytest.fixture(params=["ours", "theirs"])
def side(request: pytest.FixtureRequest) -> str:
    """Whose broker."""
    name: str = request.param
    return name


@pytest.fixture(params=RULES)
def cluster(request: pytest.FixtureRequest, side: str, access_world: AccessWorld) -> AccessCluster:
    """A broker with accounts."""
    return access_world[(ours if side == "ours" else theirs)(request.param)]


def _options(cluster: AccessCluster, identity: Identity = OPEN.identity) -> dict[str, Any]:
    return {
        "namesrv": cluster.names,
        "heartbeat_interval_ms": 1_000,
        "credentials": Credentials(identity.access_key, identity.secret_key),
    }


def _name(purpose: str) -> str:
    return f"{purpose}-ours-{next(_numbers)}"


async def _topic(cluster: AccessCluster, purpose: str) -> str:
    return await asyncio.to_thread(cluster.create_topic, _name(purpose))


async def test_producers_and_consumers(cluster: AccessCluster) -> None:
    topic, options = await _topic(cluster, "kinds"), _options(cluster)
    once = iter([ConsumeResult.LATER])
    pushed = Inbox(verdict=lambda message: next(once, None))
    in_order = Inbox()
    group: dict[str, Any] = {"consume_from": "first", "rebalance_interval_ms": 1_000, **options}
    async with (
        AsyncProducer(_name("senders"), **options) as producer,
        AsyncPushConsumer(_name("pushed"), **group) as push,
        AsyncPushConsumer(_name("orderly"), orderly=True, **group) as orderly,
    ):
        await push.subscribe(topic, "*", pushed.take)
        await orderly.subscribe(topic, "*", in_order.take)
        await producer.send(Message(topic, b"0"))
        await producer.send_many([Message(topic, b"1"), Message(topic, b"2")])
        await producer.send(Message(topic, b"3", delay_time_level=1))
        await in_order.wait(4)
        # The first one comes again, from the retry topic of the group.
        await pushed.wait(5)
    assert in_order.bodies == [b"0", b"1", b"2", b"3"]
    assert sorted(pushed.bodies) == sorted([pushed.bodies[0], b"0", b"1", b"2", b"3"])


async def test_pull_consumers(cluster: AccessCluster) -> None:
    topic, options = await _topic(cluster, "pulled"), _options(cluster)
    first: dict[str, Any] = {"consume_from": "first", **options}
    async with AsyncProducer(_name("senders"), **options) as producer:
        await producer.send(Message(topic, b"1"))
    async with AsyncPullConsumer(_name("pulled"), **options) as pull:
        [queue] = await pull.fetch_queues(topic)
        found = await pull.pull(queue, queue_offset=0)
        assert [message.body for message in found.messages()] == [b"1"]
    async with AsyncLitePullConsumer(_name("lite"), **first) as lite:
        await lite.subscribe(topic)
        assert [message.body for message in await _polled(lite, 1)] == [b"1"]


async def _polled(lite: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    end = time.monotonic() + 30
    while len(messages) < count and time.monotonic() < end:
        messages += await lite.poll(500)
    return messages


async def test_transactions_with_a_check(cluster: AccessCluster) -> None:
    topic, options = await _topic(cluster, "transactions"), _options(cluster)

    async def check(message: Any) -> TransactionState:
        return TransactionState.COMMIT

    inbox = Inbox()
    group: dict[str, Any] = {"consume_from": "first", "rebalance_interval_ms": 1_000, **options}
    async with (
        AsyncTransactionProducer(_name("senders"), check=check, **options) as producer,
        AsyncPushConsumer(_name("group"), **group) as consumer,
    ):
        await consumer.subscribe(topic, "*", inbox.take)
        async with producer.transaction(Message(topic, b"committed")) as transaction:
            transaction.commit()
        async with producer.transaction(Message(topic, b"checked")) as transaction:
            transaction.unknown()
        await inbox.wait(2)
    assert sorted(inbox.bodies) == [b"checked", b"committed"]


@pytest.mark.parametrize(
    "identity", [NOBODY.identity, UNKNOWN, WRONG_KEY], ids=lambda identity: identity.name
)
async def test_refusals_name_user_and_reason_but_no_secret(
    cluster: AccessCluster, identity: Identity
) -> None:
    topic = await _topic(cluster, "refused")
    async with AsyncProducer(_name("senders"), **_options(cluster, identity)) as producer:
        with pytest.raises(KourouError) as refused:
            await producer.send(Message(topic, b"x"))
    assert identity.access_key in str(refused.value)
    assert identity.secret_key not in repr(refused.value)
