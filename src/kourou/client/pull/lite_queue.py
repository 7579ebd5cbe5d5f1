"""LiteQueue: a queue of a lite pull consumer: what was pulled and not polled, and how far its user is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kourou.client.pull.pulls import PullResult
from kourou.client.push.flow_control import FlowLimits
from kourou.protocol.bodies import MessageQueue, SubscriptionData
from kourou.protocol.message import MessageExt


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
