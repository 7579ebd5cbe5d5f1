"""Clients that may not: what they raise and log, and how often they try."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou import (
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    Credentials,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
)
from kourou.admin.acls import create_acl, entries_of
from kourou.admin.session import Admin
from kourou.admin.users import create_user, update_user
from kourou.errors import AccessDeniedError, SendFailedError
from kourou.testing import LocalCluster
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import until

pytestmark = pytest.mark.e2e

ROOT, SHOP = Credentials("root", "root-secret"), Credentials("shop", "shop-secret")
NO_GROUP = "User:shop has no permission to access Group:billing"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A broker with a user who may send to and read Orders, in no group."""
    settings: dict[str, Any] = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": '{"username":"root","password":"root-secret"}',
    }
    async with cluster(tmp_path, **settings) as running:
        async with Admin(namesrv=running.namesrv_addr, credentials=ROOT) as admin:
            brokers = [running.broker.address]
            await create_user(admin, brokers, SHOP.access_key, SHOP.secret_key)
            acl = entries_of(["Topic:Orders"], ["Pub", "Sub", "Get"], [], "Allow")
            await create_acl(admin, brokers, "User:shop", acl)
        yield running


@pytest.mark.parametrize("options", [{}, {"idempotent": True}], ids=repr)
async def test_a_send_ends_soon_and_says_what_to_do(guarded: Cluster, options: dict[str, bool]) -> None:
    async with AsyncProducer(
        "g", namesrv=guarded.namesrv_addr, credentials=SHOP, send_timeout_ms=60_000, **options
    ) as producer:
        assert (await producer.send(Message("Orders", b"x"))).is_ok
        with pytest.raises(SendFailedError) as refused:
            await producer.send(Message("Bills", b"x"))
    text = str(refused.value)
    assert "User:shop has no permission to access Topic:Bills" in text
    assert "signed by user 'shop': an administrator has to permit it" in text
    assert "3 attempts" in text or options
    assert "shop-secret" not in text


async def test_a_consumer_logs_its_refusal_once(guarded: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(message: MessageExt) -> None:
        raise AssertionError("it may not read")

    def errors() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]

    async with AsyncProducer("g", namesrv=guarded.namesrv_addr, credentials=SHOP) as producer:
        await producer.send(Message("Orders", b"x"))
    consumer = AsyncPushConsumer(
        "billing",
        namesrv=guarded.namesrv_addr,
        credentials=SHOP,
        consume_from="first",
        rebalance_interval_ms=50,
        heartbeat_interval_ms=50,
    )
    async with consumer:
        await consumer.subscribe("Orders", handler)
        await until(lambda: any(NO_GROUP in each for each in errors()))
        for _ in range(3):
            await consumer._instance.heartbeat()
        assert len([each for each in errors() if NO_GROUP in each]) == 1, errors()
        assert "an administrator has to permit it" in errors()[0]
    warned = [
        each for each in caplog.records if each.levelno == logging.WARNING and NO_GROUP in each.getMessage()
    ]
    assert len(warned) <= 1


ROUNDS = 100
"""More than wrong logins lock a user out."""


async def check_not_locked_out(guarded: Cluster) -> None:
    async with AsyncProducer("g", namesrv=guarded.namesrv_addr, credentials=SHOP) as producer:
        assert (await producer.send(Message("Orders", b"x"))).is_ok


@pytest.mark.parametrize("options", [{}, {"model": "broadcasting"}, {"orderly": True}], ids=repr)
async def test_a_consumer_with_a_wrong_key_does_not_lock_out_its_user(
    guarded: Cluster, options: dict[str, Any]
) -> None:
    async def handler(message: MessageExt) -> None:
        raise AssertionError("it may not read")

    await check_not_locked_out(guarded)
    wrong = Credentials(SHOP.access_key, "another-secret")
    consumer = AsyncPushConsumer("billing", namesrv=guarded.namesrv_addr, credentials=wrong, **options)
    await consumer.subscribe("Orders", handler)
    async with consumer:
        assert consumer._engine is not None
        for _ in range(ROUNDS):
            await consumer._instance.heartbeat()
            await consumer._engine.rebalancer.rebalance()
            await consumer._instance.refresh_routes()
        await check_not_locked_out(guarded)


async def test_pulls_with_a_wrong_key_do_not_lock_out_its_user(guarded: Cluster) -> None:
    await check_not_locked_out(guarded)
    wrong = Credentials(SHOP.access_key, "another-secret")
    queue = MessageQueue("Orders", guarded.broker.config.broker_name, 0)
    async with AsyncPullConsumer("billing", namesrv=guarded.namesrv_addr, credentials=wrong) as consumer:
        for _ in range(ROUNDS):
            with pytest.raises(AccessDeniedError, match="check signature failed"):
                await consumer.pull(queue, queue_offset=0)
        await check_not_locked_out(guarded)


