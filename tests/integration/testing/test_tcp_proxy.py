"""TcpProxy: frames pass, late, not at all, or by half, each way for itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kourou.testing.tcp_proxy import Direction, TcpProxy


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


class Peer:
    """One end of a link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(map(frame, bodies)))

    async def received(self, count: int) -> bytes:
        async with asyncio.timeout(5):
            return await self.reader.readexactly(count)

    async def rest(self) -> bytes:
        """What comes until the link ends."""
        found = b""
        async with asyncio.timeout(5):
            try:
                while part := await self.reader.read(100):
                    found += part
            except ConnectionResetError:
                pass
        return found


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[TcpProxy, Peer, Peer]]:
    """A proxy, a client and the server's end of its link."""
    accepted: asyncio.Queue[Peer] = asyncio.Queue()
    peers: list[Peer] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(Peer(reader, writer))
        accepted.put_nowait(peers[-1])

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with TcpProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        host, _, port = proxy.address.rpartition(":")
        client = Peer(*await asyncio.open_connection(host, int(port)))
        peer = await accepted.get()
        try:
            yield proxy, client, peer
        finally:
            for end in (client, *peers):
                end.writer.transport.abort()
            server.close()
            await asyncio.sleep(0)


async def test_frames_pass_in_order_both_ways_and_so_does_the_end() -> None:
    async with linked() as (proxy, client, server):
        client.send(b"one", b"", b"three")
        assert await server.received(20) == frame(b"one") + frame(b"") + frame(b"three")
        server.send(b"answer")
        assert await client.received(10) == frame(b"answer")
        client.writer.close()
        assert await server.rest() == b""
        assert proxy.connections == 1


async def test_a_delay_is_of_each_frame_and_not_of_all_together() -> None:
    async with linked() as (proxy, client, server):
        proxy.delay(100, Direction.TO_SERVER)
        began = time.monotonic()
        client.send(*[b"x"] * 200)
        await server.received(1000)
        assert 0.1 <= time.monotonic() - began < 10, "200 frames waited one after the other"
        server.send(b"at once")
        assert await client.received(11) == frame(b"at once")


async def test_one_way_is_frozen_and_the_other_is_not() -> None:
    async with linked() as (proxy, client, server):
        proxy.freeze(Direction.TO_CLIENT)
        server.send(b"held")
        client.send(b"passed")
        assert await server.received(10) == frame(b"passed")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.reader.read(1)
        proxy.thaw()
        assert await client.received(8) == frame(b"held")


@pytest.mark.parametrize("direction", [Direction.TO_SERVER, Direction.TO_CLIENT])
async def test_half_a_frame_comes_and_then_the_end(direction: Direction) -> None:
    async with linked() as (proxy, client, server):
        near, far = (client, server) if direction is Direction.TO_SERVER else (server, client)
        near.send(b"whole")
        assert await far.received(9) == frame(b"whole")
        proxy.halve(direction)
        near.send(b"12345678", b"never")
        assert await far.rest() == frame(b"12345678")[:6]
        assert proxy.halved == 1


async def test_links_that_were_forgotten_stay_silent_and_new_ones_work() -> None:
    async with linked() as (proxy, client, server):
        proxy.kill_links()
        host, _, port = proxy.address.rpartition(":")
        other = Peer(*await asyncio.open_connection(host, int(port)))
        client.send(b"nobody hears this")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.reader.readexactly(5)
        await proxy.cut()
        assert await client.rest() == await server.rest() == await other.rest() == b""
        other.writer.transport.abort()


async def test_single_frames_are_lost_repeated_and_delayed() -> None:
    async with linked() as (proxy, client, server):
        fates: list[tuple[float, ...]] = [(), (0, 0), (0.1,), (0,)]
        proxy.disturb(lambda: fates.pop(0), Direction.TO_SERVER)
        client.send(b"lost", b"twice", b"late", b"now")
        # The last one overtakes the one before.
        wanted = frame(b"twice") * 2 + frame(b"now") + frame(b"late")
        assert await server.received(len(wanted)) == wanted
        proxy.disturb(None)
        client.send(b"whole")
        assert await server.received(9) == frame(b"whole")
