"""LitePulls: pulls the queues of a lite pull consumer in the background, ahead of its polls.

Errors of a broker are logged and retried; a failure of the client itself fails the consumer, and so its next
poll. LiteQueue holds what was pulled of one queue and not polled yet.
Not here: which queues (lite_pull_consumer.py), a single pull (pulls.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NamedTuple

from kourou.client.core.instance import ClientInstance
from kourou.client.core.namespaces import Namespace
from kourou.client.core.turns import Turns, level_of
from kourou.client.pull.lite_pull_options import LitePullOptions
from kourou.client.pull.pulls import BEHIND_DELAY_S, PullResult, PullStatus, QueuePulls, is_behind
from kourou.client.push.assigned_queue import FlowLimits
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import MessageQueue, SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt

_log = logging.getLogger(__name__)


class _Batch(NamedTuple):
    """The messages of one pull; the queue continues at `next_offset`."""

    messages: list[MessageExt]
    next_offset: int
    size_bytes: int
    level: int
    """The highest priority of its messages."""


class LiteQueue:
    """One queue, from its assignment to its removal."""

    def __init__(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        limits: FlowLimits,
        *,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.alive = alive
        """Reports to the assigner that the queue is still being pulled."""
        self.pull_offset: int | None = None
        """Where to pull next; None: the group's offset has to be requested."""
        self.polled_offset: int | None = None
        """Everything below was polled."""
        self.done_offset: int | None = None
        """Everything below was polled, and a later poll has begun."""
        self.is_paused = False
        self.is_dropped = False
        self.epoch = 0
        """Counts seeks: results of pulls from before a seek are discarded."""
        self.count = 0
        self.size_bytes = 0
        self._limits = limits
        self._batches: deque[_Batch] = deque()
        self._changed = asyncio.Event()
        self._pulling: asyncio.Future[PullResult] | None = None

    # -- messages --------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether it has messages for a poll."""
        return bool(self._batches) and not self.is_paused

    @property
    def level(self) -> int:
        """The priority of what a poll would take: the highest of the messages of one pull."""
        return self._batches[0].level

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be pulled."""
        if not self._batches:
            return False
        last = self._batches[-1].messages[-1].queue_offset
        span = last - self._batches[0].messages[0].queue_offset
        return self._limits.problem(self.count, self.size_bytes, span) is not None

    def begin(self, queue_offset: int) -> None:
        """Continue at an offset; no messages are held."""
        self.pull_offset = self.polled_offset = self.done_offset = queue_offset

    def add(self, messages: list[MessageExt], next_offset: int) -> None:
        """Add the messages of a pull; there may be none left after filtering."""
        self.pull_offset = next_offset
        if messages:
            size_bytes = sum(message.store_size for message in messages)
            level = max(map(level_of, messages))
            self._batches.append(_Batch(messages, next_offset, size_bytes, level))
            self.count += len(messages)
            self.size_bytes += size_bytes
        elif self._batches:
            # Nothing to poll there, so the offset advances with the batch before it.
            self._batches[-1] = self._batches[-1]._replace(next_offset=next_offset)
        else:
            self.polled_offset = next_offset

    def moved(self, next_offset: int) -> None:
        """Continue at the broker's offset: an operator reset the group, or messages were deleted."""
        if self.polled_offset is not None and next_offset <= self.polled_offset:
            # The messages held are delivered again.
            self._clear()
            self.begin(next_offset)
        else:
            self.add([], next_offset)

    def take(self) -> list[MessageExt]:
        """The messages of one pull, for a poll."""
        batch = self._batches.popleft()
        self.count -= len(batch.messages)
        self.size_bytes -= batch.size_bytes
        self.polled_offset = batch.next_offset
        self._changed.set()
        return batch.messages

    def finish_polled(self) -> None:
        """The next poll begins: messages of earlier polls count as consumed."""
        self.done_offset = self.polled_offset

    # -- changes ---------------------------------------------------------------------------------

    def seek(self, queue_offset: int) -> None:
        """Continue at another offset; messages held or in flight are discarded."""
        self._interrupt()
        self.begin(queue_offset)

    def drop(self) -> None:
        self.is_dropped = True
        self._interrupt()

    def pause(self, is_paused: bool) -> None:
        """Pause or resume polling and pulling."""
        self.is_paused = is_paused
        self._changed.set()

    def _interrupt(self) -> None:
        self.epoch += 1
        self._clear()
        self._changed.set()
        if self._pulling is not None:
            self._pulling.cancel()

    def _clear(self) -> None:
        self._batches.clear()
        self.count = self.size_bytes = 0

    # -- for the puller --------------------------------------------------------------------------

    async def wait_changed(self, timeout_s: float) -> None:
        """Wait for a poll, pause, resume, seek or drop, at most `timeout_s`."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def wait_pull(self, pulling: asyncio.Future[PullResult]) -> PullResult | None:
        """The result of a pull; None when a seek or the removal of the queue has made it obsolete."""
        epoch = self.epoch
        self._pulling = pulling
        try:
            result = await pulling
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if epoch == self.epoch or (task is not None and task.cancelling()):
                raise
            return None
        finally:
            self._pulling = None
        return result if epoch == self.epoch else None


_FLOW_CONTROL_DELAY_S: Final = 0.02
_LOOK_AGAIN_S: Final = 30.0


class LitePulls:
    """The queues of one consumer, by their names at the brokers."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: LitePullOptions,
        namespace: Namespace,
        pulls: QueuePulls,
        start_offset: Callable[[MessageQueue], Awaitable[int]],
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._namespace = namespace
        self._pulls = pulls
        self._start_offset = start_offset
        self._limits = FlowLimits(
            options.pull_threshold_messages, options.pull_threshold_bytes, options.max_span
        )
        self._turns = Turns()
        # In the order in which they are polled, for each priority: a polled queue goes to the end.
        self._ready: dict[LiteQueue, None] = {}
        self._arrived = asyncio.Event()
        self.queues: dict[MessageQueue, LiteQueue] = {}

    # -- queues ----------------------------------------------------------------------------------

    def add(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        queue_offset: int | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to pull a queue; without an offset, from the group's offset."""
        lite = LiteQueue(queue, subscription, self._limits, alive=alive)
        if queue_offset is not None:
            lite.begin(queue_offset)
        self.queues[queue] = lite
        self._instance.tasks.start(self._keep_pulling(lite), f"pull {queue}")

    def remove(self, queue: MessageQueue) -> LiteQueue | None:
        """Stop pulling a queue; returns its last state."""
        lite = self.queues.pop(queue, None)
        if lite is not None:
            lite.drop()
            self._ready.pop(lite, None)
            self._pulls.forget(queue)
        return lite

    def pause(self, lite: LiteQueue, is_paused: bool) -> None:
        """Pause or resume a queue."""
        lite.pause(is_paused)
        self._update_ready(lite)

    def seek(self, lite: LiteQueue, queue_offset: int) -> None:
        lite.seek(queue_offset)
        self._ready.pop(lite, None)

    # -- polls -----------------------------------------------------------------------------------

    def take_nowait(self) -> list[MessageExt]:
        """The messages of one pull of the next queue; empty when there are none."""
        if not self._ready:
            return []
        level = self._turns.next_level({lite.level for lite in self._ready})
        lite = next(lite for lite in self._ready if lite.level == level)
        was_full = self._is_full
        del self._ready[lite]
        messages = lite.take()
        self._update_ready(lite)
        if was_full:
            for other in self.queues.values():
                other.pause(other.is_paused)  # wakes those that wait for room
        return messages

    async def wait_arrived(self) -> None:
        """Wait until there may be messages."""
        self._arrived.clear()
        if not self._ready:
            await self._arrived.wait()

    def wake(self) -> None:
        """Wake a waiting poll, to check again."""
        self._arrived.set()

    def _update_ready(self, lite: LiteQueue) -> None:
        if lite.is_ready:
            self._ready[lite] = None
            self._arrived.set()
        else:
            self._ready.pop(lite, None)

    @property
    def _is_full(self) -> bool:
        return sum(lite.count for lite in self.queues.values()) >= self._options.pull_threshold_all

    # -- one queue -------------------------------------------------------------------------------

    async def _keep_pulling(self, lite: LiteQueue) -> None:
        failures = 0
        while not lite.is_dropped:
            lite.alive()
            try:
                if lite.is_paused or lite.is_full or self._is_full:
                    await lite.wait_changed(_LOOK_AGAIN_S)
                elif lite.pull_offset is None:
                    await self._begin(lite)
                else:
                    await self._pull(lite, lite.pull_offset)
                failures = 0
            except KourouError as error:
                failures += 1
                await self._after_failure(lite, error, failures)

    async def _begin(self, lite: LiteQueue) -> None:
        epoch = lite.epoch
        queue_offset = await self._start_offset(lite.queue)
        if lite.epoch == epoch:
            lite.begin(queue_offset)

    async def _pull(self, lite: LiteQueue, queue_offset: int) -> None:
        pulling = asyncio.ensure_future(
            self._pulls.pull(
                lite.queue,
                lite.subscription,
                queue_offset=queue_offset,
                max_messages=self._options.pull_batch_size,
                suspend_ms=self._options.suspend_ms,
                timeout_ms=self._options.suspended_pull_timeout_ms,
            )
        )
        result = await lite.wait_pull(pulling)
        if result is None:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning(
                "%s: offset reset from %d to %d (group %s; the queue has offsets %d to %d)",
                lite.queue,
                queue_offset,
                result.next_begin_offset,
                self._group,
                result.min_offset,
                result.max_offset,
            )
            lite.moved(result.next_begin_offset)
            self._update_ready(lite)
            return
        tags = frozenset(lite.subscription.tags_set)
        shown = replace(result, tags=tags, namespace=self._namespace.name)
        lite.add(shown.messages(), result.next_begin_offset)
        self._update_ready(lite)
        if is_behind(self._instance.routes, result, queue_offset):
            await lite.wait_changed(BEHIND_DELAY_S)

    async def _after_failure(self, lite: LiteQueue, error: KourouError, failures: int) -> None:
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            await lite.wait_changed(_FLOW_CONTROL_DELAY_S)
            return
        is_logged = self._instance.api.refusals.report(f"group {self._group}", error)
        # Only the first of consecutive failures is a warning.
        level = logging.WARNING if failures == 1 and not is_logged else logging.DEBUG
        _log.log(level, "group %s: pull of %s: %s", self._group, lite.queue, error)
        await self._instance.masters.pause(lite.queue.broker_name, error, failures)
