"""ConsoleServer: the console inside a running event loop, served by uvicorn.

uvicorn's own handling of signals is switched off: the process belongs to the broker, or to `kourou console`.
There are no streams that stay open, so that a stop does not wait for browsers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kourou.client.core.settings import ClientOptions
from kourou.console.app import make_app
from kourou.console.context import ConsoleContext, console_context
from kourou.console.settings import ConsoleSettings
from kourou.errors import ConfigError
from kourou.transport.addresses import join_address
from kourou.transport.http_server import HttpHandler
from kourou.transport.listener import bind_problem

_log = logging.getLogger(__name__)

_MAX_REQUESTS = 200
_BACKLOG = 128
_KEEP_ALIVE_S = 30
_BODY_S = 60
"""To receive the body of a request, which has 8 MiB at most."""


class ConsoleServer:
    """A console. `start` and `stop` it once, on the same loop; or use `async with`."""

    def __init__(
        self,
        settings: ConsoleSettings,
        client: ClientOptions,
        metrics: Mapping[str, HttpHandler] | None = None,
    ) -> None:
        settings.check()
        self._metrics = metrics
        self._settings = settings
        self._client = client
        self._port = settings.port
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._resources = AsyncExitStack()

    @property
    def address(self) -> str:
        """`host:port`, with the actual port."""
        return join_address(self._settings.host, self._port)

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"http://{self.address}/"

    async def start(self) -> None:
        """On return the pages can be opened. ConfigError says what cannot be used."""
        settings = self._settings
        listener = _bind(settings)
        try:
            context = await self._resources.enter_async_context(
                console_context(settings, self._client, self._metrics)
            )
            await self._serve(context, listener)
        except BaseException:
            listener.close()
            await self.stop()
            raise
        self._port = listener.getsockname()[1]
        _log.info("the console is at %s", self.url)

    async def _serve(self, context: ConsoleContext, listener: socket.socket) -> None:
        config = uvicorn.Config(
            make_app(context),
            http=_HttpConnection,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_MAX_REQUESTS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        self._server = server = _Server(config)
        self._serving = asyncio.create_task(server.serve([listener]), name="console")
        self._serving.add_done_callback(_log_failure)
        started = asyncio.create_task(server.wait_started(), name="console-start")
        await asyncio.wait((self._serving, started), return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            self._serving.result()
            raise ConfigError("the console could not be started; see the log")

    async def stop(self, timeout_ms: int = 1_000) -> None:
        """Stop accepting, finish requests that are under way, close connections to the cluster."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait((self._serving,), timeout=timeout_ms / 1000)
            self._serving.cancel()
            requests = list(self._server.server_state.tasks)
            for request in requests:
                request.cancel()
            await asyncio.gather(self._serving, *requests, return_exceptions=True)
        await self._resources.aclose()

    async def wait_failed(self) -> None:
        """Wait for the server to fail, and raise its error."""
        assert self._serving is not None
        await asyncio.shield(self._serving)


def _log_failure(serving: asyncio.Task[None]) -> None:
    if not serving.cancelled() and (error := serving.exception()) is not None:
        _log.error("the console has failed", exc_info=error)


class _HttpConnection(H11Protocol):
    """HTTP with a time limit for receiving a request. uvicorn has one between requests only, and counts open
    connections as requests under way: 200 that send nothing would keep all others out."""

    _awaited: object = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit_wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._limit_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _limit_wait(self) -> None:
        """Start the time of what the client has to send next: the head of a request, or the rest of it."""
        awaited = self.conn.their_state
        if awaited is self._awaited:
            return
        self._awaited = awaited
        if self._timer is not None:
            self._timer.cancel()
        limit_s = _RECEIVE_S.get(awaited)
        self._timer = None if limit_s is None else self.loop.call_later(limit_s, self.transport.close)


_RECEIVE_S = {h11.IDLE: _KEEP_ALIVE_S, h11.SEND_BODY: _BODY_S}


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, and with an event for its start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._is_started = asyncio.Event()

    async def wait_started(self) -> None:
        """Wait until connections are accepted."""
        await self._is_started.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._is_started.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(settings: ConsoleSettings) -> socket.socket:
    try:
        return socket.create_server(
            (settings.host, settings.port),
            family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET,
            backlog=_BACKLOG,
        )
    except OSError as error:
        problem = bind_problem(
            settings.host, settings.port, error, port_key=settings.port_option, host_key="--host"
        )
        raise ConfigError(problem) from error
