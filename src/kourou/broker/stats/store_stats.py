"""Counting what is stored: per topic and commit cycle, not per message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.protocol.layout import CQ_UNIT
from kourou.store.log.put_batch import PutBatch

_SIZE: Final = CQ_UNIT.part("size", is_padded=True)


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
