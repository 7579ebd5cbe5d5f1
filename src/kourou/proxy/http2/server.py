"""GrpcServer: a gRPC port for TLS and plaintext, its connections, and their handlers by path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kourou.proxy.http2.call import Handler
from kourou.proxy.http2.connection import Http2Connection
from kourou.proxy.http2.settings import ByteBudget, GrpcServerConfig
from kourou.transport.cycles import Cycles
from kourou.transport.listener import Listener
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_DEADLINES_S: Final = 0.1
_SWEEP_S: Final = 1.0
_LOG_REFUSALS_EVERY_S: Final = 10.0
_ALPN: Final = ("h2",)


class GrpcServer:
    """One listening port. Create it on the running loop.

    `streams` are the paths of calls with a client stream: their handlers run when the call opens. `cycles`
    may be shared with a broker, so that its responses and ours leave together.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        streams: frozenset[str],
        config: GrpcServerConfig,
        *,
        cycles: Cycles | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handlers = handlers
        self._streams = streams
        self._config = config
        self._budget = ByteBudget(config.max_inbound_bytes)
        self._unsent = ByteBudget(config.max_unsent_total_bytes)
        self.tasks = TaskOwner("grpc-server")
        self._cycles = cycles or Cycles(failed=self.tasks.fail)
        listening = config.listening()
        listening = replace(listening, tls=replace(listening.tls, alpn=_ALPN))
        self._listener = Listener(listening, self._new_connection, self.tasks, port_key="grpcServerPort")
        self._is_stopping = False
        self._refused_logged_at = -_LOG_REFUSALS_EVERY_S
        self._swept_at = self._loop.time()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self.connections: set[Http2Connection] = set()

    @property
    def port(self) -> int:
        """The port listened on, also if 0 was requested."""
        return self._listener.port

    @property
    def calls(self) -> int:
        """Open calls of all connections."""
        return sum(connection.calls for connection in self.connections)

    async def start(self) -> None:
        """Bind and serve. On return connections are accepted."""
        await self._listener.start()
        self._sweep_later()

    async def wait_failed(self) -> None:
        """Raise the error of a failed task of the server; return when the server has stopped."""
        await self.tasks.wait_failed()

    async def stop(self, timeout_ms: int = 3_000) -> None:
        """Stop in order within one deadline: stop accepting, announce it (GOAWAY), end calls with client
        streams, let the others finish; then end those, too, and close."""
        deadline = self._loop.time() + timeout_ms / 1000
        self._is_stopping = True
        await self._listener.stop()
        for connection in list(self.connections):
            connection.shut_down("the server stops")
            connection.fail_calls("the server stops", only_client_streams=True)
        await self._wait_all_closed(deadline)
        for connection in list(self.connections):
            connection.fail_calls("the server stops")
        self._cycles.close()
        await self._wait_all_closed(max(deadline, self._loop.time() + 0.2))
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self.connections):
            connection.abort("the server stops")
        await self._wait_all_closed(self._loop.time() + 1)
        await self.tasks.stop()

    async def _wait_all_closed(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._all_closed.wait()
        except TimeoutError:
            pass

    # -- connections -------------------------------------------------------------------------

    def _new_connection(self) -> Http2Connection:
        return Http2Connection(
            self._handlers,
            self._streams,
            self._config,
            self._budget,
            self._unsent,
            self._cycles,
            on_open=self._opened,
            on_close=self._closed,
        )

    def _opened(self, connection: Http2Connection) -> None:
        if self._is_stopping:  # it was accepted just before
            connection.abort("the server stops")
            return
        if len(self.connections) >= self._config.max_connections:
            self._refuse(connection)
            return
        self.connections.add(connection)
        self._all_closed.clear()

    def _closed(self, connection: Http2Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._all_closed.set()

    def _refuse(self, connection: Http2Connection) -> None:
        now = self._loop.time()
        if now - self._refused_logged_at >= _LOG_REFUSALS_EVERY_S:
            self._refused_logged_at = now
            _log.warning("%d connections are open, which is the limit", self._config.max_connections)
        connection.abort("too many connections")

    # -- time --------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        self._sweep_timer = self._loop.call_later(_DEADLINES_S, self._sweep_now)

    def _sweep_now(self) -> None:
        self._sweep_later()
        now = self._loop.time()
        for connection in list(self.connections):
            connection.end_late_calls(now)
        if now - self._swept_at >= _SWEEP_S:
            self._swept_at = now
            self.sweep(now)

    def sweep(self, now: float) -> None:
        """End calls and connections that have waited too long; `now` is on the loop's clock."""
        self._listener.sweep(now)
        for connection in list(self.connections):
            connection.sweep(now)
