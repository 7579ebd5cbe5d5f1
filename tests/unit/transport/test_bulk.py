"""Connection with a BulkHandler: what it takes, what is left, and in which order both are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kourou.protocol.command import RemotingCommand, decode_head
from kourou.protocol.frame import FrameDecoder
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.request import Request
from kourou.transport.settings import ConnectionLimits

RUN, SINGLE, BIG = 50, 1, 2


class Bench:
    """A connection whose runs are requests of one code. `handled` are opaques, in order; `after_take` is
    called once, as a pass that ends while requests are taken."""

    def __init__(self, *, reads: bool = True) -> None:
        self.handled: list[int] = []
        self.gathered: list[int] = []
        self.after_take: Callable[[], object] | None = None
        dispatch = Dispatcher({RUN: self._single, SINGLE: self._single, BIG: self._big})
        self.connection = Connection(
            Cycles(), dispatch, ConnectionLimits(write_high_bytes=65_536), InboundBudget(1 << 30), bulk=self
        )
        self.peer = MemoryTransport(self.connection, reads=reads)

    def receive(self, *parts: bytes) -> None:
        for part in parts:
            self.connection.data_received(part)

    def collect(self, connection: Connection, data: bytes, position: int) -> int:
        assert connection is self.connection
        for serialize_type, header, body in FrameDecoder().feed(data[position:]):
            head = decode_head(serialize_type, header)
            if head.code != RUN:
                break
            self.gathered.append(head.opaque)
            position += 8 + len(header) + len(body)
        if self.gathered and self.after_take is not None:
            act, self.after_take = self.after_take, None
            self.finish(connection)
            act()
        return position

    def room(self, size_bytes: int, /) -> bytearray:
        return bytearray(size_bytes)

    def collect_large(self, connection: Connection, data: memoryview) -> int:
        return self.collect(connection, bytes(data), 0)

    def finish(self, connection: Connection) -> None:
        self.handled += self.gathered
        self.gathered.clear()

    def _single(self, request: Request) -> None:
        self.handled.append(request.opaque)
        request.reply()

    def _big(self, request: Request) -> None:
        self.handled.append(request.opaque)
        request.reply(body=bytes(200_000))


def requests(*codes: int) -> list[bytes]:
    """Requests of these codes, numbered from 0."""
    return [RemotingCommand(code=code, opaque=opaque).encode() for opaque, code in enumerate(codes)]


async def test_a_run_is_gathered_until_another_request_comes() -> None:
    b = Bench()
    b.receive(b"".join(requests(RUN, RUN, SINGLE, RUN)))
    assert (b.handled, b.gathered) == ([0, 1, 2, 3], []), "what follows another request is handled singly"
    b.receive(b"".join(requests(RUN, RUN)))
    assert (b.handled[4:], b.gathered) == ([], [0, 1])


@pytest.mark.parametrize("size", [1, 3, 9, 50, 1_000])
async def test_what_comes_in_parts_is_gathered_too(size: int) -> None:
    b = Bench()
    data = b"".join(requests(RUN, RUN, RUN))
    b.receive(*(data[start : start + size] for start in range(0, len(data), size)))
    assert (b.handled, b.gathered) == ([], [0, 1, 2])


@pytest.mark.parametrize("cut", range(1, 20))
async def test_another_request_in_parts_comes_in_its_turn(cut: int) -> None:
    b = Bench()
    first, other, last = requests(RUN, SINGLE, RUN)
    b.receive(first + other[:cut], other[cut:] + last)
    assert (b.handled, b.gathered) == ([0, 1, 2], [])


async def test_what_was_taken_before_garbage_is_handled() -> None:
    b = Bench()
    b.receive(requests(RUN)[0] + b"\xff" * 20)
    assert b.handled == [0] and b.connection.closed
    b = Bench()
    b.receive(requests(RUN)[0] + b"\xff", b"\xff" * 20)
    assert b.handled == [0] and b.connection.closed


async def test_nothing_is_taken_behind_a_request_that_closed_the_connection() -> None:
    b = Bench()
    first, second, third = requests(RUN, RUN, SINGLE)
    b.after_take = lambda: b.connection.close("a pass ended, and the first was bad")
    b.receive(first[:5], first[5:] + second + third)
    assert (b.handled, b.gathered) == ([0], [])
    b.receive(second)
    assert (b.handled, b.gathered) == ([0], [])


async def test_what_comes_behind_requests_that_wait_is_not_taken_before_them() -> None:
    b = Bench(reads=False)
    first, *rest = requests(RUN, RUN, SINGLE, RUN)

    def fill_the_buffer() -> None:
        b.connection.send(bytes(200_000))
        b.connection.flush()

    b.after_take = fill_the_buffer
    b.receive(first[:5], first[5:] + b"".join(rest))
    assert (b.handled, b.gathered) == ([0], []), "the peer does not take its answers"
    b.peer.take()
    assert (b.handled, b.gathered) == ([0, 1, 2, 3], [])


async def test_requests_that_waited_are_taken_as_others_are() -> None:
    b = Bench(reads=False)
    big, *rest = requests(BIG, RUN, RUN, RUN)
    b.receive(big)
    await asyncio.sleep(0)
    assert b.connection.is_write_paused
    b.receive(rest[0] + rest[1][:7], rest[1][7:] + rest[2])
    assert (b.handled, b.gathered) == ([0], [])
    b.peer.take()
    assert (b.handled, b.gathered) == ([0], [1, 2, 3])


async def test_requests_that_waited_keep_their_order() -> None:
    b = Bench(reads=False)
    big, *rest = requests(BIG, RUN, SINGLE, RUN, BIG, RUN)
    b.receive(big)
    await asyncio.sleep(0)
    b.receive(b"".join(rest))
    b.peer.take()
    await asyncio.sleep(0)
    assert b.handled == [0, 1, 2, 3, 4], "the answer to the last of these fills the buffer again"
    b.peer.take()
    assert (b.handled, b.gathered) == ([0, 1, 2, 3, 4], [5])
