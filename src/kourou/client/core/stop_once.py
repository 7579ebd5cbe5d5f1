"""StopOnce: the end of a client, begun once and awaited by every caller of its `stop`.

It runs as a task of its own: a caller that is cancelled leaves it running, and a later caller waits for the
same end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from kourou.client.push.handler_scope import mark_handlers_of


class StopOnce:
    """One end. `work` is that of the first caller; used on one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether it has begun."""
        return self._task is not None

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin unless it has begun; the task, which must not be cancelled."""
        if self._task is None:
            # The end does not run as part of the handler that asks for it.
            context = copy_context()
            context.run(mark_handlers_of, None)
            self._task = asyncio.create_task(work(), name=f"stop {self._name}", context=context)
        return self._task

    async def wait(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin unless it has begun, and wait for it; what it raises is raised in each waiter."""
        await asyncio.shield(self.begin(work))
