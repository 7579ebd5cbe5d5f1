"""Statistics of a broker as a part: counted by the others, rolled up each second, shown to tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kourou.broker.part import BrokerPart, every
from kourou.broker.stats import stats_processor
from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.protocol.layout import CQ_UNIT
from kourou.store.log.put_batch import PutBatch
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

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

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def processors(self) -> Mapping[int, Processor]:
        return stats_processor.processors(self._services)

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(every(_TICK_S, self._tick), "statistics")

    def _tick(self) -> None:
        services = self._services
        services.clock_watch.look()
        services.stats.tick(services.monotonic_ms(), wall_ms=services.now_ms())
