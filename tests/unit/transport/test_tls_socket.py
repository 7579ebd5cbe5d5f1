"""TLS on a socket that is polled: it behaves like a plain one, whatever fits into the network's buffers."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kourou.transport.settings import ClientTlsConfig, ServerTlsConfig
from kourou.transport.tls import client_context, server_context, throw_away_certificate
from kourou.transport.tls_socket import MAX_RECORD_BYTES, AcceptedSocket, TlsSocket

Ends = tuple[AcceptedSocket, TlsSocket]


@pytest.fixture
def server(tmp_path: Path) -> ssl.SSLContext:
    cert, key = throw_away_certificate()
    (tmp_path / "server.crt").write_bytes(cert)
    (tmp_path / "server.key").write_bytes(key)
    context = server_context(
        ServerTlsConfig(cert_path=tmp_path / "server.crt", key_path=tmp_path / "server.key")
    )
    assert context is not None
    return context


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends with small buffers."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * 1024)
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def ends(server: ssl.SSLContext, sockets: tuple[socket.socket, socket.socket]) -> Iterator[Ends]:
    """Both ends after the handshake."""
    context = client_context(ClientTlsConfig(enable=True))
    assert context is not None
    accepted, connecting = AcceptedSocket(sockets[0], server), TlsSocket(sockets[1], context, "localhost")
    for _ in range(10):
        try:
            connecting.handshake()
            break
        except ssl.SSLWantReadError:
            with pytest.raises(BlockingIOError):
                accepted.recv(MAX_RECORD_BYTES)
    with pytest.raises(BlockingIOError):
        accepted.recv(MAX_RECORD_BYTES)
    assert accepted.is_tls
    yield accepted, connecting
    accepted.close()
    connecting.close()


def received(end: TlsSocket) -> bytes:
    """All there is to read."""
    buffer = memoryview(bytearray(3 * MAX_RECORD_BYTES + 5))
    found = b""
    while True:
        try:
            found += buffer[: end.recv_into(buffer)]
        except BlockingIOError:
            return found


def rest_of(parts: list[bytes], sent: int) -> list[bytes]:
    whole = b"".join(parts)
    return [whole[sent : sent + 12], whole[sent + 12 :]]


@pytest.mark.parametrize("size", [0, 1, MAX_RECORD_BYTES - 12, MAX_RECORD_BYTES, 1_000_003])
def test_what_does_not_fit_into_the_network_is_sent_later_once_and_in_order(ends: Ends, size: int) -> None:
    accepted, connecting = ends
    parts = [b"head of this", random.Random(size).randbytes(size)]
    whole, found, stops = b"".join(parts), b"", 0
    while parts != [b"", b""]:
        try:
            parts = rest_of(parts, accepted.sendmsg(parts))
        except BlockingIOError:
            stops += 1
            found += received(connecting)
    assert found + received(connecting) == whole
    assert stops or size < 1_000_000, "the network's buffers are smaller than what is sent"


def test_a_small_part_shares_a_record_with_what_follows(ends: Ends) -> None:
    accepted, connecting = ends
    assert accepted.sendmsg([b"12 bytes of h", b"data"]) == 17
    with memoryview(bytearray(MAX_RECORD_BYTES)) as buffer:
        assert connecting.recv_into(buffer) == 17, "one record"


def test_the_end_of_the_other_side_is_an_end(ends: Ends) -> None:
    accepted, connecting = ends
    connecting.sendmsg([b"last"])
    connecting.close()
    assert accepted.recv(MAX_RECORD_BYTES) == b"last"
    assert accepted.recv(MAX_RECORD_BYTES) == b""


def test_plaintext_is_read_as_it_is(
    server: ssl.SSLContext, sockets: tuple[socket.socket, socket.socket]
) -> None:
    accepted = AcceptedSocket(sockets[0], server)
    with pytest.raises(BlockingIOError):
        accepted.recv(MAX_RECORD_BYTES)
    sockets[1].send(b"\0report")
    assert accepted.recv(MAX_RECORD_BYTES) == b"\0report"
    assert not accepted.is_tls


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x16\x03\x01\x00\x05nonsense", "the TLS handshake failed: "),
        (b"", "the peer has closed the connection"),
    ],
)
def test_what_is_no_handshake_is_an_error_in_words(
    server: ssl.SSLContext, sockets: tuple[socket.socket, socket.socket], raw: bytes, reason: str
) -> None:
    sockets[1].send(raw)
    sockets[1].shutdown(socket.SHUT_WR)
    with closing(AcceptedSocket(sockets[0], server)) as accepted:
        with pytest.raises(OSError, match=reason) as caught:
            accepted.recv(MAX_RECORD_BYTES)
    assert not isinstance(caught.value, BlockingIOError)


def test_tls_without_a_certificate_is_an_error_with_the_keys_to_check(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    sockets[1].send(b"\x16\x03\x01")
    with pytest.raises(OSError, match="check tls.server.certPath"):
        AcceptedSocket(sockets[0], None).recv(MAX_RECORD_BYTES)
