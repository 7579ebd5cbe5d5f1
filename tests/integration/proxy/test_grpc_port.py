"""The gRPC port over sockets: TLS and plaintext, peers that misbehave, stopping."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kourou.errors import ConfigError
from kourou.proxy.http2 import frames
from kourou.proxy.http2.call import Call
from kourou.proxy.http2.frames import ErrorCode, Frame, FrameDecoder, FrameType
from kourou.proxy.http2.server import GrpcServer
from kourou.proxy.http2.settings import GrpcServerConfig
from kourou.transport.settings import ServerTlsConfig, TlsMode
from tests.unit.proxy.http2.peer_kit import CLIENT_STREAM, SERVER_STREAM, UNARY, block, call, headers

TLS = ServerTlsConfig(test_mode=True)


def echo(call: Call) -> None:
    call.reply(call.request)


@asynccontextmanager
async def serving(
    config: GrpcServerConfig, stream: Callable[[Call], None] = lambda call: None
) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(
        {UNARY: echo, SERVER_STREAM: stream, CLIENT_STREAM: stream}, frozenset({CLIENT_STREAM}), config
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop(1_000)
    await server.wait_failed()


class Client:
    """A connection with frames in and out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        writer.write(frames.PREFACE + frames.encode_settings({}))

    async def next(self, wanted: FrameType) -> Frame | None:
        """The next frame of this type; None at the end of the connection."""
        async with asyncio.timeout(20):
            while True:
                for index, frame in enumerate(self._frames):
                    if frame.type == wanted:
                        del self._frames[: index + 1]
                        return frame
                try:
                    got = await self.reader.read(65_536)
                except ConnectionResetError:
                    return None
                if not got:
                    return None
                self._frames += self._decoder.feed(got)

    def close(self) -> None:
        self.writer.close()


async def connect(server: GrpcServer, alpn: list[str] | None = None, *, is_tls: bool = False) -> Client:
    context = None
    if is_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if alpn:
            context.set_alpn_protocols(alpn)
    return Client(*await asyncio.open_connection("127.0.0.1", server.port, ssl=context))


async def assert_serves(client: Client, stream_id: int = 1) -> None:
    client.writer.write(call(stream_id, b"hello"))
    answer = await client.next(FrameType.DATA)
    assert answer is not None and answer.payload[5:] == b"hello"


async def test_one_port_takes_plaintext_and_tls_with_and_without_alpn() -> None:
    async with serving(GrpcServerConfig(tls=TLS)) as server:
        plain = await connect(server)
        secure = await connect(server, ["h2"], is_tls=True)
        silent = await connect(server, is_tls=True)
        other = await connect(server, ["spdy/3"], is_tls=True)
        for client in (plain, secure, silent, other):
            await assert_serves(client)
        assert secure.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        assert silent.writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
        for client in (plain, secure, silent, other):
            client.close()


async def test_a_port_of_tls_only_closes_plaintext_connections() -> None:
    async with serving(
        GrpcServerConfig(tls=ServerTlsConfig(mode=TlsMode.ENFORCING, test_mode=True))
    ) as server:
        plain = await connect(server)
        assert await plain.next(FrameType.SETTINGS) is None
        plain.close()


@pytest.mark.parametrize("tls", [TLS, ServerTlsConfig(mode=TlsMode.DISABLED)], ids=["both", "plaintext"])
async def test_peers_that_send_nothing_are_closed_and_others_served(tls: ServerTlsConfig) -> None:
    async with serving(GrpcServerConfig(tls=tls, preface_timeout_ms=200)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        half_reader, half_writer = await asyncio.open_connection("127.0.0.1", server.port)
        half_writer.write(frames.PREFACE[:10])
        client = await connect(server)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
            assert await half_reader.read() == b""
        await assert_serves(client)
        for one in (writer, half_writer, client):
            one.close()


async def test_a_client_that_never_reads_costs_bounded_memory_and_then_its_connection() -> None:
    ended = asyncio.Event()
    sent = 0

    def pour(call: Call) -> None:
        nonlocal sent
        call.on_end = ended.set
        while not call.is_over and sent < 400:
            call.send(bytes(100_000))
            sent += 1

    async with serving(GrpcServerConfig(max_unsent_bytes=8_000_000), pour) as server:
        client = await connect(server)
        client.writer.write(frames.encode_window_update(0, 2**30))
        client.writer.write(frames.encode_settings({frames.Setting.INITIAL_WINDOW_SIZE: 2**30}))
        client.writer.write(call(1, path=SERVER_STREAM))
        async with asyncio.timeout(20):
            await ended.wait()
        assert sent < 200
        other = await connect(server)
        await assert_serves(other)
        client.close()
        other.close()


async def test_stopping_announces_it_and_waits_for_calls() -> None:
    held: list[Call] = []
    is_held = asyncio.Event()

    def hold(call: Call) -> None:
        held.append(call)
        if len(held) == 2:
            is_held.set()

    server = GrpcServer({UNARY: hold, CLIENT_STREAM: hold}, frozenset({CLIENT_STREAM}), GrpcServerConfig())
    await server.start()
    client = await connect(server)
    client.writer.write(call(1) + headers(3, block(CLIENT_STREAM)))
    async with asyncio.timeout(20):
        await is_held.wait()
    stopping = asyncio.create_task(server.stop(10_000))
    goaway = await client.next(FrameType.GOAWAY)
    assert goaway is not None and goaway.payload[:8] == b"\0\0\0\3\0\0\0\0"
    trailers = await client.next(FrameType.HEADERS)  # of the client stream: UNAVAILABLE
    assert trailers is not None and trailers.stream_id == 3 and held[1].is_over
    assert not stopping.done()
    held[0].reply(b"done")
    answer = await client.next(FrameType.DATA)
    assert answer is not None and answer.payload[5:] == b"done"
    assert await client.next(FrameType.PING) is None  # closed
    await stopping
    client.close()


async def test_a_taken_port_is_named_with_its_key() -> None:
    async with serving(GrpcServerConfig()) as server:
        with pytest.raises(ConfigError, match="choose another grpcServerPort"):
            await GrpcServer({}, frozenset(), GrpcServerConfig(port=server.port)).start()


async def test_the_reason_reaches_a_client_that_breaks_the_protocol() -> None:
    async with serving(GrpcServerConfig(tls=TLS)) as server:
        client = await connect(server, ["h2"], is_tls=True)
        client.writer.write(frames.encode_window_update(0, 0))
        goaway = await client.next(FrameType.GOAWAY)
        assert goaway is not None
        assert int.from_bytes(goaway.payload[4:8], "big") == ErrorCode.PROTOCOL_ERROR
        assert goaway.payload[8:] == b"a WINDOW_UPDATE of 0 bytes"
        client.close()


async def test_tls_at_a_port_of_plaintext_only_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(GrpcServerConfig(tls=ServerTlsConfig(mode=TlsMode.DISABLED))) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(server, ["h2"], is_tls=True)
    assert "it looks like TLS, and this port serves plaintext only: set tlsCertPath" in caplog.text
