"""TlsSocket: TLS on a non-blocking socket, with the calls and errors of a plain one.

For owners that poll a socket themselves instead of giving it to an asyncio transport: the replication link,
which sends from the log's map. Both sides of a link see `StreamSocket` and do not distinguish TLS from
plaintext. Renegotiation is not served: a peer that tries it is disconnected.
Not here: contexts (tls.py), connections of the remoting protocol, which asyncio encrypts (listener.py).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from kourou.protocol.layout import Buffer
from kourou.transport.tls import describe_failure, describe_handshake

MAX_RECORD_BYTES: Final = 16 * 1024
"""So much is encrypted at once. A read with room for it leaves nothing behind in OpenSSL, where the event
loop would not notice it."""

_HANDSHAKE: Final = 0x16
# Then the loop has its turn.
_BYTES_AT_ONCE: Final = 256 * 1024


class StreamSocket(Protocol):
    """What links use of a socket. BlockingIOError: not now; OSError: it is over."""

    def recv(self, size: int, /) -> bytes:
        """Some bytes; none: the peer has closed."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """How many bytes were read; 0: the peer has closed."""
        ...

    def sendmsg(self, parts: Sequence[Buffer], /) -> int:
        """How many bytes were taken. Call again with the same bytes, from there on."""
        ...

    def fileno(self) -> int:
        """The descriptor to poll."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def opens_tls(peer: socket.socket) -> bool:
    """Whether the first byte of a connection, which is not consumed, opens a TLS handshake.

    No legal frame and no report of a slave begins with it. BlockingIOError: there is no byte yet; OSError:
    there will be none.
    """
    first = peer.recv(1, socket.MSG_PEEK)
    if not first:
        raise ConnectionResetError(errno.ECONNRESET, "the peer has closed the connection")
    return first[0] == _HANDSHAKE


class TlsSocket:
    """TLS on `peer`, which belongs to it from now on. With a `server_name` this is the connecting side; it
    calls `open_tls` instead."""

    def __init__(self, peer: socket.socket, context: ssl.SSLContext, server_name: str | None = None) -> None:
        self._tls = context.wrap_socket(
            peer,
            server_side=server_name is None,
            server_hostname=server_name,
            do_handshake_on_connect=False,
        )
        self._is_open = False

    def handshake(self) -> None:
        """Go on with the handshake. SSLWantReadError, SSLWantWriteError: the peer's turn; SSLError,
        OSError."""
        self._tls.do_handshake()
        self._is_open = True

    def recv(self, size: int, /) -> bytes:
        """Some bytes; `size` is at least MAX_RECORD_BYTES."""
        assert size >= MAX_RECORD_BYTES
        if not self._is_open:
            self._continue_handshake()
        try:
            return self._tls.recv(size)
        except ssl.SSLError as error:
            raise _as_of_plain(error, ssl.SSLWantReadError) from error

    def recv_into(self, buffer: memoryview, /) -> int:
        """Fill the buffer, which is larger than MAX_RECORD_BYTES, as far as there is something."""
        limit, size = min(len(buffer), _BYTES_AT_ONCE), 0
        assert limit >= MAX_RECORD_BYTES
        while limit - size >= MAX_RECORD_BYTES:
            try:
                read = self._tls.recv_into(buffer[size:])
            except OSError as error:
                if size:  # the next call reports it
                    return size
                raise _as_of_plain(error, ssl.SSLWantReadError) from error
            if not read:
                return size
            size += read
        return size

    def sendmsg(self, parts: Sequence[Buffer], /) -> int:
        """Encrypt and send; a record at a time, which is taken as a whole."""
        sent = 0
        for record in _records(parts):
            try:
                sent += self._tls.send(record)
            except OSError as error:
                if sent:
                    return sent
                raise _as_of_plain(error, ssl.SSLWantWriteError) from error
        return sent

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._tls.fileno()

    def close(self) -> None:
        """Close the connection, without a word to the peer: the protocol above shows what is complete."""
        self._tls.close()

    def _continue_handshake(self) -> None:
        try:
            self.handshake()
        except ssl.SSLWantReadError as error:
            raise BlockingIOError(errno.EAGAIN, "the handshake goes on") from error
        except OSError as error:
            raise OSError(errno.EPROTO, f"the TLS handshake failed: {describe_handshake(error)}") from error


class AcceptedSocket:
    """A connection that a peer has opened, with TLS if its first byte says so. Without a `context` that is an
    error."""

    def __init__(self, peer: socket.socket, context: ssl.SSLContext | None) -> None:
        self._socket: StreamSocket = peer
        self._undecided: socket.socket | None = peer
        self._context = context
        self.peer_name = peer.getpeername()
        self.is_tls = False

    def recv(self, size: int, /) -> bytes:
        """Some bytes; none: the peer has closed."""
        if self._undecided is not None:
            self._decide(self._undecided)
        return self._socket.recv(size)

    def sendmsg(self, parts: Sequence[Buffer], /) -> int:
        """How many bytes were taken."""
        return self._socket.sendmsg(parts)

    def fileno(self) -> int:
        """The descriptor to poll; it stays the same."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _decide(self, peer: socket.socket) -> None:
        self.is_tls = opens_tls(peer)
        self._undecided = None
        if not self.is_tls:
            return
        if self._context is None:
            raise OSError(
                errno.EPROTO,
                "it opens a TLS connection, and this port serves plaintext only; check tls.server.certPath "
                "and tls.server.mode here, or switch TLS off there",
            )
        self._socket = TlsSocket(peer, self._context)


async def open_tls(peer: socket.socket, context: ssl.SSLContext, host: str) -> TlsSocket:
    """TLS with the server at the other end of `peer`, verified as the context says. OSError, SSLError among
    them; `peer` is closed then."""
    loop = asyncio.get_running_loop()
    tls = TlsSocket(peer, context, host)
    try:
        while True:
            try:
                tls.handshake()
                return tls
            except ssl.SSLWantReadError:
                add, remove = loop.add_reader, loop.remove_reader
            except ssl.SSLWantWriteError:
                add, remove = loop.add_writer, loop.remove_writer
            ready = asyncio.Event()
            add(tls.fileno(), ready.set)
            try:
                await ready.wait()
            finally:
                remove(tls.fileno())
    except BaseException:
        tls.close()
        raise


def _as_of_plain(error: OSError, not_now: type[ssl.SSLError]) -> OSError:
    """The error that a plain socket would raise."""
    if isinstance(error, not_now):
        return BlockingIOError(errno.EAGAIN, "not now")
    if isinstance(error, ssl.SSLError):
        return OSError(errno.EPROTO, f"TLS failed: {describe_failure(error)}")
    return error


def _records(parts: Sequence[Buffer]) -> Iterator[Buffer]:
    """The parts one behind the other, in pieces of MAX_RECORD_BYTES. A head and what follows it share one:
    each record costs a call, and the peer a packet."""
    held = bytearray()
    for part in parts:
        view = memoryview(part)
        while view:
            if not held and len(view) >= MAX_RECORD_BYTES:
                yield view[:MAX_RECORD_BYTES]
                view = view[MAX_RECORD_BYTES:]
                continue
            room = MAX_RECORD_BYTES - len(held)
            held += view[:room]
            view = view[room:]
            if len(held) == MAX_RECORD_BYTES:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)
