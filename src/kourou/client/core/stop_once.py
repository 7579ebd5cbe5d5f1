"""StopOnce: the stop of a client, begun once and awaited by every caller of `stop`.

It runs as a separate task: a caller that is cancelled leaves it running, and a later caller waits for the
same stop. Also here: the mark by which a consumer recognises that its own handler calls `stop`, and the
signals that stop a consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar, copy_context
from typing import Any, Final

_owner: Final[ContextVar[object]] = ContextVar("kourou_handlers_of", default=None)


def mark_handlers_of(owner: object) -> None:
    """Mark this task or thread as one that runs handlers of `owner`."""
    _owner.set(owner)


def is_handler_of(owner: object) -> bool:
    """Whether the caller is a handler of `owner`, or was started by one."""
    return _owner.get() is owner


class StopOnce:
    """One stop. `work` is that of the first caller; used on one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    @property
    def is_begun(self) -> bool:
        return self._task is not None

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin unless it has begun; returns the task, which must not be cancelled."""
        if self._task is None:
            # The stop does not run as part of the handler that requested it.
            context = copy_context()
            context.run(mark_handlers_of, None)
            self._task = asyncio.create_task(work(), name=f"stop {self._name}", context=context)
        return self._task

    async def wait(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin unless it has begun, and wait for it; its exception is raised in each waiter."""
        await asyncio.shield(self.begin(work))


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def signals_call(work: Callable[[], object]) -> Iterator[None]:
    """Inside the block the first SIGTERM or Ctrl-C calls `work`, on the loop; then, and after the block, the
    previous handlers are in place again. Only in the main thread, where Python handles signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while taken:
            number, before = taken.popitem()
            asyncio.get_running_loop().remove_signal_handler(number)
            # None: a handler that was not installed from Python, and cannot be restored from it.
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def on_signal() -> None:
        restore()
        work()

    try:
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before is signal.SIG_IGN:  # as under nohup: to be ignored
                continue
            try:
                asyncio.get_running_loop().add_signal_handler(number, on_signal)
            except NotImplementedError:  # Windows
                break
            taken[number] = before
        yield
    finally:
        restore()
