"""Workers: the threads that generate the load of `kourou bench`, and their start and stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from kourou.errors import KourouError
from kourou.transport.event_loop import loop_factory


class Workers:
    """Threads that run the same function until it returns, they are stopped, or one of them fails."""

    def __init__(self, count: int, work: Callable[[int], None]) -> None:
        self.stopping = threading.Event()
        """Set to stop the workers; pauses end with it."""
        self._work = work
        self._left = count
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ready = threading.Event()
        self._going = threading.Event()
        self._errors: list[BaseException] = []
        # Daemons: a second Ctrl-C ends the process whatever they wait for.
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"bench-{number}", daemon=True)
            for number in range(count)
        ]

    @property
    def is_stopping(self) -> bool:
        return self.stopping.is_set()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def ready(self) -> None:
        """Called by a worker when it has connected."""
        self._ready.set()

    def wait_ready(self) -> None:
        """Wait until a worker is ready; raises the error of one that failed instead."""
        self._ready.wait()
        if self._errors:
            self.finish()

    def go(self) -> None:
        """Let ready workers begin."""
        self._going.set()

    async def wait_go(self) -> None:
        """Called by a ready worker: wait for `go`."""
        await asyncio.to_thread(self._going.wait)

    async def wait_stopping(self) -> None:
        """Called by a worker: wait for the stop."""
        await asyncio.to_thread(self.stopping.wait)

    def wait(self, timeout_s: float) -> bool:
        """Whether all workers ended within that time."""
        return self._done.wait(timeout_s)

    def finish(self) -> None:
        """Stop the workers and wait for them; raises the first error."""
        self.stopping.set()
        self._going.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def pause(self, seconds: float) -> None:
        """Called by a worker: sleep that long, or until the stop."""
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
    """The share of `quantity` for one worker; None is unlimited, without a quantity."""
    if not quantity:
        return None
    return quantity // workers + (number < quantity % workers)


def run_on_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in this thread, on the fastest event loop available."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work)


def now_us() -> int:
    """A monotonic clock in microseconds."""
    return time.perf_counter_ns() // 1000


class Failures:
    """Failures of a load: counts, and the last error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self.last: KourouError | None = None

    def add(self, kind: str, error: KourouError, count: int = 1) -> None:
        """Count failures of one kind."""
        with self._lock:
            self._counts[kind] = self._counts.get(kind, 0) + count
            self.last = error

    def count(self, kind: str) -> int:
        """The number of failures of one kind."""
        return self._counts.get(kind, 0)
