"""ResponsiveAdmin: an operator's session that does not wait for servers that answer nothing.

A frozen broker keeps its connections, and every request to it takes its whole time, one after the other:
pages would wait for half a minute. Here a request without a response is followed by a small one, the probe.
A server that answers it is alive, and the request keeps its time. Otherwise all requests to that server fail,
and later ones at once, until a probe in the background is answered.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kourou.admin.session import Admin
from kourou.client.core.credentials import Credentials
from kourou.errors import CallTimeoutError, RemotingError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient
from kourou.transport.settings import RemotingClientConfig

_PATIENCE_MS: Final = 2_500
_PROBE_MS: Final = 2_000
"""Both together are less than the 5 s after which a page looks broken."""
_RETRY_S: Final = 2.0
_PROBE: Final = RequestCode.GET_BROKER_CONFIG
"""Answered from memory: a busy disk does not make a server silent."""


class ResponsiveAdmin(Admin):
    """Admin for pages."""

    def _connect(self) -> RemotingClient:
        return ResponsiveClient(self.settings.remoting_config(), credentials=self.settings.credentials)


class ResponsiveClient(RemotingClient):
    """Calls that end early if the server answers neither them nor a probe."""

    def __init__(
        self,
        config: RemotingClientConfig | None = None,
        *,
        patience_ms: int = _PATIENCE_MS,
        probe_ms: int = _PROBE_MS,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(config)
        self._credentials = credentials
        self._patience_ms = patience_ms
        self._probe_ms = probe_ms
        self._probes: dict[str, asyncio.Task[None]] = {}
        self._silent: dict[str, float] = {}
        """When to probe servers that do not answer the next time, on the loop's clock."""

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int = 3_000) -> RemotingCommand:
        """As by RemotingClient. CallTimeoutError earlier than `timeout_ms` for a server that answers
        nothing."""
        if address in self._silent:
            if self._loop.time() >= self._silent[address]:
                self._probe(address)
            raise self._no_answer(address)
        call = asyncio.create_task(super().call(address, command, timeout_ms), name="console-call")
        try:
            done, _ = await asyncio.wait((call,), timeout=self._patience_ms / 1000)
            if not done:
                await asyncio.wait((self._probe(address), call), return_when=asyncio.FIRST_COMPLETED)
                if address in self._silent:
                    raise self._no_answer(address)
            return await call
        finally:
            if not call.cancel() and not call.cancelled():
                call.exception()  # retrieved: that of a connection which was given up

    def _no_answer(self, address: str) -> CallTimeoutError:
        """The same for all requests: pages list each problem once."""
        return CallTimeoutError(address, _PROBE, self._probe_ms)

    def _probe(self, address: str) -> asyncio.Task[None]:
        """The probe of a server, which concurrent calls share."""
        probe = self._probes.get(address)
        if probe is None:
            probe = self._probes[address] = self.tasks.start(self._send_probe(address), name="probe")
        return probe

    async def _send_probe(self, address: str) -> None:
        began_s = self._loop.time()
        request = RemotingCommand.request(_PROBE)
        if self._credentials is not None:
            assert request.ext_fields is not None
            self._credentials.sign(request.ext_fields)  # else brokers count it as an unsigned request
        try:
            # Any response will do: name servers do not know this request, and brokers may refuse it.
            await super().call(address, request, self._probe_ms)
            self._silent.pop(address, None)
        except RemotingError:
            self._silent[address] = self._loop.time() + _RETRY_S
            # The connection may be dead, and not the server.
            self.close_silent(address, began_s, "no answer")
        finally:
            del self._probes[address]
