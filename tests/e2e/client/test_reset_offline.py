"""A group that an operator moves back while none of its members is there."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from kourou import AsyncProducer, AsyncPushConsumer, Message, MessageExt
from kourou.admin.group_offsets import reset_offsets
from kourou.admin.session import Admin
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.push_kit import make_topic

pytestmark = pytest.mark.e2e


async def consume_all(namesrv: str, count: int) -> list[bytes]:
    """Consume until so many messages have come."""
    bodies: list[bytes] = []
    done = asyncio.Event()

    async def take(message: MessageExt) -> None:
        bodies.append(message.body)
        if len(bodies) == count:
            done.set()

    async with AsyncPushConsumer("billing", namesrv=namesrv, consume_from="first") as consumer:
        await consumer.subscribe("Orders", take)
        async with asyncio.timeout(30):
            await done.wait()
    return sorted(bodies)


async def test_a_group_that_was_moved_back_begins_there_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, "Orders")
        async with AsyncProducer("shop", namesrv=running.namesrv_addr) as producer:
            for number in range(8):
                await producer.send(Message("Orders", b"%d" % number))
        first = await consume_all(running.namesrv_addr, 8)
        async with Admin(namesrv=running.namesrv_addr) as admin:
            await reset_offsets(admin, "billing", "Orders", 0)
        assert await consume_all(running.namesrv_addr, 8) == first
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == []
