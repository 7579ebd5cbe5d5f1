"""RunningChanges: the changes that are being made, one at a time for each resource.

A change goes on when its browser goes away. A stop waits for changes that are under way, as long as servers
may take to answer, and interrupts what is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

_log = logging.getLogger(__name__)

STOP_WAIT_S: Final = 5.0

T = TypeVar("T")


class RunningChanges:
    """Owns the tasks of changes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        # A lock is dropped with the last change that uses it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, resource: str, change: Callable[[], Awaitable[T]]) -> T:
        """Make a change after those of the same resource that were requested before."""
        task = asyncio.create_task(self._alone(resource, change), name=f"console-change-{resource}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def stop(self, wait_s: float = STOP_WAIT_S) -> None:
        """On return no change is being made."""
        tasks = set(self._tasks)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=wait_s)
            for task in left:
                _log.warning("%s is interrupted by the stop of the console", task.get_name())
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _alone(self, resource: str, change: Callable[[], Awaitable[T]]) -> T:
        lock = self._locks.setdefault(resource, asyncio.Lock())
        async with lock:
            return await change()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # The audit log has the error of a change whose browser went away.
        if not task.cancelled():
            task.exception()
