"""Ending: the end of a client, begun once and waited for by all who ask for it.

It runs as a task of its own: who is cancelled while waiting leaves it running, and whoever asks again
waits for the same end, not for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from kourou.client.handler_scope import mark_handlers_of


class Ending:
    """One end. `work` is that of who asks first; used on one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether somebody asked for it."""
        return self._task is not None

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin unless it has begun; the task, which nobody is to cancel."""
        if self._task is None:
            # A handler that asks for it is not the one that ends the client.
            context = copy_context()
            context.run(mark_handlers_of, None)
            self._task = asyncio.create_task(work(), name=f"stop {self._name}", context=context)
        return self._task

    async def wait(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin unless it has begun, and wait for it; what it raises is raised to each who waits."""
        await asyncio.shield(self.begin(work))
