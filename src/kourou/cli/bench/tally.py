"""Tally: counts and durations for `kourou bench`.

Times are microseconds in buckets no wider than 1/64 of their value, which bounds the error of percentiles.
Each worker has its own tally, without a lock; readers add them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

# Smaller values have a bucket each; larger ones 64 buckets per power of two.
_EXACT_BELOW: Final = 128
_SIGNIFICANT_BITS: Final = 7
_HALF_BITS: Final = _SIGNIFICANT_BITS - 1


def bucket_of(time_us: int) -> int:
    """The bucket of a time."""
    if time_us < _EXACT_BELOW:
        return time_us
    shift = time_us.bit_length() - _SIGNIFICANT_BITS
    return (shift << _HALF_BITS) + (time_us >> shift)


def midpoint(bucket: int) -> float:
    """The time in the middle of a bucket."""
    if bucket < _EXACT_BELOW:
        return bucket
    shift = (bucket >> _HALF_BITS) - 1
    return ((bucket - (shift << _HALF_BITS)) << shift) + ((1 << shift) - 1) / 2


class Tally:
    """The counts of one worker, the only writer; `take_peak` is for the reader."""

    __slots__ = ("_buckets", "_peak_us", "_sum_us", "count")

    def __init__(self) -> None:
        self.count = 0
        self._buckets: dict[int, int] = {}
        self._sum_us = 0
        self._peak_us = 0

    def add(self, time_us: int) -> None:
        """Count one duration. Negative ones, after a clock step, count as 0."""
        if time_us < 0:
            time_us = 0
        bucket = bucket_of(time_us)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self._sum_us += time_us
        self.count += 1
        if time_us > self._peak_us:
            self._peak_us = time_us

    def times(self) -> Times:
        """All durations so far, without the peak."""
        # The copy is atomic, even while the worker adds.
        return Times(self._buckets.copy(), self._sum_us)

    def take_peak(self) -> int:
        """The longest time since the last call."""
        peak_us, self._peak_us = self._peak_us, 0
        return peak_us


@dataclass(frozen=True, slots=True)
class Times:
    """The distribution of durations in an interval."""

    buckets: Mapping[int, int] = field(default_factory=dict)
    sum_us: int = 0
    peak_us: int = 0

    @property
    def count(self) -> int:
        return sum(self.buckets.values())

    @property
    def average_ms(self) -> float:
        """The mean; 0 if empty."""
        count = self.count
        return self.sum_us / count / 1000 if count else 0.0

    @property
    def peak_ms(self) -> float:
        return self.peak_us / 1000

    def percentile_ms(self, percent: float) -> float:
        """The duration that `percent` of all do not exceed; 0 if empty."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                # The middle of the last bucket may exceed the longest time.
                return min(midpoint(bucket), self.peak_us) / 1000
        return 0.0

    def since(self, before: Times, peak_us: int) -> Times:
        """The durations that were added after `before`."""
        buckets = {
            bucket: left
            for bucket, count in self.buckets.items()
            if (left := count - before.buckets.get(bucket, 0))
        }
        return Times(buckets, self.sum_us - before.sum_us, peak_us)


def add_up(parts: Iterable[Times]) -> Times:
    """The durations of several workers together."""
    buckets: dict[int, int] = {}
    sum_us = peak_us = 0
    for part in parts:
        for bucket, count in part.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        sum_us += part.sum_us
        peak_us = max(peak_us, part.peak_us)
    return Times(buckets, sum_us, peak_us)
