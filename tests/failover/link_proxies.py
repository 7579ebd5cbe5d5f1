"""LinkProxies: proxies in front of the servers of nodes, which hold back what goes over a cut link.

Which node connects is known by the process that owns the other end of the connection (/proc). Bytes are
forwarded as they come, whatever the protocol. The proxies have a thread of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_LOOK_S: Final = 0.02
_CHUNK: Final = 1 << 16


class LinkProxies:
    """`is_cut(a, b)`: whether what node `a` sends to node `b` is lost now. A connection of a process that is
    not known as a node's comes from `default_source`."""

    def __init__(self, *, default_source: str, is_cut: Callable[[str, str], bool]) -> None:
        self._default = default_source
        self._is_cut = is_cut
        self._pids: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []
        self._links: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link-proxies", daemon=True)
        self._thread.start()

    def add(self, node: str, host: str, port: int) -> None:
        """Forward from this address of a node to the same port at 127.0.0.1."""

        async def serve() -> None:
            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.create_task(self._forward(node, port, reader, writer))
                self._links.add(task)
                task.add_done_callback(self._links.discard)

            self._servers.append(await asyncio.start_server(connected, host, port))

        asyncio.run_coroutine_threadsafe(serve(), self._loop).result(10)

    def owns(self, node: str, pid: int) -> None:
        """This is the process of a node from now on."""
        self._pids[node] = pid

    def close(self) -> None:
        """End all connections."""

        async def end() -> None:
            for server in self._servers:
                server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # transports close in the next pass

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _forward(
        self, node: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        source = await asyncio.to_thread(self._source_of, *ends)
        writers = [writer]
        try:
            while self._is_cut(source, node) or self._is_cut(node, source):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)  # as a SYN that is lost
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(far_writer)
            pumps = [
                asyncio.create_task(self._pump(reader, far_writer, source, node)),
                asyncio.create_task(self._pump(far_reader, writer, node, source)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
        except OSError:
            pass  # there is no server
        finally:
            for each in writers:
                each.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str, target: str
    ) -> None:
        with contextlib.suppress(OSError):
            is_open = True
            while is_open:
                data = await reader.read(_CHUNK)
                while self._is_cut(source, target):  # noqa: ASYNC110 (also the end of a connection is lost)
                    await asyncio.sleep(_LOOK_S)
                is_open = bool(data)
                writer.write(data)
                await writer.drain()

    def _source_of(self, near: tuple[str, int], far: tuple[str, int]) -> str:
        """The node whose process has the socket with these addresses."""
        inode = _inode_of(near, far)
        for node, pid in self._pids.items():
            if inode is not None and _has_socket(pid, inode):
                return node
        return self._default


def _inode_of(near: tuple[str, int], far: tuple[str, int]) -> str | None:
    """The inode of the socket that is bound to `near` and connected to `far`."""
    wanted = [_in_hex(near), _in_hex(far)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            return fields[9]
    return None


def _in_hex(address: tuple[str, int]) -> str:
    """As the kernel writes it: the host in the order of this machine's bytes."""
    host = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{host:08X}:{address[1]:04X}"


def _has_socket(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == wanted:
                    return True
    return False
