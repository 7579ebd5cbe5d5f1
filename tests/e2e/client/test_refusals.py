"""Clients that may not: what they raise and log, and how often they try."""

from __future__ import annotations

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
)
from kourou.admin.acls import create_acl, entries_of
from kourou.admin.session import Admin
from kourou.admin.users import create_user
from kourou.errors import AccessDeniedError, SendFailedError
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
