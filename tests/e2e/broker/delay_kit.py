"""A broker whose clock a test sets forward, so that no test waits for a delay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kourou.broker.controller import BrokerController
from kourou.protocol.message import MessageExt
from kourou.testing.clock import FakeClock
from kourou.testing.store_check import assert_store_ok
from tests.e2e.broker.broker_kit import Peer, config, messages


@contextlib.asynccontextmanager
async def clocked(root: Path, clock: FakeClock, **keys: Any) -> AsyncIterator[Peer]:
    """A broker for one test; at its end it stops in order and its store has to be sound."""
    controller = BrokerController(config(root, **keys), clock=clock)
    await controller.start()
    peer = Peer(controller)
    failed = asyncio.ensure_future(controller.wait_failed())
    try:
        yield peer
        assert not failed.done() or failed.exception() is None, failed
    finally:
        await peer.client.stop()
        await controller.stop()
        await asyncio.wait([failed])
    # Times of delivery are checked against the levels, which the files do not tell.
    if "message_delay_level" not in keys:
        assert_store_ok(root / "store")


async def pulled(peer: Peer, count: int, topic: str = "TopicTest", queue_id: int = 0) -> list[MessageExt]:
    """The messages of a queue, as soon as there are so many."""
    found: list[MessageExt] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            answer = await peer.pull(topic, len(found), queue_id=queue_id)
            found += messages(answer) if answer.code == 0 else []
            await asyncio.sleep(0.01)
    return found


async def settle(seconds: float = 0.3) -> None:
    """Give whatever should not happen the time to happen."""
    await asyncio.sleep(seconds)


def count_in(peer: Peer, topic: str = "TopicTest", queue_id: int = 0) -> int:
    """How many messages a queue has."""
    return peer.controller.services.store.max_offset_in_queue(topic, queue_id)