def check_withheld(errors: list[Exception]) -> None:
    """The first one is the broker's response; later ones were not sent, and say so."""
    first, last = errors[0], errors[-1]
    assert isinstance(first, SendFailedError) and isinstance(first.__cause__, AccessDeniedError)
    assert first.__cause__.wait_ms is None and "1 attempt" in str(first)
    assert isinstance(last, AccessDeniedError) and last.wait_ms is not None and last.wait_ms > 0
    assert "check access key and secret key of user 'shop'; not sent: the client tries this" in str(last)
    assert sum(isinstance(error, SendFailedError) for error in errors) < 10


@pytest.mark.parametrize("options", [{}, {"idempotent": True}], ids=repr)
async def test_sends_with_a_wrong_key_do_not_lock_out_its_user(
    guarded: Cluster, options: dict[str, Any]
) -> None:
    await check_not_locked_out(guarded)
    wrong = Credentials(SHOP.access_key, "another-secret")
    errors: list[Exception] = []
    async with AsyncProducer("g", namesrv=guarded.namesrv_addr, credentials=wrong, **options) as producer:
        for _ in range(ROUNDS):
            with pytest.raises((AccessDeniedError, SendFailedError), match="check signature") as refused:
                await producer.send(Message("Orders", b"x"))
            errors.append(refused.value)
        await check_not_locked_out(guarded)
        if not options:
            with pytest.raises(AccessDeniedError, match="not sent"):
                await producer.send_oneway(Message("Orders", b"x"))
    check_withheld(errors)


async def test_sends_of_the_sync_producer_with_a_wrong_key_do_not_lock_out_its_user(guarded: Cluster) -> None:
    await check_not_locked_out(guarded)

    def sends() -> list[Exception]:
        wrong, errors = Credentials(SHOP.access_key, "another-secret"), []
        with Producer("g", namesrv=guarded.namesrv_addr, credentials=wrong) as producer:
            for _ in range(ROUNDS):
                with pytest.raises((AccessDeniedError, SendFailedError), match="check signature") as refused:
                    producer.send(Message("Orders", b"x"))
                errors.append(refused.value)
        return errors

    errors = await asyncio.to_thread(sends)
    await check_not_locked_out(guarded)
    check_withheld(errors)


async def test_sends_continue_when_the_key_is_put_right_at_the_broker(guarded: Cluster) -> None:
    await check_not_locked_out(guarded)
    renewed = Credentials(SHOP.access_key, "renewed-secret")
    async with AsyncProducer("g", namesrv=guarded.namesrv_addr, credentials=renewed) as producer:
        with pytest.raises(SendFailedError, match="check signature"):
            await producer.send(Message("Orders", b"x"))
        async with Admin(namesrv=guarded.namesrv_addr, credentials=ROOT) as admin:
            await update_user(admin, [guarded.broker.address], SHOP.access_key, password=renewed.secret_key)
        with pytest.raises(AccessDeniedError) as withheld:
            await producer.send(Message("Orders", b"x"))
        assert withheld.value.wait_ms is not None
        await asyncio.sleep(withheld.value.wait_ms / 1000)
        for _ in range(3):
            assert (await producer.send(Message("Orders", b"x"))).is_ok


async def test_a_send_that_one_broker_rejects_goes_to_another(tmp_path: Path) -> None:
    """The rejecting one gets no further sends during its pause."""
    with LocalCluster(brokers=2, auth=True, store=tmp_path) as running:
        running.create_topic("Orders", queues=1)
        async with Admin(namesrv=running.namesrv, credentials=running.credentials) as admin:
            places = sorted(await admin.brokers(), key=lambda place: place.broker_name)
            for place, secret in zip(places, ("another-secret", SHOP.secret_key), strict=True):
                await create_user(admin, [place.address], SHOP.access_key, secret)
                acl = entries_of(["Topic:Orders"], ["Pub"], [], "Allow")
                await create_acl(admin, [place.address], "User:shop", acl)
        async with AsyncProducer("g", namesrv=running.namesrv, credentials=SHOP) as producer:
            queues = {queue.broker_name: queue for queue in await producer.queues("Orders")}
            results = [await producer.send(Message("Orders", b"x")) for _ in range(ROUNDS)]
            assert len(queues) == 2
            assert {result.queue for result in results} == {queues[places[1].broker_name]}
            with pytest.raises(AccessDeniedError, match="check signature.*not sent"):
                await producer.send(Message("Orders", b"x"), queue=queues[places[0].broker_name])
