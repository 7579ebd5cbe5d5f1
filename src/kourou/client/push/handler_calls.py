"""HandlerCalls: one call of a user's handler, with hooks around it, and its outcome.

A handler that raises has failed, which is logged (failure_log.py). One that raises CancelledError without
having been cancelled has failed too; a cancellation passes through only when the consumer stops.
SyncHandlerCalls is the fast path for sync handlers: from a thread's queue to the result without a task for
each call. Hooks run on the loop around each call, so a consumer with hooks does not use it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kourou.client.core.failure_log import FailureLog, kind_of
from kourou.client.core.subscription import Subscription
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult, done_count
from kourou.client.push.handler_threads import HandlerThreads, as_exception
from kourou.client.push.handlers import (
    ConsumeHookContext,
    ConsumerHook,
    Handler,
    call_after,
    call_before,
    checked_result,
)
from kourou.client.push.worker_pool import Worker
from kourou.errors import MessageInProgressError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from kourou.protocol.names import is_retry_topic
from kourou.wording import counted

_log = logging.getLogger(__name__)


class Delivery(Protocol):
    """Where messages come from that a handler is called with: an assigned queue, or a queue of a pop."""

    @property
    def queue(self) -> MessageQueue:
        """The queue that they lie in."""

    @property
    def subscription(self) -> Subscription:
        """What selects them, and the handler."""

    @property
    def is_dropped(self) -> bool:
        """Whether nothing more of it is consumed."""

    def may_start(self, messages: Sequence[MessageExt]) -> bool:
        """Whether a handler may still be called with `messages`; called right before, from any thread."""

    def ack(self, message: MessageExt) -> bool:
        """A message is consumed; False when it already was."""


class SyncHandlerCall:
    """One call of a handler."""

    __slots__ = ("_calls", "assigned", "began", "context", "handler", "is_timed_out", "messages")

    def __init__(
        self, calls: SyncHandlerCalls, handler: Handler, assigned: Delivery, messages: list[MessageExt]
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
        """Call the handler, in a thread, unless the messages are another consumer's by now."""
        if self._calls.is_stopping or not self.assigned.may_start(self.messages):
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
        """Report the outcome, on the loop."""
        if self.began:
            self._calls.ended(self, result, error)


class SyncHandlerCalls:
    """Calls the sync handlers of one consumer. `ended` is called on the loop with each call and its
    outcome."""

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
        """Calls whose handler has not returned."""
        self.is_stopping = False

    def put(self, handler: Handler, assigned: Delivery, batches: list[list[MessageExt]], level: int) -> None:
        """Queue messages of one priority for the handler; ignored once the consumer stops."""
        if self.is_stopping:
            return
        calls = [SyncHandlerCall(self, handler, assigned, messages) for messages in batches]
        self._threads.submit([(call.run, (), call.ended) for call in calls], level)

    def refuse(self) -> None:
        """Start no more handlers, not even for queued messages."""
        self.is_stopping = True

    async def stop(self, timeout_s: float) -> bool:
        """Wait for running handlers; False when some are still running, which cannot be ended."""
        self.refuse()
        if await self._threads.drain(timeout_s):
            return True
        _log.warning(
            "%s in threads did not end within %g s; unacknowledged messages will be delivered again",
            counted(len(self.running), "handler"),
            timeout_s,
        )
        return False


SUCCESS: Final = ConsumeResult.SUCCESS
LATER: Final = ConsumeResult.LATER


class Outcome(NamedTuple):
    """The outcome of a call."""

    result: ConsumeResult
    context: ConsumeContext | None
    error: BaseException | None = None


_Call = Callable[[Worker[Any], Handler, MessageQueue, list[MessageExt]], Coroutine[Any, Any, Outcome]]
_SUCCEEDED: Final = Outcome(SUCCESS, None)


