"""PopPolling: pops that found nothing wait here for a message.

A pop waits for one queue of a topic, or for any. A message that arrives wakes one that waits for any queue
and one that waits for its queue, the one that expires first; those of a group also wait for its retry topics,
of both names. What is woken is run again in the next iteration of the loop: a pop stores a check point, and
no message can be put while a commit cycle is being written. A pop that leaves messages behind wakes the next.

After its own time a pop is run for the last time. How many may wait is bounded: for one queue, for all of
them, and for one connection. Not here: what is run (pop_service.py, notification.py).
"""

from __future__ import annotations

import asyncio
import enum
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pull.long_polling import MAX_HELD_PER_CONNECTION, MAX_HOLD_MS
from kourou.protocol.pop.retry_topics import pop_retry_topics

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig
    from kourou.store.queue.consume_queue import ConsumeQueue

ANY_QUEUE: Final = -1
"""The queue_id of pops that wait for any queue of their topic."""
_EARLY_MS: Final = 50
"""A pop is answered so long before its time is over: the answer has to travel."""


class PollingLimits(NamedTuple):
    """How many may wait."""

    per_queue: int
    total: int


def polling_limits(config: BrokerConfig) -> PollingLimits:
    """The limits of a broker."""
    return PollingLimits(config.pop_polling_size, config.max_pop_polling_size)


class PollingResult(enum.Enum):
    """Whether a pop waits."""

    HELD = enum.auto()
    FULL = enum.auto()
    EXPIRED = enum.auto()
    """Its time is over, or it did not want to wait."""


class HeldPop:
    """One pop that waits. `run(is_last)` runs it again, `give_up()` answers it without; neither raises.
    `owner` is the connection that it came on."""

    __slots__ = ("expires_ms", "give_up", "key", "number", "owner", "run", "timer")

    def __init__(
        self,
        key: OrderKey,
        owner: object,
        *,
        run: Callable[[bool], None],
        give_up: Callable[[], None],
    ) -> None:
        self.key = key
        self.owner = owner
        self.run = run
        self.give_up = give_up
        self.expires_ms = 0
        self.number = 0
        self.timer: asyncio.TimerHandle | None = None


_Line = list[tuple[int, int, HeldPop]]
"""By time of expiry, then as they came."""
_GroupOfTopic = tuple[str, str]


