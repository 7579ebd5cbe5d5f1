"""ConcurrentService: consumes messages as they arrive, many at once.

A failed message is sent back to the broker, which delivers it again after a delay; if no broker accepts it,
it is retried here after 5 s. The messages of a handler that takes longer than `consume_timeout_ms` are sent
back with delay level 3, as in Java. An async handler is cancelled and its worker continues; a sync one cannot
be cancelled, so it occupies its thread until it returns. Async handlers run in tasks of the loop
(worker_pool.py), sync ones in threads (handler_calls.py).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from itertools import groupby
from typing import Any, Final, TypeAlias

from kourou.client.core.subscription import Subscriptions
from kourou.client.core.turns import level_of
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult, done_count
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.consumer_stats import StatsTable
from kourou.client.push.handler_calls import Delivery, HandlerCalls, SyncHandlerCall
from kourou.client.push.send_back import Returns
from kourou.client.push.worker_pool import Worker, WorkerPool
from kourou.protocol.message import MessageExt
from kourou.protocol.names import is_retry_topic
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

AGAIN_LOCALLY_S: Final = 5.0
TIMEOUT_DELAY_LEVEL: Final = 3
_MAX_LOOK_S: Final = 10.0

Batch: TypeAlias = tuple[Delivery, list[MessageExt]]


class ConcurrentService:
    """Consumes for a consumer that is not orderly."""

    def __init__(
        self,
        pool_name: str,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        calls: HandlerCalls,
        send_back: Returns,
        stats: StatsTable,
        tasks: TaskOwner,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._subscriptions = subscriptions
        self._calls = calls
        self._send_back = send_back
        self._stats = stats
        self._tasks = tasks
        self.pool: WorkerPool[Batch] = WorkerPool(
            pool_name, options.concurrency, self._consume, tasks.fail, owner=calls.threads
        )
        self._sync_calls = calls.sync_calls(self._sync_ended)
        # Coroutines returned by sync handlers; `concurrency` limits them too.
        self._results: set[asyncio.Task[None]] = set()
        self._awaiting = asyncio.Semaphore(options.concurrency)
        tasks.start(self._watch_timeouts(), "consume timeouts")

    def submit(self, assigned: Delivery, messages: list[MessageExt]) -> None:
        levels = {level_of(message) for message in messages}
        if len(levels) == 1:
            self._queue(assigned, messages, levels.pop())
        else:
            for level in sorted(levels, reverse=True):
                self._queue(assigned, [each for each in messages if level_of(each) == level], level)

    def _queue(self, assigned: Delivery, messages: list[MessageExt], level: int) -> None:
        """Queue messages of one priority for their handlers."""
        batches = self._batches(assigned, messages)
        handler = assigned.subscription.handler
        if self._sync_calls is not None and handler is not None and not handler.is_async:
            self._sync_calls.put(handler, assigned, batches, level)
        else:
            self.pool.put([(assigned, batch) for batch in batches], level)

    def _batches(self, assigned: Delivery, messages: list[MessageExt]) -> list[list[MessageExt]]:
        size = self._options.batch_size
        if size == 1:
            return [[message] for message in messages]
        runs = [messages]
        if is_retry_topic(assigned.queue.topic):  # may belong to several handlers
            runs = [list(run) for _, run in groupby(messages, key=lambda message: message.topic)]
        return [run[start : start + size] for run in runs for start in range(0, len(run), size)]

    @property
    def running(self) -> int:
        plain = 0 if self._sync_calls is None else len(self._sync_calls.running)
        return self.pool.running + plain + min(len(self._results), self._options.concurrency)

    def refuse(self) -> None:
        """Start no more handlers, not even for queued messages."""
        self.pool.refuse()
        self.refuse_threads()

    def refuse_threads(self) -> None:
        """The same for sync handlers, which threads start without the loop; from any thread."""
        if self._sync_calls is not None:
            self._sync_calls.refuse()

    async def stop(self, timeout_s: float) -> bool:
        """Wait for running handlers; False when some had to be abandoned."""
        self.refuse()
        if self._sync_calls is None:
            return await self.pool.stop(timeout_s)
        deadline = self._loop.time() + timeout_s
        ended = await asyncio.gather(self.pool.stop(timeout_s), self._sync_calls.stop(timeout_s))
        if self._results:
            await asyncio.wait(self._results, timeout=max(0.0, deadline - self._loop.time()))
        return all(ended) and not self._results

    # -- one batch -------------------------------------------------------------------------------

    async def _consume(self, worker: Worker[Batch], batch: Batch) -> None:
        assigned, messages = batch
        if not assigned.may_start(messages):
            return
        topic = messages[0].topic
        handler = assigned.subscription.handler or self._subscriptions.handler(topic)
        if handler is None:
            which = f"message {messages[0].msg_id} will be delivered again"
            self._calls.failures.warn(("no handler", topic), f"no handler for topic {topic}", which)
            await self._failed(assigned, messages, 0)
            return
        worker.is_timed_out = False
        worker.began = began = self._loop.time()
        try:
            result, context, _ = await self._calls.call(worker, handler, assigned.queue, messages)
        except asyncio.CancelledError:
            if not self.pool.is_stopping:
                raise
            return  # the consumer stops: the messages are delivered to another member
        finally:
            worker.began = 0.0
        stats = self._stats.of(topic)
        stats.consume_s += self._loop.time() - began
        if worker.is_timed_out and not handler.is_async:
            return  # was sent back while the handler ran
        if result is ConsumeResult.SUCCESS and (context is None or context.ack_index is None):
            stats.consumed += len(messages)
            for message in messages:
                assigned.ack(message)
            return
        await self._settle(worker.is_timed_out, assigned, messages, result, context)

    def _sync_ended(self, call: SyncHandlerCall, result: Any, error: BaseException | None) -> None:
        """Handle the end of a sync handler; success needs no task."""
        if error is None and inspect.isawaitable(result):
            task = self._tasks.start(self._await_result(call, result), "result of a handler")
            self._results.add(task)
            task.add_done_callback(self._results.discard)
            return
        stats = self._stats.of(call.messages[0].topic)
        stats.consume_s += time.monotonic() - call.began
        if call.is_timed_out:
            return  # was sent back while the handler ran
        queue = call.assigned.queue
        outcome = self._calls.outcome(call.handler, queue, call.messages, call.context, result, error)
        if outcome.result is ConsumeResult.SUCCESS and (
            call.context is None or call.context.ack_index is None
        ):
            stats.consumed += len(call.messages)
            for message in call.messages:
                call.assigned.ack(message)
        else:
            settled = self._settle(False, call.assigned, call.messages, outcome.result, call.context)
            self._tasks.start(settled, "messages of a handler that failed")

    async def _await_result(self, call: SyncHandlerCall, result: Any) -> None:
        """Await the coroutine that a sync handler returned, such as a lambda around an async handler."""
        try:
            async with self._awaiting:
                if call.assigned.is_dropped or self.pool.is_stopping:
                    return  # not started: the message is delivered again
                call.began = time.monotonic()
                awaited, error = await self._guarded_result(call, result)
        finally:
            if inspect.iscoroutine(result):
                result.close()
        self._sync_ended(call, awaited, error)

    async def _guarded_result(self, call: SyncHandlerCall, result: Any) -> tuple[Any, BaseException | None]:
        try:
            async with asyncio.timeout(self._options.consume_timeout_ms / 1000) as limit:
                return await result, None
        except asyncio.CancelledError as error:
            if self.pool.is_stopping:
                raise
            return None, error  # something it awaited was cancelled
        except Exception as error:
            if limit.expired():
                call.is_timed_out = True
                self._send_back_late(call.assigned, call.messages)
            return None, error

    async def _settle(
        self,
        is_timed_out: bool,
        assigned: Delivery,
        messages: list[MessageExt],
        result: ConsumeResult,
        context: ConsumeContext | None,
    ) -> None:
        """Handle a call that failed, or succeeded in part."""
        done = done_count(result, context, len(messages))
        self._stats.of(messages[0].topic).consumed += done
        for message in messages[:done]:
            assigned.ack(message)
        level = TIMEOUT_DELAY_LEVEL if is_timed_out else 0 if context is None else context.delay_level
        if failed := messages[done:]:
            await self._failed(assigned, failed, level)

    async def _failed(self, assigned: Delivery, messages: list[MessageExt], delay_level: int) -> None:
        self._stats.of(messages[0].topic).failed += len(messages)
        if assigned.is_dropped:
            return  # the next member gets them again
        if self._options.is_broadcasting:
            for message in messages:
                self._calls.failures.warn(
                    "broadcasting",
                    "broadcasting: a failed message is not retried",
                    f"message {message.msg_id}",
                )
                assigned.ack(message)
            return
        sent = await asyncio.gather(*(self._send_back.send(message, delay_level) for message in messages))
        left = []
        for message, is_sent in zip(messages, sent, strict=True):
            if is_sent:
                assigned.ack(message)
            else:
                message.reconsume_times += 1
                left.append(message)
        if left:
            self._loop.call_later(AGAIN_LOCALLY_S, self.submit, assigned, left)

    # -- handlers that take too long -------------------------------------------------------------

    async def _watch_timeouts(self) -> None:
        timeout_s = self._options.consume_timeout_ms / 1000
        while True:
            await asyncio.sleep(min(timeout_s / 4, _MAX_LOOK_S))
            for worker in self.pool.workers:
                if worker.began and self._loop.time() - worker.began > timeout_s and not worker.is_timed_out:
                    self._give_up(worker)
            for call in () if self._sync_calls is None else self._sync_calls.running.copy():
                if time.monotonic() - call.began > timeout_s and not call.is_timed_out:
                    call.is_timed_out = True
                    self._send_back_late(call.assigned, call.messages)

    def _give_up(self, worker: Worker[Batch]) -> None:
        assert worker.item is not None and worker.task is not None
        assigned, messages = worker.item
        worker.is_timed_out = True
        handler = assigned.subscription.handler or self._subscriptions.handler(messages[0].topic)
        if handler is None or not handler.is_async:
            self._send_back_late(assigned, messages)
            return
        self._log_timeout(assigned, messages)
        worker.task.cancel()

    def _send_back_late(self, assigned: Delivery, messages: list[MessageExt]) -> None:
        self._log_timeout(assigned, messages)
        self._tasks.start(self._failed(assigned, messages, TIMEOUT_DELAY_LEVEL), "timed-out messages")

    def _log_timeout(self, assigned: Delivery, messages: list[MessageExt]) -> None:
        self._stats.timed_out += 1
        _log.warning(
            "message %s of %s is sent back: its handler takes longer than %d ms",
            messages[0].msg_id,
            assigned.queue,
            self._options.consume_timeout_ms,
        )
