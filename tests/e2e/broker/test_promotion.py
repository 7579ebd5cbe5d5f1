"""A slave that is made master: by hand, as the runbook says: role, id, restart on its own store."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import running
from tests.e2e.broker.delay_kit import clocked, pulled
from tests.e2e.broker.replication_kit import equal, following, log_bytes, master, namesrv, pair, slave, until
from tests.e2e.broker.transaction_kit import COMMIT, TransactionProducer

pytestmark = pytest.mark.e2e


def promoted(root: Path) -> Path:
    """The folder of the slave, for a broker that is not one."""
    return root / "slave-1"


async def test_it_goes_on_with_the_next_offsets(tmp_path: Path) -> None:
    async with pair(tmp_path) as (of_master, of_slave):
        for number in range(5):
            await of_master.send(body=b"%d" % number)
        await equal(of_master, of_slave)
    async with running(promoted(tmp_path)) as peer:
        answer = await peer.send(body=b"5")
        assert answer.code == 0, answer.remark
        found = await pulled(peer, 6)
        assert [(m.body, m.queue_offset) for m in found] == [(b"%d" % n, n) for n in range(6)]


async def test_delayed_messages_are_delivered_once(tmp_path: Path) -> None:
    clock = FakeClock()
    properties = "UNIQ_KEY\x01ID{0}\x02DELAY\x01{1}\x02"
    async with namesrv() as address:
        async with clocked(tmp_path / "master", clock, namesrv_addr=address) as of_master:
            async with slave(tmp_path, address) as of_slave:
                await following(of_master, 1)
                for number in range(3):
                    await of_master.send(body=b"soon", properties=properties.format(number, 1))
                await of_master.send(body=b"later", properties=properties.format(9, 4))
                clock.advance(1_000)
                await pulled(of_master, 3)
                await equal(of_master, of_slave)
    async with clocked(promoted(tmp_path), clock) as peer:
        assert len(await pulled(peer, 3)) == 3
        clock.advance(30_000)
        assert [m.body for m in await pulled(peer, 4)] == [b"soon"] * 3 + [b"later"]


async def test_open_transactions_are_checked_and_ended_ones_are_not(tmp_path: Path) -> None:
    async with pair(tmp_path) as (of_master, of_slave):
        producer = TransactionProducer(of_master.controller.address)
        await producer.heartbeat()
        ended = await producer.half(b"ended", "TX1")
        await producer.half(b"open", "TX2")
        assert (await producer.end(ended, COMMIT)).code == 0
        await equal(of_master, of_slave)
        await producer.client.stop()
    keys = {"transaction_time_out": 1, "transaction_check_interval": 100}
    async with running(promoted(tmp_path), **keys) as peer:
        survivor = TransactionProducer(peer.controller.address)
        survivor.decide = lambda _: COMMIT
        await survivor.heartbeat()
        check = await asyncio.wait_for(survivor.checks.get(), 10)
        assert check.message.body == b"open"
        assert {m.body for m in await pulled(peer, 2)} == {b"ended", b"open"}
        await survivor.client.stop()


async def test_offsets_of_messages_that_are_lost_are_taken_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (of_master, of_slave):
        await of_master.send()
        await equal(of_master, of_slave)
        of_slave.controller.services.offsets.commit("billing", "TopicTest", 0, 7, "test")
    async with running(promoted(tmp_path)) as peer:
        assert peer.controller.services.offsets.query("billing", "TopicTest", 0) == 1
    assert "TopicTest@billing/0: offset 7 is beyond the end of the queue, set to 1" in caplog.text


async def test_the_old_master_comes_back_as_a_slave(tmp_path: Path) -> None:
    async with pair(tmp_path) as (of_master, of_slave):
        await of_master.send(body=b"before")
        await equal(of_master, of_slave)
    swap(tmp_path)
    async with namesrv() as address, master(tmp_path, address) as of_master:
        await of_master.send(body=b"after")
        async with slave(tmp_path, address) as of_slave:
            await equal(of_master, of_slave)


async def test_an_old_master_that_has_more_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with namesrv() as address:
        async with master(tmp_path, address) as of_master:
            async with slave(tmp_path, address) as of_slave:
                await of_master.send(body=b"both")
                await equal(of_master, of_slave)
            await of_master.send(body=b"only here")
        swap(tmp_path)
        async with master(tmp_path, address) as of_master:
            for _ in range(3):
                await of_master.send(body=b"the new one's")
            async with slave(tmp_path, address) as of_slave:
                before = log_bytes(of_slave)
                await until(lambda: "follows its master no more" in caplog.text, "it is reported")
                assert log_bytes(of_slave) == before


def swap(root: Path) -> None:
    """The slave's store becomes the master's, and the reverse."""
    shutil.move(root / "slave-1", root / "new")
    shutil.move(root / "master", root / "slave-1")
    shutil.move(root / "new", root / "master")
