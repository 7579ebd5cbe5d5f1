"""RemotingServer: listens, and passes every request to its processor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from kourou.transport.addresses import SocketName, parse_address
from kourou.transport.certificate_user import CertificateUser
from kourou.transport.connection import BulkHandler, Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.listener import Listener
from kourou.transport.loopback import connect_pair
from kourou.transport.request import Processor, RequestMeter
from kourou.transport.settings import ClientAuth, RemotingServerConfig
from kourou.transport.tasks import TaskOwner
from kourou.wording import counted

_log = logging.getLogger(__name__)

ConnectionHook = Callable[[Connection], None]
Drain = Callable[[], Awaitable[None]]

_LOG_REFUSALS_EVERY_S = 10.0


class RemotingServer:
    """One listening port, its connections, and the tasks of requests.

    Create it on the running loop. `cycles` may be shared, so that several servers and timers of one broker
    end one cycle together. `bulk` handles requests of some kind together; `checks` see every other request
    first (Dispatcher); `new_state` creates the `state` of each connection; `meter` measures requests.
    """

    def __init__(
        self,
        processors: Mapping[int, Processor],
        config: RemotingServerConfig,
        *,
        on_connect: ConnectionHook | None = None,
        on_close: ConnectionHook | None = None,
        cycles: Cycles | None = None,
        bulk: BulkHandler | None = None,
        checks: Sequence[Processor] = (),
        new_state: Callable[[], object] | None = None,
        meter: RequestMeter | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._on_connect = on_connect
        self._on_close = on_close
        self._bulk = bulk
        self._new_state = new_state
        self._dispatch = Dispatcher(processors, checks, meter)
        self._budget = InboundBudget(config.max_inbound_bytes)
        self._is_stopping = False
        self._refused_logged_at = -_LOG_REFUSALS_EVERY_S
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self.connections: set[Connection] = set()
        self.tasks = TaskOwner("remoting-server")
        self._cycles = cycles or Cycles(failed=self.tasks.fail)
        self._listener = Listener(config, self._new_connection, self.tasks)
        self._listeners = [self._listener]

    @property
    def port(self) -> int:
        """The port listened on, also if 0 was requested."""
        return self._listener.port

    @property
    def address(self) -> str:
        """`host:port` as configured; a wildcard host is kept."""
        host = self._config.host or "0.0.0.0"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    async def start(self) -> None:
        """Bind and serve. On return connections are accepted."""
        await self._listener.start()
        self._sweep_later()

    async def listen_also(self, port: int, client_auth: ClientAuth | None = None) -> None:
        """Serve at a second port, too, with its own requirement of client certificates. A taken port raises
        ConfigError, and changes nothing."""
        tls = self._config.tls
        if client_auth is not None:
            is_user = client_auth is not ClientAuth.NONE
            tls = replace(
                tls,
                client_auth=client_auth,
                certificate_user=tls.certificate_user if is_user else CertificateUser.NONE,
            )
        listener = Listener(replace(self._config, port=port, tls=tls), self._new_connection, self.tasks)
        await listener.start()
        self._listeners.append(listener)

    def connect_local(self, client: asyncio.Protocol, client_name: SocketName) -> None:
        """Connect a client of the same process, whose address is `client_name`: like every connection it
        counts, and is refused above the limit or while the server stops."""
        server_name = parse_address(self.address)
        connect_pair(client, self._new_connection(), client_name=client_name, server_name=server_name)

    async def wait_failed(self) -> None:
        """Raise the error of a failed task of the server; return when the server has stopped."""
        await self.tasks.wait_failed()

    async def stop(self, timeout_ms: int = 3_000, drain: Drain | None = None) -> None:
        """Stop in order within one deadline: stop accepting, stop reading, let pending requests respond,
        write what is collected, close; then abort the rest. `drain` waits for responses that do not come
        from our tasks."""
        deadline = self._loop.time() + timeout_ms / 1000
        self._is_stopping = True
        for listener in self._listeners:
            await listener.stop()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in self.connections:
            connection.stop_reading()
        await self.tasks.wait_idle(max(0.0, deadline - self._loop.time()))
        if drain is not None:
            await self._drain(drain, deadline)
        self._cycles.close()
        for connection in list(self.connections):
            connection.close("the server stops")
        await self._wait_all_closed(deadline)
        for connection in list(self.connections):
            connection.abort("the server stops")
        await self.tasks.stop()
        await self._wait_all_closed(self._loop.time() + 1)

    async def _drain(self, drain: Drain, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await drain()
        except TimeoutError:
            _log.warning("some requests are not answered: the server stops")

    async def _wait_all_closed(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._all_closed.wait()
        except TimeoutError:
            _log.warning("not closed by the peer: %s", counted(len(self.connections), "connection"))

    # -- connections -----------------------------------------------------------------------------

    def _new_connection(self) -> Connection:
        return Connection(
            self._cycles,
            self._dispatch,
            self._config.limits,
            self._budget,
            on_open=self._opened,
            on_close=self._closed,
            bulk=self._bulk,
            new_state=self._new_state,
            user_source=self._config.tls.certificate_user,
        )

    def _opened(self, connection: Connection) -> None:
        if self._is_stopping:  # it was accepted just before
            connection.abort("the server stops")
            return
        if len(self.connections) >= self._config.max_connections:
            self._refuse(connection)
            return
        self.connections.add(connection)
        self._all_closed.clear()
        if self._on_connect is not None:
            self._on_connect(connection)

    def _closed(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        if not self.connections:
            self._all_closed.set()
        if self._on_close is not None:
            # The hook's work (notifying members, say) belongs to a cycle like any other.
            self._cycles.open()
            self._on_close(connection)

    def _refuse(self, connection: Connection) -> None:
        now = self._loop.time()
        if now - self._refused_logged_at >= _LOG_REFUSALS_EVERY_S:
            self._refused_logged_at = now
            _log.warning(
                "closing %s: %d connections are open, which is the limit",
                connection.remote_address,
                self._config.max_connections,
            )
        connection.abort("too many connections")

    # -- idle connections ------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        # A tenth of the idle time, so that connections do not stay much longer than configured.
        self._sweep_timer = self._loop.call_later(
            max(0.05, self._config.limits.idle_timeout_ms / 10_000), self._sweep_now
        )

    def _sweep_now(self) -> None:
        self.sweep(self._loop.time())
        self._sweep_later()

    def sweep(self, now: float) -> None:
        """Close every connection that has been idle for too long; `now` is on the loop's clock."""
        for listener in self._listeners:
            listener.sweep(now)
        for connection in [c for c in self.connections if c.is_idle(now)]:
            _log.info("closing %s: idle", connection.remote_address)
            connection.close(f"idle for {self._config.limits.idle_timeout_ms} ms")
