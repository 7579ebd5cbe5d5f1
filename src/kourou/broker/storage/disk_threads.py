"""DiskThreads: where a broker waits for its disk, so that its loop never does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from kourou.store.steps import Steps

P = ParamSpec("P")
T = TypeVar("T")

# Cold reads wait side by side; a disk gains nothing from more.
_THREADS: Final = 4
# Keeps what waits until the end of the program from being collected before it.
_never: Final[list[asyncio.Future[None]]] = []


class DiskThreads:
    """A few threads of one broker. Results and errors come back to the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="broker-disk")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in one of the threads and wait for it."""
        return await self._run_to_its_end(lambda: function(*args, **kwargs))

    async def run_steps(self, steps: Steps[T]) -> T:
        """Do work that comes in steps (store/steps.py): the steps in a thread, the rest here."""
        try:
            step = next(steps)
            while True:
                try:
                    await self._run_to_its_end(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result

    async def _run_to_its_end(self, function: Callable[[], T]) -> T:
        # Also when the waiter is cancelled: the same files may be written next by another one.
        try:
            running = self._loop.run_in_executor(self._threads, function)
        except RuntimeError as error:
            if "interpreter shutdown" not in str(error):
                raise
            # The program ends without a stop. Its thread pools are gone, and this loop is parked next
            # (transport/event_loop.py): an error here would only be logged.
            _never.append(self._loop.create_future())
            await _never[-1]
            raise
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def stop(self) -> None:
        """Wait for what runs and end the threads."""
        self._threads.shutdown(wait=True)
