"""Counters and their past: StatsItem, of one topic or group, and StoreRates, of the whole broker.

A span of a StatsItem keeps samples of the counter: one each 10 s over a minute, each 10 min over an hour,
each hour over a day. What a span tells is the difference between its newest and its oldest sample. StoreRates
are sampled each second for the last ten minutes, for the rates of runtime info.
Not here: which counters there are, and when they are sampled (broker_stats.py).
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Final

from kourou.protocol.bodies import BrokerStatsData, BrokerStatsItem

# When, and the times, messages and bytes counted by then.
Sample = tuple[int, int, int, int]
_TIMES: Final = 1
_KEPT_SECONDS: Final = 600
_WINDOWS_S: Final = (10, 60, 600)
# When, messages put, gets that found some, gets that found none, messages got.
_Sample = tuple[int, int, int, int, int]


class Column(enum.IntEnum):
    """What of a sample is asked for: its place in the tuple."""

    NUMS = 2
    SIZE = 3


@dataclass(frozen=True, slots=True)
class Span:
    """How far back samples reach, and how far they lie apart."""

    step_ms: int
    length_ms: int


MINUTE: Final = Span(step_ms=10_000, length_ms=60_000)
HOUR: Final = Span(step_ms=600_000, length_ms=3_600_000)
DAY: Final = Span(step_ms=3_600_000, length_ms=86_400_000)


class StatsItem:
    """One counter. The hot path adds to `times`, `nums` and `size_bytes` directly."""

    __slots__ = ("_day", "_hour", "_minute", "nums", "size_bytes", "size_counts", "times")

    def __init__(self) -> None:
        self.times = 0
        self.nums = 0
        self.size_bytes = 0
        # Of a topic: how many messages have which size (broker_stats.py).
        self.size_counts: list[int] | None = None
        self._minute: list[Sample] = []
        self._hour: list[Sample] = []
        self._day: list[Sample] = []

    def sample(self, span: Span, now_ms: int) -> None:
        """Remember for `span` what is counted now."""
        samples = self._samples(span)
        if not samples:
            # It began since the last sample of the others.
            samples.append((now_ms - span.step_ms, 0, 0, 0))
        elif len(samples) == 1 and samples[0][_TIMES] == self.times:
            return  # idle for the whole span; brokers have thousands of such topics
        samples.append((now_ms, self.times, self.nums, self.size_bytes))
        _trim(samples, span, now_ms - span.length_ms)

    def data(self, column: Column) -> BrokerStatsData:
        """The three spans, as VIEW_BROKER_STATS_DATA answers them."""
        return BrokerStatsData(
            _difference(self._minute, column),
            _difference(self._hour, column),
            _difference(self._day, column),
        )

    def _samples(self, span: Span) -> list[Sample]:
        if span is MINUTE:
            return self._minute
        return self._hour if span is HOUR else self._day


def _trim(samples: list[Sample], span: Span, start_ms: int) -> None:
    """Forget what lies before `start_ms`, but for the count that the span began with."""
    # Samples come a little late or early: half a step decides which one is the first.
    while len(samples) > 2 and samples[1][0] <= start_ms + span.step_ms // 2:
        del samples[0]
    first, second = samples[0], samples[1]
    if first[0] < start_ms < second[0] - span.step_ms // 2:
        # It was idle in between, so this was the count at the beginning of the span as well.
        samples[0] = first = (start_ms, *first[1:])
    if first[_TIMES] == samples[-1][_TIMES] and first[0] <= start_ms + span.step_ms // 2:
        del samples[:-1]


def _difference(samples: list[Sample], column: Column) -> BrokerStatsItem:
    if len(samples) < 2:
        return BrokerStatsItem()
    first, last = samples[0], samples[-1]
    total = last[column] - first[column]
    times = last[_TIMES] - first[_TIMES]
    return BrokerStatsItem(
        sum=total,
        tps=total * 1000 / (last[0] - first[0]) if last[0] > first[0] else 0.0,
        avgpt=total / times if times > 0 else 0.0,
    )


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
