"""PutLatency: how long puts took, counted in buckets of milliseconds, a minute at a time.

Gives what runtime info tells of it: the distribution as text, the percentiles, the longest.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

# The upper bounds in ms: first each ms, then in wider steps; all above is one bucket more.
_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS: Final = tuple(accumulate((step for step, count in _STEPS for _ in range(count)), initial=0))

_RANGES: Final = (
    ("<=0ms", 0),
    ("0~10ms", 10),
    ("10~50ms", 50),
    ("50~100ms", 100),
    ("100~200ms", 200),
    ("200~500ms", 500),
    ("500ms~1s", 1000),
    ("1~2s", 2000),
    ("2~3s", 3000),
    ("3~4s", 4000),
    ("4~5s", 5000),
    ("5~10s", 10_000),
    ("10s~", None),
)
"""The ranges in Apache's words, with the last ms of each."""


class PutLatency:
    """Counts of this minute and of the one before."""

    __slots__ = ("_counts", "_last_counts", "max_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._last_counts: list[int] | None = None
        self.max_ms = 0.0

    def add(self, elapsed_ms: float, nums: int) -> None:
        """`nums` messages took `elapsed_ms` each."""
        self._counts[bisect_left(_BOUNDS, elapsed_ms)] += nums
        if elapsed_ms > self.max_ms:
            self.max_ms = elapsed_ms

    def roll(self) -> None:
        """A minute is over."""
        self._last_counts = self._counts
        self._counts = [0] * len(self._counts)

    def distribution(self) -> str:
        """Messages of this minute in each range: `[<=0ms]:5 [0~10ms]:7 ... `."""
        counts = self._counts
        texts: list[str] = []
        start = 0
        for name, last_ms in _RANGES:
            end = len(counts) if last_ms is None else bisect_left(_BOUNDS, last_ms) + 1
            texts.append(f"[{name}]:{sum(counts[start:end])} ")
            start = end
        return "".join(texts)

    def percentile_ms(self, share: float) -> float:
        """The time that `share` of the last whole minute's messages stayed below; at first of this one's."""
        counts = self._counts if self._last_counts is None else self._last_counts
        rank = int(sum(counts) * share)
        passed = 0
        for index, count in enumerate(counts):
            if count and rank <= passed + count:
                return _within(index, (rank - passed) / count)
            passed += count
        return 0.0


def _within(index: int, share: float) -> float:
    """The time at `share` of a bucket, as if times were spread evenly over it."""
    if index == 0:
        return 0.0
    if index == len(_BOUNDS):
        return float(_BOUNDS[-1])
    low, high = _BOUNDS[index - 1], _BOUNDS[index]
    return low + (high - low) * share
