"""StoreStats: what was stored, by topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.broker.stats.store_stats import StoreStats
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
    StoreStats(stats, lambda: 100).published(batch.grown(), 6, 90)
    items = stats.topic_puts
    assert {topic: (item.nums, item.size_bytes) for topic, item in items.items()} == {
        "orders": (5, 1_000),
        "payments": (1, 1_000),
    }
    assert stats.put_size_total == 2_000
    assert stats.rates.put_nums == stats._broker_put.nums == 6


def one_message_cycles(stats: BrokerStatsManager, cycles: int) -> StoreStats:
    """Cycle `n` had one message of `n` bytes, of one of two topics, and took `n % 3` ms."""
    times = iter([100 + number % 3 for number in range(cycles)])
    store_stats = StoreStats(stats, lambda: next(times))
    for number in range(cycles):
        queue = Queue("orders" if number % 2 else "payments")
        store_stats.published([(queue, 0, units(number))], 1, 100)
    return store_stats


def ticked(stats: BrokerStatsManager) -> BrokerStatsManager:
    stats.tick(10_000, wall_ms=0)
    return stats


def without_orders(stats: BrokerStatsManager) -> BrokerStatsManager:
    stats.remove_topic("orders")
    return stats


READ: dict[str, Callable[[BrokerStatsManager], Any]] = {
    "rates": lambda stats: stats.rates.put_nums,
    "total size": lambda stats: stats.put_size_total,
    "topics": lambda stats: {
        topic: (item.times, item.nums, item.size_bytes, item.size_counts)
        for topic, item in stats.topic_puts.items()
    },
    "latencies": lambda stats: (
        stats.put_latencies.distribution(),
        stats.put_latencies.total_ms,
        stats.put_latencies.max_ms,
    ),
    "cycles": lambda stats: stats.cycle_messages.read(),
    "user messages": lambda stats: stats.user_put_nums,
    "minute": lambda stats: ticked(stats).view("TOPIC_PUT_NUMS", "orders"),
    "broker": lambda stats: ticked(stats).view("BROKER_PUT_NUMS", "cluster"),
    "messages a second": lambda stats: ticked(stats).topic_put_tps("payments"),
    "a topic that is gone": lambda stats: without_orders(stats).user_put_nums,
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
@pytest.mark.parametrize("cycles", [1, 3, 100, 600])
def test_what_waits_to_be_counted_is_in_every_figure(
    cycles: int, read: Callable[[BrokerStatsManager], Any]
) -> None:
    late, at_once = (BrokerStatsManager("cluster", 0, lambda _: False, wall_ms=0) for _ in range(2))
    one_message_cycles(late, cycles)
    store_stats = StoreStats(at_once, lambda: 0)
    for number in range(cycles):
        queue = Queue("orders" if number % 2 else "payments")
        store_stats.published([(queue, 0, units(number))], 1, -(number % 3))
        store_stats.count()
    assert read(late) == read(at_once)


@pytest.mark.parametrize(("cycles", "counted"), [(255, 0), (256, 256), (300, 256)])
def test_few_messages_wait_to_be_counted(cycles: int, counted: int) -> None:
    stats = BrokerStatsManager("cluster", 0, lambda _: False, wall_ms=0)
    one_message_cycles(stats, cycles)
    assert stats._rates.put_nums == counted
    assert stats.rates.put_nums == cycles
