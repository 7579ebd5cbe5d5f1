"""PendingSend: one send in flight, from the first attempt to the result.

It reports events (written, answered, failed, timed out) to `Sends`, which makes the decisions. While it waits
for a route or a connection it has its own timer; once it is written, the connection's table of calls watches
the deadline and delivers the response without an iteration of the loop. InFlight bounds how many there are,
BrokerSendQueue keeps those to one broker in order. `is_retriable` follows Java 5.x: network errors are
retried, and responses whose code says that another broker may accept the message. A send to a queue chosen by
the caller is not retried there; only while its broker has no master that accepts it (`is_master_away`) is it
repeated, in the same queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kourou.client.producer.producer_hooks import SendContext
from kourou.client.producer.send_request import SendRequest
from kourou.client.producer.send_result import SendResult
from kourou.errors import (
    AccessDeniedError,
    ConnectError,
    ConnectionLostError,
    NoRouteError,
    RemotingError,
    ResponseError,
    TooManyRequestsError,
)
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import CommandHead
from kourou.protocol.message import Message
from kourou.transport.client import RemotingClient
from kourou.transport.connection import Connection
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.client.producer.sends import Sends


class InFlight:
    """Bounds sends in flight, by count and bytes, on one loop. Waiters are served in order; a message larger
    than the limit of bytes is sent alone."""

    __slots__ = ("_idle", "_loop", "_waiters", "count", "max_bytes", "max_count", "size_bytes")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.size_bytes = 0

    def try_enter(self, size_bytes: int) -> bool:
        """Enter if there is room and no other send waits."""
        if self._waiters or (self.count and not self._has_room(size_bytes)):
            return False
        self.count += 1
        self.size_bytes += size_bytes
        return True

    async def enter(self, size_bytes: int, deadline: float) -> None:
        """Enter, at the latest at `deadline` of the loop's clock; then TimeoutError."""
        if self.try_enter(size_bytes):
            return
        waiter = (self._loop.create_future(), size_bytes)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter[0]
        except BaseException:
            if waiter[0].done() and not waiter[0].cancelled():
                self.leave(size_bytes)  # admitted and cancelled at the same time
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._let_in()  # a smaller one behind may fit now
            raise

    def leave(self, size_bytes: int) -> None:
        self.count -= 1
        self.size_bytes -= size_bytes
        if self._waiters:
            self._let_in()
        if not self.count and self._idle:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_idle(self) -> None:
        """Wait until nothing is in flight."""
        while self.count:
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    def _has_room(self, size_bytes: int) -> bool:
        if not self.count:
            return True
        return self.count < self.max_count and self.size_bytes + size_bytes <= self.max_bytes

    def _let_in(self) -> None:
        while self._waiters and self._has_room(self._waiters[0][1]):
            waiter, size_bytes = self._waiters.popleft()
            if not waiter.done():
                self.count += 1
                self.size_bytes += size_bytes
                waiter.set_result(None)


class QueuedSend(Protocol):
    """A send in a BrokerSendQueue."""

    def write_to(self, connection: Connection) -> None:
        """Send it now. Never raises."""

    def wait_in(self, place: dict[QueuedSend, None]) -> None:
        """Enter `place`, and leave it when the time is over."""

    def attempt_failed(self, error: Exception) -> None:
        """This broker cannot be reached."""


class BrokerSendQueue:
    """Sends to one address, in order. `announce` is called with each new connection, before anything is sent.

    While the connection is open and writable, a send is written at once. Otherwise it waits in the queue for
    the connection, or until the broker reads again; a send whose time is over leaves by itself."""

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
        """How many sends were answered: shows whether the broker is alive."""
        self._remoting = remoting
        self._tasks = tasks
        self._connection: Connection | None = None
        self.waiting: dict[QueuedSend, None] = {}
        """Sends that are not written yet, in order."""
        self._draining = False

    @property
    def awaited(self) -> Connection | None:
        """The connection, if it is open and requests wait for their answers."""
        connection = self._connection
        return None if connection is None or connection.closed or not connection.calls else connection

    def ready(self) -> Connection | None:
        """The connection, if it is open, writable, and no send waits for it."""
        connection = self._connection
        if connection is None or connection.closed or connection.is_write_paused or self._draining:
            return None
        return connection

    def wait(self, send: QueuedSend) -> None:
        """Write `send` after those before it."""
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
            # A retry without another broker waits here again.
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


RETRY_CODES: Final = frozenset(
    int(code)
    for code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
        ResponseCode.KOUROU_DISK_FULL,
        ResponseCode.KOUROU_NOT_STORED,
    )
)
"""Responses after which another broker is tried (`retryResponseCodes`)."""

# The same words in Apache's brokers. The code alone means any failure.
_NOT_ENOUGH_REPLICAS: Final = "in-sync replicas not enough"
_CONTAINER_HINT: Final = (
    "that is the address the broker advertises; if clients cannot reach it (a container's address?), "
    "set brokerIP1 at the broker"
)


