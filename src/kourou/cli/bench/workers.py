"""Workers: the threads that make the load of `kourou bench`, and how they are told to end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from kourou.errors import KourouError
from kourou.transport.event_loop import loop_factory


class Workers:
    """Threads that all do the same until they are done, or told to stop, or one of them fails."""

    def __init__(self, count: int, work: Callable[[int], None]) -> None:
        self.stopping = threading.Event()
        """Set when they are to end; who pauses waits for it."""
        self._work = work
        self._left = count
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ready = threading.Event()
        self._going = threading.Event()
        self._errors: list[BaseException] = []
        # Daemons: a second Ctrl-C ends the process, whatever they wait for.
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"bench-{number}", daemon=True)
            for number in range(count)
        ]

    @property
    def is_stopping(self) -> bool:
        """Whether they are to end."""
        return self.stopping.is_set()

    def start(self) -> None:
        """Start them all."""
        for thread in self._threads:
            thread.start()

    def ready(self) -> None:
        """Of a worker that has to connect first: now it has."""
        self._ready.set()

    def wait_ready(self) -> None:
        """Wait until a worker has said so; what it failed of instead is raised."""
        self._ready.wait()
        if self._errors:
            self.finish()

    def go(self) -> None:
        """Have a worker that is ready begin."""
        self._going.set()

    async def wait_go(self) -> None:
        """Of a worker that is ready: wait for its turn."""
        await asyncio.to_thread(self._going.wait)

    async def wait_stopping(self) -> None:
        """Of a worker: wait until it is to end."""
        await asyncio.to_thread(self.stopping.wait)

    def wait(self, timeout_s: float) -> bool:
        """Whether all have ended within that time."""
        return self._done.wait(timeout_s)

    def finish(self) -> None:
        """Have them end and wait for it; what made one fail is raised."""
        self.stopping.set()
        self._going.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def pause(self, seconds: float) -> None:
        """Of a worker: do nothing for that long, or until all are to end."""
        self.stopping.wait(seconds)

    def _run(self, number: int) -> None:
        try:
            self._work(number)
        except BaseException as error:
            self._errors.append(error)
            self.stopping.set()
        finally:
            with self._lock:
                self._left -= 1
                is_last = not self._left
            self._ready.set()
            if is_last:
                self._done.set()


def share_of(quantity: int, workers: int, number: int) -> int | None:
    """How many of `quantity` one of the workers does; None, without end, where there is no quantity."""
    if not quantity:
        return None
    return quantity // workers + (number < quantity % workers)


def run_on_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in this thread, on the fastest event loop there is."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work)


def now_us() -> int:
    """A clock that goes forward."""
    return time.perf_counter_ns() // 1000


class Failures:
    """What went wrong while a load ran: counted, and the last one remembered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self.last: KourouError | None = None

    def add(self, kind: str, error: KourouError, count: int = 1) -> None:
        """One more of a kind."""
        with self._lock:
            self._counts[kind] = self._counts.get(kind, 0) + count
            self.last = error

    def count(self, kind: str) -> int:
        """How many of a kind there were."""
        return self._counts.get(kind, 0)
