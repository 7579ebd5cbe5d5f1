"""StoreStats: counts what was published, several commit cycles at a time.

Counting a cycle of one message would take as long as storing it. Cycles are counted together once enough
messages are waiting, and before any figure is read (`BrokerStatsManager.settle`), so figures are exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from kourou.broker.stats.broker_stats import SIZE_BOUNDS, BrokerStatsManager
from kourou.protocol.layout import CQ_UNIT
from kourou.store.log.put_batch import GrownQueue

_SIZE: Final = CQ_UNIT.part("size", is_padded=True)
_UNIT_COLUMNS: Final = np.dtype(CQ_UNIT.dtype())
# From so many messages on, columns take less time than a loop.
_MANY_UNITS: Final = 64
# So much waits at most: few kilobytes, and well below a millisecond to count it.
_MAX_WAITING_CYCLES: Final = 256
_MAX_WAITING_MESSAGES: Final = 256


class _Topic:
    """What is to be counted of one topic: its units, how many cycles had them, and which was the last."""

    __slots__ = ("cycles", "last_cycle", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.cycles = 0
        self.last_cycle = -1


class StoreStats:
    """Counts all messages that were published. Owned by the loop's thread."""

    def __init__(self, stats: BrokerStatsManager, now_ms: Callable[[], int]) -> None:
        self._stats = stats
        self._now_ms = now_ms
        # Of each cycle that is not counted yet: its units, and how long it took.
        self._cycles: list[tuple[Sequence[GrownQueue], int]] = []
        self._waiting_messages = 0
        stats.settlers.append(self.count)

    def published(self, grown: Sequence[GrownQueue], messages: int, store_timestamp: int) -> None:
        """Count the messages of a cycle, now or later."""
        cycles = self._cycles
        cycles.append((grown, self._now_ms() - store_timestamp))
        self._waiting_messages += messages
        if self._waiting_messages >= _MAX_WAITING_MESSAGES or len(cycles) >= _MAX_WAITING_CYCLES:
            self.count()

    def count(self) -> None:
        """Count what was published and waits."""
        if not self._cycles:
            return
        cycles, self._cycles = self._cycles, []
        self._waiting_messages = 0
        topics: defaultdict[str, _Topic] = defaultdict(_Topic)
        # How many cycles had so many bytes of units, and took so long.
        cases: dict[tuple[int, int], int] = {}
        for number, (grown, elapsed_ms) in enumerate(cycles):
            size_bytes = 0
            for queue, _, units in grown:
                topic = topics[queue.topic]
                topic.pieces.append(units)
                if topic.last_cycle != number:
                    topic.last_cycle = number
                    topic.cycles += 1
                size_bytes += len(units)
            case = size_bytes, elapsed_ms
            cases[case] = cases.get(case, 0) + 1
        for (size_bytes, elapsed_ms), times in cases.items():
            self._stats.cycle_put(size_bytes // CQ_UNIT.size, elapsed_ms, times)
        for name, topic in topics.items():
            _count_topic(self._stats, name, topic.cycles, b"".join(topic.pieces))


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
