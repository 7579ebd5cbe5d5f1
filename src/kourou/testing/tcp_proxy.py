"""TcpProxy: a proxy between clients and a server that simulates network faults.

It cuts links, delays their frames, holds them (freeze), and halves a frame: the first half arrives, then the
link is cut. `disturb` loses, delays and repeats single frames. Each in one direction or in both.

    async with TcpProxy("127.0.0.1", server_port) as proxy:
        ...  # clients connect to proxy.address
        proxy.freeze(Direction.TO_CLIENT)

Bytes are forwarded frame by frame (protocol/frame.py), so TLS does not work.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

from kourou.transport.addresses import join_address

Fate: TypeAlias = Callable[[], Sequence[float]]
"""What becomes of a frame: after how many seconds each copy of it arrives. Empty: it is lost."""

_LENGTH_BYTES: Final = 4
# How many frames one direction of a link holds; then the sender gets backpressure.
_MAX_HELD: Final = 256


class Direction(enum.Flag):
    """To the server, or back to the client."""

    TO_SERVER = enum.auto()
    TO_CLIENT = enum.auto()
    BOTH = TO_SERVER | TO_CLIENT


class _Way:
    """The faults in one direction, for all links."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_ms = 0
        self.halves = 0
        self.fate: Fate | None = None

    def takes_half(self) -> bool:
        """Whether to halve the next frame."""
        if not self.halves:
            return False
        self.halves -= 1
        return True


class _Link:
    """A client's connection, and the one to the server for it."""

    def __init__(self, proxy: TcpProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writers = [writer]
        self.is_dead = False
        """Frozen forever, independent of the others."""

    async def run(self, host: str, port: int) -> None:
        """Forward frames until one side closes."""
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
            self._writers.append(far_writer)
            ways = self._proxy.ways
            async with asyncio.TaskGroup() as tasks:
                pumps = [
                    tasks.create_task(self._pump(self._reader, far_writer, ways[Direction.TO_SERVER])),
                    tasks.create_task(self._pump(far_reader, self._writers[0], ways[Direction.TO_CLIENT])),
                ]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
        except OSError:
            pass  # no server: the client's connection is closed
        finally:
            await self._close()

    def abort(self) -> None:
        """Close both sockets; bytes in flight are lost."""
        for writer in self._writers:
            writer.transport.abort()

    async def _close(self) -> None:
        self.abort()
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way) -> None:
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MAX_HELD)
        async with asyncio.TaskGroup() as tasks:
            holding = tasks.create_task(self._hold(reader, held, way))
            with contextlib.suppress(OSError):
                await self._pass_on(held, writer, way)
            holding.cancel()

    async def _hold(
        self, reader: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]], way: _Way
    ) -> None:
        """Read frames; an empty one marks the end."""
        clock = asyncio.get_running_loop().time
        frame = b" "
        while frame:
            await self._wait_open(way)  # a frozen link must not accept more bytes
            frame = await _read_frame(reader)
            await held.put((clock() + way.delay_ms / 1000, frame))

    async def _pass_on(
        self, held: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, way: _Way
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due, frame = await held.get()
            await asyncio.sleep(max(0.0, due - clock()))
            await self._wait_open(way)
            if not frame:
                return
            if way.fate is not None:
                _write_copies(writer, frame, way.fate())
                await writer.drain()
                continue
            is_half = way.takes_half()
            writer.write(frame[: len(frame) // 2] if is_half else frame)
            await writer.drain()
            if is_half:
                self._proxy.halved += 1
                return

    async def _wait_open(self, way: _Way) -> None:
        await way.open.wait()
        if self.is_dead:
            await asyncio.Event().wait()  # until the link is cut


def _write_copies(writer: asyncio.StreamWriter, frame: bytes, delays_s: Sequence[float]) -> None:
    """Write a frame as often as there are delays. Other frames may overtake it."""
    loop = asyncio.get_running_loop()
    for delay_s in delays_s:
        if delay_s > 0:
            loop.call_later(delay_s, _write_late, writer, frame)
        else:
            writer.write(frame)


def _write_late(writer: asyncio.StreamWriter, frame: bytes) -> None:
    if not writer.is_closing():
        writer.write(frame)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame; empty when the peer is gone, even in the middle of a frame."""
    try:
        length = await reader.readexactly(_LENGTH_BYTES)
        return length + await reader.readexactly(int.from_bytes(length))
    except (asyncio.IncompleteReadError, OSError):
        return b""


class TcpProxy:
    """A proxy to one server, for as long as the context lasts. `port` 0 picks a free one."""

    def __init__(self, target_host: str, target_port: int, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._target = (target_host, target_port)
        self._host, self._port = host, port
        self._links: dict[_Link, asyncio.Task[None]] = {}
        self.ways: dict[Direction, _Way] = {}
        self.connections = 0
        """The number of connections so far."""
        self.halved = 0
        """The number of halved frames so far."""

    # -- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.ways = {Direction.TO_SERVER: _Way(), Direction.TO_CLIENT: _Way()}
        self._server = await asyncio.start_server(self._connected, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        await self.cut()
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        return join_address(self._host, self._port)

    @property
    def open_links(self) -> int:
        """The number of open connections."""
        return len(self._links)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        link = _Link(self, reader, writer)
        task = asyncio.create_task(link.run(*self._target), name=f"proxy-link-{self.connections}")
        self._links[link] = task
        task.add_done_callback(lambda _: self._gone(link))

    def _gone(self, link: _Link) -> None:
        del self._links[link]
        link.abort()  # for a link that was cut before its task began

    # -- faults ----------------------------------------------------------------------------------

    async def cut(self) -> None:
        """End all links; on return their sockets are closed. Clients may connect again."""
        tasks = list(self._links.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def freeze(self, direction: Direction = Direction.BOTH) -> None:
        """Forward nothing, not even the close of a connection, until `thaw`."""
        for way in self._of(direction):
            way.open.clear()

    def thaw(self) -> None:
        """Forward what was held, and everything after."""
        for way in self._of(Direction.BOTH):
            way.open.set()

    def kill_links(self) -> None:
        """Freeze existing links forever, like a router that lost its state; new ones work."""
        for link in self._links:
            link.is_dead = True

    def delay(self, delay_ms: int, direction: Direction = Direction.BOTH) -> None:
        """Delay each frame that is read from now on; 0 ends the delay."""
        for way in self._of(direction):
            way.delay_ms = delay_ms

    def disturb(self, fate: Fate | None, direction: Direction = Direction.BOTH) -> None:
        """Decide for each frame from now on what becomes of it; None ends that."""
        for way in self._of(direction):
            way.fate = fate

    def halve(self, direction: Direction, frames: int = 1) -> None:
        """Forward half of each of the next frames, then cut its link."""
        for way in self._of(direction):
            way.halves += frames

    def _of(self, direction: Direction) -> list[_Way]:
        return [way for each, way in self.ways.items() if each in direction]
