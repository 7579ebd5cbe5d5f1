"""BlockingPortal: calls from threads into the event loop that all sync clients of a process share.

The loop runs in a daemon thread, from the first client's start to the last one's stop. A call is put into a
queue, the loop is woken once for all calls that are queued, and the caller waits on its own lock: the
cheapest wait, and one that Ctrl-C can interrupt. Not here: the calls (the other modules of this folder).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar, cast

from kourou.errors import ClientStateError
from kourou.transport.event_loop import is_over, loop_factory, park_at_exit

T = TypeVar("T")
Work = Callable[[], asyncio.Future[T] | Coroutine[Any, Any, T]]
"""Called on the loop: a coroutine to run there, or a future to wait for."""


def in_callers_context(work: Work[T]) -> Work[T]:
    """`work`, to run with the context variables that the caller has now."""
    context = contextvars.copy_context()

    def begin() -> asyncio.Future[T]:
        made = context.run(work)
        if isinstance(made, asyncio.Future):
            return made
        return asyncio.get_running_loop().create_task(made, context=context)

    return begin


_WAIT_STEP_S: Final = 1.0
_LAST_CALLS_S: Final = 1.0
_STOPPED: Final = "this client is stopped; make a new one"
_OVER: Final = (
    "the program is exiting, and clients can no longer be used: stop them before, or in a function that is "
    "registered with atexit after kourou was imported"
)


class _Call(ABC, Generic[T]):
    """One call: created in the caller's thread, run in the loop's."""

    __slots__ = ("_calls", "_is_given_up", "_work", "future")

    def __init__(self, work: Work[T], calls: set[_Call[Any]]) -> None:
        self._work = work
        self._calls = calls
        self._is_given_up = False
        self.future: asyncio.Future[T] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run it, on the loop."""
        if self._is_given_up:
            return
        self._calls.add(self)
        try:
            made = self._work()
        except Exception as error:
            self.fail(error)
            return
        self.future = future = made if isinstance(made, asyncio.Future) else loop.create_task(made)
        if future.done():
            self._done(future)
        else:
            future.add_done_callback(self._done)

    def _done(self, future: asyncio.Future[T]) -> None:
        if future.cancelled():
            self.fail(ClientStateError("the client was stopped while this call was running"))
        elif (error := future.exception()) is not None:
            self.fail(error)
        else:
            self._calls.discard(self)
            self._succeed(future.result())

    def fail(self, error: BaseException) -> None:
        """End it with an error."""
        self._calls.discard(self)
        self._fail(error)

    def give_up(self) -> None:
        """The caller no longer waits; on the loop."""
        self._is_given_up = True
        if self.future is not None:
            self.future.cancel()

    @abstractmethod
    def _succeed(self, result: T) -> None: ...

    @abstractmethod
    def _fail(self, error: BaseException) -> None: ...


class _WaitedCall(_Call[T]):
    """A call whose caller waits, on its own lock."""

    __slots__ = ("_lock", "error", "result")

    def __init__(self, work: Work[T], calls: set[_Call[Any]]) -> None:
        super().__init__(work, calls)
        self._lock = threading.Lock()
        self._lock.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None

    def _succeed(self, result: T) -> None:
        self.result = result
        self._lock.release()

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._lock.release()

    def wait(self) -> None:
        """Wait for its end, in the caller's thread."""
        # In steps: a signal just before the wait does not interrupt it.
        while not self._lock.acquire(timeout=_WAIT_STEP_S):
            if is_over():
                raise ClientStateError(_OVER)


class _SubmittedCall(_Call[T]):
    """A call whose caller continues, with a future that any thread may wait for."""

    __slots__ = ("outcome",)

    def __init__(self, work: Work[T], calls: set[_Call[Any]]) -> None:
        super().__init__(work, calls)
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        # A running call cannot be cancelled: `cancel` returns False.
        self.outcome.set_running_or_notify_cancel()

    def _succeed(self, result: T) -> None:
        self.outcome.set_result(result)

    def _fail(self, error: BaseException) -> None:
        self.outcome.set_exception(error)


