"""CallLatency: how long calls take, by RPC and status of rocketmq.v2.

Measured from the complete request to the response, also if that comes much later, as that of a receive that
waits for messages. Telemetry streams are not measured: they last as long as their clients.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from kourou.metrics.families import Distribution, Sample
from kourou.proxy.wire.rocketmq_v2 import Code

BOUNDS_S: Final = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0, 20.0)
"""Apache's of requests, and the time for which clients wait for messages."""
_RANGES: Final = len(BOUNDS_S) + 1


class CallLatency:
    """Counts for each kind of call. `now_s` is the clock of the event loop."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._counts: dict[tuple[str, int], list[int]] = {}
        self._total_s: dict[tuple[str, int], float] = {}

    def answered(self, path: str, code: int, began_s: float) -> None:
        """A call that began then has its response."""
        elapsed_s = self.now_s() - began_s
        key = path, code
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * _RANGES
            self._total_s[key] = 0.0
        counts[bisect_left(BOUNDS_S, elapsed_s)] += 1
        self._total_s[key] += elapsed_s

    def samples(self) -> Iterator[Sample]:
        """What was counted, with the labels of the metric."""
        for (path, code), counts in list(self._counts.items()):
            labels = path.rpartition("/")[2], _name(code)
            yield labels, Distribution(BOUNDS_S, tuple(counts), self._total_s[path, code])


def _name(code: int) -> str:
    """The name of a status; the number of one without."""
    try:
        return Code(code).name.lower()
    except ValueError:
        return str(code)
