"""OrderService: orderly POP of one broker: what is handed out in order, acknowledged, and when a queue may
be popped from again.

A change is in memory at once, and in the journal at the end of the commit cycle, when its request may be
answered. Blocks end by the monotonic clock: setting the clock of the machine neither prolongs nor ends one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.pop.order_info import AckResult, OrderedPop, OrderKey

if TYPE_CHECKING:
    from kourou.broker.pop.contracts import PopStored
    from kourou.broker.pop.order_journal import OrderJournal
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.protocol.pop.offset_infos import OrderCounts
    from kourou.store.log.put_status import PutStatus

_log = logging.getLogger(__name__)

_MS_PER_S: Final = 1_000


def _no_wake(_: OrderKey) -> None:
    return None


class OrderService:
    """Orderly POP of one broker. `wake` is called when a block has ended: held pops of this queue, and those
    of any queue of the topic, are to be tried again."""

    def __init__(
        self,
        *,
        journal: OrderJournal,
        offsets: ConsumerOffsetManager,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        config: LiveConfig,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._table = journal.table
        self._pops = journal.table.pops
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._config = config
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._ends: dict[OrderKey, int] = {}
        self._alarms: dict[OrderKey, asyncio.TimerHandle] = {}
        self._is_stopped = False
        self.wake: Callable[[OrderKey], None] = _no_wake

    # -- requests --------------------------------------------------------------------------------

    def is_blocked(self, key: OrderKey, attempt_id: str | None) -> bool:
        """Whether a pop must wait for the acknowledgements of an earlier one, or for the end of its time."""
        end_ms, entry = self._ends.get(key), self._pops.entry(key)
        if end_ms is None or entry is None or entry.is_attempt(attempt_id):
            return False
        return self._monotonic_ms() < end_ms

    def in_flight(self, key: OrderKey) -> int:
        """Messages that are popped and not acknowledged."""
        return self._pops.in_flight(key)

    def pop(
        self,
        key: OrderKey,
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_time_ms: int,
        offsets: Sequence[int],
        done: PopStored,
    ) -> OrderCounts:
        """Record a pop; returns how often each message was handed out before. `done` is called once, not from
        inside this call; if it says that nothing is stored, the pop is undone."""
        before = self._pops.entry(key)
        counts = self._pops.pop(
            key,
            attempt_id=attempt_id,
            pop_time=pop_time,
            invisible_time_ms=invisible_time_ms,
            offsets=offsets,
            now_ms=self._now_ms(),
        )
        self._block(key, pop_time + invisible_time_ms - self._now_ms())
        self._journal.note(key, partial(self._popped, key, before, self._pops.entry(key), done))
        return counts

    def _popped(
        self,
        key: OrderKey,
        before: OrderedPop | None,
        entry: OrderedPop | None,
        done: PopStored,
        status: PutStatus,
    ) -> None:
        if not status.is_stored and self._pops.entry(key) is entry:
            self._pops.set(key, before)
            # Not here, in the end of a commit cycle: held pops are woken.
            asyncio.get_running_loop().call_soon(self._block_by_entry, key)
        done(status)

    def ack(
        self, key: OrderKey, *, queue_offset: int, pop_time: int, client_host: str, done: PopStored
    ) -> AckResult:
        """A message is consumed; the offset of the group moves to the first one that is not. `done` as that
        of `pop`, but only called if the result is DONE. An ack that could not be stored still counts."""
        result, next_offset = self._pops.ack(key, queue_offset=queue_offset, pop_time=pop_time)
        if next_offset is None:
            return result
        if self._offsets.reset_pending(key.topic, key.group, key.queue_id) is None:
            self._offsets.commit(key.group, key.topic, key.queue_id, next_offset, client_host)
        self._shorten(key)
        self._journal.note(key, done)
        return result

    def change_invisible_time(
        self, key: OrderKey, *, queue_offset: int, pop_time: int, invisible_time_ms: int, done: PopStored
    ) -> AckResult:
        """A message becomes visible again so long from now. `done` as that of `ack`."""
        result = self._pops.change_invisible_time(
            key,
            queue_offset=queue_offset,
            pop_time=pop_time,
            visible_ms=self._now_ms() + invisible_time_ms,
        )
        if result is AckResult.DONE:
            self._shorten(key, at_least_ms=invisible_time_ms)
            self._journal.note(key, done)
        return result

    def clear(self, key: OrderKey) -> None:
        """Forget what was handed out of a queue: an administrator has moved the group, to the offset that is
        committed now."""
        self._pops.clear(key)
        self._unblock(key)
        self._journal.note(key, is_reset=True)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted. Without a record: its deletion writes the table, which counts the journal."""
        for key in [key for key in self._pops if key.topic == topic]:
            self._pops.clear(key)
            self._unblock(key)
            self._table.is_dirty = True

    # -- blocks ----------------------------------------------------------------------------------

    def _block(self, key: OrderKey, remaining_ms: int) -> None:
        """The queue is blocked for so long from now."""
        # Both clocks count whole milliseconds, and not from the same moment: not a moment too early.
        end_ms = self._monotonic_ms() + remaining_ms + 1
        if remaining_ms <= 0:
            self._unblock(key)
        elif self._ends.get(key) != end_ms:
            self._ends[key] = end_ms
            self._set_alarm(key, remaining_ms)

    def _set_alarm(self, key: OrderKey, remaining_ms: int) -> None:
        self._stop_alarm(key)
        if self._config.current.enable_notify_after_pop_order_lock_release and not self._is_stopped:
            loop = asyncio.get_running_loop()
            self._alarms[key] = loop.call_later(remaining_ms / _MS_PER_S, self._alarm, key)

    def _stop_alarm(self, key: OrderKey) -> None:
        alarm = self._alarms.pop(key, None)
        if alarm is not None:
            alarm.cancel()

    def _alarm(self, key: OrderKey) -> None:
        self._alarms.pop(key, None)
        remaining_ms = self._ends.get(key, 0) - self._monotonic_ms()
        if remaining_ms > 0:
            self._set_alarm(key, remaining_ms)
        else:
            self.wake(key)

    def _unblock(self, key: OrderKey) -> None:
        self._stop_alarm(key)
        if self._ends.pop(key, None) is not None:
            self.wake(key)

    def _shorten(self, key: OrderKey, *, at_least_ms: int = 0) -> None:
        """A message is acknowledged or becomes visible at another time: the block ends when the entry says,
        but later than before only by `at_least_ms` from now: the clock may have been set since the pop."""
        end_ms = self._pops.block_end_ms(key)
        if end_ms is None:
            self._unblock(key)
            return
        before_ms = self._ends.get(key, 0) - self._monotonic_ms()
        self._block(key, min(end_ms - self._now_ms(), max(before_ms, at_least_ms)))

    def _block_by_entry(self, key: OrderKey) -> None:
        """Of an entry that was stored: not longer than it was to last, if the clock was set back since."""
        entry = self._pops.entry(key)
        end_ms = None if entry is None else entry.block_end_ms
        if entry is None or end_ms is None:
            self._unblock(key)
        else:
            self._block(key, min(end_ms - self._now_ms(), end_ms - entry.pop_time))

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with the entries of the table."""
        for key in self._pops:
            self._block_by_entry(key)

    def stop(self) -> None:
        """Wake nothing any more."""
        self._is_stopped = True
        for key in list(self._alarms):
            self._stop_alarm(key)

    def clean(self) -> None:
        """Drop entries that are idle, or whose topic, queue or group is gone."""
        for key in self._pops.clean(self._is_there, self._now_ms()):
            _log.info(
                "%s/%d: what group %s was given in order is dropped", key.topic, key.queue_id, key.group
            )
            self._unblock(key)
            self._table.is_dirty = True

    def _is_there(self, key: OrderKey) -> bool:
        topic = self._topics.get(key.topic)
        return (
            topic is not None
            and key.queue_id < topic.read_queue_nums
            and self._groups.get(key.group) is not None
        )
