"""StoreStats: what was stored, by topic."""

from __future__ import annotations

from kourou.broker.stats.broker_stats import BrokerStatsManager, StoreStats
from kourou.store.log.put_batch import PutBatch
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT


class Queue(ConsumeQueue):
    """One that has a topic and nothing else."""

    def __init__(self, topic: str) -> None:
        self.topic = topic


def units(*sizes: int) -> bytes:
    return b"".join(UNIT.pack(0, size, 0) for size in sizes)


def test_queues_of_a_topic_are_counted_together() -> None:
    stats = BrokerStatsManager("cluster", 0, lambda topic: False, wall_ms=0)
    batch = PutBatch(0, 1 << 20, 90)
    batch.grow(Queue("orders"), 0).append(units(100, 150))
    batch.grow(Queue("payments"), 7).append(units(1_000))
    batch.grow(Queue("orders"), 3).extend([units(200), units(250, 300)])
    StoreStats(stats, lambda: 100).published(batch)
    items = stats._topic_puts
    assert {topic: (item.nums, item.size_bytes) for topic, item in items.items()} == {
        "orders": (5, 1_000),
        "payments": (1, 1_000),
    }
    assert stats.put_size_total == 2_000
    assert stats.rates.put_nums == stats._broker_put.nums == 6
    assert batch.units.keys() == batch.first_offsets.keys() and len(batch.units) == 3
