"""Slaves that are killed or stopped under load: they catch up, and the master answers meanwhile.

Their logs are equal byte for byte in the end. The longest answer of the master is reported.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kourou.config.namesrv import NamesrvConfig
from kourou.namesrv.server import NameServer
from kourou.protocol.bodies import decode_body
from kourou.protocol.bodies.ha import HARuntimeInfo
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient
from tests.crash import rounds
from tests.crash.killed_broker import KilledBroker
from tests.crash.rounds import NIGHTLY
from tests.e2e.broker.broker_kit import send_header

_CALL_MS = 30_000
_STOPPED_S = 30.0 if NIGHTLY else 1.5
_KILLS = 20 if NIGHTLY else 4


class Load:
    """Sends to a master, one message after the other, and measures the answers."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.client = RemotingClient()
        self.longest_s = 0.0
        self.sent = 0

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            header = send_header("TopicTest", queue_id=self.sent % 4)
            command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"x" * 1_000)
            answer = await self.client.call(self._address, command, _CALL_MS)
            assert answer.code == 0, answer.remark
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            self.sent += 1
            await asyncio.sleep(0.001)

    async def lag(self) -> int | None:
        """How many bytes the slave is behind; None: there is none."""
        command = RemotingCommand.request(RequestCode.GET_BROKER_HA_STATUS)
        answer = await self.client.call(self._address, command, _CALL_MS)
        slaves = decode_body(answer.body, HARuntimeInfo).ha_connection_info
        return slaves[0].diff if slaves else None

    async def until_caught_up(self) -> None:
        async with asyncio.timeout(60):
            while await self.lag() != 0:  # noqa: ASYNC110 (the master is asked)
                await asyncio.sleep(0.02)


async def under_load(
    folder: Path, what: str, disturb: Callable[[Load, KilledBroker], Awaitable[None]]
) -> None:
    """Disturb a slave while its master works; then compare."""
    async with NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1")) as namesrv:
        for name in ("master", "slave"):
            (folder / name).mkdir()
        master = KilledBroker(folder / "master", namesrvAddr=namesrv.address)
        role = {"brokerRole": "SLAVE", "brokerId": 1}
        slave = KilledBroker(folder / "slave", namesrvAddr=namesrv.address, **role)
        try:
            await asyncio.gather(asyncio.to_thread(master.start), asyncio.to_thread(slave.start))
            load = Load(master.address)
            sending = asyncio.ensure_future(load.run())
            await disturb(load, slave)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled(), sending.exception()
            await load.until_caught_up()
            await load.client.stop()
            await asyncio.to_thread(slave.stop)
            await asyncio.to_thread(master.stop)
        finally:
            slave.kill()
            master.kill()
        compare(master.store, slave.store)
    rounds.summaries.append(f"{what}: {load.sent} messages, longest answer {load.longest_s * 1000:.0f} ms")


def compare(master: Path, slave: Path) -> None:
    """The logs are equal; the last file has the same bytes up to the end, and zeros."""
    names = sorted(os.listdir(master / "commitlog"))
    assert sorted(os.listdir(slave / "commitlog")) == names
    for name in names:
        assert (master / "commitlog" / name).read_bytes() == (slave / "commitlog" / name).read_bytes(), name


@pytest.mark.slow
def test_a_slave_that_is_killed_again_and_again_catches_up(tmp_path: Path) -> None:
    async def disturb(load: Load, slave: KilledBroker) -> None:
        chance = random.Random(rounds.first_seed())
        for _ in range(_KILLS):
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            slave.kill()
            await asyncio.to_thread(slave.start)
        await load.until_caught_up()

    asyncio.run(under_load(tmp_path, "kill slave", disturb))


@pytest.mark.slow
def test_a_slave_that_is_stopped_for_a_while_catches_up(tmp_path: Path) -> None:
    async def disturb(load: Load, slave: KilledBroker) -> None:
        await load.until_caught_up()
        slave.process.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(_STOPPED_S)
        slave.process.process.send_signal(signal.SIGCONT)
        await load.until_caught_up()

    asyncio.run(under_load(tmp_path, "stop slave", disturb))
