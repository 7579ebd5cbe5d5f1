"""Our client with few permissions at a broker with access control: what suffices, and what does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou import AsyncProducer, AsyncPushConsumer, ConsumeResult, Credentials, Message, MessageExt
from kourou.admin.acls import create_acl
from kourou.admin.session import Admin
from kourou.admin.users import create_user
from kourou.errors import KourouError, SendFailedError
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo
from kourou.testing.cluster import Cluster, cluster

pytestmark = pytest.mark.e2e

ROOT, APP = Credentials("root", "root-secret"), Credentials("app", "app-secret")
AUTH: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"root","password":"root-secret"}',
    "message_delay_level": "1s 1s 1s",
}


@contextlib.asynccontextmanager
async def guarded(folder: Path, **grants: str) -> AsyncIterator[Cluster]:
    """A cluster with topic `orders`, and user `app` who may do what is granted: `Topic_orders="Pub,Sub"`."""
    async with (
        cluster(folder, **AUTH) as running,
        Admin(namesrv=running.namesrv_addr, credentials=ROOT) as admin,
        AsyncProducer("root", namesrv=running.namesrv_addr, credentials=ROOT) as producer,
    ):
        await producer.send(Message("orders", b"first"))
        await create_user(admin, [running.broker.address], "app", "app-secret")
        entries = [
            PolicyEntryInfo(resource.replace("_", ":", 1), actions.split(","), None, "Allow")
            for resource, actions in grants.items()
        ]
        await create_acl(
            admin, [running.broker.address], "User:app", AclInfo("User:app", [PolicyInfo("Custom", entries)])
        )
        yield running


async def test_a_producer_needs_pub_on_its_topics(tmp_path: Path) -> None:
    """Sends, batches, transactions and atomic publishes; the broker's requests to itself are signed."""
    async with guarded(tmp_path, Topic_orders="Pub") as running:
        async with AsyncProducer("p", namesrv=running.namesrv_addr, credentials=APP) as producer:
            await producer.send(Message("orders", b"one"))
            await producer.send_many([Message("orders", b"two"), Message("orders", b"three")])
            async with producer.atomic() as batch:
                await batch.send(Message("orders", b"four"))
            with pytest.raises(SendFailedError, match="no permission to access Topic:other"):
                await producer.send(Message("other", b"no"))
            with pytest.raises(KourouError, match="no permission to access Topic:other"):
                async with producer.atomic() as batch:
                    await batch.send(Message("orders", b"no"))
                    await batch.send(Message("other", b"no"))
        async with AsyncProducer(
            "p", namesrv=running.namesrv_addr, credentials=APP, idempotent=True
        ) as producer:
            await producer.send(Message("orders", b"five"))


async def test_a_named_producer_needs_pub_on_the_group_of_its_name(tmp_path: Path) -> None:
    async with guarded(tmp_path, Topic_orders="Pub", Group_mine="Pub") as running:
        for name, is_allowed in (("mine", True), ("theirs", False)):
            async with AsyncProducer(
                "p", namesrv=running.namesrv_addr, credentials=APP, idempotent=True, name=name
            ) as producer:
                if is_allowed:
                    await producer.send(Message("orders", b"one"))
                    async with producer.atomic() as batch:
                        await batch.send(Message("orders", b"two"))
                else:
                    with pytest.raises(KourouError, match="no permission to access Group:theirs"):
                        await producer.send(Message("orders", b"no"))


async def test_a_consumer_needs_sub_on_topic_and_group_and_get_for_its_start(tmp_path: Path) -> None:
    """Pulls, heartbeats, offsets, and failed messages that come again."""
    seen: list[bytes] = []
    is_done = asyncio.Event()

    async def handle(message: MessageExt) -> ConsumeResult:
        seen.append(message.body)
        if message.reconsume_times == 0:
            return ConsumeResult.LATER
        is_done.set()
        return ConsumeResult.SUCCESS

    async with guarded(tmp_path, Topic_orders="Sub,Get", Group_workers="Sub") as running:
        consumer = AsyncPushConsumer(
            "workers", namesrv=running.namesrv_addr, credentials=APP, consume_from="first"
        )
        await consumer.subscribe("orders", "*", handle)
        async with consumer:
            await asyncio.wait_for(is_done.wait(), 20)
    assert seen == [b"first", b"first"]
