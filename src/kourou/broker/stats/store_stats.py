"""StoreStats: counts what was published, several commit cycles at a time.

Counting a cycle of one message would take as long as storing it. Cycles are counted together once enough
messages are waiting, and before any figure is read (`BrokerStatsManager.settle`), so figures are exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import numpy as np

from kourou.broker.stats.broker_stats import SIZE_BOUNDS, BrokerStatsManager
from kourou.protocol.layout import CQ_UNIT
from kourou.store.log.put_batch import PutBatch

_SIZE: Final = CQ_UNIT.part("size", is_padded=True)
_UNIT_COLUMNS: Final = np.dtype(CQ_UNIT.dtype())
# From so many messages on, columns take less time than a loop.
_MANY_UNITS: Final = 64
# So much waits at most: few kilobytes, and well below a millisecond to count it.
_MAX_WAITING_CYCLES: Final = 256
_MAX_WAITING_BYTES: Final = 256 * CQ_UNIT.size


class _Waiting:
    """What of one topic is not counted yet: its units, and how many cycles had them."""

    __slots__ = ("cycle", "cycles", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.cycles = 0
        self.cycle = 0


class StoreStats:
    """Counts every batch that was published. Owned by the loop's thread."""

    def __init__(self, stats: BrokerStatsManager, now_ms: Callable[[], int]) -> None:
        self._stats = stats
        self._now_ms = now_ms
        self._topics: dict[str, _Waiting] = {}
        # How many cycles had so many bytes of units, and took so long.
        self._cycles: dict[tuple[int, int], int] = {}
        self._cycle = 0
        self._waiting_bytes = 0
        stats.settle = self.count

    def published(self, batch: PutBatch) -> None:
        """Count the messages of a batch, now or later."""
        self._cycle += 1
        topics, size_bytes = self._topics, 0
        for queue, pieces in batch.units.items():
            waiting = topics.get(queue.topic)
            if waiting is None:
                waiting = topics[queue.topic] = _Waiting()
            units = b"".join(pieces)
            size_bytes += len(units)
            waiting.pieces.append(units)
            if waiting.cycle != self._cycle:
                waiting.cycle = self._cycle
                waiting.cycles += 1
        case = size_bytes, self._now_ms() - batch.store_timestamp
        self._cycles[case] = self._cycles.get(case, 0) + 1
        self._waiting_bytes += size_bytes
        if self._waiting_bytes >= _MAX_WAITING_BYTES or self._cycle >= _MAX_WAITING_CYCLES:
            self.count()

    def count(self) -> None:
        """Count what was published and waits."""
        if not self._cycles:
            return
        topics, self._topics = self._topics, {}
        cycles, self._cycles = self._cycles, {}
        self._cycle = self._waiting_bytes = 0
        for (size_bytes, elapsed_ms), times in cycles.items():
            self._stats.cycle_put(size_bytes // CQ_UNIT.size, elapsed_ms, times)
        for topic, waiting in topics.items():
            _count_topic(self._stats, topic, waiting.cycles, b"".join(waiting.pieces))


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