class PopPolling:
    """The pops of one broker that wait. With `wakes_last`, the one that expires last is woken first."""

    def __init__(
        self, *, limits: Callable[[], PollingLimits], now_ms: Callable[[], int], wakes_last: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._now_ms = now_ms
        self._wakes_last = wakes_last
        self._numbers = 0
        # How many wait; looked at after each commit cycle, so an attribute.
        self.held_count = 0
        self._is_stopped = False
        # By topic and group, then by queue_id.
        self._lines: dict[str, dict[str, dict[int, _Line]]] = {}
        self._by_retry_topic: dict[str, dict[_GroupOfTopic, None]] = {}
        self._held_of: dict[object, dict[HeldPop, None]] = {}
        self._to_wake: dict[tuple[str, str, int | None], None] = {}

    def __len__(self) -> int:
        return self.held_count

    def count(self, key: OrderKey) -> int:
        """How many wait for one queue, or for any (`ANY_QUEUE`)."""
        return len(self._line(key))

    def _line(self, key: OrderKey) -> _Line:
        return self._lines.get(key.topic, {}).get(key.group, {}).get(key.queue_id, [])

    # -- waiting ---------------------------------------------------------------------------------

    def hold(
        self, held: HeldPop, *, born_ms: int, poll_ms: int, again_ms: int | None = None
    ) -> PollingResult:
        """Let a pop wait until it is woken, at most for its time; `again_ms` from now it is run in any
        case."""
        if poll_ms <= 0 or self._is_stopped:
            return PollingResult.EXPIRED
        limits = self._limits()
        if self.held_count >= limits.total:
            return PollingResult.FULL
        # By the clock of the client, but never longer than it asked for.
        left_ms = min(born_ms + poll_ms - self._now_ms(), poll_ms, MAX_HOLD_MS) - _EARLY_MS
        if left_ms < 0:
            return PollingResult.EXPIRED
        if (
            self.count(held.key) >= limits.per_queue
            or len(self._held_of.get(held.owner, ())) >= MAX_HELD_PER_CONNECTION
        ):
            return PollingResult.FULL
        self._add(held, self._now_ms() + left_ms)
        if again_ms is not None and again_ms < left_ms:
            held.timer = self._loop.call_later(max(again_ms, 1) / 1000, self._run, held, False)
        else:
            held.timer = self._loop.call_later(left_ms / 1000, self._run, held, True)
        return PollingResult.HELD

    def _add(self, held: HeldPop, expires_ms: int) -> None:
        topic, group, queue_id = held.key
        groups = self._lines.setdefault(topic, {})
        lines = groups.get(group)
        if lines is None:
            lines = groups[group] = {}
            for retry_topic in pop_retry_topics(topic, group):
                self._by_retry_topic.setdefault(retry_topic, {})[topic, group] = None
        self._numbers += 1
        held.number, held.expires_ms = self._numbers, expires_ms
        insort(lines.setdefault(queue_id, []), (expires_ms, held.number, held))
        self._held_of.setdefault(held.owner, {})[held] = None
        self.held_count += 1

    def _take_out(self, held: HeldPop) -> None:
        topic, group, queue_id = held.key
        groups = self._lines[topic]
        lines = groups[group]
        line = lines[queue_id]
        del line[bisect_left(line, (held.expires_ms, held.number))]
        if not line:
            del lines[queue_id]
        if not lines:
            del groups[group]
            for retry_topic in pop_retry_topics(topic, group):
                waiting = self._by_retry_topic[retry_topic]
                del waiting[topic, group]
                if not waiting:
                    del self._by_retry_topic[retry_topic]
        if not groups:
            del self._lines[topic]
        of_owner = self._held_of[held.owner]
        del of_owner[held]
        if not of_owner:
            del self._held_of[held.owner]
        self.held_count -= 1
        if held.timer is not None:
            held.timer.cancel()

    # -- waking ----------------------------------------------------------------------------------

    def arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        """These queues have grown."""
        for queue in queues:
            topic = queue.topic
            for group in self._lines.get(topic, ()):
                self.wake(topic, group, queue.queue_id)
            for origin, group in self._by_retry_topic.get(topic, ()):
                self.wake(origin, group, None)

    def wake(self, topic: str, group: str, queue_id: int | None) -> None:
        """Soon run one again: there may be something for the group in this queue, or (None) in its retry
        topic."""
        if group not in self._lines.get(topic, ()):
            return
        if not self._to_wake:
            self._loop.call_soon(self._wake_all_due)
        self._to_wake[topic, group, queue_id] = None

    def _wake_all_due(self) -> None:
        due, self._to_wake = self._to_wake, {}
        for topic, group, queue_id in due:
            lines = self._lines.get(topic, {}).get(group)
            if lines is None:
                continue
            # Any queue's waiters read the retry topic, too.
            if queue_id is None:
                queue_id = ANY_QUEUE if ANY_QUEUE in lines else next(iter(lines))
            for each in dict.fromkeys((ANY_QUEUE, queue_id)):
                line = lines.get(each)
                if line:
                    self._run(line[-1 if self._wakes_last else 0][2], False)

    def _run(self, held: HeldPop, is_last: bool) -> None:
        self._take_out(held)
        held.run(is_last)

    # -- ends ------------------------------------------------------------------------------------

    def connection_closed(self, owner: object) -> None:
        """The pops of this connection wait no more: no answer would arrive."""
        for held in list(self._held_of.get(owner, ())):
            self._take_out(held)

    def stop(self) -> None:
        """Answer all of them; from now on none waits."""
        self._is_stopped = True
        for of_owner in list(self._held_of.values()):
            for held in list(of_owner):
                self._take_out(held)
                held.give_up()
