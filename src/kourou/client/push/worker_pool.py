"""WorkerPool: a bounded number of tasks that run handlers, over one queue of work.

A task for each message would cost more than the rest of its delivery. Here a worker takes one item after the
other; while handlers do not wait, one worker does all the work, and yields to the loop every few
milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from kourou.client.core.stop_once import mark_handlers_of
from kourou.client.core.turns import WaitingItems
from kourou.transport.tasks import StrayCancellationError
from kourou.wording import counted

_log = logging.getLogger(__name__)

T = TypeVar("T")

_SLICE_S: Final = 0.005
# How long a cancelled handler has to end.
_CANCEL_S: Final = 1.0


class Worker(Generic[T]):
    """One task of the pool, and its current item."""

    __slots__ = ("began", "is_timed_out", "item", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.item: T | None = None
        self.began = 0.0
        """When the handler was called, by the loop's clock; 0.0 when none runs."""
        self.is_timed_out = False


class WorkerPool(Generic[T]):
    """Runs `work` for each item. Exceptions of `work` are bugs of the client, passed to `failed`.
    Handlers that run in it are those of `owner` (stop_once.py)."""

    def __init__(
        self,
        name: str,
        count: int,
        work: Callable[[Worker[T], T], Awaitable[None]],
        failed: Callable[[BaseException], None],
        *,
        owner: object = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._count = count
        self._work = work
        self._failed = failed
        self._owner = owner
        self._ready: WaitingItems[T] = WaitingItems()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._is_waking = False
        self.workers: list[Worker[T]] = []
        self.is_stopping = False

    def put(self, items: Iterable[T], level: int = 0) -> None:
        """Add work of one priority; dropped once the pool stops."""
        if self.is_stopping:
            return
        self._ready.extend(items, level)
        if self._ready and not self._is_waking:
            self._wake_one()

    @property
    def waiting(self) -> int:
        """The number of items that no worker has taken."""
        return len(self._ready)

    @property
    def running(self) -> int:
        return sum(worker.began > 0 for worker in self.workers)

    def refuse(self) -> None:
        """Start nothing more, not even queued items."""
        self.is_stopping = True
        self._ready.clear()

    async def stop(self, timeout_s: float) -> bool:
        """Start nothing more, wait for running items, then cancel them; False when some had to be
        cancelled."""
        self.refuse()
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        tasks = [worker.task for worker in self.workers if worker.task is not None]
        if not tasks:
            return True
        _, unfinished = await asyncio.wait(tasks, timeout=timeout_s)
        if not unfinished:
            return True
        _log.warning(
            "%s: cancelling %s that did not end within %g s; unacknowledged messages will be delivered again",
            self._name,
            counted(len(unfinished), "handler"),
            timeout_s,
        )
        for task in unfinished:
            task.cancel()
        _, unfinished = await asyncio.wait(unfinished, timeout=_CANCEL_S)
        if unfinished:
            _log.error(
                "%s: %s still running after cancellation", self._name, counted(len(unfinished), "handler")
            )
        return False

    # -- workers ---------------------------------------------------------------------------------

    def _wake_one(self) -> None:
        # One at a time: it wakes the next if there is still work then, which is not the case if handlers do
        # not wait.
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                self._is_waking = True
                waiter.set_result(None)
                return
        if len(self.workers) < self._count:
            self._is_waking = True
            worker: Worker[T] = Worker()
            self.workers.append(worker)
            worker.task = self._loop.create_task(
                self._run(worker), name=f"{self._name}:worker-{len(self.workers)}"
            )
            worker.task.add_done_callback(self._ended)

    async def _run(self, worker: Worker[T]) -> None:
        mark_handlers_of(self._owner)
        self._is_waking = False
        ready, work, clock = self._ready, self._work, self._loop.time
        slice_end = clock() + _SLICE_S
        while not self.is_stopping:
            if not ready:
                await self._wait_work()
                slice_end = clock() + _SLICE_S
                continue
            if clock() > slice_end:
                await asyncio.sleep(0)
                slice_end = clock() + _SLICE_S
                continue
            item = ready.popleft()
            if ready and not self._is_waking and (self._idle or len(self.workers) < self._count):
                self._wake_one()
            worker.item = item
            await work(worker, item)
            worker.item = None

    async def _wait_work(self) -> None:
        waiter = self._loop.create_future()
        self._idle.append(waiter)
        try:
            await waiter
        finally:
            self._is_waking = False

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            if not self.is_stopping:
                self._failed(StrayCancellationError(task))
        elif (error := task.exception()) is not None:
            self._failed(error)