class BlockingPortal:
    """One loop in one thread. Use `enter_portal` and `leave_portal`: they share one in the process."""

    def __init__(self) -> None:
        self.is_foreign = False
        """Whether it belongs to the process that forked this one."""
        self._pid = os.getpid()
        self._waiting: deque[_Call[Any]] = deque()
        self._is_woken = False
        self._calls: set[_Call[Any]] = set()
        self.is_over = False
        self.is_ending = False
        """Whether its last user has left it."""
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="kourou-client", daemon=True)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run the loop; on return it accepts calls."""
        try:
            self._thread.start()
            self._ready.wait()
            if self._failure is None:
                park_at_exit(self._thread, self._loop)
        except BaseException:  # Ctrl-C: no client will use this loop
            self.is_ending = True
            if self._ready.is_set():
                self.end()
            raise
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Begin to stop the loop and its thread; calls that still run fail with ClientStateError."""
        self.is_ending = True
        self._on_loop(self._stopping.set)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of its thread, from any other."""
        self._thread.join(timeout_s)

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is on the loop."""
        return threading.get_ident() == self._thread.ident

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
            if self._ready.is_set():
                raise
        finally:
            self.is_over = True
            self._ready.set()
            self._fail_rest()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._ready.set()
        if not self.is_ending:
            await self._stopping.wait()
        # Callers that wait for the stop of a client get its result before the loop is closed.
        futures = [call.future for call in self._calls if call.future is not None]
        if futures:
            await asyncio.wait(futures, timeout=_LAST_CALLS_S)

    def _fail_rest(self) -> None:
        for call in [*self._calls, *self._waiting]:
            call.fail(ClientStateError(_STOPPED))
        self._waiting.clear()

    # -- calls -----------------------------------------------------------------------------------

    def call(self, work: Work[T]) -> T:
        """Run `work` on the loop and wait for it, from any other thread. Ctrl-C cancels it. Timeouts are up
        to `work`."""
        call = _WaitedCall(work, self._calls)
        self._enter(call)
        try:
            call.wait()
        except BaseException:
            self._on_loop(call.give_up)
            raise
        error = call.error
        if error is None:
            return cast(T, call.result)
        try:
            raise error
        finally:
            del error, call  # else the error, its traceback and this frame hold each other

    def submit(self, work: Work[T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop without waiting; the future gets its result."""
        call = _SubmittedCall(work, self._calls)
        self._enter(call)
        return call.outcome

    def post(self, work: Callable[[], object]) -> None:
        """Call a function on the loop, without waiting."""
        self._check_caller()
        self._on_loop(work)

    def do(self, work: Callable[[], T]) -> T:
        """Call a function on the loop and wait for its result."""

        async def done() -> T:
            return work()

        return self.call(done)

    def _enter(self, call: _Call[Any]) -> None:
        self._check_caller()
        self._waiting.append(call)
        # After the append: either the loop's thread finds the call when it ends, or `is_over` is set here.
        if self.is_over:
            raise ClientStateError(_STOPPED)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._on_loop(self._begin_calls)
            except BaseException:
                # Ctrl-C here must not leave the flag set without a wake-up.
                self._is_woken = False
                raise

    def _check_caller(self) -> None:
        if self.is_foreign:
            raise ClientStateError(
                f"this client was started in process {self._pid}, before a fork, and its connections are "
                f"that one's: make a new client in process {os.getpid()}"
            )
        if self.is_own_thread:
            raise ClientStateError(
                "a sync client was called on its own event loop, which would block forever: "
                "in async functions and hooks use the async client"
            )

    def _on_loop(self, work: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:  # just closed: `_fail_rest` fails the waiting calls
            if not self._loop.is_closed():
                raise

    def _begin_calls(self) -> None:
        """Begin all calls that wait, on the loop."""
        # The flag is reset first: a caller that finds it set relies on a later look at the queue.
        self._is_woken = False
        waiting, loop = self._waiting, self._loop
        # Only the current ones: later calls wait for the next iteration, so that responses are not starved.
        for _ in range(len(waiting)):
            waiting.popleft().begin(loop)
        if waiting and not self._is_woken:
            self._is_woken = True
            loop.call_soon(self._begin_calls)


# -- the portal of this process ------------------------------------------------------------------


class _Shared:
    """The portal in use and how many clients use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.portal: BlockingPortal | None = None
        self.users = 0


_shared = _Shared()
# Portals of a parent process. Kept forever: closing their loop would affect the parent's.
_left_behind: list[_Shared] = []


def enter_portal() -> BlockingPortal:
    """The portal of this process, started by its first user. Each user leaves it once."""
    shared = _shared
    with shared.lock:
        if shared.portal is None or shared.portal.is_over:
            portal = BlockingPortal()
            portal.start()
            shared.portal, shared.users = portal, 0
        shared.users += 1
        return shared.portal


def leave_portal(portal: BlockingPortal) -> None:
    """Release the portal; the last user stops the loop and its thread."""
    leave_portal_nowait(portal)
    if portal.is_ending:
        portal.join()


def leave_portal_nowait(portal: BlockingPortal) -> None:
    """The same, without waiting for the thread; may be called on the loop."""
    shared = _shared
    with shared.lock:
        if shared.portal is not portal:  # that of the parent process
            return
        shared.users -= 1
        if shared.users == 0:
            shared.portal = None
            portal.end()


def _after_fork() -> None:
    global _shared
    if _shared.portal is not None:
        _shared.portal.is_foreign = True
    _left_behind.append(_shared)
    _shared = _Shared()


os.register_at_fork(after_in_child=_after_fork)
