"""ConsumerLag: how far each group is behind in each topic, for metrics computed at most once per 15 seconds.

The work goes over all queues of all groups, 16,000 on a large broker, so it is done in slices between which
the event loop serves clients; what has to come from disk, a thread reads. A scrape that finds numbers which
are young enough uses them.

What Apache's words mean, of one queue that ends at `max` and has been delivered up to `pull`:

    lag       max − consumer_offset      its latency: the age of the message at consumer_offset
    inflight  pull − consumer_offset
    ready     max − pull                 queueing latency: the age of the message at pull

Messages of a topic add up over its queues; of the ages the greatest counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.tables.offsets import TOPIC_GROUP_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.storage.record_reads import RecordReader, RecordReads
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

MAX_AGE_S: Final = 15.0
# Some 2 ms of work.
_SLICE_QUEUES: Final = 200


class QueueLag(NamedTuple):
    """One queue of one group."""

    queue_id: int
    lag: int


@dataclass(frozen=True, slots=True)
class TopicLag:
    """One topic of one group; times are store timestamps, 0 if there is no such message."""

    topic: str
    group: str
    consumer_offset: int
    """Added up over the queues."""
    lag: int
    inflight: int
    ready: int
    lag_since_ms: int
    ready_since_ms: int
    queues: tuple[QueueLag, ...]


class _Queue(NamedTuple):
    queue_id: int
    consumer_offset: int
    lag: int
    inflight: int
    ready: int
    lag_since_ms: int
    ready_since_ms: int


class ConsumerLag:
    """The lag of all groups of one broker. `per_queue` keeps that of single queues, too."""

    def __init__(
        self,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        queues: ConsumeQueues,
        records: RecordReader,
        tasks: TaskOwner,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._queues = queues
        self._records = records
        self._tasks = tasks
        self._monotonic_ms = monotonic_ms
        self._refreshing: asyncio.Task[None] | None = None
        self._computed_ms: int | None = None
        self.table: Sequence[TopicLag] = ()

    @property
    def age_s(self) -> float:
        """How old the table is."""
        return 0.0 if self._computed_ms is None else (self._monotonic_ms() - self._computed_ms) / 1000

    async def refresh(self, timeout_s: float | None, max_age_s: float = MAX_AGE_S) -> None:
        """Compute the table again if it is too old. After `timeout_s` the old one stays; the work goes on."""
        if self._computed_ms is not None and self.age_s < max_age_s:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._tasks.start(self._compute_logged(), "consumer-lag")
        await asyncio.wait((self._refreshing,), timeout=timeout_s)

    async def _compute_logged(self) -> None:
        try:
            await self._compute()
        except Exception:
            # The table from before stays; its age shows it.
            _log.exception("the consumer lag cannot be computed")

    async def _compute(self) -> None:
        began_ms = self._monotonic_ms()
        table: list[TopicLag] = []
        pairs = iter(self._pairs())
        while slice_ := list(_slice(pairs)):
            table += await self._records.read(partial(self._lags, slice_))
            await asyncio.sleep(0)
        self.table = table
        self._computed_ms = began_ms

    def _pairs(self) -> list[tuple[str, str, int]]:
        """Topic, group and number of queues: what groups have consumed, and what members subscribe to."""
        keys = [key.partition(TOPIC_GROUP_SEPARATOR)[::2] for key in self._offsets.offset_table]
        for group, info in self._consumers.groups.items():
            keys += [(topic, group) for topic in info.subscriptions if not info.is_broadcasting]
        found = []
        for topic, group in dict.fromkeys(keys):
            config = self._topics.table.get(topic)
            if config is not None and group in self._groups.table:
                found.append((topic, group, config.read_queue_nums))
        return found

    def _lags(self, pairs: Iterable[tuple[str, str, int]], reads: RecordReads) -> list[TopicLag]:
        return [
            _sum(topic, group, [self._queue(topic, group, queue_id, reads) for queue_id in range(queue_nums)])
            for topic, group, queue_nums in pairs
        ]

    def _queue(self, topic: str, group: str, queue_id: int, reads: RecordReads) -> _Queue:
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return _Queue(queue_id, 0, 0, 0, 0, 0, 0)
        low, high = queue.min_queue_offset, queue.max_queue_offset
        committed = self._offsets.query(group, topic, queue_id)
        # A group that has not begun: Apache counts from the start.
        consumer_offset = min(max(committed, low), high)
        pull_offset = min(max(consumer_offset, self._offsets.query_pull(group, topic, queue_id)), high)
        return _Queue(
            queue_id,
            consumer_offset,
            high - consumer_offset,
            pull_offset - consumer_offset,
            high - pull_offset,
            reads.message_time(queue, consumer_offset) if consumer_offset < high else 0,
            reads.message_time(queue, pull_offset) if pull_offset < high else 0,
        )


def _slice(pairs: Iterator[tuple[str, str, int]]) -> Iterator[tuple[str, str, int]]:
    """The next pairs with some number of queues together."""
    queues = 0
    while queues < _SLICE_QUEUES:
        for pair in islice(pairs, 1):
            queues += max(1, pair[2])
            yield pair
            break
        else:
            return


def _sum(topic: str, group: str, queues: Sequence[_Queue]) -> TopicLag:
    return TopicLag(
        topic,
        group,
        sum(queue.consumer_offset for queue in queues),
        sum(queue.lag for queue in queues),
        sum(queue.inflight for queue in queues),
        sum(queue.ready for queue in queues),
        _oldest(queue.lag_since_ms for queue in queues),
        _oldest(queue.ready_since_ms for queue in queues),
        tuple(QueueLag(queue.queue_id, queue.lag) for queue in queues),
    )


def _oldest(times_ms: Iterable[int]) -> int:
    return min((time_ms for time_ms in times_ms if time_ms > 0), default=0)
