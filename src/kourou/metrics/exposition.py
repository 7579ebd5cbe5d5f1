"""The text that Prometheus scrapes, version 0.0.4 of its format, in pieces of bounded size.

    # HELP rocketmq_messages_in_total Messages that were stored.
    # TYPE rocketmq_messages_in_total counter
    rocketmq_messages_in_total{cluster="c",topic="Orders"} 42

Series above a limit are left out and counted. Which ones: families come in the order of their importance, and
those per topic, group and queue last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from kourou.metrics.families import Distribution, Family, Kind, Labels, Metric, Value

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES: Final = 50_000
"""Apache's limit (`metricsOtelCardinalityLimit`)."""

DROPPED_SERIES: Final = Metric(
    "kourou_metrics_dropped_series",
    Kind.GAUGE,
    "Series left out of this scrape, because there are more than metricsOtelCardinalityLimit.",
)

# Some 2 ms of work.
_SAMPLES_PER_PIECE: Final = 400
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(families: Iterable[Family], max_series: int = MAX_SERIES, scope: Labels = ()) -> Iterator[str]:
    """The text in pieces; at its end the number of series that were left out, with the labels `scope`.

    Families of one metric are written as one, where the first of them stands.
    """
    left = max_series
    dropped = 0
    lines: list[str] = []
    for metric, members in _by_metric(families).items():
        lines += _head(metric)
        for family in members:
            prefix = _pairs(family.scope)
            for values, value in family.samples:
                count = len(value.counts) + 2 if isinstance(value, Distribution) else 1
                if count > left:
                    dropped += count
                    continue
                left -= count
                labels = ",".join((*prefix, *_pairs(zip(metric.labels, values, strict=True))))
                lines += _lines(metric.name, labels, value)
                if len(lines) >= _SAMPLES_PER_PIECE:
                    yield _joined(lines)
                    lines = []
    lines += [*_head(DROPPED_SERIES), *_lines(DROPPED_SERIES.name, ",".join(_pairs(scope)), dropped)]
    yield _joined(lines)


def _by_metric(families: Iterable[Family]) -> dict[Metric, list[Family]]:
    found: dict[Metric, list[Family]] = {}
    for family in families:
        found.setdefault(family.metric, []).append(family)
    return found


def _head(metric: Metric) -> tuple[str, str]:
    text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {text}", f"# TYPE {metric.name} {metric.kind.value}"


def _pairs(labels: Iterable[tuple[str, str]]) -> list[str]:
    return [f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels]


def _lines(name: str, labels: str, value: Value) -> Iterator[str]:
    if not isinstance(value, Distribution):
        yield f"{name}{{{labels}}} {number(value)}" if labels else f"{name} {number(value)}"
        return
    before = f"{labels}," if labels else ""
    passed = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        passed += count
        yield f'{name}_bucket{{{before}le="{number(float(bound))}"}} {passed}'
    of_all = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{of_all} {number(value.total)}"
    yield f"{name}_count{of_all} {passed}"


def number(value: float) -> str:
    """A number as the format has it.

    >>> number(3), number(0.5), number(float("inf")), number(float("nan"))
    ('3', '0.5', '+Inf', 'NaN')
    """
    if isinstance(value, int) or math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def _joined(lines: list[str]) -> str:
    return "\n".join((*lines, ""))
