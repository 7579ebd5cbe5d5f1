"""The listener for health checks: what it answers, and what slow, many and bad peers cannot do to it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.transport.addresses import parse_address
from kourou.transport.http_probe import ask_readyz, probe_routes
from kourou.transport.http_server import MAX_CONNECTIONS, MAX_HEAD_BYTES, HttpResponse, HttpServer

TIMEOUT_S = 20


class Readiness:
    """Says what the test has put in."""

    def __init__(self) -> None:
        self.why_not: str | None = None
        self.error: Exception | None = None
        self.hangs = False
        self.asked = 0

    async def __call__(self) -> str | None:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.why_not


@asynccontextmanager
async def listening(
    readiness: Readiness, *, check_timeout_s: float = 3.0, **times: Any
) -> AsyncIterator[HttpServer]:
    routes = probe_routes(readiness, check_timeout_s=check_timeout_s)
    probes = HttpServer("127.0.0.1", 0, routes, **times)
    await probes.start()
    try:
        yield probes
    finally:
        await probes.stop()


async def connect(probes: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*parse_address(probes.address))


async def exchange(probes: HttpServer, sent: bytes) -> bytes:
    """Send something, and read what comes until the listener closes."""
    reader, writer = await connect(probes)
    try:
        writer.write(sent)
        async with asyncio.timeout(TIMEOUT_S):
            return await reader.read()
    finally:
        writer.transport.abort()


def get(path: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    return f"{method} {path} {version}\r\nHost: x\r\nUser-Agent: kube-probe/1.30\r\n\r\n".encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_ready_and_not_ready_and_alive() -> None:
    readiness = Readiness()
    async with listening(readiness) as probes:
        answer = await exchange(probes, get("/readyz"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split(b"\r\n") == [
            b"HTTP/1.1 200 OK",
            b"Content-Type: text/plain; charset=utf-8",
            b"Content-Length: 6",
            b"Cache-Control: no-store",
            b"Connection: close",
        ]
        assert body == b"ready\n"
        readiness.why_not = "the disk\nis full: été"
        answer = await exchange(probes, get("/readyz"))
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert answer.partition(b"\r\n\r\n")[2].decode() == "the disk is full: été\n"
        assert f"Content-Length: {len('the disk is full: été'.encode()) + 1}\r\n".encode() in answer
        asked = readiness.asked
        assert status(await exchange(probes, get("/livez"))) == 200
        assert readiness.asked == asked  # a check for life asks for nothing else


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (get("/"), 404),
        (get("/readyz/"), 404),
        (get("/metrics", "POST"), 404),
        (get("/readyz", "POST") + b"x" * 100, 405),
        (get("/livez", "DELETE"), 405),
        (get("/readyz?verbose=1"), 200),
        (get("/readyz", version="HTTP/1.0"), 200),
        (b"GET /readyz HTTP/1.0\n\n", 200),
        (get("/readyz", version="HTTP/2.0"), 400),
        (b"GET /readyz\r\n\r\n", 400),
        (b"GET  /readyz HTTP/1.1\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        # a TLS ClientHello, a frame of RocketMQ's: neither ever ends with an empty line
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\x00\x00\x00\x67\x00\x00\x00\x5f{", 400),
        (b"G" * (MAX_HEAD_BYTES + 10_000), 431),
        (b"GET /readyz HTTP/1.1\r\n" + b"A: b\r\n" * MAX_HEAD_BYTES, 431),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else str(value),
)
async def test_what_each_request_is_answered(sent: bytes, expected: int) -> None:
    async with listening(Readiness()) as probes:
        assert status(await exchange(probes, sent)) == expected


async def test_other_methods_get_the_allowed_ones_and_head_gets_no_body() -> None:
    async with listening(Readiness()) as probes:
        answer = await exchange(probes, get("/readyz", "HEAD"))
    assert status(answer) == 405 and b"\r\nAllow: GET\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_a_request_that_comes_in_pieces_is_one() -> None:
    async with listening(Readiness()) as probes:
        reader, writer = await connect(probes)
        for byte in get("/readyz"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
            assert status(await reader.read()) == 200
        writer.transport.abort()


async def test_a_peer_that_has_said_all_it_has_to_say_is_answered() -> None:
    async with listening(Readiness()) as probes:
        reader, writer = await connect(probes)
        writer.write(get("/readyz"))
        writer.write_eof()
        async with asyncio.timeout(TIMEOUT_S):
            assert (await reader.read()).endswith(b"ready\n")
        writer.transport.abort()


async def test_a_stalled_peer_gets_an_error_and_is_closed() -> None:
    async with listening(Readiness(), head_timeout_s=0.05) as probes:
        assert status(await exchange(probes, b"GET /readyz HTTP/1.1\r\n")) == 408


async def test_a_peer_that_leaves_without_a_word_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Readiness()) as probes:
        for sent in (b"", b"GET /rea"):
            reader, writer = await connect(probes)
            writer.write(sent)
            writer.write_eof()
            async with asyncio.timeout(TIMEOUT_S):
                assert await reader.read() == b""
            writer.transport.abort()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_many_silent_peers_do_not_keep_a_check_out() -> None:
    async with listening(Readiness(), head_timeout_s=0.5) as probes:
        silent = [await connect(probes) for _ in range(MAX_CONNECTIONS + 5)]
        assert status(await exchange(probes, get("/readyz"))) == 200
        async with asyncio.timeout(TIMEOUT_S):
            for reader, _ in silent[:6]:  # the oldest have made room, without a word
                assert await reader.read() == b""
            assert status(await silent[6][0].read()) == 408  # the others have their time
        for _, writer in silent:
            writer.transport.abort()


async def test_a_match_that_takes_too_long_gets_a_response() -> None:
    readiness = Readiness()
    readiness.hangs = True
    async with listening(readiness, check_timeout_s=0.05) as probes:
        answer = await exchange(probes, get("/readyz"))
        assert status(answer) == 503 and b"could not determine within 0.05 s whether it is ready" in answer
        assert status(await exchange(probes, get("/livez"))) == 200


async def test_a_match_that_fails_gets_a_response_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    readiness = Readiness()
    readiness.error = RuntimeError("broken")
    async with listening(readiness) as probes:
        answer = await exchange(probes, get("/readyz"))
        assert status(answer) == 503 and b"whether it is ready: RuntimeError('broken'); see the log" in answer
        assert "RuntimeError: broken" in caplog.text
        readiness.error = None
        assert status(await exchange(probes, get("/readyz"))) == 200


async def test_a_stop_cuts_off_what_is_under_way_and_frees_the_port() -> None:
    readiness = Readiness()
    readiness.hangs = True
    async with listening(readiness) as probes:
        silent, pending = await connect(probes), await connect(probes)
        pending[1].write(get("/readyz"))
        async with asyncio.timeout(TIMEOUT_S):
            while not readiness.asked:  # noqa: ASYNC110 (it does not tell)
                await asyncio.sleep(0.001)
            await probes.stop()
            await probes.stop()
            assert (await silent[0].read(), await pending[0].read()) == (b"", b"")
        for _, writer in (silent, pending):
            writer.transport.abort()
        with pytest.raises(ConnectionRefusedError):
            await connect(probes)


async def test_a_large_body_is_written_as_fast_as_the_peer_reads() -> None:
    async def large() -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, [bytes([65 + n % 26]) * 1024 for n in range(8 * 1024)])

    async def broken() -> HttpResponse:
        raise RuntimeError("no numbers")

    server = HttpServer("127.0.0.1", 0, {"/large": large, "/broken": broken})
    await server.start()
    try:
        reader, writer = await connect(server)
        writer.write(get("/large"))
        await asyncio.sleep(0.1)  # the buffers of both ends are full, and the server waits
        async with asyncio.timeout(TIMEOUT_S):
            answer = await reader.read()
        writer.transport.abort()
        assert b"Content-Length: 8388608\r\n" in answer
        assert len(answer.partition(b"\r\n\r\n")[2]) == 8 * 1024 * 1024
        assert status(await exchange(server, get("/broken"))) == 500
        assert b"available: /large and /broken" in await exchange(server, get("/x"))
    finally:
        await server.stop()


async def test_a_port_that_is_taken_is_named_with_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: the port is taken.* another httpPort$"):
            await HttpServer("127.0.0.1", port, {}).start()
    with pytest.raises(ConfigError, match=r"203\.0\.113\.7:0: .* check bindAddress$"):
        await HttpServer("203.0.113.7", 0, {}, host_key="bindAddress").start()


async def test_the_requester_learns_why_not() -> None:
    readiness = Readiness()
    async with listening(readiness) as probes:
        assert await ask_readyz(probes.address, 5_000) is None
        readiness.why_not = "the disk is full"
        assert await ask_readyz(probes.address, 5_000) == "the disk is full"
        address = probes.address
    assert (await ask_readyz(address, 5_000) or "").startswith("cannot connect: connection refused")


async def test_a_request_without_a_valid_response_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert await ask_readyz(address, 50) == "no answer within 50 ms"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-x\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        address = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
        assert await ask_readyz(address, 5_000) == "it answered 'SSH-2.0-x'"
