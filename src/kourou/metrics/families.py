"""Metric, Family, Histogram: what is exposed, before it is text.

A Metric is a declaration: name, kind, labels and help; docs/metrics.md has one row for each. A Family is a
metric with its samples of one moment. Samples may be a generator: they are drawn while the text is written,
so that a family of ten thousand series takes no memory and no long moment of the event loop.
Not here: the text (exposition.py).
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Kind(enum.Enum):
    """Prometheus' word for what a number means."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Distribution(NamedTuple):
    """A histogram at one moment. `counts` has one more item than `bounds`: what lies above all of them."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


Value: TypeAlias = int | float | Distribution
Sample: TypeAlias = tuple[tuple[str, ...], Value]
"""The values of a metric's labels, and its value."""
Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A declared metric. `name` is the name that is scraped: a counter's ends in `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def family(self, samples: Iterable[Sample], scope: Labels = ()) -> Family:
        """Its samples of this moment; `scope` are labels that all of them have."""
        return Family(self, samples, scope)

    def value(self, value: Value, scope: Labels = ()) -> Family:
        """The family of a metric without labels of its own."""
        return Family(self, (((), value),), scope)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples, which may be drawn once."""

    metric: Metric
    samples: Iterable[Sample]
    scope: Labels = ()


class Histogram:
    """A distribution that is counted. Owned by one thread."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """`times` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def read(self) -> Distribution:
        """A copy of what is counted."""
        return Distribution(self.bounds, tuple(self.counts), self.total)


def metrics_of(*modules: object) -> list[Metric]:
    """The metrics that modules declare, in order, for documentation and tests."""
    return [value for module in modules for value in vars(module).values() if isinstance(value, Metric)]
