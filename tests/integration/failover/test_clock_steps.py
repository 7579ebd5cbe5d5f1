"""Wall clocks that are stepped: leases, promises and the in-sync set go by the other clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kourou import AsyncProducer, AsyncPullConsumer, Message, MessageExt, MessageQueue, QueueReader
from kourou.admin import Admin
from kourou.admin.topics import create_topic
from kourou.config import NamesrvConfig
from kourou.namesrv.server import NameServer
from kourou.protocol.bodies.topics import TopicConfig
from kourou.testing.clock import FakeClock
from kourou.testing.store_check import assert_store_ok
from tests.integration.etcd.etcd_kit import Member, etcd
from tests.integration.failover.set_kit import BrokerSet

pytestmark = pytest.mark.integration

QUEUE = MessageQueue("orders", "broker-a", 0)
HOUR_MS = 3_600_000
LEASE_S = 4
Step = Callable[[int], None]


@pytest.fixture(scope="module")
def etcd_member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with etcd(tmp_path_factory.mktemp("etcd")) as (member,):
        yield member


@pytest.fixture
async def brokers(
    tmp_path: Path, etcd_member: Member, request: pytest.FixtureRequest
) -> AsyncIterator[BrokerSet]:
    """Three members in sync, each with a clock of its own."""
    settings = {
        "failover_etcd_prefix": f"/{request.node.name}",
        "failover_lease_seconds": LEASE_S,
    }
    async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv:
        found = BrokerSet(tmp_path, etcd_member.address, namesrv, settings)
        try:
            for number in (1, 2, 3):
                found.clocks[number] = FakeClock()
                await found.start(number)
            await found.master()
            await found.until(lambda: found.in_sync() == (1, 2, 3), "all in sync")
            yield found
        finally:
            for number in list(found.members):
                await found.stop(number)


def step_members(brokers: BrokerSet, master: int) -> Step:
    """Step the clock of the master, and those of the slaves the other way."""

    def step(ms: int) -> None:
        for number, clock in brokers.clocks.items():
            assert isinstance(clock, FakeClock)
            clock.step(ms if number == master else -ms)

    return step


def step_machine(monkeypatch: pytest.MonkeyPatch) -> Step:
    """Step whatever reads the time of day in this process: members, name server and clients."""
    real_ns, stepped_ms = time.time_ns, 0

    def step(ms: int) -> None:
        nonlocal stepped_ms
        stepped_ms += ms

    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + stepped_ms * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: real_ns() / 1e9 + stepped_ms / 1_000)
    return step


@pytest.mark.parametrize("whose", ["members", "machine"])
async def test_a_wall_clock_that_jumps_by_an_hour_does_no_harm(
    brokers: BrokerSet, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await brokers.master()
    master = brokers.members[first]
    reign, watch = master._reign, master.broker.services.clock_watch
    assert reign is not None
    step = step_members(brokers, first) if whose == "members" else step_machine(monkeypatch)
    async with Admin(namesrv=brokers.namesrv.address) as admin:
        topic = TopicConfig(topic_name=QUEUE.topic, read_queue_nums=1, write_queue_nums=1)
        await create_topic(admin, master.address, topic)
    sent: list[bytes] = []
    options = {"namesrv": brokers.namesrv.address, "send_timeout_ms": 20_000}
    async with AsyncProducer("senders", idempotent=True, **options) as producer:

        async def send() -> None:
            sent.append(b"%d" % len(sent))
            await producer.send(Message(QUEUE.topic, sent[-1]), queue=QUEUE)

        await send()
        for steps, step_ms in enumerate((HOUR_MS, -2 * HOUR_MS), 1):
            step(step_ms)
            end_s = time.monotonic() + LEASE_S
            while time.monotonic() < end_s or watch.step_count < steps:
                await send()
                assert brokers.masters == [first] and master._reign is reign
                assert brokers.in_sync() == (1, 2, 3)
        assert master._reign is reign and reign.epoch == master.state.epoch

        await master.hand_over(None)
        await brokers.until(lambda: brokers.serving() not in ([], [first]), "the successor")
        await send()
    messages = await stored_messages(brokers)
    assert [message.body for message in messages] == sent
    times = [message.store_timestamp for message in messages]
    assert sum(after < before - HOUR_MS // 2 for before, after in pairwise(times)) == 1
    await check_searches(brokers, times)
    await check_stores(brokers)


async def stored_messages(brokers: BrokerSet) -> list[MessageExt]:
    """What the master has, as soon as it serves reads."""
    async with AsyncPullConsumer("readers", namesrv=brokers.namesrv.address) as consumer:
        end = await consumer.max_offset(QUEUE)
        async with QueueReader(QUEUE, begin_offset=0, end_offset=end, consumer=consumer) as chunks:
            return [message async for chunk in chunks for message in chunk.messages()]


async def check_searches(brokers: BrokerSet, times: list[int]) -> None:
    """Of times that go back a search by time finds one of the places that the time lies before."""
    address = brokers.members[brokers.serving()[0]].address
    async with Admin(namesrv=brokers.namesrv.address) as admin:
        for time_ms in {0, *times, *(each + 1 for each in times), max(times) + HOUR_MS}:
            found = await admin.api.search_offset(address, QUEUE, time_ms)
            assert 0 <= found <= len(times)
            assert found == len(times) or times[found] >= time_ms
            assert found == 0 or times[found - 1] < time_ms


async def check_stores(brokers: BrokerSet) -> None:
    """Stop all members; what they leave is in order."""
    for number in list(brokers.members):
        await brokers.stop(number)
    for config in brokers.configs.values():
        assert_store_ok(Path(config.store_path_root_dir or ""))
