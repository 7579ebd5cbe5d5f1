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
from kourou.client.pull.lite_pull_options import LitePullOptions
from kourou.client.pull.pulls import PullResult, PullStatus, QueuePulls
from kourou.client.push.assigned_queue import FlowLimits
from kourou.errors import KourouError, NoRouteError, RemotingError, ResponseError
from kourou.protocol.bodies import MessageQueue, SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt

_log = logging.getLogger(__name__)


class _Batch(NamedTuple):
    """What one pull brought; the queue goes on at `next_offset`."""

    messages: list[MessageExt]
    next_offset: int
    size_bytes: int


class LiteQueue:
    """One queue, from its assignment to its end."""

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
        """Tells whoever assigned it that it is looked after."""
        self.pull_offset: int | None = None
        """Where to pull next; None: where the group is has to be asked."""
        self.polled_offset: int | None = None
        """Everything below was polled."""
        self.done_offset: int | None = None
        """Everything below was polled, and a later poll shows that it is done with."""
        self.is_paused = False
        self.is_dropped = False
        self.epoch = 0
        """Counts seeks: what was asked for before one is not wanted after it."""
        self.count = 0
        self.size_bytes = 0
        self._limits = limits
        self._batches: deque[_Batch] = deque()
        self._changed = asyncio.Event()
        self._pulling: asyncio.Future[PullResult] | None = None

    # -- messages --------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether a poll may take messages of it."""
        return bool(self._batches) and not self.is_paused

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be pulled."""
        if not self._batches:
            return False
        last = self._batches[-1].messages[-1].queue_offset
        span = last - self._batches[0].messages[0].queue_offset
        return self._limits.problem(self.count, self.size_bytes, span) is not None

    def begin(self, queue_offset: int) -> None:
        """Go on at an offset; nothing of the queue is in hand."""
        self.pull_offset = self.polled_offset = self.done_offset = queue_offset

    def add(self, messages: list[MessageExt], next_offset: int) -> None:
        """Take in what a pull brought; there may be nothing left of it after filtering."""
        self.pull_offset = next_offset
        if messages:
            size_bytes = sum(message.store_size for message in messages)
            self._batches.append(_Batch(messages, next_offset, size_bytes))
            self.count += len(messages)
            self.size_bytes += size_bytes
        elif self._batches:
            # Nothing to poll there, so it is passed together with what comes before it.
            self._batches[-1] = self._batches[-1]._replace(next_offset=next_offset)
        else:
            self.polled_offset = next_offset

    def moved(self, next_offset: int) -> None:
        """The broker says to go on elsewhere: an operator reset the group, or messages are gone there."""
        if self.polled_offset is not None and next_offset <= self.polled_offset:
            # What is in hand comes again.
            self._clear()
            self.begin(next_offset)
        else:
            self.add([], next_offset)

    def take(self) -> list[MessageExt]:
        """Hand out what one pull brought."""
        batch = self._batches.popleft()
        self.count -= len(batch.messages)
        self.size_bytes -= batch.size_bytes
        self.polled_offset = batch.next_offset
        self._changed.set()
        return batch.messages

    def finish_polled(self) -> None:
        """Whoever polls again is done with what he got before."""
        self.done_offset = self.polled_offset

    # -- changes ---------------------------------------------------------------------------------

    def seek(self, queue_offset: int) -> None:
        """Go to another offset; what is in hand or on its way is forgotten."""
        self._interrupt()
        self.begin(queue_offset)

    def drop(self) -> None:
        """Not ours any more."""
        self.is_dropped = True
        self._interrupt()

    def pause(self, is_paused: bool) -> None:
        """Hand out and pull nothing, or do so again."""
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

    # -- for who pulls ---------------------------------------------------------------------------

    async def wait_changed(self, timeout_s: float) -> None:
        """Wait until something is polled, paused, resumed, sought or dropped, at most so long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def wait_pull(self, pulling: asyncio.Future[PullResult]) -> PullResult | None:
        """What a pull brings; None when a seek or the queue's end has made it worthless."""
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


_FAILURE_DELAY_S: Final = 1.0
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
        # In the order in which they are polled: a queue that had its turn goes to the end.
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
        """Pull a queue from now on; without an offset, from where the group is."""
        lite = LiteQueue(queue, subscription, self._limits, alive=alive)
        if queue_offset is not None:
            lite.begin(queue_offset)
        self.queues[queue] = lite
        self._instance.tasks.start(self._keep_pulling(lite), f"pull {queue}")

    def remove(self, queue: MessageQueue) -> LiteQueue | None:
        """Pull a queue no more; what it was, to look at."""
        lite = self.queues.pop(queue, None)
        if lite is not None:
            lite.drop()
            self._ready.pop(lite, None)
            self._pulls.forget(queue)
        return lite

    def pause(self, lite: LiteQueue, is_paused: bool) -> None:
        """Let nothing of a queue be polled, or again."""
        lite.pause(is_paused)
        self._update_ready(lite)

    def seek(self, lite: LiteQueue, queue_offset: int) -> None:
        """Go on somewhere else."""
        lite.seek(queue_offset)
        self._ready.pop(lite, None)

    # -- polls -----------------------------------------------------------------------------------

    def take_nowait(self) -> list[MessageExt]:
        """What one pull of the next queue brought; empty when nothing is there."""
        lite = next(iter(self._ready), None)
        if lite is None:
            return []
        was_full = self._is_full
        del self._ready[lite]
        messages = lite.take()
        self._update_ready(lite)
        if was_full:
            for other in self.queues.values():
                other.pause(other.is_paused)  # they wait for room among all
        return messages

    async def wait_arrived(self) -> None:
        """Wait until there may be something to take."""
        self._arrived.clear()
        if not self._ready:
            await self._arrived.wait()

    def wake(self) -> None:
        """Let who waits look again."""
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

    async def _after_failure(self, lite: LiteQueue, error: KourouError, failures: int) -> None:
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            await lite.wait_changed(_FLOW_CONTROL_DELAY_S)
            return
        # The first of a row is told, the rest is the same.
        level = logging.WARNING if failures == 1 else logging.DEBUG
        _log.log(level, "group %s: pull of %s: %s", self._group, lite.queue, error)
        await lite.wait_changed(_FAILURE_DELAY_S)
        if isinstance(error, RemotingError | NoRouteError) and not lite.is_dropped:
            await self._refresh_route(lite.queue.topic)

    async def _refresh_route(self, topic: str) -> None:
        """The broker may have come back at another address."""
        try:
            await self._instance.routes.refresh(topic)
        except KourouError as error:
            _log.debug("route of %s: %s", topic, error)
