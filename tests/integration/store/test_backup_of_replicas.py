"""Backups and comparisons of a master and its slave while they run: the logs stay one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kourou import AsyncProducer, Message
from kourou.embed import Broker, BrokerConfig, NameServer, NamesrvConfig
from kourou.store.backup.backup import BackupOptions, back_up
from kourou.store.backup.restore import restore
from kourou.store.check.compare import Comparison, compare_stores
from kourou.store.disk.files import Files
from kourou.testing.store_check import assert_store_ok

SECONDS = 20


async def compared(a: Path, b: Path) -> Comparison:
    return await asyncio.to_thread(compare_stores, Files(), a, b)


async def wait_equal_end(master: Path, slave: Path) -> None:
    """Wait until the slave has all that the master has; they are equal at any time before."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = await compared(master, slave)
            assert found.is_equal, found.divergence
            if found.a.end_phy_offset == found.b.end_phy_offset:
                return
            await asyncio.sleep(0.02)


async def test_slaves_go_on_from_backups_of_master_and_slave(tmp_path: Path) -> None:
    def config(name: str, broker_id: int) -> BrokerConfig:
        return BrokerConfig(
            listen_port=0,
            bind_address="127.0.0.1",
            namesrv_addr=names.address,
            store_path_root_dir=str(tmp_path / name),
            broker_name="a",
            broker_id=broker_id,
            broker_role="SLAVE" if broker_id else "ASYNC_MASTER",
            mapped_file_size_commit_log=1 << 18,
        )

    async def send(count: int) -> None:
        for number in range(count):
            await producer.send(Message("Replicated", b"%d" % number + b"x" * 5_000))

    master, slave = tmp_path / "master", tmp_path / "slave"
    async with (
        NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1")) as names,
        Broker(config("master", 0)),
        Broker(config("slave", 1)),
        AsyncProducer("load", namesrv=names.address) as producer,
    ):
        await send(150)
        sending = asyncio.create_task(send(150), name="load")
        ends = {}
        for source in (master, slave):
            backup, seed = tmp_path / f"{source.name}-backup", tmp_path / f"{source.name}-seed"
            await asyncio.to_thread(back_up, Files(), source, backup, BackupOptions(), lambda: 0)
            ends[seed] = (await asyncio.to_thread(restore, Files(), backup, seed)).end_phy_offset
            assert (await compared(master, seed)).is_equal
        await sending
        async with Broker(config("master-seed", 2)), Broker(config("slave-seed", 3)):
            await send(50)
            for seed, end in ends.items():
                await wait_equal_end(master, seed)
                assert (await compared(master, seed)).end_phy_offset > end > 0
        await wait_equal_end(master, slave)
    for store in (master, slave, *ends):
        assert_store_ok(store)
        assert (await compared(master, store)).queues == []
