"""MemoryTransport: a peer without a socket, for tests of connections and processors.

What a connection writes is kept in `written`. `take(n)` simulates a peer that reads n bytes; while more than
the high-water mark is unread, the transport pauses the connection, as a real one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder


class MemoryTransport(asyncio.Transport):
    """An asyncio transport that ends in memory."""

    def __init__(
        self,
        protocol: asyncio.Protocol,
        *,
        peer: str = "10.0.0.9",
        port: int = 40_000,
        reads: bool = True,
        has_socket: bool = False,
    ) -> None:
        extra = {"peername": (peer, port), "sockname": ("127.0.0.1", 9876)}
        super().__init__(extra | ({"socket": self} if has_socket else {}))
        self._protocol: asyncio.BaseProtocol = protocol
        self._reads = reads
        self._high = 64 * 1024
        self._paused_writing = False
        self._closing = False
        self._lost = False
        self._unread = bytearray()
        self._decoder = FrameDecoder()
        self.reading = True
        self.written: list[bytes] = []
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))
        self._unread += data
        if self._reads:
            self._unread.clear()
        elif len(self._unread) > self._high and not self._paused_writing:
            self._paused_writing = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def bring(self, data: bytes) -> None:
        """The peer sends `data`: in one read, or in as many as the protocol has room for."""
        while data and not self._lost:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self._protocol.get_buffer(-1))
                size = min(len(buffer), len(data))
                assert size, "get_buffer returned an empty buffer"
                buffer[:size] = data[:size]
                self._protocol.buffer_updated(size)
                data = data[size:]
            else:
                cast(asyncio.Protocol, self._protocol).data_received(data)
                return

    def take(self, size: int | None = None) -> None:
        """The peer reads `size` bytes, or everything."""
        del self._unread[: len(self._unread) if size is None else size]
        if self._paused_writing and len(self._unread) <= self._high // 4:
            self._paused_writing = False
            self._protocol.resume_writing()

    def commands(self) -> list[RemotingCommand]:
        """The commands that were written since the last call."""
        data = b"".join(self.written)
        self.written.clear()
        return [decode_command(frame) for frame in self._decoder.feed(data)] if data else []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = self._high if high is None else high

    def get_write_buffer_size(self) -> int:
        return len(self._unread)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        if not self._unread:
            self._lose(None)

    def abort(self) -> None:
        self._closing = True
        self._lose(None)

    def break_off(self, error: Exception | None = None) -> None:
        self._closing = True
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)
