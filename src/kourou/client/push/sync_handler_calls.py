"""SyncHandlerCalls: calls of sync handlers, from a thread's queue to their result, without a task for each.

What handler_calls.py does for one call of any handler, for many of a plain one. Consume hooks run on the
loop around each call: with hooks that way is taken.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.consume_result import ConsumeContext
from kourou.client.push.handler_threads import HandlerThreads
from kourou.client.push.handlers import Handler
from kourou.protocol.message import MessageExt
from kourou.wording import counted

_log = logging.getLogger(__name__)


class SyncHandlerCall:
    """One call of a handler."""

    __slots__ = ("_calls", "assigned", "began", "context", "handler", "is_timed_out", "messages")

    def __init__(
        self, calls: SyncHandlerCalls, handler: Handler, assigned: AssignedQueue, messages: list[MessageExt]
    ) -> None:
        self._calls = calls
        self.handler = handler
        self.assigned = assigned
        self.messages = messages
        self.context: ConsumeContext | None = None
        self.began = 0.0
        """When the handler was called, by the monotonic clock; 0.0 if it was not."""
        self.is_timed_out = False

    def run(self) -> Any:
        """Call the handler, in a thread; not when somebody else has the queue by now."""
        if self.assigned.is_dropped or self._calls.is_stopping:
            return None
        argument = self.messages if self._calls.is_batch else self.messages[0]
        running = self._calls.running
        self.began = time.monotonic()
        running.add(self)
        try:
            if not self.handler.takes_context:
                return self.handler.function(argument)
            self.context = ConsumeContext(self.assigned.queue)
            return self.handler.function(argument, self.context)
        finally:
            running.discard(self)

    def ended(self, result: Any, error: BaseException | None) -> None:
        """What came of it, on the loop."""
        if self.began:
            self._calls.ended(self, result, error)


class SyncHandlerCalls:
    """Calls the plain handlers of one consumer. `ended` gets each call with what came of it, on the loop."""

    def __init__(
        self,
        threads: HandlerThreads,
        *,
        is_batch: bool,
        ended: Callable[[SyncHandlerCall, Any, BaseException | None], None],
    ) -> None:
        self._threads = threads
        self.is_batch = is_batch
        self.ended = ended
        self.running: set[SyncHandlerCall] = set()
        """Those whose handler has not returned."""
        self.is_stopping = False

    def put(self, handler: Handler, assigned: AssignedQueue, batches: list[list[MessageExt]]) -> None:
        """Have messages handled; dropped once the consumer stops."""
        if self.is_stopping:
            return
        calls = [SyncHandlerCall(self, handler, assigned, messages) for messages in batches]
        self._threads.submit([(call.run, (), call.ended) for call in calls])

    def refuse(self) -> None:
        """Begin with nothing more, not even with what waits."""
        self.is_stopping = True

    async def stop(self, timeout_s: float) -> bool:
        """Wait for the handlers that run; False when some go on, which nobody can end."""
        self.refuse()
        if await self._threads.drain(timeout_s):
            return True
        _log.warning(
            "%s in threads did not end within %g s; unacknowledged messages will be delivered again",
            counted(len(self.running), "handler"),
            timeout_s,
        )
        return False
