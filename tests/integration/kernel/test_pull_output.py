"""Answers to pulls that the kernel writes to a socket: at once, in order, and no byte twice or less."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType

import pytest
import uvloop

from kourou.transport.connection import Connection
from tests.integration.kernel.kernel_kit import FedBroker, install
from tests.integration.kernel.test_answer_pulls import pulls
from tests.integration.kernel.twins import Twins, frame, send, started

BODY = 20_000
MESSAGES = 100


@pytest.fixture(
    scope="module", params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def twins(
    request: pytest.FixtureRequest, kernel: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Twins]:
    with (
        pytest.MonkeyPatch.context() as patch,
        asyncio.Runner(loop_factory=request.param) as runner,
    ):
        install(kernel, patch)
        stack = AsyncExitStack()
        folder = tmp_path_factory.mktemp("output")
        twins = started(runner, stack, folder, flush_interval_consume_queue=3_600_000)
        for n in range(MESSAGES):
            twins.feed(frame(send(), bytes([n]) * (BODY if n % 2 else 100)))
        twins.feed(pulls())
        yield twins
        runner.run(stack.aclose())


@asynccontextmanager
async def connected(broker: FedBroker) -> AsyncIterator[tuple[Connection, socket.socket]]:
    """A connection through sockets with little room, and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 * 1024)
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    _, connection = await loop.connect_accepted_socket(broker.new_connection, ours)
    with peer:
        yield connection, peer
    connection.abort("the test ends")
    while not connection._lost:  # noqa: ASYNC110
        await asyncio.sleep(0)


def received(peer: socket.socket) -> bytes:
    """What is there."""
    data = b""
    try:
        while piece := peer.recv(1 << 20):
            data += piece
    except BlockingIOError:
        pass
    return data


async def received_all(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    end_s = asyncio.get_running_loop().time() + 20
    while len(data) < size and asyncio.get_running_loop().time() < end_s:
        data += received(peer)
        await asyncio.sleep(0)
    return bytes(data)


FEW = pulls({"queueOffset": "0", "maxMsgNums": "1"})


def test_an_answer_leaves_before_the_cycle_ends(twins: Twins) -> None:
    expected = twins.feed(FEW)

    async def answered(broker: FedBroker) -> bytes:
        async with connected(broker) as (connection, peer):
            connection.data_received(FEW)
            assert not broker.services.cycles.is_open
            return await received_all(peer, len(expected))

    assert twins.run(answered(twins.brokers[0])) == expected


def test_nothing_is_overtaken(twins: Twins) -> None:
    """What was to be written before the answer, and what follows."""
    expected = twins.feed(FEW)

    async def answered(broker: FedBroker) -> bytes:
        async with connected(broker) as (connection, peer):
            connection.data_received(FEW)
            connection.send(b"first")
            connection.data_received(FEW)
            connection.send(b"last")
            broker.services.cycles.close()
            connection.data_received(FEW)
            return await received_all(peer, 3 * len(expected) + 9)

    data = twins.run(answered(twins.brokers[0]))
    assert data == expected + b"first" + expected + b"last" + expected


def test_what_the_socket_does_not_take_follows(twins: Twins) -> None:
    """Of a peer that does not read at first; it is noticed, and its further pulls wait."""
    count = 12
    many = b"".join(pulls({"queueOffset": str(n)}, opaque=n) for n in range(count))
    expected = b"".join(twins.feed(pulls({"queueOffset": str(n)}, opaque=n)) for n in range(count))

    async def answered(broker: FedBroker) -> bytes:
        async with connected(broker) as (connection, peer):
            before = broker.pulled
            for _ in range(2):
                connection.data_received(many)
                broker.services.cycles.close()
            assert connection.is_write_paused
            assert broker.pulled - before < 2 * count
            return await received_all(peer, 2 * len(expected))

    assert twins.run(answered(twins.brokers[0])) == 2 * expected


@pytest.mark.parametrize("way", ["gone", "reset", "closed", "aborted"])
def test_a_peer_that_is_gone(twins: Twins, way: str) -> None:
    async def answered(broker: FedBroker) -> None:
        async with connected(broker) as (connection, peer):
            if way == "reset":
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if way in ("gone", "reset"):
                peer.close()
            elif way == "closed":
                connection.close("the test closes it")
            else:
                connection.abort("the test closes it")
            for _ in range(20):
                connection.data_received(pulls() * 3)
                broker.services.cycles.close()
                await asyncio.sleep(0)

    twins.run(answered(twins.brokers[0]))


def test_a_connection_that_closes_is_not_written_to(twins: Twins) -> None:
    async def checked(broker: FedBroker) -> None:
        async with connected(broker) as (connection, _):
            assert connection.writable_fd() >= 0
            connection.send(b"waits")
            assert connection.writable_fd() == -1
            broker.services.cycles.close()
            assert connection.writable_fd() >= 0
            connection.close("the test closes it")
            assert connection.writable_fd() == -1

    twins.run(checked(twins.brokers[0]))


class _Turns:
    """The turns of a thread that writes, too."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_writing = True
        self.calls: list[str] = []

    def claim(self) -> bool:
        self.calls.append("claim")
        return not self.is_writing

    def claim_rest(self) -> None:
        self.calls.append("claim_rest")

    def release(self) -> None:
        self.calls.append("release")

    def close(self) -> None:
        self.calls.append("close")


def test_nothing_is_written_into_the_answer_of_a_thread(twins: Twins) -> None:
    async def checked(broker: FedBroker) -> None:
        async with connected(broker) as (connection, peer):
            fd = connection.writable_fd()
            turns = connection.share_writes(_Turns)
            assert isinstance(turns, _Turns) and turns.fd == fd
            assert connection.writable_fd() == -1
            connection.send_at_end(b"waits")
            broker.services.cycles.close()
            with pytest.raises(BlockingIOError):
                peer.recv(5, socket.MSG_DONTWAIT)
            turns.is_writing = False
            assert await received_all(peer, 5) == b"waits"
            # The loop has the turn while it writes.
            turns.calls.clear()
            assert connection.writable_fd() == fd
            assert turns.calls == ["claim"]

    twins.run(checked(twins.brokers[0]))


def test_bytes_that_the_transport_holds_are_not_overtaken(twins: Twins) -> None:
    """Although they are so few that the peer counts as one that reads."""
    expected = twins.feed(FEW)

    async def answered(broker: FedBroker) -> tuple[int, bytes]:
        async with connected(broker) as (connection, peer):
            assert connection._transport is not None
            sent = 0
            while not connection._transport.get_write_buffer_size():
                connection.send(b"x" * 8192)
                broker.services.cycles.close()
                sent += 8192
            assert not connection.is_write_paused
            first = received(peer)  # now the socket has room
            connection.data_received(FEW)
            broker.services.cycles.close()
            return sent, first + await received_all(peer, sent + len(expected) - len(first))

    sent, data = twins.run(answered(twins.brokers[0]))
    assert data == b"x" * sent + expected
