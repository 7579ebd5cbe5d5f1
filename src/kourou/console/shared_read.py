"""SharedRead: one result for all who want it at the same time, kept for a while.

Ten open consoles cost the cluster as much as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")


_MIN_KEEP_FACTOR: Final = 50
"""A result is kept at least so many times as long as its read took: large clusters are read less often, and
brokers work for the console for a fiftieth of their time at most."""
_MAX_KEEP_S: Final = 30.0
"""But no longer than this."""


class SharedRead(Generic[T]):
    """The result of `load`, read again when it is older than `keep_s`, or later if reading takes long.
    Concurrent callers share one read. An error is raised for all of them and not kept. `is_partial`: whether
    a part of a result could not be read; it was slow for lack of an answer, and is not kept longer."""

    def __init__(
        self,
        load: Callable[[], Awaitable[T]],
        keep_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_partial: Callable[[T], bool] = lambda result: False,
    ) -> None:
        self._load = load
        self._keep_s = keep_s
        self._is_partial = is_partial
        self._clock = clock
        self._result: tuple[float, T] | None = None
        """With the time until which it is kept."""
        self._reading: asyncio.Task[T] | None = None
        self._tasks: set[asyncio.Task[T]] = set()

    async def get(self, *, is_new: bool = False) -> T:
        """The kept result, or a new one; with `is_new` one whose read starts now."""
        if is_new:
            self.forget()
        if self._result is not None and self._clock() < self._result[0]:
            return self._result[1]
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="console-shared-read")
            self._tasks.add(self._reading)
        # A caller that goes away does not end the read of the others.
        return await asyncio.shield(self._reading)

    def forget(self) -> None:
        """Drop the kept result: something was changed. A read under way may be from before: its callers get
        it, later ones do not."""
        self._result = None
        self._reading = None

    async def stop(self) -> None:
        """Cancel reads that are under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> T:
        task = asyncio.current_task()
        began = self._clock()
        try:
            result = await self._load()
            if self._reading is task:
                now = self._clock()
                slow_s = 0.0 if self._is_partial(result) else _MIN_KEEP_FACTOR * (now - began)
                # From now on, if a part is missing: the time without an answer may be longer than this.
                since = now if self._is_partial(result) else began
                self._result = since + max(self._keep_s, min(slow_s, _MAX_KEEP_S)), result
            return result
        finally:
            if self._reading is task:
                self._reading = None
            self._tasks = {other for other in self._tasks if other is not task}