def is_retriable(error: Exception) -> bool:
    """Whether another broker, or a later attempt, may accept the message."""
    if isinstance(error, ResponseError):
        return error.code in RETRY_CODES
    if isinstance(error, RemotingError):
        return error.retriable and not isinstance(error, TooManyRequestsError)
    return isinstance(error, NoRouteError)


def is_route_stale(error: Exception) -> bool:
    """Whether the broker may be gone, so that the route should be refreshed."""
    return isinstance(error, ConnectError | ConnectionLostError | NoRouteError)


def is_master_away(error: Exception) -> bool:
    """Whether the broker has no master that accepts messages now, and may have one soon: it restarts, or
    another one takes over and waits for its slaves."""
    if isinstance(error, ResponseError):
        is_short = error.code == ResponseCode.SYSTEM_ERROR and error.remark.startswith(_NOT_ENOUGH_REPLICAS)
        return is_short or error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return is_route_stale(error)


def is_withheld(error: Exception) -> bool:
    """Whether the request was not sent, since the server has rejected the login before."""
    return isinstance(error, AccessDeniedError) and error.wait_ms is not None


def describe_attempt(broker_name: str, address: str, error: Exception) -> str:
    """One failed attempt, for an error message."""
    if isinstance(error, ResponseError):
        words = error.remark
        if isinstance(error, AccessDeniedError):
            if is_withheld(error):
                return f"broker {broker_name}: {error}"
            words = f"{words.removesuffix('.')}; {error.remedy}"
        return f"broker {broker_name} at {address} answered code {error.code}: {words}"
    hint = f" ({_CONTAINER_HINT})" if isinstance(error, ConnectError) else ""
    return f"broker {broker_name}: {error}{hint}"


ChooseQueue = Callable[[Sequence[MessageQueue]], MessageQueue]
"""The caller's choice of a queue for a message."""


class PendingSend:
    """A message or a batch to be sent before `deadline`. It is also the sink for the response."""

    # Most sends succeed at the first attempt: class attributes spare them these assignments.
    _timer: asyncio.TimerHandle | None = None
    _place: dict[QueuedSend, None] | None = None
    attempts: list[str] | None = None
    """Failed attempts, for the error message."""
    may_be_stored = False
    """Whether an attempt was written and not answered."""
    queue: MessageQueue | None = None
    send_queue: BrokerSendQueue | None = None
    connection: Connection | None = None
    context: SendContext | None = None
    half_stored: SendResult | None = None
    """The result of a broker that stored it, but did not flush or replicate it in time."""
    written_at = 0.0
    answers_before = 0
    patience = 1
    """How many times `attempt_timeout_ms` the next attempt may take."""
    is_tried = False
    """Whether an attempt has failed that was not withheld."""
    waits_for: str | None = None
    """What it waits for, for the error message; None: a connection; empty: said by the attempts."""
    repeats_in: MessageQueue | None = None
    """Where the next attempt has to be made, instead of a queue of the next broker."""
    awaited_broker: str | None = None
    """The broker whose master it has waited for."""
    priority: int | None = None
    """Of its messages, if the queue for it has to be chosen here."""
    is_over = False

    def __init__(
        self,
        sends: Sends,
        request: SendRequest,
        messages: Sequence[Message],
        choose: ChooseQueue | None,
        future: asyncio.Future[SendResult],
        timeout_ms: int,
        deadline: float,
        attempts_left: int,
        size_bytes: int,
    ) -> None:
        self._sends = sends
        self.request = request
        self.messages = messages
        self.choose = choose
        self.future = future
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        self.attempts_left = attempts_left
        self.size_bytes = size_bytes

    # -- while it waits --------------------------------------------------------------------------

    def wait_in(self, place: dict[QueuedSend, None]) -> None:
        """Wait among others in `place`, at the latest until the deadline."""
        place[self] = None
        self._place = place
        if self._timer is None:
            self._timer = self.future.get_loop().call_at(self.deadline, self._timer_expired)

    def _timer_expired(self) -> None:
        self._timer = None
        if self._place is not None:
            self._place.pop(self, None)
            self._sends.timed_out(self)

    def stop_waiting(self) -> None:
        """The deadline is watched elsewhere, or no longer matters."""
        self._place = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- an attempt ------------------------------------------------------------------------------

    def write_to(self, connection: Connection) -> None:
        """Send it over `connection`, after it has waited."""
        self.stop_waiting()
        self._sends.write(self, connection)

    def attempt_failed(self, error: Exception) -> None:
        """The broker cannot be reached."""
        self.stop_waiting()
        self._sends.failed(self, error)

    # -- sink for the response -------------------------------------------------------------------

    def done(self) -> bool:
        """Whether a response is no longer needed."""
        return self.is_over

    def set_answer(self, head: CommandHead, body: bytes) -> None:
        try:
            self._sends.answered(self, head)
        except Exception as error:
            self._sends.fail(self, error)

    def set_exception(self, error: Exception) -> None:
        """The broker did not respond in time, or the connection is gone."""
        try:
            self._sends.failed(self, error)
        except Exception as failure:
            self._sends.fail(self, failure)
