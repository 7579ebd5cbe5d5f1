"""Loopback: a connection inside one process, as a pair of asyncio transports without a socket.

What one end writes in an iteration of the loop is delivered to the other end in the next one, in one piece
where that is not too much: requests of many writers reach a server's batch together, and a protocol is never
called from within a call of its own. Both ends behave as those of a socket: write limits, pauses, and a close
that delivers first what was written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, cast

from kourou.protocol.layout import Buffer
from kourou.transport.addresses import SocketName

# As in asyncio.
_HIGH_BYTES: Final = 64 * 1024
# What one delivery passes on, unless a single write is larger: then the loop's other work has its turn.
_DELIVERY_BYTES: Final = 256 * 1024


def connect_pair(
    client: asyncio.Protocol, server: asyncio.Protocol, *, client_name: SocketName, server_name: SocketName
) -> None:
    """Connect two protocols. On return both have their transport, the server's first; one that refuses the
    connection ends it in a later iteration of the loop."""
    loop = asyncio.get_running_loop()
    near = LoopbackTransport(loop, client, own_name=client_name, peer_name=server_name)
    far = LoopbackTransport(loop, server, own_name=server_name, peer_name=client_name)
    near.peer, far.peer = far, near
    server.connection_made(far)
    client.connection_made(near)


class LoopbackTransport(asyncio.Transport):
    """One end of a pair; made by `connect_pair`."""

    peer: LoopbackTransport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        *,
        own_name: SocketName,
        peer_name: SocketName,
    ) -> None:
        super().__init__({"sockname": own_name, "peername": peer_name})
        self._loop = loop
        self._protocol = protocol
        self._unread: deque[bytes] = deque()
        """What this end has written and the other end has not got."""
        self._unread_bytes = 0
        self._high_bytes, self._low_bytes = _HIGH_BYTES, _HIGH_BYTES // 4
        self._is_delivering = False
        self._is_write_paused = False
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False

    # -- writing -----------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        """Deliver in the next iteration of the loop; a view is copied."""
        if self._is_closing or not data:
            return
        self._unread.append(bytes(data))
        self._unread_bytes += len(data)
        self._written()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """The same for many pieces, which are copied once."""
        self.write(b"".join(list_of_data))

    def _written(self) -> None:
        if self._unread_bytes > self._high_bytes and not self._is_write_paused:
            self._is_write_paused = True
            self._protocol.pause_writing()
        self._deliver_soon()

    def can_write_eof(self) -> bool:
        """No: a peer that has closed its side reads nothing either."""
        return False

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not got."""
        return self._unread_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high limit."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pause the protocol's writes above `high` bytes, until `low` remain."""
        if high is None:
            high = _HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low

    # -- delivery ----------------------------------------------------------------------------

    def _deliver_soon(self) -> None:
        if not self._is_delivering and self.peer._is_reading:
            self._is_delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Pass what was written to the other end's protocol, then the end of the connection if it is due."""
        self._is_delivering = False
        peer = self.peer
        if self._is_lost or not peer._is_reading:  # resuming delivers again
            return
        if self._unread and not peer._is_closing:
            data = self._next_piece()
            try:
                peer._protocol.data_received(data)
            except Exception as error:
                peer._failed(error)
                return
            self._resume_writing()
        elif self._unread:  # a peer that closes reads no more
            self._drop_unread()
        if self._unread:
            self._deliver_soon()
        elif self._is_closing and not self._is_lost:
            self._lose()
            peer._get_eof()

    def _next_piece(self) -> bytes:
        unread = self._unread
        data = unread.popleft()
        if unread:
            pieces, size = [data], len(data)
            while unread and size + len(unread[0]) <= _DELIVERY_BYTES:
                size += len(unread[0])
                pieces.append(unread.popleft())
            data = b"".join(pieces)
        self._unread_bytes -= len(data)
        return data

    def _drop_unread(self) -> None:
        self._unread.clear()
        self._unread_bytes = 0
        self._resume_writing()

    def _resume_writing(self) -> None:
        if self._is_write_paused and self._unread_bytes <= self._low_bytes and not self._is_closing:
            self._is_write_paused = False
            self._protocol.resume_writing()

    def _get_eof(self) -> None:
        if not self._is_closing and not self._protocol.eof_received():
            self.close()

    def _failed(self, error: Exception) -> None:
        """The protocol cannot go on; reported as asyncio does for a socket."""
        self._loop.call_exception_handler(
            {
                "message": "Fatal error: protocol.data_received() call failed.",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._abort(error)

    # -- reading -----------------------------------------------------------------------------

    def is_reading(self) -> bool:
        """Whether the protocol gets what arrives."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Deliver nothing to the protocol; the other end's write limits take effect."""
        if not self._is_closing:
            self._is_reading = False

    def resume_reading(self) -> None:
        """Go on."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            if self.peer._unread or self.peer._is_closing:
                self.peer._deliver_soon()

    # -- end ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether it is closed, or closes."""
        return self._is_closing

    def close(self) -> None:
        """Read no more; end the connection when the other end has got what was written."""
        if self._is_closing:
            return
        self._is_closing = True
        # What the other end has written is not read: it must not wait for that.
        self._is_reading = True
        if self.peer._is_lost:
            self._loop.call_soon(self._lose)
            return
        self._deliver_soon()
        self.peer._deliver_soon()

    def abort(self) -> None:
        """End the connection at once; what the other end has not got is lost."""
        self._abort(None)

    def _abort(self, error: Exception | None) -> None:
        self._is_closing = self._is_reading = True
        self._loop.call_soon(self._lose, error)
        self.peer._is_closing = self.peer._is_reading = True
        self._loop.call_soon(self.peer._lose)

    def _lose(self, error: Exception | None = None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._unread.clear()
        self._unread_bytes = 0
        self._protocol.connection_lost(error)

    # -- the rest of a transport -------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass everything to another protocol from here on."""
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol of this end."""
        return self._protocol
