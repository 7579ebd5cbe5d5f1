"""RemotingClient: one connection per address, opened when first needed, shared by all calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from kourou.errors import CallTimeoutError, ConnectError, ConnectionLostError
from kourou.protocol.command import RemotingCommand
from kourou.protocol.signature import SigningKeys
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.connector import Connector
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.request import Processor
from kourou.transport.settings import RemotingClientConfig
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)


class RemotingClient:
    """Calls to any number of peers. Create it on the running loop; `stop` closes everything.

    `processors` serve the requests that a peer sends to us over these connections. `on_lost` is called with
    the address of a connection that the peer or the network has ended. With `keys` every request is signed,
    last of all: fields that are added later would invalidate it. With `signs_for` only those to that address
    are: a peer could send what it gets to the server that accepts the keys.
    """

    def __init__(
        self,
        config: RemotingClientConfig | None = None,
        processors: Mapping[int, Processor] | None = None,
        *,
        cycles: Cycles | None = None,
        on_lost: Callable[[str], None] | None = None,
        keys: SigningKeys | None = None,
        signs_for: str | None = None,
    ) -> None:
        self._keys = keys
        self._signs_for = signs_for
        self._loop = asyncio.get_running_loop()
        self._config = config or RemotingClientConfig()
        self._connector = Connector(self._config)
        self._dispatch = Dispatcher(processors or {})
        self._budget = InboundBudget(self._config.max_inbound_bytes)
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        # All open sockets, including closed connections with unsent bytes.
        self._open: set[Connection] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._on_lost = on_lost
        self.tasks = TaskOwner("remoting-client")
        self._cycles = cycles or Cycles(failed=self.tasks.fail)

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int = 3_000) -> RemotingCommand:
        """Send a request and return the response, whatever its code. `timeout_ms` covers the whole call,
        including connecting."""
        deadline = self._loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self.connection(address)
        except TimeoutError:
            raise ConnectError(address, f"no connection within {timeout_ms} ms") from None
        self._sign(address, command)
        left_ms = max(1, int((deadline - self._loop.time()) * 1000))
        try:
            return await connection.call(command, left_ms)
        except CallTimeoutError:  # reported with the caller's timeout, not with the rest of it
            raise CallTimeoutError(address, command.code, timeout_ms) from None

    async def send_oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request without a response. On return it is collected for writing."""
        connection = await self.connection(address)
        self._sign(address, command)
        connection.send_oneway(command)

    def _sign(self, address: str, command: RemotingCommand) -> None:
        if self._keys is not None and self._signs_for in (None, address):
            # A copy: the fields may be those of another call, too.
            command.ext_fields = dict(command.ext_fields or {})
            self._keys.sign(command.ext_fields, command.body)

    async def connection(self, address: str) -> Connection:
        """The open connection to `address`; concurrent callers share one attempt."""
        if self._stopped:
            raise ConnectionLostError(address, "the client is stopped")
        task = self._connections.get(address)
        if task is None or _is_over(task):
            task = asyncio.create_task(self._connect(address), name=f"connect-{address}")
            # A failure without a waiting caller is not an error.
            task.add_done_callback(_retrieve)
            self._connections[address] = task
            self._sweep_later()
        # Shielded: cancelling one caller must not cancel the connection of the others.
        return await asyncio.shield(task)

    def open_connection(self, address: str) -> Connection | None:
        """The connection to `address` if one is open now."""
        task = self._connections.get(address)
        return None if task is None else _open_connection(task)

    def close_connection(self, address: str, reason: str) -> None:
        """Close the connection to `address`, if there is one; the next call opens a new one."""
        task = self._connections.pop(address, None)
        if task is not None and (connection := _open_connection(task)) is not None:
            connection.close(reason)

    def close_silent(self, address: str, since: float, reason: str) -> None:
        """Abort the connection to `address` if no byte has arrived after `since` on the loop's clock: a
        dropped NAT entry or a machine that is gone never reports itself."""
        connection = self.open_connection(address)
        if connection is not None and connection.last_heard <= since:
            del self._connections[address]
            connection.abort(reason)

    async def stop(self, timeout_ms: int = 1_000) -> None:
        """Close all connections; pending calls fail with ConnectionLostError. On return no socket is open:
        a peer that does not read the last bytes within `timeout_ms` is disconnected."""
        self._stopped = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await self.tasks.wait_idle(timeout_ms / 1000)
        self._cycles.close()
        connecting = [task for task in self._connections.values() if not task.done()]
        for task in connecting:
            task.cancel()
        if connecting:
            await asyncio.wait(connecting)
        self._connections.clear()
        for connection in list(self._open):
            connection.close("the client stops")
        await self.tasks.stop()
        if not await self._wait_ended(timeout_ms / 1000):
            for connection in list(self._open):
                connection.abort("the client stops")
            await self._wait_ended(timeout_ms / 1000)

    async def _wait_ended(self, timeout_s: float) -> bool:
        """Whether all sockets are closed within that time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_ended.wait()
        except TimeoutError:
            return False
        return True

    async def _connect(self, address: str) -> Connection:
        return await self._connector.connect(address, partial(self._new_connection, address))

    def _new_connection(self, address: str) -> Connection:
        return Connection(
            self._cycles,
            self._dispatch,
            self._config.limits,
            self._budget,
            on_open=self._opened,
            on_close=partial(self._ended, address),
        )

    def _opened(self, connection: Connection) -> None:
        self._open.add(connection)
        self._all_ended.clear()

    def _ended(self, address: str, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._all_ended.set()
        if self._on_lost is not None and not self._stopped:
            task = self._connections.get(address)
            # One that was closed as idle has been removed before.
            if task is not None and task.done() and not task.cancelled() and task.exception() is None:
                if task.result() is connection:
                    self._on_lost(address)

    # -- idle connections ------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(
                max(0.05, self._config.limits.idle_timeout_ms / 10_000), self._sweep_now
            )

    def _sweep_now(self) -> None:
        self._sweep_timer = None
        self.sweep(self._loop.time())
        if self._connections:
            self._sweep_later()

    def sweep(self, now: float) -> None:
        """Remove ended connections, close those idle for too long."""
        for address, task in list(self._connections.items()):
            if _is_over(task):
                del self._connections[address]
            elif (connection := _open_connection(task)) is not None and connection.is_idle(now):
                self.close_connection(address, "idle")


def _is_over(task: asyncio.Task[Connection]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().closed


def _open_connection(task: asyncio.Task[Connection]) -> Connection | None:
    return task.result() if task.done() and not _is_over(task) else None


def _retrieve(task: asyncio.Task[Connection]) -> None:
    if not task.cancelled():
        task.exception()
