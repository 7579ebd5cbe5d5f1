"""PushedFilters: conditions of a query that exclude queues, ranges and rows before Spark sees them.

Spark filters every row again, so excluding too little does no harm. Comparisons of single columns with values
are supported; others are ignored. Not here: Spark's calls (data_source.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kourou.protocol.bodies import MessageQueue
from kourou.protocol.tags import parse_tag_expression
from kourou.spark.source.columns import known_columns
from kourou.spark.source.options import SourceOptions
from kourou.spark.source.planning import QueueRange
from kourou.spark.source.queue_lookup import offsets_or_raise
from kourou.spark.source.source_client import SourceClient

_CLOCK_SLACK_MS: Final = 10 * 60 * 1000
"""Times in a queue increase except for corrections of the broker's clock; this much is tolerated."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS: Final[dict[type[Filter], tuple[str, Callable[[Any, Any], Any]]]] = {
    EqualTo: ("equal", operator.eq),
    GreaterThan: ("greater", operator.gt),
    GreaterThanOrEqual: ("greater_equal", operator.ge),
    LessThan: ("less", operator.lt),
    LessThanOrEqual: ("less_equal", operator.le),
}
_NAMES: Final = {"partition": "queue_id", "offset": "queue_offset", "timestamp": "store_timestamp"}
"""Kafka's names and RocketMQ's."""


class Condition(NamedTuple):
    """`column word value`; with the word `in` several values."""

    column: str
    word: str
    value: Any

    def holds(self, value: Any) -> bool:
        """Whether a value satisfies it."""
        if self.word == "in":
            return value in self.value
        compare = next(compare for word, compare in _COMPARISONS.values() if word == self.word)
        return bool(compare(value, self.value))


class PushedFilters:
    """The conditions of one query, all of which must hold."""

    def __init__(self, row_format: str) -> None:
        self._columns = known_columns(row_format)
        self.conditions: list[Condition] = []

    def take(self, filters: Iterable[Filter]) -> None:
        """Keep the supported filters."""
        for each in filters:
            condition = self._understood(each)
            if condition is not None:
                self.conditions.append(condition)

    def _understood(self, each: Filter) -> Condition | None:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) != 1 or attribute[0] not in self._columns:
            return None
        if isinstance(each, In):
            values = tuple(each.value)
            return Condition(attribute[0], "in", values) if all(map(_is_comparable, values)) else None
        found = _COMPARISONS.get(type(each))
        value = getattr(each, "value", None)
        return Condition(attribute[0], found[0], value) if found and _is_comparable(value) else None

    # -- queues and ranges -----------------------------------------------------------------------

    def _of(self, name: str) -> list[Condition]:
        return [each for each in self.conditions if _NAMES.get(each.column, each.column) == name]

    def may_have(self, queue: MessageQueue) -> bool:
        """Whether a queue may have matching rows."""
        known = {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
        return all(each.holds(value) for name, value in known.items() for each in self._of(name))

    def narrowed(self, ranges: Sequence[QueueRange], client: SourceClient) -> list[QueueRange]:
        """The ranges without offsets that cannot match."""
        low_ms, high_ms = _bounds(self._of("store_timestamp"), _milliseconds)
        if low_ms is not None:
            begins = offsets_or_raise(
                client.offsets_at([each.queue for each in ranges], low_ms - _CLOCK_SLACK_MS)
            )
            ranges = [replace(each, begin=max(each.begin, begins[each.queue])) for each in ranges]
        if high_ms is not None:
            ends = offsets_or_raise(
                client.offsets_at([each.queue for each in ranges], high_ms + _CLOCK_SLACK_MS)
            )
            ranges = [replace(each, end=min(each.end, ends[each.queue])) for each in ranges]
        low, high = _bounds(self._of("queue_offset"), int)
        if low is not None:
            ranges = [replace(each, begin=max(each.begin, low)) for each in ranges]
        if high is not None:
            ranges = [replace(each, end=min(each.end, high + 1)) for each in ranges]
        return [each for each in ranges if each.begin < each.end]

    def narrowed_options(self, options: SourceOptions) -> SourceOptions:
        """The options with the tags as subscription, which brokers then apply."""
        for each in self._of("tags"):
            tags = each.value if each.word == "in" else (each.value,) if each.word == "equal" else ()
            expression = "||".join(map(str, tags))
            if tags and not options.is_filtered and list(tags) == list(parse_tag_expression(expression)):
                return replace(options, expression=expression)
        return options

    # -- rows ------------------------------------------------------------------------------------

    def applied(self, batch: Any) -> Any:
        """The matching rows of an Arrow batch."""
        mask = None
        for each in self.conditions:
            if each.column in batch.schema.names:
                found = _mask(batch.column(each.column), each)
                mask = found if mask is None or found is None else pc.and_kleene(mask, found)
        return batch if mask is None else batch.filter(mask)


def _mask(column: Any, condition: Condition) -> Any:
    if condition.word == "in":
        return pc.is_in(column, value_set=pa.array(condition.value).cast(column.type))
    return getattr(pc, condition.word)(column, pa.scalar(condition.value).cast(column.type))


def _is_comparable(value: Any) -> bool:
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return isinstance(value, str | int | bytes) and not isinstance(value, bool)


def _milliseconds(value: Any) -> int:
    return (value - _EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else int(value)


def _bounds(conditions: list[Condition], number: Callable[[Any], int]) -> tuple[int | None, int | None]:
    """The least and the greatest value that may match, both inclusive, or slightly wider."""
    lows, highs = [], []
    for each in conditions:
        values = [number(value) for value in (each.value if each.word == "in" else (each.value,))]
        if each.word in ("in", "equal", "greater", "greater_equal") and values:
            lows.append(min(values))
        if each.word in ("in", "equal", "less", "less_equal") and values:
            highs.append(max(values))
    return max(lows, default=None), min(highs, default=None)
