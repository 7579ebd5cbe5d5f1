"""Tasks with a name and an owner, which is notified when one fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any, Protocol

_log = logging.getLogger(__name__)


class StrayCancellationError(RuntimeError):
    """A background task was cancelled, but not by its owner."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        super().__init__(f"task {task.get_name()} was cancelled from outside")


def _failure_level() -> int:
    """An error, except at the end of the program: tasks left running fail then for lack of threads."""
    return logging.ERROR if threading.main_thread().is_alive() else logging.DEBUG


class Part(Protocol):
    """Something that may fail while it runs."""

    async def wait_failed(self) -> None:
        """Wait until it fails and raise that; after its stop, return."""
        ...


async def wait_first_failed(*parts: Part | None) -> None:
    """Raise what one of these died of; return when one has stopped."""
    waits = [
        asyncio.create_task(part.wait_failed(), name="wait-failed") for part in parts if part is not None
    ]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in done:
            wait.result()
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


class TaskOwner:
    """Holds the tasks of one service.

    A task that ends with an exception fails the owner: `wait_failed` raises it, also the parent's. `stop`
    cancels running tasks and waits for them. `is_logged`: the failure is logged as well, for owners without a
    waiter. `title` is the users' name of the owner: it is named in a warning if the event loop ends, which
    cancels all tasks, before `stop`.
    """

    def __init__(
        self, name: str, parent: TaskOwner | None = None, *, is_logged: bool = False, title: str = ""
    ) -> None:
        self._name = name
        self._is_logged = is_logged
        self._title = title
        self._is_loop_ended = False
        self._parent = parent
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` as a task of this owner."""
        task = asyncio.create_task(work, name=f"{self._name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException) -> None:
        """Let the owner fail with `error`; the first failure counts, later ones are logged."""
        if self._parent is not None:
            self._parent.fail(error)
        elif self._title and isinstance(error, StrayCancellationError) and self._are_all_cancelled():
            self._loop_ended()
        elif self._failure.done():
            _log.log(_failure_level(), "%s failed again", self._name, exc_info=error)
        else:
            self._failure.set_exception(error)
            if self._is_logged:
                _log.log(_failure_level(), "%s failed", self._name, exc_info=error)

    def _are_all_cancelled(self) -> bool:
        """Whether the event loop is ending; any other stray cancellation concerns one task."""
        return all(task.cancelling() for task in self._tasks)

    def _loop_ended(self) -> None:
        if self._is_loop_ended:
            return
        self._is_loop_ended = True
        text = (
            f"{self._title} was not stopped before its event loop ended; use `async with`, or `await stop()`"
        )
        _log.warning("%s", text)
        if not self._failure.done():
            self._failure.set_exception(RuntimeError(text))
            self._failure.exception()  # it was logged, and a waiter is cancelled as well

    @property
    def _has_failed(self) -> bool:
        return self._parent._has_failed if self._parent is not None else self._failure.done()

    @property
    def failure(self) -> BaseException | None:
        """The first failure; None as long as nothing has failed."""
        if self._parent is not None:
            return self._parent.failure
        if not self._failure.done() or self._failure.cancelled():
            return None
        return self._failure.exception()

    async def wait_failed(self) -> None:
        """Wait until something fails and raise that; after `stop`, return."""
        if self._parent is not None:
            await self._parent.wait_failed()
            return
        await asyncio.shield(self._failure)

    async def wait_idle(self, timeout_s: float) -> None:
        """Wait until no task runs, at most `timeout_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def stop(self) -> None:
        """Cancel the tasks and wait for their end."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if not self._failure.done():
            self._failure.set_result(None)
        elif not self._failure.cancelled():
            # Marked as retrieved even without a waiter: `fail` may come after the last one left.
            self._failure.exception()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # By `stop`, or by a cancellation that leaked into it: then it must not go unnoticed.
            if not self._is_stopping and not self._has_failed:
                self.fail(StrayCancellationError(task))
        elif (error := task.exception()) is not None:
            self.fail(error)
