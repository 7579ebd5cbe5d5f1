"""Where: a point in every queue, and how the options tell where a source begins and ends.

A point is a word (`earliest`, `latest`), a time, or queue by queue an offset or a time. Not here: the offsets
that a point is (queue_lookup.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from kourou.spark.offsets import OFFSETS_FORM, QueueOffsets, parse_by_queue, parse_offsets
from kourou.spark.option_reader import OptionReader

_TIMES_FORM: Final = '{"topic": {"broker-a": {"0": 1769846400000, "1": "2026-01-31T08:00:00+00:00"}}}'
_TIME: Final = "a number of milliseconds since 1970, or a time such as 2026-01-31T08:00:00+00:00"

WhereKind = Literal["earliest", "latest", "timestamp", "offsets", "timestamps"]


@dataclass(frozen=True, slots=True)
class Where:
    """A point in every queue: by a word, by a time, or queue by queue."""

    kind: WhereKind
    timestamp_ms: int = 0
    offsets: QueueOffsets = field(default_factory=dict)
    timestamps_ms: QueueOffsets = field(default_factory=dict)
    """A time for each queue that is named."""


EARLIEST_POINT: Final = Where("earliest")
LATEST_POINT: Final = Where("latest")


def read_point(reader: OptionReader, word: str, default: Where | None) -> Where | None:
    """The point that options say; `word` is `starting` or `ending`."""
    ways: dict[str, Callable[[str], Where]] = {
        f"{word}Offsets": _where,
        f"{word}Timestamp": _when,
        f"{word}OffsetsByTimestamp": _when_by_queue,
    }
    given = [name for name in ways if reader.has(name)]
    if len(given) > 1:
        reader.problems.append(f"{' and '.join(given)} exclude each other: give one of them")
    for name in given:
        default = reader.value(name, default, ways[name])
    return default


def _where(text: str) -> Where:
    word = text.lower()
    if word == "earliest":
        return EARLIEST_POINT
    if word == "latest":
        return LATEST_POINT
    if not text.startswith("{"):
        raise ValueError(f"it is earliest, latest, or JSON with the offset of each queue: {OFFSETS_FORM}")
    return Where("offsets", offsets=parse_offsets(text))


def _when(text: str) -> Where:
    return Where("timestamp", _milliseconds(text))


def _when_by_queue(text: str) -> Where:
    return Where("timestamps", timestamps_ms=parse_by_queue(text, _queue_time, _TIMES_FORM))


def _queue_time(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        return _milliseconds(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(f"{where}: {value!r:.80} is no time; it is {_TIME}") from None


def _milliseconds(text: str) -> int:
    """Milliseconds since 1970, or a time in ISO 8601; without a zone it is UTC."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"it is {_TIME}") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)
