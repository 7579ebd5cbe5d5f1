"""BrokerOffsets: the order in which offsets reach a broker."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from kourou.client.core.api import ClientApi
from kourou.client.core.refusals import RefusalLog
from kourou.client.core.routes import Routes
from kourou.client.push.consumer_offsets import BrokerOffsets
from kourou.errors import ConnectError
from kourou.protocol.bodies import MessageQueue

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(2)]


class SlowBroker:
    """Stores an offset when it is let: in any order, if several are under way."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.waiting: list[asyncio.Event] = []
        self.is_failing = False
        self.refusals = RefusalLog()
        self.consumer_offset_stored: int | None = None

    async def consumer_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """As ClientApi has it."""
        return self.consumer_offset_stored

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, queue_offset: int
    ) -> None:
        """As ClientApi has it."""
        turn = asyncio.Event()
        self.waiting.append(turn)
        await turn.wait()
        if self.is_failing:
            raise ConnectError(address, "gone")
        self.stored.append(queue_offset)

    async def let_all(self) -> None:
        """The newest first."""
        await asyncio.sleep(0)
        for turn in reversed(self.waiting):
            turn.set()
            await asyncio.sleep(0)
        self.waiting.clear()


def offsets_at(broker: SlowBroker) -> BrokerOffsets:
    api = cast(ClientApi, broker)
    routes = Routes(api)
    routes.brokers["broker-a"] = {0: "127.0.0.1:10911"}
    return BrokerOffsets(api, routes, "CG")


async def test_a_newer_offset_waits_for_the_one_before() -> None:
    broker = SlowBroker()
    offsets = offsets_at(broker)
    offsets.update(QUEUES[0], 3)
    periodic = asyncio.ensure_future(offsets.persist(QUEUES[:1]))
    await asyncio.sleep(0)
    offsets.update(QUEUES[0], 6)
    last = asyncio.ensure_future(offsets.persist(QUEUES[:1]))
    while not last.done():
        await broker.let_all()
    await periodic
    assert broker.stored == [3, 6]


async def test_so_it_does_for_one_whose_caller_was_cancelled() -> None:
    broker = SlowBroker()
    offsets = offsets_at(broker)
    offsets.update(QUEUES[0], 3)
    periodic = asyncio.ensure_future(offsets.persist(QUEUES[:1]))
    await asyncio.sleep(0)
    periodic.cancel()
    offsets.update(QUEUES[0], 6)
    last = asyncio.ensure_future(offsets.persist(QUEUES[:1]))
    while not last.done():
        await broker.let_all()
    assert broker.stored == [3, 6] and periodic.cancelled()


async def test_a_rejected_offset_commit_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    broker = SlowBroker()
    broker.is_failing = True
    offsets = offsets_at(broker)
    offsets.update(QUEUES[0], 3)
    for _ in range(2):
        reporting = asyncio.ensure_future(offsets.persist(QUEUES[:1]))
        while not reporting.done():
            await broker.let_all()
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    assert "group CG: cannot store offset 3 of" in caplog.text


@pytest.mark.parametrize(
    ("stored", "read"),
    [(2, 3), (None, 2), (7, 7), (0, 0)],
    ids=["as it was", "no offset", "another member's", "reset"],
)
async def test_a_queue_continues_where_it_was_when_its_broker_was_away(
    stored: int | None, read: int | None
) -> None:
    """The consumer released the queue, and its offset could not be stored."""
    broker = SlowBroker()
    offsets = offsets_at(broker)
    broker.consumer_offset_stored = None if stored is None else 2
    before = await offsets.read(QUEUES[0])
    offsets.update(QUEUES[0], 3 if before is not None else 2)
    broker.is_failing = True
    releasing = asyncio.ensure_future(offsets.persist(QUEUES[:1]))
    while not releasing.done():
        await broker.let_all()
    offsets.forget(QUEUES[0])

    broker.is_failing, broker.consumer_offset_stored = False, stored
    offsets.forget(QUEUES[0])
    assert await offsets.read(QUEUES[0]) == read
    # The next commit stores it.
    assert offsets.known(QUEUES[0]) == (read if read != stored else None)


async def test_a_queue_that_was_released_in_order_is_read_again() -> None:
    broker = SlowBroker()
    offsets = offsets_at(broker)
    broker.consumer_offset_stored = 2
    await offsets.read(QUEUES[0])
    offsets.update(QUEUES[0], 3)
    releasing = asyncio.ensure_future(offsets.persist(QUEUES[:1]))
    while not releasing.done():
        await broker.let_all()
    offsets.forget(QUEUES[0])
    assert await offsets.read(QUEUES[0]) == 2
