"""SyncClient: what the plain clients share, their life from start to stop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar, cast

from kourou.client.core.client_blocks import NOT_STARTED, SyncBlockOnly
from kourou.client.core.stop_once import StopOnce
from kourou.client.sync.blocking_portal import BlockingPortal, Work, enter_portal, leave_portal_nowait
from kourou.errors import ClientStateError

T = TypeVar("T")

End: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""What an async client does at its end."""

# For the rest of an end whose caller was interrupted: enough for all but handlers that take long.
_INTERRUPTED_S: Final = 1.0


class AsyncClient(Protocol):
    """What an async client has to offer to be used without asyncio."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""


ClientT = TypeVar("ClientT", bound=AsyncClient)


class SyncClient(SyncBlockOnly, Generic[ClientT]):
    """An async client on the loop that the plain clients of a process share.

    Usable from any number of threads, once started. A client used after a fork, in the child, raises
    ClientStateError: make a new one there.
    """

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._portal: BlockingPortal | None = None
        self._is_started = False
        self._state_lock = threading.Lock()
        # Of these only the loop knows: it hears no Ctrl-C.
        self._starting: asyncio.Task[Any] | None = None
        self._stop_once = StopOnce(f"plain {type(client).__name__}")
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
            # Also a start that came to its end while its caller was interrupted.
            self._wait_end(portal, self._client.stop)
            raise

    async def _start(self, portal: BlockingPortal) -> None:
        self._starting = asyncio.current_task()
        await self._client.start()
        # Here: a handler may stop the client before its caller is told that it has started.
        self._portal = portal

    def stop(self) -> None:
        """End in order and disconnect. It may be called twice and from any thread: each call returns when the
        client has ended. After Ctrl-C during the call, the end goes on in the background."""
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
        """Whether the caller is one that the end has to wait for; then it begins with nothing more."""
        return False

    def _begin_end(self, portal: BlockingPortal, work: End) -> asyncio.Task[None]:
        """Begin with the end unless somebody has, on the loop."""
        return self._stop_once.begin(lambda: self._end(portal, work))

    async def _end(self, portal: BlockingPortal, work: End) -> None:
        try:
            if self._starting is not None and not self._starting.done():
                self._starting.cancel()
                await asyncio.wait([self._starting])
            if self._portal is not None:  # else its start failed, and has left nothing
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
        except BaseException:  # Ctrl-C: perhaps before it has begun
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

    # -- for the twins ---------------------------------------------------------------------------

    def _call(self, work: Work[T]) -> T:
        """Run something of the async client and wait for it."""
        return self._running().call(work)

    def _submit(self, work: Work[T]) -> concurrent.futures.Future[T]:
        """Run something of the async client and go on."""
        return self._running().submit(work)

    def _do(self, work: Callable[[], T]) -> T:
        """Call a function of the async client that does not wait."""
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
        """Run something that the async client can do before its start too, where it waits for nothing."""
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
