"""StoreStats: what is counted of a published batch, the same for few messages and for many."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.broker.stats.broker_stats import SIZE_BOUNDS, BrokerStatsManager
from kourou.broker.stats.store_stats import StoreStats
from kourou.store.queue.cq_unit import UNIT

NOW_MS = 1_700_000_000_000


class Queue:
    """Has the one attribute that is looked at."""

    def __init__(self, topic: str) -> None:
        self.topic = topic


def counted(sizes: dict[str, list[int]]) -> BrokerStatsManager:
    stats = BrokerStatsManager("C", 0, lambda _: False, wall_ms=NOW_MS)
    grown: Any = []
    for topic, of_topic in sizes.items():
        # Two queues of each: pieces of several units and of one.
        half = len(of_topic) // 2
        for part in (of_topic[:half], of_topic[half:]):
            grown.append((Queue(topic), 0, b"".join(UNIT.pack(0, size, 0) for size in part)))
    StoreStats(stats, lambda: NOW_MS + 7).published(grown, sum(map(len, sizes.values())), NOW_MS)
    return stats


@pytest.mark.parametrize("times", [1, 40], ids=["few", "many"])
def test_sizes_are_counted_in_apaches_ranges(times: int) -> None:
    sizes = [1, 1024, 1025, 4096, 4097, 4 * 1024 * 1024 + 1]
    stats = counted({"Large": sizes * times, "Small": [100, 200] * times})
    large, small = stats.topic_puts["Large"], stats.topic_puts["Small"]
    assert large.size_counts == [2 * times, 2 * times, times, 0, 0, 0, times]
    assert (large.nums, large.size_bytes) == (6 * times, sum(sizes) * times)
    assert small.size_counts == [2 * times, *[0] * len(SIZE_BOUNDS)]
    assert stats.cycle_messages.read().total == 8 * times


def test_latency_since_the_start_outlives_the_minute() -> None:
    stats = counted({"T": [1, 1]})
    for _ in range(3):
        stats.put_latencies.roll()
    stats.put_latencies.add(7, 3)
    latencies = stats.put_latencies
    at_seven = latencies.BOUNDS_MS.index(7)
    assert latencies.since_start()[at_seven] == sum(latencies.since_start()) == 5
    assert latencies.total_ms == 35


def test_batches_of_one_topic_add_up() -> None:
    stats = counted({"T": [1, 5000]})
    assert stats.topic_puts["T"].size_counts == [1, 0, 1, 0, 0, 0, 0]
    stats.message_sizes("T", [1, 0, 1, 0, 0, 0, 0])
    assert stats.topic_puts["T"].size_counts == [2, 0, 2, 0, 0, 0, 0]
