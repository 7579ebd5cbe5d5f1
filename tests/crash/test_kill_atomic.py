"""kill -9 of a broker at every step of atomic publishes: each value is at all its places once, or at none.

broker-a is killed: it coordinates, and it has parts. broker-b has parts, too. The producer goes on over the
death, and repeats its requests. Life after life on one store, each recovers from the one before.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kourou import AsyncProducer, Message, MessageQueue
from kourou.client import AsyncAtomicBatch
from kourou.client.producer.atomic_sessions import atomic_name
from kourou.errors import AtomicPublishError, KourouError
from kourou.protocol.bodies.atomic_list import AtomicList, AtomicState
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.topics import CreateTopicRequestHeader
from tests.crash.killed_broker import KilledBroker
from tests.crash.rounds import NIGHTLY
from tests.e2e.broker.broker_kit import Peer, messages, pull_header, running
from tests.e2e.broker.replication_kit import namesrv

HOOKS = [f"atomic:{name}:1:after" for name in ("staged", "decided", "publishing", "finished", "ended")]
LATER = [f"atomic:{name}:2:after" for name in ("staged", "decided", "finished", "ended")]
WRITES = [f"write:commitlog:{nth}:{moment}" for nth in range(4, 16) for moment in ("torn", "before", "after")]
STEPS = [*HOOKS, *LATER, *WRITES] if NIGHTLY else [*HOOKS, *WRITES[::9]]
# A name whose publishes broker-a coordinates, of two brokers.
NAME = next(f"n{n}" for n in range(99) if zlib.crc32(atomic_name(f"n{n}").encode()) % 2 == 0)
# So large that it takes several commit cycles.
LARGE = 350


class AtomicKills:
    """Producers and checks over the lives of a broker."""

    def __init__(self, folder: Path, address: str, other: Peer) -> None:
        self.broker = KilledBroker(folder, namesrvAddr=address, maxMessageSize=64 * 1024)
        self.namesrv = address
        self.other = other
        self.values = 0
        self.committed: set[bytes] = set()
        self.undecided: set[bytes] = set()

    async def live(self, step: str) -> None:
        self.broker.start_to_die(step)
        await asyncio.to_thread(self.broker.wait_serving)
        work = asyncio.ensure_future(self._publish())
        try:
            await asyncio.to_thread(self.broker.wait_dead)
            await asyncio.to_thread(self.broker.start)
            await work
            await self._settle()
            await self._check()
        finally:
            work.cancel()
            self.broker.kill()

    async def _publish(self) -> None:
        """Publishes that are enough for any step: small ones, a large one, one that is rolled back."""
        places = [MessageQueue("T", "broker-a", 0), MessageQueue("U", "broker-a", 0)]
        places.append(MessageQueue("T", "broker-b", 0))
        options = {"name": NAME, "max_message_bytes": 60 * 1024}
        async with AsyncProducer("g", namesrv=self.namesrv, **options) as producer:
            for number in range(5):
                self.values += 1  # no value twice, over all lives
                value = b"%d" % self.values
                try:
                    async with AsyncExitStack() as stack:
                        batch = await _entered(producer)
                        stack.push_async_exit(batch)
                        for copy in range(LARGE if number == 2 else 1):
                            for queue in places:
                                body = value + b":%d:" % copy + b"x" * (900 if number == 2 else 5)
                                await batch.send(Message(queue.topic, body), queue=queue)
                        if number == 3:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
                except AtomicPublishError:
                    self.undecided.add(value)
                    continue
                self.committed.add(value)

    async def _settle(self) -> None:
        """Wait until no publish is open at either broker."""
        deadline = asyncio.get_running_loop().time() + 30
        while await self._open(self.broker.address) or await self._open(self.other.controller.address):
            assert asyncio.get_running_loop().time() < deadline, "publishes stay open"
            await asyncio.sleep(0.05)

    async def _open(self, address: str) -> bool:
        command = RemotingCommand.request(RequestCode.LIST_KOUROU_ATOMIC)
        answer = await self.other.client.call(address, command, 5_000)
        over = (AtomicState.ABANDONED, AtomicState.INCOMPLETE)
        return any(entry.state not in over for entry in AtomicList.decode(answer.body).publishes)

    async def _check(self) -> None:
        found = [
            await self._values(self.broker.address, "T"),
            await self._values(self.broker.address, "U"),
            await self._values(self.other.controller.address, "T"),
        ]
        for place in found:
            repeated = [body for body, count in Counter(place).items() if count > 1]
            assert not repeated, f"twice: {repeated[:5]}"
            assert place == sorted(place, key=_order), "not in order"
        assert found[0] == found[1] == found[2]
        there = Counter(body.split(b":")[0] for body in found[0])
        assert set(there) - self.undecided == self.committed
        assert set(there.values()) <= {1, LARGE}

    async def _values(self, address: str, topic: str) -> list[bytes]:
        bodies: list[bytes] = []
        while True:
            header = pull_header(topic, len(bodies), max_msg_nums=1_000, suspend_timeout_millis=0)
            command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
            answer = await self.other.client.call(address, command, 5_000)
            if answer.code != 0:
                return [body.rstrip(b"x") for body in bodies]
            bodies += [message.body for message in messages(answer)]


async def _entered(producer: AsyncProducer) -> AsyncAtomicBatch:
    """A block; while its coordinator is away, there is none."""
    deadline = asyncio.get_running_loop().time() + 30
    while True:
        try:
            return await producer.atomic().__aenter__()
        except KourouError:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.1)


def _create(topic: str) -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def _order(body: bytes) -> tuple[int, int]:
    value, copy, _ = body.split(b":")
    return int(value), int(copy)


@pytest.mark.slow
async def test_each_value_is_everywhere_once_or_nowhere(folder: Path) -> None:
    async with (
        namesrv() as address,
        running(folder / "b", namesrv_addr=address, broker_name="broker-b") as other,
    ):
        kills = AtomicKills(folder, address, other)
        await asyncio.to_thread(kills.broker.start)
        for peer in (kills.broker.address, other.controller.address):
            for topic in ("T", "U"):
                await other.client.call(peer, _create(topic), 5_000)
        await asyncio.to_thread(kills.broker.stop)
        for step in STEPS:
            try:
                await kills.live(step)
            except BaseException as error:
                error.add_note(f"at {step}")
                raise
        assert kills.committed
