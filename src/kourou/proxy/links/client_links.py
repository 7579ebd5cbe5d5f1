"""The links of one client of a proxy to brokers.

A link connects when it is first used, and again when its connection has ended or its broker has another
master. Requests that come meanwhile wait for the connection, up to their timeouts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kourou.errors import (
    ConnectionLostError,
    KourouError,
    ProtocolError,
    RemotingError,
    ResponseError,
    TooManyRequestsError,
)
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.signature import SigningKeys
from kourou.transport.addresses import SocketName
from kourou.transport.connection import Connection
from kourou.transport.dispatcher import answer_failure
from kourou.transport.pending_calls import Answer, AnswerSink
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.proxy.links.broker_link import BrokerLink

_log = logging.getLogger(__name__)

# Names come from clients: links to more brokers than this are made anew each time, unless they are connected.
_MAX_LINKS: Final = 1_000
_MAX_NAME: Final = 255
# Requests of one link that wait for its connection.
_MAX_WAITING: Final = 1_000
_CLOSE_TIMEOUT_S: Final = 1.0

_Waiter: TypeAlias = "Answer | AnswerSink | None"


class Network(Protocol):
    """How links reach brokers (cluster.py)."""

    def master(self, broker_name: str) -> str | None:
        """The address of a broker's master, as far as it is known."""
        ...

    async def find_master(self, broker_name: str) -> str:
        """The same, looked for where necessary. RemotingError: there is none."""
        ...

    def connect_local(self, address: str, client: Connection, client_name: SocketName) -> bool:
        """Connect to a broker of this process; False: there is none of that address."""
        ...

    async def connect(self, address: str, factory: Callable[[], Connection]) -> Connection:
        """Connect by TCP. RemotingError."""
        ...

    def new_connection(
        self, dispatch: Callable[[Request], None], on_close: Callable[[Connection], None]
    ) -> Connection:
        """A connection that is not connected yet."""
        ...

    def lost(self, broker_name: str, address: str) -> None:
        """The master of a broker has closed a connection, or did not accept one: another may be master."""
        ...

    def reached(self, broker_name: str) -> None:
        """The master of a broker has accepted a connection."""
        ...

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` in a task."""
        ...

    def closed(self, links: OpenLinks) -> None:
        """The links of a client are closed."""
        ...


class OpenLinks:
    """ClientLinks over a network."""

    def __init__(
        self,
        network: Network,
        *,
        client_id: str,
        keys: SigningKeys | None,
        client_name: SocketName,
        on_request: Callable[[Request], None],
        on_connect: Callable[[BrokerLink], None] | None,
    ) -> None:
        self.network = network
        self.client_id = client_id
        self.keys = keys
        self.client_name = client_name
        self.on_connect = on_connect
        self._on_request = on_request
        self._links: dict[str, Link] = {}
        self._connections: set[Connection] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self.is_closed = False

    def link(self, broker_name: str) -> Link:
        """The link to a broker."""
        link = self._links.get(broker_name)
        if link is None:
            link = Link(self, broker_name)
            if len(self._links) >= _MAX_LINKS:
                self._links = {name: each for name, each in self._links.items() if each.is_connected}
            if len(self._links) < _MAX_LINKS and len(broker_name) <= _MAX_NAME:
                self._links[broker_name] = link
        return link

    def forget(self, link: Link) -> None:
        """There is no broker of its name now."""
        if self._links.get(link.broker_name) is link:
            del self._links[link.broker_name]

    async def close(self) -> None:
        """Close all connections."""
        if not self.is_closed:
            self.is_closed = True
            self.network.closed(self)
            for link in self._links.values():
                link.close("the client is gone")
            for connection in list(self._connections):
                connection.close("the client is gone")
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._all_ended.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort("the client is gone")

    def opened(self, connection: Connection) -> None:
        """A link has made a connection."""
        self._connections.add(connection)
        self._all_ended.clear()

    def ended(self, connection: Connection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)
        if not self._connections:
            self._all_ended.set()

    def dispatch(self, request: Request) -> None:
        """Pass a broker's request on; an error becomes the response."""
        try:
            self._on_request(request)
        except Exception as error:
            answer_failure(request, error)


class Link:
    """BrokerLink of one client to one broker."""

    __slots__ = ("_address", "_connection", "_is_connecting", "_links", "_loop", "_waiting", "broker_name")

    def __init__(self, links: OpenLinks, broker_name: str) -> None:
        self._links = links
        self._loop = asyncio.get_running_loop()
        self.broker_name = broker_name
        self._address = ""
        self._connection: Connection | None = None
        self._is_connecting = False
        self._waiting: list[tuple[RemotingCommand, float, int, _Waiter]] = []

    @property
    def is_connected(self) -> bool:
        """Whether it is connected, or connects."""
        return self._is_connecting or (self._connection is not None and not self._connection.closed)

    # -- requests ----------------------------------------------------------------------------

    def call_nowait(self, command: RemotingCommand, timeout_ms: int) -> Answer:
        """Sign and send a request; the future gets response or error."""
        answer: Answer = self._loop.create_future()
        self._send(command, timeout_ms, answer)
        return answer

    def call_into(self, command: RemotingCommand, timeout_ms: int, sink: AnswerSink) -> None:
        """The same; the sink gets them."""
        self._send(command, timeout_ms, sink)

    def send_oneway(self, command: RemotingCommand) -> None:
        """Sign and send a request without a response."""
        self._send(command, 3_000, None)

    def _send(self, command: RemotingCommand, timeout_ms: int, waiter: _Waiter) -> None:
        deadline = self._loop.time() + timeout_ms / 1000
        connection = self._connection
        # Compared each time: a master that has changed may still accept connections.
        if connection is None or connection.closed or self._has_moved:
            connection = self._connect()
            if connection is None:
                self._wait(command, deadline, timeout_ms, waiter)
                return
        self._write(connection, command, deadline, timeout_ms, waiter)

    def _write(
        self,
        connection: Connection,
        command: RemotingCommand,
        deadline: float,
        timeout_ms: int,
        waiter: _Waiter,
    ) -> None:
        keys = self._links.keys
        if keys is not None:
            if command.ext_fields is None:
                command.ext_fields = {}
            keys.sign(command.ext_fields, command.body)
        try:
            if waiter is None:
                connection.send_oneway(command)
            elif connection.closed:
                raise ConnectionLostError(self._address, "it was just closed")
            else:
                command.opaque = connection.calls.enter(command.code, deadline, timeout_ms, waiter)
                connection.send(command.encode())
        except RemotingError as error:
            _fail(waiter, error)
        except ProtocolError as error:  # its header is too large for a frame
            if waiter is not None:
                connection.calls.take(command.opaque)
            refused = ResponseCode.INVALID_PARAMETER
            _fail(waiter, ResponseError(refused, str(error), self.broker_name))

    def _wait(self, command: RemotingCommand, deadline: float, timeout_ms: int, waiter: _Waiter) -> None:
        """Send it when there is a connection."""
        if self._links.is_closed:
            _fail(waiter, ConnectionLostError(self.broker_name, "the client is gone"))
        elif len(self._waiting) >= _MAX_WAITING:
            _fail(waiter, TooManyRequestsError(self.broker_name, "requests", _MAX_WAITING))
        else:
            self._waiting.append((command, deadline, timeout_ms, waiter))

    # -- connections -------------------------------------------------------------------------

    @property
    def _has_moved(self) -> bool:
        master = self._links.network.master(self.broker_name)
        return master is not None and master != self._address

    def _connect(self) -> Connection | None:
        """A new connection; None: a task connects."""
        links = self._links
        if links.is_closed or self._is_connecting:
            return None
        if self._connection is not None and not self._connection.closed:
            self._connection.close("its broker is no longer the master")
        self._connection = None
        address = links.network.master(self.broker_name)
        if address is not None:
            connection = self._new_connection()
            if links.network.connect_local(address, connection, links.client_name):
                self._connected(address, connection)
                return connection
        self._is_connecting = True
        links.network.start_task(self._connect_by_tcp(), f"link to {self.broker_name}")
        return None

    def _new_connection(self) -> Connection:
        return self._links.network.new_connection(self._links.dispatch, self._ended)

    async def _connect_by_tcp(self) -> None:
        network, address = self._links.network, ""
        try:
            address = network.master(self.broker_name) or await network.find_master(self.broker_name)
            connection = self._new_connection()
            if not network.connect_local(address, connection, self._links.client_name):
                await network.connect(address, lambda: connection)
        except KourouError as error:
            if address:
                network.lost(self.broker_name, address)
            else:
                self._links.forget(self)
            self._fail_waiting(error)
        except BaseException:
            self._fail_waiting(ConnectionLostError(self.broker_name, "the proxy stops or has failed"))
            raise
        else:
            self._is_connecting = False
            self._connected(address, connection)
            self._send_waiting(connection)

    def _send_waiting(self, connection: Connection) -> None:
        waiting, self._waiting = self._waiting, []
        for command, deadline, timeout_ms, waiter in waiting:
            if waiter is None or not waiter.done():
                self._write(connection, command, deadline, timeout_ms, waiter)

    def _connected(self, address: str, connection: Connection) -> None:
        links = self._links
        links.opened(connection)
        if links.is_closed:
            connection.close("the client is gone")
        self._address, self._connection = address, connection
        links.network.reached(self.broker_name)
        if links.on_connect is not None and not links.is_closed:
            links.on_connect(self)

    def _fail_waiting(self, error: Exception) -> None:
        self._is_connecting = False
        waiting, self._waiting = self._waiting, []
        for *_, waiter in waiting:
            _fail(waiter, error)

    def _ended(self, connection: Connection) -> None:
        self._links.ended(connection)
        if connection is self._connection:
            self._connection = None
            if not self._links.is_closed:
                self._links.network.lost(self.broker_name, self._address)

    def close(self, reason: str) -> None:
        """Fail what waits for a connection."""
        self._fail_waiting(ConnectionLostError(self.broker_name, reason))


def _fail(waiter: _Waiter, error: Exception) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_exception(error)
