"""OnceRun: producers that send through proxies which lose, delay and repeat frames, while brokers die.

There are two broker names, each behind proxies: `broker-a` is a pair, whose slave becomes master when its
master is killed; `broker-b` is killed, stopped and suspended. Each producer has one sender for each queue,
which sends its values in order, one request at a time, and repeats what fails, as an application would. At
the end every queue has to have the values of every producer once, and in order. CI and `make nightly` run
the same, with other counts.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.client.producer.producer import AsyncProducer
from kourou.client.pull.queue_reader import QueueReader
from kourou.config.namesrv import NamesrvConfig
from kourou.errors import KourouError, PartlySentError, SendFailedError
from kourou.namesrv.server import NameServer
from kourou.protocol.bodies import MessageQueue, decode_body
from kourou.protocol.bodies.ha import HARuntimeInfo
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.topics import CreateTopicRequestHeader
from kourou.protocol.message import Message
from kourou.testing.tcp_proxy import TcpProxy
from kourou.transport.client import RemotingClient
from tests.crash.killed_broker import KilledBroker

TOPIC = "Once"
QUEUES = 4
"""Of each broker."""
PRODUCERS = 20
_PROXY_HOST = "127.0.0.2"
_CALL_MS = 20_000
_LOST, _DELAYED, _REPEATED = 0.005, 0.02, 0.02
_MAX_DELAY_S = 0.3
_MAX_BATCH = 25
# What a producer does by itself takes this long; then its sender repeats it.
_CLIENT: dict[str, Any] = {
    "send_timeout_ms": 3_000,
    "attempt_timeout_ms": 400,
    "request_timeout_ms": 1_000,
}


@dataclass(frozen=True)
class Outcome:
    """What the queues have in the end."""

    messages: int
    duplicates: int
    missing: int
    disordered: int
    repeats: int
    """Attempts after the first, of producers and senders."""
    seconds: float


class _Place:
    """A broker process and the proxy in front of it."""

    def __init__(self, folder: Path, namesrv_addr: str, **keys: object) -> None:
        folder.mkdir(parents=True)
        self.broker = KilledBroker(
            folder,
            namesrvAddr=namesrv_addr,
            brokerIP1=_PROXY_HOST,
            brokerIP2="127.0.0.1",
            mappedFileSizeCommitLog=16 * 1024 * 1024,
            **keys,
        )
        port = int(self.broker.address.rpartition(":")[2])
        self.proxy = TcpProxy("127.0.0.1", port, host=_PROXY_HOST, port=port)

    async def start(self, **keys: object) -> None:
        await asyncio.to_thread(self.broker.start, **keys)


class OnceRun:
    """One run."""

    def __init__(self, folder: Path, seed: int, *, idempotent: bool, messages: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._idempotent = idempotent
        lanes = PRODUCERS * 2 * QUEUES
        self._per_lane = -(-messages // lanes)
        self._total = self._per_lane * lanes
        self._sent = 0
        self._repeats = 0

    async def run(self) -> Outcome:
        """Send everything, with faults, then compare."""
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            self._client = RemotingClient()
            stack.push_async_callback(self._client.stop)
            namesrv = NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1"))
            await stack.enter_async_context(namesrv)
            self._namesrv = namesrv.address
            await self._start_brokers(stack)
            await self._send_with_faults()
            for place in self._places:
                place.proxy.disturb(None)
            found = await self._stored()
        return self._outcome(found, time.monotonic() - began)

    # -- servers ---------------------------------------------------------------------------------

    async def _start_brokers(self, stack: AsyncExitStack) -> None:
        make = self._folder.joinpath
        pair = {"inSyncReplicas": 2, "slaveTimeout": 60_000}
        self._master = _Place(make("a"), self._namesrv, brokerRole="SYNC_MASTER", **pair)
        self._slave = _Place(make("a-slave"), self._namesrv, brokerRole="SLAVE", brokerId=1)
        self._other = _Place(make("b"), self._namesrv, brokerName="broker-b")
        self._places = [self._master, self._slave, self._other]
        for place in self._places:
            await stack.enter_async_context(place.proxy)
            stack.callback(place.broker.kill)
        await asyncio.gather(*(place.start() for place in self._places))
        await self._until(self._is_followed)
        for place in (self._master, self._other):
            await self._create_topic(place.broker.address)
        for place in self._places:
            place.proxy.disturb(self._fate)

    async def _is_followed(self) -> bool:
        answer = await self._call(self._master.broker.address, RequestCode.GET_BROKER_HA_STATUS)
        return bool(decode_body(answer.body, HARuntimeInfo).ha_connection_info)

    async def _create_topic(self, address: str) -> None:
        header = CreateTopicRequestHeader(
            topic=TOPIC,
            default_topic="TBW102",
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        answer = await self._call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert answer.code == 0, answer.remark

    async def _call(self, address: str, code: RequestCode, header: Any = None) -> RemotingCommand:
        return await self._client.call(address, RemotingCommand.request(code, header), _CALL_MS)

    @staticmethod
    async def _until(is_so: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        async with asyncio.timeout(60):
            while not await is_so():  # noqa: ASYNC110 (a broker is asked)
                await asyncio.sleep(0.02)

    # -- faults ----------------------------------------------------------------------------------

    def _fate(self) -> Sequence[float]:
        """Of one frame."""
        dice = self._chance.random()
        if dice < _LOST:
            return ()
        late = self._chance.uniform(0, _MAX_DELAY_S)
        if dice < _LOST + _DELAYED:
            return (late,)
        return (0, late) if dice < _LOST + _DELAYED + _REPEATED else (0,)

    async def _send_with_faults(self) -> None:
        sending = asyncio.ensure_future(self._send_all())
        faults = asyncio.ensure_future(self._make_faults())
        cuts = asyncio.ensure_future(self._cut_links())
        try:
            await asyncio.wait([sending, faults], return_when=asyncio.FIRST_EXCEPTION)
            for work in (sending, faults):
                if work.done():
                    work.result()
            await asyncio.gather(sending, faults)
        finally:
            works = (sending, faults, cuts)
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    async def _cut_links(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 2))
            await self._chance.choice(self._places).proxy.cut()

    async def _make_faults(self) -> None:
        """One after the other, spread over the run."""
        faults = (
            self._kill_other,
            self._stop_other,
            self._suspend_other,
            self._promote_slave,
            self._kill_promoted,
            self._suspend_other,
        )
        for number, fault in enumerate(faults, 1):
            await self._until_sent(number / (len(faults) + 2))
            await fault()

    async def _until_sent(self, share: float) -> None:
        while self._sent < share * self._total:  # noqa: ASYNC110 (senders know no events)
            await asyncio.sleep(0.02)

    async def _kill_other(self) -> None:
        self._other.broker.kill()
        await self._other.start()

    async def _stop_other(self) -> None:
        await asyncio.to_thread(self._other.broker.stop)
        await self._other.start()

    async def _suspend_other(self) -> None:
        process = self._other.broker.process.process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.2)
        process.send_signal(signal.SIGCONT)

    async def _promote_slave(self) -> None:
        self._master.broker.kill()
        await asyncio.to_thread(self._slave.broker.stop)
        await self._start_promoted()

    async def _kill_promoted(self) -> None:
        self._slave.broker.kill()
        await self._start_promoted()

    async def _start_promoted(self) -> None:
        await self._slave.start(brokerRole="ASYNC_MASTER", brokerId=0)

    # -- senders ---------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        async with AsyncExitStack() as stack:
            producers = [
                AsyncProducer(
                    f"producers-{number}", namesrv=self._namesrv, idempotent=self._idempotent, **_CLIENT
                )
                for number in range(PRODUCERS)
            ]
            for producer in producers:
                await stack.enter_async_context(producer)
            async with asyncio.TaskGroup() as senders:
                for number, producer in enumerate(producers):
                    for queue in _queues():
                        senders.create_task(self._send_lane(number, producer, queue))
            self._repeats += sum(producer.stats().retried for producer in producers)

    async def _send_lane(self, number: int, producer: AsyncProducer, queue: MessageQueue) -> None:
        """The values of one producer for one queue, in order."""
        value = 0
        while value < self._per_lane:
            count = min(self._chance.randint(1, _MAX_BATCH), self._per_lane - value)
            messages = [Message(TOPIC, b"%d:%d" % (number, value + index)) for index in range(count)]
            await self._send_surely(producer, queue, messages)
            value += count
            self._sent += count

    async def _send_surely(
        self, producer: AsyncProducer, queue: MessageQueue, messages: list[Message]
    ) -> None:
        """Repeat what fails until it is stored."""
        undecided: SendFailedError | None = None
        while True:
            try:
                if undecided is not None:
                    await producer.send_again(undecided)
                elif len(messages) == 1:
                    await producer.send(messages[0], queue=queue)
                else:
                    await producer.send_many(messages, queue=queue)
                return
            except KourouError as error:
                undecided = self._undecided(error)
                self._repeats += 1
                await asyncio.sleep(0.02)

    def _undecided(self, error: KourouError) -> SendFailedError | None:
        """What can be continued; None: send again."""
        if isinstance(error, PartlySentError):
            (error,) = set(error.results)  # type: ignore[assignment] (one batch, one error)
        if not isinstance(error, SendFailedError) or not error.may_be_stored:
            return None
        if self._idempotent and error.undecided is None:
            raise error  # it says that the fate of the message cannot be known
        return error if error.undecided is not None else None

    # -- the end ---------------------------------------------------------------------------------

    async def _stored(self) -> dict[MessageQueue, list[tuple[int, int]]]:
        """Producer and value of all messages, by queue."""
        found: dict[MessageQueue, list[tuple[int, int]]] = {}
        for queue in _queues():
            values = found[queue] = []
            async with QueueReader(queue, namesrv=self._namesrv) as chunks:
                async for chunk in chunks:
                    for message in chunk.messages():
                        number, _, value = message.body.partition(b":")
                        values.append((int(number), int(value)))
        return found

    def _outcome(self, found: dict[MessageQueue, list[tuple[int, int]]], seconds: float) -> Outcome:
        duplicates = missing = disordered = 0
        for stored in found.values():
            for number in range(PRODUCERS):
                values = [value for producer, value in stored if producer == number]
                duplicates += sum(count - 1 for count in Counter(values).values())
                missing += self._per_lane - len(set(values))
                disordered += sum(after < before for before, after in zip(values, values[1:], strict=False))
        messages = sum(map(len, found.values()))
        return Outcome(messages, duplicates, missing, disordered, self._repeats, seconds)


def _queues() -> list[MessageQueue]:
    return [MessageQueue(TOPIC, name, queue) for name in ("broker-a", "broker-b") for queue in range(QUEUES)]
