"""AssignedQueue: a queue assigned to this consumer: the messages in hand, and where to pull next.

Concurrent consumers `add` and `remove` in any order; the offset to commit is the smallest one still in hand,
so a restart repeats messages and never skips one. Orderly consumers `take` from the front and then `commit`
or put back. Only the loop's thread does this. An unknown offset is -1, as in Java. The group's progress is
computed when it is needed, not for each message.
Not here: pulling (pull_service.py), consuming (concurrent_service.py, orderly_service.py), the lock itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.client.core.subscription import Subscription
from kourou.clock import monotonic_ms, wall_ms
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.bodies.consumer_calls import ProcessQueueInfo
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.message import MessageExt


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits for one queue, as in Java. `max_span` None: no limit, as for orderly consumers."""

    messages: int
    size_bytes: int
    max_span: int | None

    def problem(self, messages: int, size_bytes: int, span: int) -> str | None:
        """Which limit is exceeded; None if none is."""
        if messages > self.messages:
            return f"{messages} messages in hand, over pull_threshold_messages={self.messages}"
        if size_bytes > self.size_bytes:
            return f"{size_bytes} bytes in hand, over pull_threshold_bytes={self.size_bytes}"
        if self.max_span is not None and span > self.max_span:
            return f"offsets in hand span {span}, over max_span={self.max_span}: is one message stuck?"
        return None


LOCK_MAX_LIVE_MS: Final = 30_000
"""A lock that was not renewed within this time counts as lost; the broker keeps it for 60 s."""
PULL_MAX_IDLE_MS: Final = 120_000
"""A queue that was not pulled within this time is stalled, and assigned again."""
UNKNOWN_OFFSET: Final = -1
_EXPIRED_AT_ONCE: Final = 16


class ProcessQueue:
    """The messages of one queue that were pulled and not finished yet. Times are milliseconds of `now_ms`, a
    monotonic clock."""

    def __init__(
        self, now_ms: Callable[[], int] = monotonic_ms, wall_ms: Callable[[], int] = wall_ms
    ) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        # In order of offset. Typical use deletes the first entries and reads the new first one, for which a
        # dict would scan the deleted entries each time.
        self._cached: OrderedDict[int, MessageExt] = OrderedDict()
        self._taken: OrderedDict[int, MessageExt] = OrderedDict()
        self._started_ms: dict[int, int] = {}
        self._max_queue_offset = UNKNOWN_OFFSET
        self.size_bytes = 0
        """Of the messages held, as stored."""
        self.is_dropped = False
        """The queue is no longer assigned: nothing more is pulled, consumed or committed."""
        self.lock_ms = 0
        """When the broker last confirmed the lock."""
        self.try_unlock_times = 0
        self.last_pull_ms = self.last_consume_ms = now_ms()
        self._is_locked = False

    @property
    def count(self) -> int:
        """The number of messages held, including taken ones."""
        return len(self._cached) + len(self._taken)

    @property
    def span(self) -> int:
        """The distance of the first and the last waiting offset."""
        if not self._cached:
            return 0
        return next(reversed(self._cached)) - next(iter(self._cached))

    def add(self, messages: Sequence[MessageExt]) -> list[MessageExt]:
        """Add pulled messages; returns those that were not held already."""
        cached, taken = self._cached, self._taken
        added = []
        is_in_order = True
        last = next(reversed(cached), UNKNOWN_OFFSET)
        for message in messages:
            queue_offset = message.queue_offset
            if queue_offset in cached or queue_offset in taken:
                continue
            if queue_offset < last:
                is_in_order = False
            cached[queue_offset] = message
            last = queue_offset
            self.size_bytes += message.store_size
            added.append(message)
        if not is_in_order:
            self._put_in_order()
        if added:
            self._max_queue_offset = max(self._max_queue_offset, next(reversed(cached)))
        return added

    def start(self, messages: Iterable[MessageExt]) -> None:
        """A handler starts `messages`: from now on they can time out."""
        now_ms = self._now_ms()
        for message in messages:
            self._started_ms[message.queue_offset] = now_ms

    def remove(self, messages: Iterable[MessageExt]) -> int:
        """`messages` are finished. Returns the offset to commit: the smallest that is still held, or the one
        after the last that ever was; -1 if nothing was held before either.
        """
        cached, started_ms = self._cached, self._started_ms
        self.last_consume_ms = self._now_ms()
        if not cached:
            return UNKNOWN_OFFSET
        for message in messages:
            queue_offset = message.queue_offset
            if cached.pop(queue_offset, None) is not None:
                self.size_bytes -= message.store_size
                started_ms.pop(queue_offset, None)
        return next(iter(cached), self._max_queue_offset + 1)

    def take(self, number: int) -> list[MessageExt]:
        """The first `number` messages, for an orderly handler; they are held until committed or put back."""
        self.last_consume_ms = self._now_ms()
        batch: list[MessageExt] = []
        while self._cached and len(batch) < number:
            queue_offset, message = self._cached.popitem(last=False)
            self._taken[queue_offset] = message
            batch.append(message)
        self.start(batch)
        return batch

    def commit(self) -> int:
        """The taken messages are finished. Returns the offset to commit; -1 if nothing was taken."""
        if not self._taken:
            return UNKNOWN_OFFSET
        last = max(self._taken)
        for queue_offset, message in self._taken.items():
            self.size_bytes -= message.store_size
            self._started_ms.pop(queue_offset, None)
        self._taken.clear()
        return last + 1

    def put_back(self, messages: Iterable[MessageExt]) -> None:
        """Put taken messages back in front."""
        for message in messages:
            if self._taken.pop(message.queue_offset, None) is not None:
                self._cached[message.queue_offset] = message
                self._started_ms.pop(message.queue_offset, None)
        self._put_in_order()

    def rollback(self) -> None:
        """Put all taken messages back in front."""
        self.put_back(list(self._taken.values()))

    def clear(self) -> None:
        """Drop every message, for a reset of offsets."""
        self._cached.clear()
        self._taken.clear()
        self._started_ms.clear()
        self._max_queue_offset = UNKNOWN_OFFSET
        self.size_bytes = 0

    def started_before(self, start_ms: int, limit: int = _EXPIRED_AT_ONCE) -> list[MessageExt]:
        """Those of the first `limit` messages whose handler started before `start_ms` and has not ended."""
        found = []
        for queue_offset, message in self._cached.items():
            if limit <= 0:
                break
            limit -= 1
            if self._started_ms.get(queue_offset, start_ms) < start_ms:
                found.append(message)
        return found

    def waiting_too_long(self, consume_timeout_ms: int) -> list[MessageExt]:
        """Those of the first messages whose handler has been running for longer than the timeout."""
        return self.started_before(self._now_ms() - consume_timeout_ms)

    def lock(self) -> None:
        """The broker has just granted or confirmed the lock."""
        self._is_locked = True
        self.lock_ms = self._now_ms()

    def unlock(self) -> None:
        """The lock is lost or released."""
        self._is_locked = False

    @property
    def is_locked(self) -> bool:
        """Whether the broker has granted the lock, and confirmed it within the last 30 s."""
        return self._is_locked and not self.is_lock_expired

    @property
    def is_lock_expired(self) -> bool:
        """Whether the broker has not confirmed the lock for more than 30 s."""
        return self._now_ms() - self.lock_ms > LOCK_MAX_LIVE_MS

    @property
    def is_pull_expired(self) -> bool:
        """Whether nothing was pulled for two minutes: then pulling has stalled."""
        return self._now_ms() - self.last_pull_ms > PULL_MAX_IDLE_MS

    def pulled(self) -> None:
        """A pull is sent now."""
        self.last_pull_ms = self._now_ms()

    def describe(self, commit_offset: int) -> ProcessQueueInfo:
        """The state as `mqadmin consumerStatus` and the console show it."""
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=next(iter(self._cached), 0),
            cached_msg_max_offset=next(reversed(self._cached), 0),
            cached_msg_count=len(self._cached),
            cached_msg_size_in_mib=self.size_bytes >> 20,
            transaction_msg_min_offset=next(iter(self._taken), 0),
            transaction_msg_max_offset=next(reversed(self._taken), 0),
            transaction_msg_count=len(self._taken),
            locked=self._is_locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=self._wall_time(self.lock_ms),
            dropped=self.is_dropped,
            last_pull_timestamp=self._wall_time(self.last_pull_ms),
            last_consume_timestamp=self._wall_time(self.last_consume_ms),
        )

    def _wall_time(self, time_ms: int) -> int:
        """As wall-clock time; 0 means never."""
        return time_ms + self._wall_ms() - self._now_ms() if time_ms else 0

    def _put_in_order(self) -> None:
        for queue_offset in sorted(self._cached):
            self._cached.move_to_end(queue_offset)


