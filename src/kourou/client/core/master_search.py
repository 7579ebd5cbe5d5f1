"""MasterSearch: finds the masters of brokers again after a connection is lost or a broker refuses a request.

During a fail-over, routes change within a second, long before they are polled again. The search requests
them at once and then with a growing pause, until the broker has a master that answers a heartbeat: with it
the client is registered there too, so that the new master can deliver checks, replies and group changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kourou.client.core.routes import Routes
from kourou.errors import (
    AccessDeniedError,
    AccountLimitError,
    ConnectError,
    ConnectionLostError,
    KourouError,
    NoRouteError,
    ResponseError,
)
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.transport.tasks import TaskOwner

_T = TypeVar("_T")

_NOT_MASTER: Final = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE})
_FIRST_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 0.5
_MAX_REPEAT_S: Final = 1.0
_MAX_REFUSED_S: Final = 30.0
# Then the limit may have been changed.
_MAX_LIMIT_S: Final = 30.0
# After that the broker is down, and many clients may search.
_QUICK_S: Final = 20.0
_SLOW_PAUSE_S: Final = 2.0
# Then the regular poll of routes is enough.
_SEARCH_S: Final = 120.0
# All members of a group register with a new master within this time.
_SETTLE_S: Final = 0.5


def is_elsewhere(error: Exception) -> bool:
    """Whether another broker may be master now."""
    if isinstance(error, ResponseError):
        return error.code in _NOT_MASTER
    return isinstance(error, ConnectError | ConnectionLostError | NoRouteError)


def _pause_s(error: Exception, failures: int) -> float:
    if isinstance(error, AccountLimitError) and error.wait_s is not None:
        return min(error.wait_s, _MAX_LIMIT_S)
    max_s = _MAX_REFUSED_S if isinstance(error, AccessDeniedError) else _MAX_REPEAT_S
    return min(max_s, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10))


class MasterSearch:
    """The search of one client. `refresh` requests all routes, `heartbeat` returns whether a broker has
    answered one."""

    def __init__(
        self,
        routes: Routes,
        tasks: TaskOwner,
        refresh: Callable[[], Awaitable[None]],
        heartbeat: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._routes = routes
        self._tasks = tasks
        self._refresh = refresh
        self._heartbeat = heartbeat
        self._wanted: dict[str, None] = {}
        self._found = asyncio.Event()
        self._is_searching = False
        self._found_at = -_SETTLE_S
        self.on_found: list[Callable[[str], None]] = []
        """Called with the broker name after its master has answered."""

    def lost(self, address: str) -> None:
        """A connection has ended that this client did not close."""
        for broker_name, addresses in self._routes.brokers.items():
            if address in addresses.values():
                self.begin(broker_name)

    def begin(self, broker_name: str) -> None:
        """Search for the master of a broker."""
        self._wanted[broker_name] = None
        if not self._is_searching:
            self._is_searching = True
            self._found.clear()
            self._tasks.start(self._search(), "master search")

    async def wait(self, broker_name: str, timeout_s: float) -> None:
        """Search for the master of a broker, and wait until it is found, at most `timeout_s`."""
        self.begin(broker_name)
        try:
            async with asyncio.timeout(timeout_s):
                while broker_name in self._wanted:
                    await self._found.wait()
        except TimeoutError:
            return

    async def call_master(
        self, queue: MessageQueue, timeout_s: float, request: Callable[[str], Awaitable[_T]]
    ) -> _T:
        """Send a request about `queue` to its master. If it is away, or not master any more, the request is
        repeated for `timeout_s`, at the new one as soon as it is found."""
        now = asyncio.get_running_loop().time
        deadline, failures = now() + timeout_s, 0
        while True:
            try:
                address = self._routes.master(queue.broker_name)
                if address is None:
                    raise NoRouteError(queue.topic, f"broker {queue.broker_name!r} has no master at present")
                return await request(address)
            except KourouError as error:
                failures += 1
                if not is_elsewhere(error) or now() >= deadline:
                    raise
                await self.pause(queue.broker_name, error, failures)

    async def pause(self, broker_name: str, error: Exception, failures: int) -> None:
        """Wait before a request is repeated, shorter after the first failures, and much longer after many
        refusals of access control, which only an administrator ends; if the account is over a limit, as long
        as the broker says. If another broker may be master, it is searched for, and the pause ends when it is
        found."""
        now = asyncio.get_running_loop().time
        end = now() + _pause_s(error, failures)
        if is_elsewhere(error):
            await self.wait(broker_name, _MAX_REPEAT_S)
        await asyncio.sleep(max(0.0, end - now()))

    async def wait_settled(self) -> None:
        """Wait until other members of a group have had time to register with a new master: a share computed
        from half of them would move queues to and fro."""
        since_s = asyncio.get_running_loop().time() - self._found_at
        if since_s < _SETTLE_S:
            await asyncio.sleep(_SETTLE_S - since_s)

    async def _search(self) -> None:
        now = asyncio.get_running_loop().time
        began, pause_s = now(), _FIRST_PAUSE_S
        try:
            while self._wanted and now() - began < _SEARCH_S:
                await self._refresh()
                for broker_name in list(self._wanted):
                    await self._look(broker_name)
                if self._wanted:
                    await asyncio.sleep(pause_s)
                    is_quick = now() - began < _QUICK_S
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S) if is_quick else _SLOW_PAUSE_S
        finally:
            self._wanted.clear()
            self._is_searching = False
            self._found.set()

    async def _look(self, broker_name: str) -> None:
        address = self._routes.master(broker_name)
        try:
            if address is None or not await self._heartbeat(address):
                return
        except KourouError:
            return
        self._wanted.pop(broker_name, None)
        self._found_at = asyncio.get_running_loop().time()
        self._found.set()
        self._found.clear()
        for found in self.on_found:
            found(broker_name)