class HandlerCalls:
    """Calls the handlers of one consumer."""

    def __init__(
        self,
        group: str,
        *,
        is_batch: bool,
        hooks: Sequence[ConsumerHook],
        threads: HandlerThreads,
        is_stopping: Callable[[], bool],
        failures: FailureLog,
    ) -> None:
        self._group = group
        self._is_batch = is_batch
        self._hooks = tuple(hooks)
        self.threads = threads
        """Where sync handlers run."""
        self._is_stopping = is_stopping
        self.failures = failures
        # Called directly if there are no hooks: each step costs every message.
        self.call: _Call = self._with_hooks if hooks else self._guarded
        """Call a handler; CancelledError only when the consumer stops."""

    async def _with_hooks(
        self, worker: Worker[Any], handler: Handler, queue: MessageQueue, messages: list[MessageExt]
    ) -> Outcome:
        seen = ConsumeHookContext(self._group, queue, messages)
        call_before(self._hooks, seen, self.failures)
        began = time.perf_counter()
        try:
            outcome = await self._guarded(worker, handler, queue, messages)
            seen.result, seen.error, seen.is_timeout = outcome.result, outcome.error, worker.is_timed_out
            return outcome
        finally:
            seen.elapsed_ms = (time.perf_counter() - began) * 1000
            call_after(self._hooks, seen, self.failures)

    async def _guarded(
        self, worker: Worker[Any], handler: Handler, queue: MessageQueue, messages: list[MessageExt]
    ) -> Outcome:
        context = ConsumeContext(queue) if handler.takes_context else None
        try:
            argument = messages if self._is_batch else messages[0]
            arguments = (argument,) if context is None else (argument, context)
            if handler.is_async:
                result = await handler.function(*arguments)
            else:
                # With the context variables of this task, where a hook may have set some.
                result = await self.threads.run(contextvars.copy_context().run, handler.function, *arguments)
                if inspect.isawaitable(result):
                    result = await result
            if worker.is_timed_out:  # the handler suppressed its cancellation
                _uncancel()
            return _outcome(handler, context, result)
        except asyncio.CancelledError as error:
            if self._is_stopping():
                raise
            _uncancel()
            if not worker.is_timed_out:
                which = _coming_again(queue, messages, context)
                self.failures.warn((handler.name, type(error)), f"{handler.name} was cancelled", which)
            return Outcome(LATER, context, error)
        except Exception as error:
            return self._failure(handler, queue, messages, context, error)

    def sync_calls(
        self, ended: Callable[[SyncHandlerCall, Any, BaseException | None], None]
    ) -> SyncHandlerCalls | None:
        """The fast path for sync handlers; None if there are hooks, which run around each call."""
        if self._hooks:
            return None
        return SyncHandlerCalls(self.threads, is_batch=self._is_batch, ended=ended)

    def outcome(
        self,
        handler: Handler,
        queue: MessageQueue,
        messages: list[MessageExt],
        context: ConsumeContext | None,
        result: object,
        error: BaseException | None,
    ) -> Outcome:
        """The outcome of a call that has returned or raised."""
        try:
            if error is not None:
                raise as_exception(error)
            return _outcome(handler, context, result)
        except Exception as failure:
            return self._failure(handler, queue, messages, context, failure)

    def _failure(
        self,
        handler: Handler,
        queue: MessageQueue,
        messages: list[MessageExt],
        context: ConsumeContext | None,
        error: Exception,
    ) -> Outcome:
        which = f"{type(error).__name__}: {error!s:.200}; {_coming_again(queue, messages, context)}"
        if isinstance(error, MessageInProgressError):  # not a fault of the handler
            self.failures.warn((handler.name, type(error)), f"{handler.name} failed", which)
        else:
            self.failures.warn((handler.name, kind_of(error)), f"{handler.name} failed", which, error)
        return Outcome(LATER, context, error)


def _outcome(handler: Handler, context: ConsumeContext | None, result: object) -> Outcome:
    if context is None and (result is None or result is SUCCESS):
        return _SUCCEEDED
    return Outcome(checked_result(result, handler), context)


def _uncancel() -> None:
    """Clear the cancellation: the task continues, and `asyncio.timeout` in later handlers must work."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _coming_again(queue: MessageQueue, batch: Sequence[MessageExt], context: ConsumeContext | None) -> str:
    messages = batch[done_count(LATER, context, len(batch)) :]
    if not messages:
        return f"its {len(batch)} messages are consumed"
    first = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    # A retry shows its original topic; queue and offset are those of the retry topic.
    topic = f"{first.topic}, now in {queue.topic}" if is_retry_topic(queue.topic) else first.topic
    where = f"{topic}, queue {first.queue_id}, offset {first.queue_offset}"
    return f"message {first.msg_id} of {where}{more}: attempt {first.reconsume_times + 1}"
