"""kill -9 of a broker with messages that wait and messages that come due: each comes once, none early.

One store over the rounds of a test. A round: a broker starts, gets messages with delay levels and with
times, and is killed at some moment, mostly while it delivers. The last broker delivers what is left.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections import Counter
from pathlib import Path

import pytest

from kourou.errors import KourouError
from kourou.protocol.codes import PullSysFlag, RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.transport.client import RemotingClient
from tests.crash.rounds import SOAK, replayable, seeds
from tests.e2e.server_process import ServerProcess

TOPIC = "TopicTest"
PASS_MS = 100
LEVELS_MS = (1_000, 2_000)
KILLS = 3


class DelayKill:
    """The store of one round, and what was sent to it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.processes = 0
        self.sent: dict[str, int] = {}  # unique id to the earliest time it may come
        self.acknowledged: set[str] = set()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"

    def start(self) -> ServerProcess:
        """A broker on the store."""
        keys = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self.address.split(":")[1],
            "storePathRootDir": str(self.root / "store"),
            "messageDelayLevel": "1s 2s",
            "mappedFileSizeCommitLog": str(1024 * 1024),
            "maxHashSlotNum": "1000",
            "maxIndexNum": "4000",
            "flushDiskType": self.random.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]),
        }
        settings = [f"--set={name}={value}" for name, value in keys.items()]
        self.processes += 1
        folder = self.root / f"process-{self.processes}"
        environ = {**os.environ, "HOME": str(self.root)}
        server = ServerProcess("kourou.cli.mqbroker", settings, environ, folder)
        server.wait_first_line()
        return server

    async def send_for(self, client: RemotingClient, seconds: float) -> None:
        """Send messages, a few at a time, until the time is over or the broker is gone."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.gather(*(self._send(client) for _ in range(5)))
            await asyncio.sleep(0.01)

    async def _send(self, client: RemotingClient) -> None:
        number, now_ms = len(self.sent), time.time_ns() // 1_000_000
        uniq_key = f"ID{number}"
        level = self.random.choice([0, 1, 2])
        deliver_ms = now_ms + (LEVELS_MS[level - 1] if level else self.random.randrange(500, 3_000))
        # A level counts from the time of the pass, which may have begun a moment before we sent.
        self.sent[uniq_key] = deliver_ms - (PASS_MS if level else 0)
        delay = f"DELAY\x01{level}" if level else f"TIMER_DELIVER_MS\x01{deliver_ms}"
        header = SendMessageRequestHeaderV2(
            producer_group="P",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=now_ms,
            flag=0,
            properties=f"UNIQ_KEY\x01{uniq_key}\x02{delay}\x02",
        )
        try:
            command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"x" * 50)
            answer = await client.call(self.address, command, 3_000)
        except (KourouError, OSError):
            return  # killed meanwhile: it may be stored or not
        assert answer.code == 0, answer.remark
        self.acknowledged.add(uniq_key)

    async def read_until(self, client: RemotingClient, wanted: set[str]) -> list[MessageExt]:
        """Everything in the topic, once `wanted` are there."""
        found: list[MessageExt] = []
        async with asyncio.timeout(30):
            while not wanted <= {message.properties["UNIQ_KEY"] for message in found}:
                found += await self._pull(client, len(found))
        await asyncio.sleep(1.5)  # whatever comes twice comes now
        while more := await self._pull(client, len(found), wait=False):
            found += more
        return found

    async def _pull(
        self, client: RemotingClient, queue_offset: int, *, wait: bool = True
    ) -> list[MessageExt]:
        header = PullMessageRequestHeader(
            consumer_group="C",
            topic=TOPIC,
            queue_id=0,
            queue_offset=queue_offset,
            max_msg_nums=500,
            sys_flag=int(PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if wait else 0)),
            commit_offset=0,
            suspend_timeout_millis=1_000,
            subscription="*",
            sub_version=0,
        )
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await client.call(self.address, command, 10_000)
        return decode_records(answer.body) if answer.code == 0 else []

    def check(self, found: list[MessageExt]) -> None:
        """Each once, none before its time, none that was not sent."""
        times = Counter(message.properties["UNIQ_KEY"] for message in found)
        assert not [key for key in self.acknowledged if times[key] == 0], "lost"
        assert not {key: count for key, count in times.items() if count > 1}, "delivered twice"
        for message in found:
            assert message.store_timestamp >= self.sent[message.properties["UNIQ_KEY"]], message


async def run(root: Path, seed: int) -> None:
    """Kill and start again some times, then look."""
    kill = DelayKill(root, seed)
    for _ in range(KILLS):
        server = kill.start()
        client = RemotingClient()
        try:
            await kill.send_for(client, kill.random.uniform(0.3, 2.5))
        finally:
            server.kill()
            await client.stop()
    server = kill.start()
    client = RemotingClient()
    try:
        kill.check(await kill.read_until(client, kill.acknowledged))
    finally:
        await client.stop()
        server.kill()


@pytest.mark.slow
def test_delayed_messages_come_once_over_kills(tmp_path: Path) -> None:
    for seed in seeds("kill -9 with delayed messages", seconds=20, full=100 if SOAK else 20):
        with replayable(seed):
            asyncio.run(run(_folder(tmp_path, seed), seed))


def _folder(root: Path, seed: int) -> Path:
    folder = root / str(seed)
    folder.mkdir()
    return folder
