"""The console's HTTP server: clients that send slowly, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import h11
import pytest

from kourou.console import server as server_module
from kourou.console.server import ConsoleServer
from kourou.console.settings import ConsoleSettings


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ConsoleServer]:
    settings = ConsoleSettings(audit_file=tmp_path / "audit.log", port=0)
    console = ConsoleServer(settings, {"namesrv": "127.0.0.1:1"})
    await console.start()
    try:
        yield console
    finally:
        await console.stop()


async def converse(server: ConsoleServer, sent: bytes) -> bytes:
    """What the server answers until it closes the connection."""
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


# The last one has to send its first request in this time, also on a busy machine.
@pytest.mark.parametrize(
    ("sent", "limit_s"),
    [(b"", 0.1), (LIVE, 0.1), (LIVE + b"\r\n" + LIVE, 1.0)],
    ids=["none", "cut", "second"],
)
async def test_a_request_whose_head_does_not_come_is_given_up(
    server: ConsoleServer, monkeypatch: pytest.MonkeyPatch, sent: bytes, limit_s: float
) -> None:
    monkeypatch.setitem(server_module._RECEIVE_S, h11.IDLE, limit_s)
    answer = await converse(server, sent)
    assert answer.count(b"alive\n") == sent.count(b"\r\n\r\n")


async def test_a_request_whose_body_does_not_come_is_given_up(
    server: ConsoleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(server_module._RECEIVE_S, h11.SEND_BODY, 0.2)
    head = b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    assert b"200 OK" not in await converse(server, head)


async def test_a_response_that_takes_long_is_waited_for(
    server: ConsoleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the client sends has a limit: an examination takes minutes."""
    monkeypatch.setitem(server_module._RECEIVE_S, h11.IDLE, 1.0)
    assert server._server is not None

    async def slow(scope: object, receive: object, send: object) -> None:
        await asyncio.sleep(1.5)
        await app(scope, receive, send)

    app, server._server.config.loaded_app = server._server.config.loaded_app, slow
    assert b"alive\n" in await converse(server, LIVE + b"Connection: close\r\n\r\n")
