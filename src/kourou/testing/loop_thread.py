"""LoopThread: an event loop in its own thread, which can be held to simulate a process that hangs.

Not here: what runs on it (running_cluster.py).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kourou.transport.event_loop import loop_factory, park_at_exit

T = TypeVar("T")


class LoopThread:
    """One loop in one thread. `start` and `stop` it once; the rest may be called from any other thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._holding = threading.Lock()
        self._release: threading.Event | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        # A daemon, like the clients': an aborted test run must not wait for its servers.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Run the loop; on return it accepts work."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        park_at_exit(self._thread, self._loop)

    def stop(self) -> None:
        """Stop the loop and its thread; tasks that still run are cancelled."""
        self.resume()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
            if self._ready.is_set():
                raise
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._ready.set()
        await self._stopping.wait()

    # -- work ------------------------------------------------------------------------------------

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same, awaited on another loop."""
        return await asyncio.wrap_future(self.submit(work))

    # -- holding ---------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether the loop is held."""
        return self._release is not None

    def hold(self) -> None:
        """Hold the loop until `resume`. On return nothing is read or answered any more, and incoming data
        waits in the sockets, as for a process that the system has stopped."""
        with self._holding:
            if self._release is not None:
                return
            release, held = threading.Event(), threading.Event()
            self._loop.call_soon_threadsafe(_wait_release, held, release)
            held.wait()
            self._release = release

    def resume(self) -> None:
        """Release the loop, if it is held."""
        with self._holding:
            if self._release is not None:
                self._release.set()
                self._release = None


def _wait_release(held: threading.Event, release: threading.Event) -> None:
    held.set()
    release.wait()
