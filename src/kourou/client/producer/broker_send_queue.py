"""BrokerSendQueue: the way of sends to one broker, in the order in which they were given.

As long as the connection is open and takes bytes, a send is written at once. Otherwise it waits in the
send_queue, behind those that wait already, for the connection or until the broker reads again; a send that
waits too long leaves by itself. Not here: which broker, and what becomes of a failure (sends.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kourou.transport.client import RemotingClient
from kourou.transport.connection import Connection
from kourou.transport.tasks import TaskOwner


class QueuedSend(Protocol):
    """What goes through a send_queue."""

    def write_to(self, connection: Connection) -> None:
        """Send it now. Never raises."""

    def wait_in(self, place: dict[QueuedSend, None]) -> None:
        """Enter `place`, and leave it when the time is over."""

    def attempt_failed(self, error: Exception) -> None:
        """This broker cannot be reached."""


class BrokerSendQueue:
    """Sends to one address. `announce` is called with each new connection, before anything is sent."""

    __slots__ = (
        "_connection",
        "_draining",
        "_announce",
        "_remoting",
        "_tasks",
        "address",
        "answers",
        "waiting",
    )

    def __init__(
        self,
        address: str,
        remoting: RemotingClient,
        tasks: TaskOwner,
        announce: Callable[[str, Connection], None],
    ) -> None:
        self.address = address
        self._announce = announce
        self.answers = 0
        """How many sends were answered: whether the broker is alive."""
        self._remoting = remoting
        self._tasks = tasks
        self._connection: Connection | None = None
        self.waiting: dict[QueuedSend, None] = {}
        """Those that are not written yet, in order."""
        self._draining = False

    def ready(self) -> Connection | None:
        """The connection, if it is open, takes bytes, and nobody waits for it."""
        connection = self._connection
        if connection is None or connection.closed or connection.is_write_paused or self._draining:
            return None
        return connection

    def wait(self, send: QueuedSend) -> None:
        """Write `send` when those before it are written."""
        send.wait_in(self.waiting)
        if not self._draining:
            self._draining = True
            self._tasks.start(self._drain(), f"send_queue-{self.address}")

    async def _drain(self) -> None:
        try:
            while self.waiting:
                await self._drain_once()
        finally:
            self._draining = False

    async def _drain_once(self) -> None:
        try:
            connection = await self._remoting.connection(self.address)
        except Exception as error:
            # Those that try again, and have no other broker, wait here once more.
            for send in self._take_all():
                send.attempt_failed(error)
            return
        if connection is not self._connection:
            self._connection = connection
            self._announce(self.address, connection)
        await connection.wait_writable()
        while self.waiting and not connection.closed and not connection.is_write_paused:
            send = next(iter(self.waiting))
            del self.waiting[send]
            send.write_to(connection)

    def _take_all(self) -> list[QueuedSend]:
        taken = list(self.waiting)
        self.waiting.clear()
        return taken
