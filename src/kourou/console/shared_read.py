"""SharedRead: one result for all who want it at the same time, kept for a while.

Ten open consoles cost the cluster as much as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedRead(Generic[T]):
    """The result of `load`, read again when it is older than `keep_s`. Concurrent callers share one read.
    An error is raised for all of them and not kept."""

    def __init__(
        self, load: Callable[[], Awaitable[T]], keep_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._keep_s = keep_s
        self._clock = clock
        self._result: tuple[float, T] | None = None
        self._reading: asyncio.Task[T] | None = None

    async def get(self, *, is_new: bool = False) -> T:
        """The kept result, or a new one; with `is_new` one whose read starts now, unless it is under way."""
        if not is_new and self._result is not None and self._clock() - self._result[0] < self._keep_s:
            return self._result[1]
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="console-shared-read")
        # A caller that goes away does not end the read of the others.
        return await asyncio.shield(self._reading)

    def forget(self) -> None:
        """Drop the kept result: something was changed."""
        self._result = None

    async def stop(self) -> None:
        """Cancel a read that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> T:
        began = self._clock()
        try:
            result = await self._load()
            self._result = began, result
            return result
        finally:
            self._reading = None