class AssignedQueue(ProcessQueue):
    """One queue, from the rebalance that assigns it to the one that revokes it."""

    def __init__(self, queue: MessageQueue, subscription: Subscription, limits: FlowLimits) -> None:
        super().__init__()
        self.queue = queue
        self.subscription = subscription
        self.next_offset = 0
        """Where to pull next."""
        self.pulled_offset: int | None = None
        """The same, from a broker's response; None before the first."""
        self.pull_from = MASTER_ID
        self.is_scheduled = False
        """For an orderly consumer: queued for a worker, or being consumed."""
        self.idle = asyncio.Event()
        """For an orderly consumer: no handler is running."""
        self.idle.set()
        self._limits = limits
        self._dropped_ms = 0
        self._room: asyncio.Future[None] | None = None

    # -- messages --------------------------------------------------------------------------------

    def pulled_messages(self, messages: list[MessageExt], next_offset: int) -> list[MessageExt]:
        """Add the messages of a pull; returns those that were not held already."""
        added = self.add(messages) if messages else messages
        self.next_offset = self.pulled_offset = next_offset
        return added

    def may_start(self, messages: Sequence[MessageExt]) -> bool:
        """Whether a handler may be called: not once the queue is dropped."""
        return not self.is_dropped

    def ack(self, message: MessageExt) -> bool:
        """A message is consumed; False when it already was."""
        # `remove` for one message, without computing the offset.
        if self._cached.pop(message.queue_offset, None) is None:
            return False
        self.size_bytes -= message.store_size
        if self._room is not None and self.flow_problem() is None:
            self._wake()
        return True

    def commit_taken(self) -> None:
        """The messages taken by an orderly handler are consumed."""
        self.commit()
        if self._room is not None and self.flow_problem() is None:
            self._wake()

    @property
    def consumed_offset(self) -> int | None:
        """The group's progress: everything below is consumed. None when nothing is known yet."""
        first = next(iter(self._taken), None)
        return next(iter(self._cached), self.pulled_offset) if first is None else first

    # -- flow control ----------------------------------------------------------------------------

    def flow_problem(self) -> str | None:
        """Why no more should be pulled now; None if it may."""
        return self._limits.problem(self.count, self.size_bytes, self.span)

    async def wait_room(self) -> None:
        """Wait until more may be pulled, or the queue is dropped."""
        while not self.is_dropped and self.flow_problem() is not None:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def drop(self) -> None:
        """The queue is no longer assigned: nothing more of it is consumed."""
        self.is_dropped = True
        self._dropped_ms = self._now_ms()
        self._wake()

    @property
    def leaving_ms(self) -> int:
        """How long ago it was dropped."""
        return self._now_ms() - self._dropped_ms
