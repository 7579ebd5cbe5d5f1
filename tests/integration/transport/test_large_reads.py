"""Large reads over sockets: on each event loop all frames arrive, whole and in their order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from kourou.protocol.command import RemotingCommand, decode_head
from kourou.protocol.frame import FrameDecoder
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.event_loop import loop_factory
from kourou.transport.request import Request
from kourou.transport.settings import ConnectionLimits

SEND, OTHER = 50, 1
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.SelectorEventLoop,
    loop_factory() or asyncio.SelectorEventLoop,
]


class Receiver:
    """A server whose connections leave sends where they were received until a cycle ends."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self.large = 0
        self._held: list[memoryview] = []
        self._cycles = Cycles(end=self._end)
        self._budget = InboundBudget(1 << 30)
        self._is_there = asyncio.Event()

    async def has_seen(self, count: int) -> None:
        while len(self.seen) < count:
            self._is_there.clear()
            await self._is_there.wait()

    def connection(self) -> Connection:
        dispatch = Dispatcher({OTHER: self._single, SEND: self._single})
        return Connection(self._cycles, dispatch, ConnectionLimits(), self._budget, bulk=self)

    def room(self, size_bytes: int, /) -> bytearray:
        return bytearray(size_bytes)

    def collect(self, connection: Connection, data: bytes, position: int) -> int:
        return position

    def collect_large(self, connection: Connection, data: memoryview) -> int:
        self._cycles.open()
        end = 0
        for serialize_type, header, body in FrameDecoder().feed(bytes(data)):
            if decode_head(serialize_type, header).code != SEND:
                break
            end += 8 + len(header) + len(body)
        self._held.append(data[:end])
        return end

    def finish(self, connection: Connection) -> None:
        self._end()

    def _end(self) -> None:
        held, self._held = self._held, []
        for data in held:
            for serialize_type, header, body in FrameDecoder().feed(bytes(data)):
                self.seen.append((decode_head(serialize_type, header).opaque, body))
                self.large += 1
        self._is_there.set()

    def _single(self, request: Request) -> None:
        self.seen.append((request.opaque, request.body))
        self._is_there.set()


async def exchange(bodies: list[bytes], codes: list[int]) -> Receiver:
    """What a server receives of requests that a client writes as fast as it can."""
    receiver = Receiver()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(receiver.connection, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for opaque, (body, code) in enumerate(zip(bodies, codes, strict=True)):
        writer.write(RemotingCommand(code=code, opaque=opaque, body=body).encode())
        if opaque % 50 == 49:
            await writer.drain()
    async with asyncio.timeout(30):
        await writer.drain()
        await receiver.has_seen(len(bodies))
    writer.close()
    server.close()
    await asyncio.sleep(0.05)
    return receiver


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("others", [0, 0.05])
def test_all_frames_arrive(new_loop: Callable[[], asyncio.AbstractEventLoop], others: float) -> None:
    chance = random.Random(7)
    sizes = [chance.choice([10, 3_000, 20_000, 65_536, 65_536, 400_000]) for _ in range(400)]
    bodies = [chance.randbytes(size) for size in sizes]
    codes = [OTHER if chance.random() < others else SEND for _ in sizes]
    with asyncio.Runner(loop_factory=new_loop) as runner:
        receiver = runner.run(exchange(bodies, codes))
    assert receiver.seen == list(enumerate(bodies))
    assert receiver.large > 10
