"""HandlerThreads: the threads that plain handlers run in, owned by one consumer.

Threads take jobs from one queue, one after the other, and the loop is wrapped once of many that are done:
a step to the loop and back for each message would cost more than the message. As long as handlers do not
wait for anything one thread does it all, for more would only wait for each other; it wakes a second, that
one a third as soon as it gets to run.
Jobs that wait are bounded by who submits them. Threads are daemons: a handler that blocks for ever keeps
neither `stop` nor the end of the process waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kourou.client.core.stop_once import mark_handlers_of

_log = logging.getLogger(__name__)

Ended: TypeAlias = Callable[[Any, BaseException | None], None]
"""Called on the loop with what a job returned, or raised."""
Job: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Ended]


class HandlerThreads:
    """At most `count` threads, started as they are needed."""

    def __init__(self, name: str, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._count = count
        self._jobs: deque[Job] = deque()
        self._done: deque[tuple[Ended, Any, BaseException | None]] = deque()
        self._is_collecting = False
        self._unfinished = 0
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        # The gate of each idle thread is shut; who opens it takes it out of the list.
        self._idle: list[threading.Lock] = []
        self._is_waking = False
        self._is_stopped = False
        self._all_done: asyncio.Future[None] | None = None

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call `function` in a thread; the future gets what it returns or raises."""
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

    def submit(self, jobs: Sequence[Job]) -> None:
        """Have functions called in threads, at most as many at once as there may be threads."""
        self._unfinished += len(jobs)
        self._jobs.extend(jobs)
        if not self._is_waking:
            self._wake_one()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything that was submitted has returned; False when that takes longer."""
        if not self._unfinished:
            return True
        self._all_done = self._loop.create_future()
        done, _ = await asyncio.wait([self._all_done], timeout=timeout_s)
        return bool(done)

    async def stop(self, timeout_s: float = 1.0) -> int:
        """Let idle threads end; how many stay behind in a handler, which nobody can end."""
        self._is_stopped = True
        deadline = self._loop.time() + timeout_s
        self._open_gates()
        while self._alive() > self._unfinished and self._loop.time() < deadline:
            await asyncio.sleep(0.001)  # threads tell nobody of their end
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
            gate = self._idle.pop()  # the last one that had something to do
        except IndexError:
            self._start_thread()
            return
        self._is_waking = True
        gate.release()

    def _start_thread(self) -> None:
        with self._starting:
            number = len(self._threads) + 1
            # One that is about to return looks for more before it waits.
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
            except BaseException as error:  # SystemExit in a thread would be gone without a word
                self._report(ended, None, error)
            del function, arguments, ended  # an idle thread keeps no message alive

    def _wait(self, gate: threading.Lock) -> None:
        """Wait until there is something to do, or the end."""
        self._idle.append(gate)
        if self._jobs or self._is_stopped:  # came before anybody could see that we wait
            try:
                self._idle.remove(gate)
                return
            except ValueError:
                pass  # somebody saw it and opens the gate
        gate.acquire()
        self._is_waking = False

    def _report(self, ended: Ended, result: Any, error: BaseException | None) -> None:
        self._done.append((ended, result, error))
        if not self._is_collecting:
            self._is_collecting = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:  # the loop is closed: nobody waits for this handler any more
                _log.warning("%s: a handler ended after its consumer", self._name)

    # -- on the loop -----------------------------------------------------------------------------

    def _collect(self) -> None:
        # First, so that what comes from now on is wrapped again.
        self._is_collecting = False
        while self._done:
            ended, result, error = self._done.popleft()
            self._unfinished -= 1
            ended(result, error)
        if not self._unfinished and self._all_done is not None and not self._all_done.done():
            self._all_done.set_result(None)


def as_exception(error: BaseException) -> Exception:
    """What a handler raised, as something that does not end the loop."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"the handler raised {error!r}")
    wrapped.__cause__ = error  # where it was raised is in its traceback
    return wrapped
