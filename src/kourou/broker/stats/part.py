"""Statistics of a broker as a part: counted by the others, rolled up each second, shown to tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kourou.broker.clock_watch import ClockWatch
from kourou.broker.part import BrokerPart, every
from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.broker.stats.stats_processor import StatsProcessor
from kourou.protocol.layout import CQ_UNIT
from kourou.store.log.put_batch import PutBatch
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

_SIZE: Final = CQ_UNIT.part("size", is_padded=True)

_TICK_S: Final = 1.0


class StoreStats:
    """Hears of every batch that was published."""

    def __init__(self, stats: BrokerStatsManager, now_ms: Callable[[], int]) -> None:
        self._stats = stats
        self._now_ms = now_ms

    def published(self, batch: PutBatch) -> None:
        """Count the messages of a batch."""
        stats = self._stats
        total = 0
        # Most batches are of one topic and many queues.
        units_of_topics: dict[str, list[bytes]] = {}
        for queue, units in batch.units.items():
            gathered = units_of_topics.get(queue.topic)
            if gathered is None:
                units_of_topics[queue.topic] = [*units]
            else:
                gathered += units
        for topic, units in units_of_topics.items():
            sizes = [size for (size,) in _SIZE.iter_unpack(b"".join(units))]
            stats.topic_put(topic, len(sizes), sum(sizes))
            total += len(sizes)
        stats.broker_put(total)
        stats.put_latency(self._now_ms() - batch.store_timestamp, total)


class StatsPart(BrokerPart):
    """The statistics of one broker, and the watch over its clock, which they depend on."""

    def __init__(
        self,
        *,
        stats: BrokerStatsManager,
        clock_watch: ClockWatch,
        processor: StatsProcessor,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._stats = stats
        self._clock_watch = clock_watch
        self._processor = processor
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def processors(self) -> Mapping[int, Processor]:
        return self._processor.processors()

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(every(_TICK_S, self._tick), "statistics")

    def _tick(self) -> None:
        self._clock_watch.look()
        self._stats.tick(self._monotonic_ms(), wall_ms=self._now_ms())
