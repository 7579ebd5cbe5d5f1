"""kill -9 of a master whose disk is lost with it: what its slave has.

With SYNC_MASTER every acknowledged message is there. With ASYNC_MASTER the last ones may be missing; how
many, and of which time, is reported.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kourou.config.namesrv import NamesrvConfig
from kourou.errors import RemotingError
from kourou.namesrv.server import NameServer
from kourou.protocol.bodies import decode_body
from kourou.protocol.bodies.ha import HARuntimeInfo
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.record import decode_records
from kourou.transport.client import RemotingClient
from tests.crash import rounds
from tests.crash.killed_broker import KilledBroker
from tests.crash.rounds import replayable, seeds
from tests.e2e.broker.broker_kit import pull_header, send_header

TOPIC = "TopicTest"
_SENDERS = 8
_CALL_MS = 20_000
_LOST_MS = 100.0


class MasterKill:
    """One pair, which loses its master."""

    def __init__(self, folder: Path, namesrv_addr: str, role: str) -> None:
        self._client = RemotingClient()
        self._folder = folder
        self._master = KilledBroker(folder / "master", namesrvAddr=namesrv_addr, brokerRole=role)
        self._slave = KilledBroker(folder / "slave", namesrvAddr=namesrv_addr, brokerRole="SLAVE", brokerId=1)
        # When the answer to each message came.
        self.acknowledged: dict[bytes, float] = {}
        self.killed_at = 0.0

    async def run(self, seed: int) -> set[bytes]:
        """What the slave has in the end."""
        chance = random.Random(seed)
        for name in ("master", "slave"):
            (self._folder / name).mkdir(parents=True)
        try:
            await asyncio.gather(asyncio.to_thread(self._master.start), asyncio.to_thread(self._slave.start))
            await self._until_followed()
            senders = [asyncio.ensure_future(self._send(number)) for number in range(_SENDERS)]
            await self._until_acknowledged()
            await asyncio.sleep(chance.uniform(0, 0.5))
            self._master.kill()
            self.killed_at = time.monotonic()
            shutil.rmtree(self._master.store)
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            return await self._stored()
        finally:
            await self._client.stop()
            self._master.kill()
            self._slave.kill()

    async def _until_followed(self) -> None:
        async with asyncio.timeout(30):
            while True:
                command = RemotingCommand.request(RequestCode.GET_BROKER_HA_STATUS)
                answer = await self._client.call(self._master.address, command, _CALL_MS)
                if decode_body(answer.body, HARuntimeInfo).ha_connection_info:
                    return
                await asyncio.sleep(0.02)

    async def _until_acknowledged(self) -> None:
        # On a busy machine the first answer may take longer than all of the time before the kill.
        async with asyncio.timeout(30):
            while not self.acknowledged:  # noqa: ASYNC110 (senders know no events)
                await asyncio.sleep(0.02)

    async def _send(self, sender: int) -> None:
        number = 0
        with suppress(RemotingError):
            while True:
                body = b"%d-%d " % (sender, number) + b"x" * 200
                header = send_header(TOPIC, queue_id=sender % 4)
                command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
                answer = await self._client.call(self._master.address, command, _CALL_MS)
                if answer.code == 0:
                    self.acknowledged[body] = time.monotonic()
                number += 1

    async def _stored(self) -> set[bytes]:
        found: set[bytes] = set()
        for queue_id in range(4):
            offset = 0
            while True:
                header = pull_header(TOPIC, offset, queue_id=queue_id, suspend_timeout_millis=0)
                command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
                answer = await self._client.call(self._slave.address, command, _CALL_MS)
                records = list(decode_records(answer.body)) if answer.code == 0 else []
                if not records:
                    break
                found.update(message.body for message in records)
                offset += len(records)
        return found


async def lose_master(folder: Path, role: str, seed: int) -> tuple[MasterKill, set[bytes]]:
    async with NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1")) as namesrv:
        kill = MasterKill(folder, namesrv.address, role)
        return kill, await kill.run(seed)


@pytest.mark.slow
def test_with_sync_double_write_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    total = 0
    for seed in seeds("kill master, sync double write", seconds=30, full=100):
        with replayable(seed):
            kill, found = asyncio.run(lose_master(tmp_path / str(seed), "SYNC_MASTER", seed))
            assert kill.acknowledged, "nothing was sent"
            assert not kill.acknowledged.keys() - found, "acknowledged and lost"
            total += len(kill.acknowledged)
            shutil.rmtree(tmp_path / str(seed))
    rounds.summaries.append(f"kill master, sync double write: {total} acknowledged messages, none lost")


@pytest.mark.slow
def test_with_async_replication_the_last_messages_may_be_lost(tmp_path: Path) -> None:
    total, lost, oldest_ms = 0, 0, 0.0
    for seed in seeds("kill master, async replication", seconds=5, full=20):
        with replayable(seed):
            kill, found = asyncio.run(lose_master(tmp_path / str(seed), "ASYNC_MASTER", seed))
            missing = kill.acknowledged.keys() - found
            total += len(kill.acknowledged)
            lost += len(missing)
            oldest_ms = max(
                [oldest_ms, *((kill.killed_at - kill.acknowledged[each]) * 1000 for each in missing)]
            )
            shutil.rmtree(tmp_path / str(seed))
    rounds.summaries.append(
        f"kill master, async replication: {lost} of {total} acknowledged messages lost, the oldest "
        f"acknowledged {oldest_ms:.0f} ms before the kill"
    )
    assert oldest_ms <= _LOST_MS or not lost
