"""OrderlyService: consumes each queue in order, one batch at a time.

In clustering only while the broker's lock on the queue is valid. A batch that fails is retried in place after
a pause, forever unless `max_reconsume_times` is set; then its messages go to the dead letters, and the queue
continues. Handlers have no timeout, as in Java: abandoning one would break the order.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kourou.client.core.subscription import Subscriptions
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.consume_result import ConsumeContext, done_count
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.consumer_stats import StatsTable
from kourou.client.push.handler_calls import HandlerCalls
from kourou.client.push.handlers import Handler
from kourou.client.push.rebalance import QueueLocks
from kourou.client.push.send_back import SendBack
from kourou.client.push.worker_pool import Worker, WorkerPool
from kourou.protocol.message import MessageExt
from kourou.protocol.names import is_retry_topic
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_MAX_RUN_S: Final = 60.0
# Other tasks run at least this often, however quick handlers are.
_SLICE_S: Final = 0.005
_RELOCK_S: Final = 0.1
_RELOCK_FAILED_S: Final = 3.0
_MIN_SUSPEND_MS: Final = 10
_MAX_SUSPEND_MS: Final = 30_000


class OrderlyService:
    """Consumes for an orderly consumer. `locks` is None in broadcasting."""

    def __init__(
        self,
        pool_name: str,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        calls: HandlerCalls,
        send_back: SendBack,
        stats: StatsTable,
        tasks: TaskOwner,
        locks: QueueLocks | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._subscriptions = subscriptions
        self._calls = calls
        self._send_back = send_back
        self._stats = stats
        self._tasks = tasks
        self._locks = locks
        self.pool: WorkerPool[AssignedQueue] = WorkerPool(
            pool_name, options.concurrency, self._consume, tasks.fail, owner=calls.threads
        )

    def submit(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Schedule a queue, unless it is scheduled already."""
        if not assigned.is_scheduled:
            assigned.is_scheduled = True
            self.pool.put([assigned])

    @property
    def running(self) -> int:
        return self.pool.running

    def refuse(self) -> None:
        """Start no more handlers, not even for queued messages."""
        self.pool.refuse()

    def refuse_threads(self) -> None:
        """Nothing to do: the loop starts each handler."""

    async def stop(self, timeout_s: float) -> bool:
        """Wait for running handlers; False when some had to be cancelled."""
        return await self.pool.stop(timeout_s)

    # -- one queue -------------------------------------------------------------------------------

    async def _consume(self, worker: Worker[AssignedQueue], assigned: AssignedQueue) -> None:
        assigned.idle.clear()
        try:
            again_s = await self._consume_run(worker, assigned)
        except asyncio.CancelledError:
            assigned.rollback()
            if not self.pool.is_stopping:
                raise
            return  # the consumer stops: the messages are delivered to another member
        finally:
            assigned.idle.set()
        if assigned.is_dropped:
            return
        if again_s is None:
            assigned.is_scheduled = False
        else:
            self._loop.call_later(again_s, self.pool.put, [assigned])

    async def _consume_run(self, worker: Worker[AssignedQueue], assigned: AssignedQueue) -> float | None:
        """Consume until nothing is left, then None; else the seconds after which to continue."""
        turn = self._loop.time() + _SLICE_S
        end = turn + _MAX_RUN_S
        while not assigned.is_dropped and not self.pool.is_stopping:
            if self._locks is not None and not assigned.is_locked:
                return _RELOCK_S if await self._locks.lock(assigned) else _RELOCK_FAILED_S
            if self._loop.time() > end:
                return 0.0  # let other queues have the worker
            # Messages of a retry topic may belong to several handlers.
            size = 1 if is_retry_topic(assigned.queue.topic) else self._options.batch_size
            messages = assigned.take(size)
            if not messages:
                return None
            suspend_ms = await self._consume_batch(worker, assigned, messages)
            if suspend_ms is not None:
                return suspend_ms / 1000
            if self._loop.time() > turn:
                await asyncio.sleep(0)
                turn = self._loop.time() + _SLICE_S
        return None

    async def _consume_batch(
        self, worker: Worker[AssignedQueue], assigned: AssignedQueue, messages: list[MessageExt]
    ) -> int | None:
        """Consume one batch; None when it is consumed, else how long the queue pauses."""
        handler = self._handler(assigned, messages[0])
        if handler is None:
            _log.error("no handler for topic %s: %s waits", messages[0].topic, assigned.queue)
            assigned.rollback()
            return _MAX_SUSPEND_MS
        worker.began = began = self._loop.time()
        try:
            result, context, _ = await self._calls.call(worker, handler, assigned.queue, messages)
        finally:
            worker.began = 0.0
        stats = self._stats.of(messages[0].topic)
        stats.consume_s += self._loop.time() - began
        done = done_count(result, context, len(messages))
        stats.consumed += done
        if done == len(messages):
            assigned.commit_taken()
            return None
        stats.failed += len(messages) - done
        return await self._failed(assigned, messages[done:], context)

    def _handler(self, assigned: AssignedQueue, message: MessageExt) -> Handler | None:
        return assigned.subscription.handler or self._subscriptions.handler(message.topic)

    async def _failed(
        self, assigned: AssignedQueue, messages: list[MessageExt], context: ConsumeContext | None
    ) -> int | None:
        left = []
        for message in messages:
            is_given_up = message.reconsume_times >= self._options.max_attempts
            if not (is_given_up and await self._send_back.send_copy(message)):
                message.reconsume_times += 1
                left.append(message)
        assigned.put_back(left)
        assigned.commit_taken()
        if not left:
            return None
        given = None if context is None else context.suspend_ms
        suspend_ms = self._options.suspend_ms if given is None else given
        return max(_MIN_SUSPEND_MS, min(suspend_ms, _MAX_SUSPEND_MS))
