"""HandlerThreads: the threads that sync handlers run in, owned by one consumer.

Threads take jobs from one queue, and wake the loop once for many results: a round trip to the loop for each
message would cost more than the message. While handlers do not block, one thread does all the work, since
more would only contend; it wakes a second, which wakes a third as soon as it runs.
The number of queued jobs is bounded by the caller. Threads are daemons: a handler that blocks forever delays
neither `stop` nor the exit of the process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kourou.client.core.stop_once import mark_handlers_of
from kourou.client.core.turns import WaitingItems

_log = logging.getLogger(__name__)

Ended: TypeAlias = Callable[[Any, BaseException | None], None]
"""Called on the loop with the result of a job, or its exception."""
Job: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Ended]


class HandlerThreads:
    """At most `count` threads, started as they are needed."""

    def __init__(self, name: str, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._count = count
        self._jobs: WaitingItems[Job] = WaitingItems()
        self._done: deque[tuple[Ended, Any, BaseException | None]] = deque()
        self._is_collecting = False
        self._unfinished = 0
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        # The gates of idle threads are closed; a gate is removed from the list before it is opened.
        self._idle: list[threading.Lock] = []
        self._is_waking = False
        self._is_stopped = False
        self._all_done: asyncio.Future[None] | None = None

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call `function` in a thread; the future gets its result or exception."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def ended(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(as_exception(error))

        self.submit([(function, arguments, ended)])
        return future

    def submit(self, jobs: Sequence[Job], level: int = 0) -> None:
        """Queue functions of one priority to be called in threads."""
        self._unfinished += len(jobs)
        self._jobs.extend(jobs, level)
        if not self._is_waking:
            self._wake_one()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything submitted has returned; False after the timeout."""
        if not self._unfinished:
            return True
        self._all_done = self._loop.create_future()
        done, _ = await asyncio.wait([self._all_done], timeout=timeout_s)
        return bool(done)

    async def stop(self, timeout_s: float = 1.0) -> int:
        """Let idle threads end; returns how many are left in a handler, which cannot be ended."""
        self._is_stopped = True
        deadline = self._loop.time() + timeout_s
        self._open_gates()
        while self._alive() > self._unfinished and self._loop.time() < deadline:
            await asyncio.sleep(0.001)  # the end of a thread cannot be awaited
            self._open_gates()
        return self._alive()

    @property
    def unfinished(self) -> int:
        """How many calls have not returned."""
        return self._unfinished

    def _alive(self) -> int:
        return sum(thread.is_alive() for thread in self._threads)

    # -- waking, on the loop and in the threads --------------------------------------------------

    def _wake_one(self) -> None:
        try:
            gate = self._idle.pop()  # the most recently busy thread
        except IndexError:
            self._start_thread()
            return
        self._is_waking = True
        gate.release()

    def _start_thread(self) -> None:
        with self._starting:
            number = len(self._threads) + 1
            # A thread that is about to become idle checks the queue first.
            if number > self._count or self._unfinished < number or self._is_stopped:
                return
            self._is_waking = True
            thread = threading.Thread(target=self._work, name=f"{self._name}-handler-{number}", daemon=True)
            self._threads.append(thread)
        thread.start()

    def _open_gates(self) -> None:
        while self._idle:
            self._idle.pop().release()

    # -- in the threads --------------------------------------------------------------------------

    def _work(self) -> None:
        mark_handlers_of(self)
        gate = threading.Lock()
        gate.acquire()
        self._is_waking = False
        jobs = self._jobs
        while True:
            try:
                function, arguments, ended = jobs.popleft()
            except IndexError:
                if self._is_stopped:
                    return
                self._wait(gate)
                continue
            if jobs and not self._is_waking and (self._idle or len(self._threads) < self._count):
                self._wake_one()
            try:
                self._report(ended, None if self._is_stopped else function(*arguments), None)
            except BaseException as error:  # SystemExit in a thread would be lost silently
                self._report(ended, None, error)
            del function, arguments, ended  # so that an idle thread keeps no message alive

    def _wait(self, gate: threading.Lock) -> None:
        """Wait for a job, or for the stop."""
        self._idle.append(gate)
        if self._jobs or self._is_stopped:  # arrived before this thread was listed as idle
            try:
                self._idle.remove(gate)
                return
            except ValueError:
                pass  # another thread has taken the gate and opens it
        gate.acquire()
        self._is_waking = False

    def _report(self, ended: Ended, result: Any, error: BaseException | None) -> None:
        self._done.append((ended, result, error))
        if not self._is_collecting:
            self._is_collecting = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:  # the loop is closed: the result is no longer needed
                _log.warning("%s: a handler ended after its consumer", self._name)

    # -- on the loop -----------------------------------------------------------------------------

    def _collect(self) -> None:
        # Reset first, so that later results schedule another call.
        self._is_collecting = False
        while self._done:
            ended, result, error = self._done.popleft()
            self._unfinished -= 1
            ended(result, error)
        if not self._unfinished and self._all_done is not None and not self._all_done.done():
            self._all_done.set_result(None)


def as_exception(error: BaseException) -> Exception:
    """A handler's exception, as one that does not end the loop."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"the handler raised {error!r}")
    wrapped.__cause__ = error  # has the traceback
    return wrapped
