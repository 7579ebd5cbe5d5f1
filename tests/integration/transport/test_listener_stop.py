"""A listener that stops while a connection arrives."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kourou.transport.server import RemotingServer
from kourou.transport.settings import RemotingServerConfig


@pytest.mark.parametrize("iterations", range(5))
async def test_a_connection_accepted_just_before_a_stop_is_closed(iterations: int) -> None:
    server = RemotingServer({}, RemotingServerConfig(host="127.0.0.1", port=0))
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        # From "in the backlog" to "has become a connection", one iteration of the loop at a time.
        for _ in range(iterations):
            await asyncio.sleep(0)
        await server.stop(1_000)
        client.settimeout(5)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass
