"""A broker on a store whose log was cut: what the tail had done is done again, once, and nothing else."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from kourou.broker.settings import store_config, store_host
from kourou.protocol.names import CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC
from kourou.store.disk.files import Files
from kourou.store.replica.log_cut import cut_log
from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import Peer, config, running
from tests.e2e.broker.delay_kit import clocked, count_in, pulled, settle
from tests.e2e.broker.replication_kit import equal, following, log_end, namesrv, slave, until
from tests.e2e.broker.transaction_kit import COMMIT, TransactionProducer
from tests.integration.broker.atomic.atomic_kit import Publish, group, opened, outcome, until_stored

pytestmark = pytest.mark.e2e

DELAYED = ("DELAY\x011", "DELAY\x011", "TIMER_DELAY_SEC\x011", "TIMER_DELAY_SEC\x013")


def cut(root: Path, phy_offset: int) -> None:
    broker = config(root)
    stored = store_config(broker, store_host(broker))
    saved = cut_log(Files(), stored, phy_offset, set_name="broker-a", now_ms=FakeClock())
    assert saved is not None


async def send_delayed(peer: Peer) -> None:
    for number, delay in enumerate(DELAYED):
        answer = await peer.send(body=b"%d" % number, properties=f"UNIQ_KEY\x01ID{number}\x02{delay}\x02")
        assert answer.code == 0, answer.remark


async def each_once(peer: Peer, count: int) -> None:
    """The delayed messages are there, each once, among `count` messages in all."""
    found = await pulled(peer, count)
    await settle()
    assert count_in(peer) == count
    delayed = sorted(message.body for message in found if message.body.isdigit())
    assert delayed == [b"%d" % number for number in range(len(DELAYED))]


async def test_delayed_messages_whose_delivery_is_cut_off_are_delivered_again(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await send_delayed(peer)
        end = log_end(peer)
        clock.advance(10_000)
        await each_once(peer, len(DELAYED))
    cut(tmp_path, end)
    async with clocked(tmp_path, clock) as peer:
        await each_once(peer, len(DELAYED))


async def test_a_former_master_follows_and_is_master_again(tmp_path: Path) -> None:
    clock = FakeClock()
    async with namesrv() as address, clocked(tmp_path / "slave-1", clock, namesrv_addr=address) as former:
        role = {"broker_role": "SLAVE", "broker_id": 1}
        async with running(tmp_path / "master", namesrv_addr=address, **role) as successor:
            await following(former, 1)
            await send_delayed(former)
            await equal(former, successor)
        end = log_end(former)
        for number in range(20):
            await former.send(body=b"orphan %d" % number)
        clock.advance(2_000)
        await pulled(former, 23)
    cut(tmp_path / "slave-1", end)
    async with namesrv() as address, clocked(tmp_path / "master", clock, namesrv_addr=address) as successor:
        # Its log grows beyond where the other one was cut, with other records.
        for _ in range(60):
            await successor.send(body=b"new")
        async with slave(tmp_path, address) as former:
            await equal(successor, former)
    shutil.rmtree(tmp_path / "master")
    async with clocked(tmp_path / "slave-1", clock) as former:
        clock.advance(10_000)
        await each_once(former, 60 + len(DELAYED))


async def test_a_transaction_whose_commit_is_cut_off_is_checked_and_committed_again(tmp_path: Path) -> None:
    keys = {"transaction_time_out": 1, "transaction_check_interval": 100}
    async with running(tmp_path, **keys) as peer:
        producer = TransactionProducer(peer.controller.address)
        await producer.heartbeat()
        before = await producer.half(b"before", "TX1")
        half = await producer.half(b"again", "TX2")
        assert (await producer.end(before, COMMIT)).code == 0
        end = log_end(peer)
        assert (await producer.end(half, COMMIT)).code == 0
        assert len(await pulled(peer, 2)) == 2
        offsets = peer.controller.services.offsets
        await until(
            lambda: offsets.query(CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC, 0) == 2,
            "the end of both is recorded",
        )
        await producer.client.stop()
    cut(tmp_path, end)
    async with running(tmp_path, **keys) as peer:
        producer = TransactionProducer(peer.controller.address)
        producer.decide = lambda _: COMMIT
        await producer.heartbeat()
        check = await asyncio.wait_for(producer.checks.get(), 10)
        assert check.message.body == b"again"
        assert [message.body for message in await pulled(peer, 2)] == [b"before", b"again"]
        await settle(0.5)
        assert count_in(peer) == 2 and producer.checks.empty()
        await producer.client.stop()


@pytest.mark.parametrize("is_decided", [True, False], ids=["messages", "decision"])
async def test_an_atomic_publish_is_made_once_whatever_is_cut_off(tmp_path: Path, is_decided: bool) -> None:
    """Cut off are some of its messages, or the decision as well."""
    bodies = [b"%d" % number for number in range(5)]
    async with running(tmp_path) as peer:
        publish = Publish(peer, await opened(peer), 1)
        assert (await publish.stage(peer, 0, group("a", bodies[:3]), group("b", bodies[3:]))).code == 0
        end = log_end(peer)
        assert outcome(await publish.decide(commit=True)) == "committed"
        await until_stored(peer, "b", bodies[3:])
        if is_decided:
            unit = peer.controller.services.store.queues.get("a", 0).unit(1)
            assert unit is not None
            end = unit.phy_offset
    cut(tmp_path, end)
    async with running(tmp_path) as peer:
        if not is_decided:
            again = Publish(peer, ("", 0), 1)
            again.id, again.parts = publish.id, publish.parts
            assert outcome(await again.decide(commit=True)) == "committed"
        await until_stored(peer, "b", bodies[3:])
        await until_stored(peer, "a", bodies[:3])
        await settle()
        assert (count_in(peer, "a"), count_in(peer, "b")) == (3, 2)
