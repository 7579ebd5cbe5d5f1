"""Accounts with limits at a real broker: clients wait as it says, and errors name limit and account."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    Credentials,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    QueueReader,
)
from kourou.access.gate import AccessGate
from kourou.access.model import RefusalKind
from kourou.admin.acls import create_acl, entries_of
from kourou.admin.session import Admin
from kourou.admin.users import create_user
from kourou.errors import AccountLimitError, SendFailedError
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import until

pytestmark = pytest.mark.e2e

ROOT, SHOP = Credentials("root", "root-secret"), Credentials("shop", "shop-secret")
AUTH: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"root","password":"root-secret"}',
}
WORDS = "account shop is over its limit: more than {} {} per second, wait "


@contextlib.asynccontextmanager
async def limited(folder: Path, brokers: int = 1, **limits: int) -> AsyncIterator[Cluster]:
    """Brokers with the topic Orders of one queue, and user `shop`, who may do all there within limits."""
    (folder / "limits.json").write_text(json.dumps({"shop": limits}))
    settings = {**AUTH, "access_limits_path": str(folder / "limits.json")}
    async with cluster(folder, brokers=brokers, **settings) as running:
        async with Admin(namesrv=running.namesrv_addr, credentials=ROOT) as admin:
            places = [broker.address for broker in running.brokers]
            await create_user(admin, places, SHOP.access_key, SHOP.secret_key)
            for resource in ("Topic:Orders", "Group:billing"):
                acl = entries_of([resource], ["Pub", "Sub", "Get"], [], "Allow")
                await create_acl(admin, places, "User:shop", acl)
        async with AsyncProducer("root", namesrv=running.namesrv_addr, credentials=ROOT) as producer:
            await producer.send(Message("Orders", b"first"))
        yield running


def refusals(running: Cluster) -> int:
    """How many requests the brokers have refused because of a limit."""
    found = 0
    for broker in running.brokers:
        gate = broker.admission.record_access
        assert isinstance(gate, AccessGate)
        found += gate.refusals[RefusalKind.OVER_QUOTA]
    return found


# -- producers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"idempotent": True}], ids=repr)
async def test_sends_wait_and_all_are_stored_once(tmp_path: Path, options: dict[str, Any]) -> None:
    async with limited(tmp_path, brokers=2, producedMessagesPerSecond=40) as running:
        async with AsyncProducer(
            "p", namesrv=running.namesrv_addr, credentials=SHOP, send_timeout_ms=20_000, **options
        ) as producer:
            sends = [producer.send(Message("Orders", b"%d" % number)) for number in range(150)]
            results = await asyncio.gather(*sends)
            assert len({result.msg_id for result in results if result.is_ok}) == 150
            assert producer.stats().failed == 0
        refused = refusals(running)
        # Each time one is tried, and what its success releases.
        assert 0 < refused < 150 * 4
        async with AsyncPullConsumer("r", namesrv=running.namesrv_addr, credentials=ROOT) as consumer:
            queues = await consumer.fetch_queues("Orders")
            stored = [await consumer.max_offset(queue) for queue in queues]
            assert sum(stored) == 151


async def test_a_queue_that_the_caller_has_chosen_keeps_its_order(tmp_path: Path) -> None:
    async with limited(tmp_path, producedMessagesPerSecond=10) as running:
        queue = MessageQueue("Orders", "broker-a", 0)
        async with AsyncProducer(
            "p", namesrv=running.namesrv_addr, credentials=SHOP, send_timeout_ms=20_000
        ) as producer:
            offsets = [
                (await producer.send(Message("Orders", b"x"), queue=queue)).queue_offset for _ in range(20)
            ]
        assert offsets == list(range(offsets[0], offsets[0] + 20))
        assert refusals(running)


async def test_batches_and_atomic_publishes_wait(tmp_path: Path) -> None:
    async with limited(tmp_path, producedMessagesPerSecond=50) as running:
        async with AsyncProducer(
            "p", namesrv=running.namesrv_addr, credentials=SHOP, send_timeout_ms=20_000
        ) as producer:
            for _ in range(2):
                await producer.send_many([Message("Orders", b"x")] * 60)
                async with producer.atomic() as batch:
                    await batch.send(Message("Orders", b"y"))
        assert refusals(running)


async def test_a_sync_producer_waits(tmp_path: Path) -> None:
    async with limited(tmp_path, producedMessagesPerSecond=20) as running:

        def send() -> int:
            with Producer(
                "p", namesrv=running.namesrv_addr, credentials=SHOP, send_timeout_ms=20_000
            ) as producer:
                futures = [producer.send_nowait(Message("Orders", b"x")) for _ in range(40)]
                return sum(future.result().is_ok for future in futures)

        assert await asyncio.to_thread(send) == 40
        assert refusals(running)


async def test_a_send_that_cannot_wait_so_long_fails_at_once_with_limit_and_account(tmp_path: Path) -> None:
    async with limited(tmp_path, producedBytesPerSecond=10) as running:
        async with AsyncProducer(
            "p", namesrv=running.namesrv_addr, credentials=SHOP, send_timeout_ms=60_000
        ) as producer:
            assert (await producer.send(Message("Orders", b"x" * 3_000))).is_ok
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(SendFailedError, match=WORDS.format(10, "bytes are sent")) as caught:
                await producer.send(Message("Orders", b"x"))
            assert len(caught.value.attempts) == 1 and not caught.value.may_be_stored
            assert loop.time() - began < 30
            assert isinstance(caught.value.__cause__, AccountLimitError)
            assert caught.value.__cause__.account == "shop"


async def test_sends_that_wait_until_their_timeout_say_for_what(tmp_path: Path) -> None:
    async with limited(tmp_path, producedMessagesPerSecond=1) as running:
        async with AsyncProducer(
            "p", namesrv=running.namesrv_addr, credentials=SHOP, send_timeout_ms=2_000
        ) as producer:
            sends = [producer.send(Message("Orders", b"%d" % number)) for number in range(10)]
            errors = [
                each
                for each in await asyncio.gather(*sends, return_exceptions=True)
                if not hasattr(each, "queue")
            ]
        assert errors
        for error in errors:
            assert isinstance(error, SendFailedError)
            assert str(error).count(WORDS.format(1, "messages are sent")) == 1, error


async def test_without_retries_a_send_does_not_wait(tmp_path: Path) -> None:
    async with limited(tmp_path, producedBytesPerSecond=1_000) as running:
        async with AsyncProducer(
            "p", namesrv=running.namesrv_addr, credentials=SHOP, send_timeout_ms=60_000, retry_times=0
        ) as producer:
            assert (await producer.send(Message("Orders", b"x" * 3_000))).is_ok
            with pytest.raises(SendFailedError, match=WORDS.format(1_000, "bytes are sent")):
                await producer.send(Message("Orders", b"x"))


# -- consumers ---------------------------------------------------------------------------------------


async def fill(running: Cluster, count: int) -> None:
    """More messages, of an administrator, who has no limits."""
    async with AsyncProducer("root", namesrv=running.namesrv_addr, credentials=ROOT) as producer:
        await producer.send_many([Message("Orders", b"%d" % number) for number in range(count)])


async def test_a_push_consumer_pauses_as_long_as_the_broker_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        seen.append(message.body)

    async with limited(tmp_path, consumedMessagesPerSecond=50) as running:
        await fill(running, 200)
        consumer = AsyncPushConsumer(
            "billing",
            namesrv=running.namesrv_addr,
            credentials=SHOP,
            consume_from="first",
            pull_batch_size=10,
        )
        await consumer.subscribe("Orders", handle)
        async with consumer:
            await until(lambda: len(seen) >= 201)
        assert sorted(seen) == sorted([b"first", *(b"%d" % number for number in range(200))])
        assert 0 < refusals(running) < 201
    warned = [each for each in caplog.records if each.levelno >= logging.WARNING]
    warned = [each for each in warned if "over its limit" in each.getMessage()]
    assert len(warned) == 1, warned


async def test_a_lite_pull_consumer_pauses_as_long_as_the_broker_says(tmp_path: Path) -> None:
    async with limited(tmp_path, consumedMessagesPerSecond=50) as running:
        await fill(running, 100)
        seen = 0
        async with AsyncLitePullConsumer(
            "billing",
            namesrv=running.namesrv_addr,
            credentials=SHOP,
            consume_from="first",
            pull_batch_size=10,
        ) as consumer:
            await consumer.subscribe("Orders")
            async with asyncio.timeout(20):
                while seen < 101:
                    seen += len(await consumer.poll(1_000))
        assert 0 < refusals(running) < 201


async def test_pulls_and_readers_wait_within_their_timeout(tmp_path: Path) -> None:
    """Async and sync. What is pulled is paid for by the next pull."""
    async with limited(tmp_path, consumedMessagesPerSecond=100) as running:
        await fill(running, 600)
        async with AsyncPullConsumer("billing", namesrv=running.namesrv_addr, credentials=SHOP) as consumer:
            ends = {each: await consumer.max_offset(each) for each in await consumer.fetch_queues("Orders")}
            queue, end = max(ends.items(), key=lambda item: item[1])
            found = [
                len((await consumer.pull(queue, queue_offset=0, max_messages=60)).messages())
                for _ in range(4)
            ]
            assert found == [60] * 4
            async with QueueReader(queue, consumer=consumer) as chunks:
                read = [len(chunk.messages()) async for chunk in chunks]
            assert sum(read) == end
            waited = refusals(running)
            assert waited
            with pytest.raises(AccountLimitError, match=WORDS.format(100, "messages are pulled")):
                for _ in range(10):
                    await consumer.pull(queue, queue_offset=0, max_messages=60, timeout_ms=50)

        def pull() -> int:
            with PullConsumer("billing", namesrv=running.namesrv_addr, credentials=SHOP) as blocking:
                return sum(
                    len(blocking.pull(queue, queue_offset=0, max_messages=60).messages()) for _ in range(2)
                )

        assert await asyncio.to_thread(pull) == 2 * 60
