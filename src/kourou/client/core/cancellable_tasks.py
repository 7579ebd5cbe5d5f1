"""CancellableTasks: tasks that their owner cancels one by one while it keeps running.

TaskOwner treats every cancelled task as a failure. Here a task that was cancelled by `cancel` or `stop` is
not a failure; any other end with an exception, including a cancellation from elsewhere, is passed to
`failed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kourou.transport.tasks import StrayCancellationError


class CancellableTasks:
    """Tasks by name, each of which may be cancelled."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` as a task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel one task; that is not a failure."""
        self._cancelled.add(task)
        task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks and wait for them."""
        tasks = list(self._tasks)
        for task in tasks:
            self.cancel(task)
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        is_ours = task in self._cancelled
        self._cancelled.discard(task)
        if task.cancelled():
            if not is_ours:
                self._failed(StrayCancellationError(task))
        elif (error := task.exception()) is not None:
            self._failed(error)
