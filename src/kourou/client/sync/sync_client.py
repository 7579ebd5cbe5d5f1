"""SyncClient: the base of the sync clients, from start to stop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar, cast

from kourou.client.core.client_blocks import NOT_STARTED, SyncBlockOnly
from kourou.client.core.stop_once import StopOnce
from kourou.client.sync.blocking_portal import (
    BlockingPortal,
    Work,
    enter_portal,
    in_callers_context,
    leave_portal_nowait,
)
from kourou.errors import ClientStateError

T = TypeVar("T")

End: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""The stop of an async client."""

# For the rest of a stop whose caller was interrupted: enough unless a handler takes long.
_INTERRUPTED_S: Final = 1.0


class AsyncClient(Protocol):
    """What SyncClient needs of an async client."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""


ClientT = TypeVar("ClientT", bound=AsyncClient)


class SyncClient(SyncBlockOnly, Generic[ClientT]):
    """An async client on the loop that the sync clients of a process share.

    Any number of threads may use it once it is started. In a forked child it raises ClientStateError: make a
    new client there.
    """

    _uses_context = False
    """Whether calls have the context variables of their caller on the loop too."""

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._portal: BlockingPortal | None = None
        self._is_started = False
        self._state_lock = threading.Lock()
        # Changed on the loop only, which Ctrl-C does not interrupt.
        self._starting: asyncio.Task[Any] | None = None
        self._stop_once = StopOnce(f"sync {type(client).__name__}")
        self._is_ended = threading.Event()
        self._left: BlockingPortal | None = None

    def start(self) -> None:
        """Connect; on return the client can be used. Errors name the step that failed."""
        with self._state_lock:
            if self._is_started:
                raise ClientStateError("this client was started before; make a new one")
            self._is_started = True
        portal = enter_portal()
        try:
            portal.call(lambda: self._start(portal))
        except BaseException:
            # Also if the start succeeded while its caller was interrupted.
            self._wait_end(portal, self._client.stop)
            raise

    async def _start(self, portal: BlockingPortal) -> None:
        self._starting = asyncio.current_task()
        await self._client.start()
        # Set here: a handler may stop the client before `start` returns.
        self._portal = portal

    def stop(self) -> None:
        """Stop and disconnect. May be called twice and from any thread: each call returns when the client has
        stopped. After Ctrl-C during the call the stop continues in the background."""
        self._stop(self._client.stop)

    def _stop(self, work: End) -> None:
        portal = self._portal or self._left
        if portal is None or portal.is_foreign:
            return
        if portal.is_own_thread:
            self._begin_end(portal, work)
        elif self._is_handler_calling():
            portal.post(lambda: self._begin_end(portal, work))
        else:
            self._wait_end(portal, work)

    def _is_handler_calling(self) -> bool:
        """Whether the caller is a handler that the stop has to wait for; then no other handler is started."""
        return False

    def _begin_end(self, portal: BlockingPortal, work: End) -> asyncio.Task[None]:
        """Begin the stop unless it has begun, on the loop."""
        return self._stop_once.begin(lambda: self._end(portal, work))

    async def _end(self, portal: BlockingPortal, work: End) -> None:
        try:
            if self._starting is not None and not self._starting.done():
                self._starting.cancel()
                await asyncio.wait([self._starting])
            if self._portal is not None:  # else the start failed and cleaned up
                await work()
        finally:
            self._portal, self._left = None, portal
            leave_portal_nowait(portal)
            self._is_ended.set()

    def _wait_end(self, portal: BlockingPortal, work: End) -> None:
        try:
            if not self._is_ended.is_set():
                portal.call(lambda: asyncio.shield(self._begin_end(portal, work)))
        except ClientStateError:
            if not self._is_ended.is_set():
                raise
        except Exception:
            raise
        except BaseException:  # Ctrl-C: perhaps before the stop began
            portal.post(lambda: self._begin_end(portal, work))
            self._is_ended.wait(_INTERRUPTED_S)
            if portal.is_ending:
                portal.join(_INTERRUPTED_S)
            raise
        if portal.is_ending:
            portal.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- for subclasses --------------------------------------------------------------------------

    def _call(self, work: Work[T]) -> T:
        """Run a call of the async client and wait for it."""
        return self._running().call(in_callers_context(work) if self._uses_context else work)

    def _submit(self, work: Work[T]) -> concurrent.futures.Future[T]:
        """Run a call of the async client without waiting."""
        return self._running().submit(in_callers_context(work) if self._uses_context else work)

    def _do(self, work: Callable[[], T]) -> T:
        """Call a method of the async client that is not a coroutine."""
        portal = self._portal
        if portal is not None:
            return portal.do(work)
        try:
            return work()
        except ClientStateError:
            if self._is_started:
                raise
            raise ClientStateError(NOT_STARTED) from None

    def _call_early(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call that the async client supports before its start too, when it does not suspend."""
        if self._is_started:
            return self._call(work)
        coroutine = work()
        try:
            coroutine.send(None)
        except StopIteration as end:
            return cast(T, end.value)
        coroutine.close()
        raise ClientStateError(NOT_STARTED)

    def _running(self) -> BlockingPortal:
        portal = self._portal
        if portal is None:
            raise ClientStateError(
                "this client is stopped; make a new one" if self._is_started else NOT_STARTED
            )
        return portal
