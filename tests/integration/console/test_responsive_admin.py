"""A server that is frozen: requests to it do not take their whole time, and it is used again later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kourou.console import responsive_admin
from kourou.console.responsive_admin import ResponsiveClient
from kourou.errors import CallTimeoutError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.request import Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import RemotingServerConfig
from tests.integration.admin.group_kit import until

HOUR_MS = 3_600_000
"""A test that waits for a timeout does not end."""
QUICK, SLOW = RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONSUME_STATS
PROBE = RequestCode.GET_BROKER_CONFIG


class Peer:
    """A server that answers when it is allowed to."""

    def __init__(self) -> None:
        self.is_frozen = False
        self.probes = 0
        self.slow: list[Request] = []
        processors = {QUICK: self._quick, PROBE: self._quick, SLOW: self.slow.append}
        self.server = RemotingServer(processors, RemotingServerConfig())

    def _quick(self, request: Request) -> None:
        self.probes += request.code == PROBE
        if not self.is_frozen:
            request.reply()


@asynccontextmanager
async def peer_and_client(probe_ms: int) -> AsyncIterator[tuple[Peer, ResponsiveClient, str]]:
    peer = Peer()
    await peer.server.start()
    client = ResponsiveClient(patience_ms=50, probe_ms=probe_ms)
    try:
        yield peer, client, f"127.0.0.1:{peer.server.port}"
    finally:
        await client.stop()
        await peer.server.stop()


async def test_calls_to_a_frozen_server_fail_early_and_later_ones_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with peer_and_client(probe_ms=50) as (peer, client, address):
        peer.is_frozen = True

        async def ask() -> RemotingCommand:
            return await client.call(address, RemotingCommand.request(QUICK), HOUR_MS)

        answers = await asyncio.gather(ask(), ask(), return_exceptions=True)
        assert all(isinstance(answer, CallTimeoutError) for answer in answers), answers
        assert peer.probes == 1  # for both
        with pytest.raises(CallTimeoutError, match=f"no answer from {address} to request 26 within 50 ms"):
            await ask()
        assert peer.probes == 1  # refused here

        peer.is_frozen = False
        monkeypatch.setattr(responsive_admin, "_RETRY_S", 0.0)

        async def answered() -> RemotingCommand | None:
            try:
                return await ask()
            except CallTimeoutError:
                return None

        assert (await until(answered)).code == 0


async def test_a_server_that_takes_long_is_waited_for() -> None:
    """Sums over all groups take a large broker of Apache seconds, while it answers everything else."""
    async with peer_and_client(probe_ms=30_000) as (peer, client, address):
        call = asyncio.create_task(client.call(address, RemotingCommand.request(SLOW), HOUR_MS))

        async def probed() -> bool | None:
            return True if peer.probes else None

        await until(probed)
        for _ in range(3):  # until the response has arrived
            await client.call(address, RemotingCommand.request(QUICK), HOUR_MS)
        assert not call.done()
        peer.slow[0].reply()
        assert (await call).code == 0
