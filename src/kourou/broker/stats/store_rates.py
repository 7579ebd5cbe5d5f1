"""StoreRates: puts and gets of the whole broker, sampled each second for the last ten minutes.

Gives the rates of runtime info. Not here: counters by topic and group (stats_item.py).
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

_KEPT_SECONDS: Final = 600
_WINDOWS_S: Final = (10, 60, 600)

# When, messages put, gets that found some, gets that found none, messages got.
_Sample = tuple[int, int, int, int, int]


class Rate(enum.IntEnum):
    """What is asked for: its place in a sample."""

    PUT = 1
    GET_FOUND = 2
    GET_MISS = 3
    GET_TRANSFERRED = 4


class StoreRates:
    """The four totals, added to directly, and their samples."""

    __slots__ = ("_samples", "get_found", "get_missed", "get_nums", "put_nums")

    def __init__(self) -> None:
        self.put_nums = 0
        self.get_found = 0
        self.get_missed = 0
        self.get_nums = 0
        self._samples: deque[_Sample] = deque(maxlen=_KEPT_SECONDS + 1)

    def sample(self, now_ms: int) -> None:
        """Remember what is counted now; once a second."""
        self._samples.append((now_ms, self.put_nums, self.get_found, self.get_missed, self.get_nums))

    def text(self, *rates: Rate) -> str:
        """Events a second over the last 10 s, minute and 10 minutes; of several rates their sum.

        Shortly after the start each is over the time there is.
        """
        return " ".join(str(sum(self._rate(rate, window_s) for rate in rates)) for window_s in _WINDOWS_S)

    def _rate(self, rate: Rate, window_s: int) -> float:
        samples = self._samples
        if len(samples) < 2:
            return 0.0
        first, last = samples[max(0, len(samples) - 1 - window_s)], samples[-1]
        elapsed_ms = last[0] - first[0]
        return (last[rate] - first[rate]) * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0
