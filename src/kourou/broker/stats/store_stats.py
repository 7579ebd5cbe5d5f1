"""StoreStats: counts what was published, several commit cycles at a time.

Counting a cycle of one message would take as long as storing it. Cycles are counted together once enough
messages are waiting, and before any figure is read (`BrokerStatsManager.settle`), so figures are exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np

from kourou.broker.stats.broker_stats import SIZE_BOUNDS, BrokerStatsManager
from kourou.protocol.layout import CQ_UNIT
from kourou.store.log.put_batch import PutBatch
from kourou.store.queue.consume_queue import ConsumeQueue

_SIZE: Final = CQ_UNIT.part("size", is_padded=True)
_UNIT_COLUMNS: Final = np.dtype(CQ_UNIT.dtype())
# From so many messages on, columns take less time than a loop.
_MANY_UNITS: Final = 64
# So many messages wait at most: few kilobytes, and less than a millisecond to count them.
_MAX_WAITING: Final = 256


class StoreStats:
    """Counts every batch that was published. Owned by the loop's thread."""

    def __init__(self, stats: BrokerStatsManager, now_ms: Callable[[], int]) -> None:
        self._stats = stats
        self._now_ms = now_ms
        # Units by queue, and how long their messages took.
        self._waiting: list[tuple[dict[ConsumeQueue, list[bytes]], int]] = []
        self._waiting_messages = 0
        stats.settle = self.count

    def published(self, batch: PutBatch) -> None:
        """Count the messages of a batch, now or later."""
        self._waiting.append((batch.units, self._now_ms() - batch.store_timestamp))
        self._waiting_messages += len(batch.puts) + batch.untold_messages
        if self._waiting_messages >= _MAX_WAITING:
            self.count()

    def count(self) -> None:
        """Count what was published and waits."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._waiting_messages = 0
        # How many cycles had so many messages that took so long; of each topic, how many cycles had it.
        cycles: Counter[tuple[int, int]] = Counter()
        cycles_of: Counter[str] = Counter()
        pieces_of: dict[str, list[bytes]] = {}
        for units, elapsed_ms in waiting:
            size_bytes = 0
            for queue, pieces in units.items():
                size_bytes += sum(map(len, pieces))
                pieces_of.setdefault(queue.topic, []).extend(pieces)
            cycles[size_bytes // CQ_UNIT.size, elapsed_ms] += 1
            for topic in {queue.topic for queue in units}:
                cycles_of[topic] += 1
        for (nums, elapsed_ms), times in cycles.items():
            self._stats.cycle_put(nums, elapsed_ms, times)
        for topic, pieces in pieces_of.items():
            _count_topic(self._stats, topic, cycles_of[topic], b"".join(pieces))


def _count_topic(stats: BrokerStatsManager, topic: str, cycles: int, units: bytes) -> None:
    """Count the messages of a topic that `units` stand for, of so many cycles."""
    count = len(units) // CQ_UNIT.size
    if count < _MANY_UNITS:
        sizes = [size for (size,) in _SIZE.iter_unpack(units)]
        counts = [0] * (len(SIZE_BOUNDS) + 1)
        for size in sizes:
            counts[bisect_left(SIZE_BOUNDS, size)] += 1
        size_bytes = sum(sizes)
    else:
        columns = np.frombuffer(units, _UNIT_COLUMNS)["size"]
        size_bytes = int(columns.sum(dtype=np.int64))
        counts = np.bincount(np.searchsorted(SIZE_BOUNDS, columns), minlength=len(SIZE_BOUNDS) + 1).tolist()
    stats.topic_put(topic, count, size_bytes, cycles)
    stats.message_sizes(topic, counts)
