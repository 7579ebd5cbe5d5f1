"""Where: a point in every queue, and how the options tell where a source begins and ends.

A point is a word (`earliest`, `latest`), a time, or queue by queue an offset or a time. Not here: the offsets
that a point is (queue_lookup.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from kourou.clock import seconds_hint
from kourou.protocol.bodies import MessageQueue
from kourou.spark.option_reader import OptionReader
from kourou.spark.source.offsets import OFFSETS_FORM, QueueOffsets, parse_by_queue, parse_offsets

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

    def time_of(self, queue: MessageQueue) -> int | None:
        """The time that is given for a queue; None without one."""
        return self.timestamp_ms if self.kind == "timestamp" else self.timestamps_ms.get(queue)


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


def check_order(reader: OptionReader, starting: Where | None, ending: Where | None) -> None:
    """Add a problem where the options name an end that lies before the beginning: such a read would be empty.

    Only options of the same kind are compared; whether a time lies before an offset, brokers alone know.
    """
    if starting is None or ending is None:
        return
    if starting.kind == ending.kind == "timestamp":
        if starting.timestamp_ms > ending.timestamp_ms:
            reader.problems.append(
                _reversed(_shown_time(starting.timestamp_ms), _shown_time(ending.timestamp_ms))
            )
        return
    for queue in sorted({*starting.timestamps_ms, *ending.timestamps_ms}):
        begin_ms, end_ms = starting.time_of(queue), ending.time_of(queue)
        if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
            reader.problems.append(
                f"{_shown_queue(queue)}: {_reversed(_shown_time(begin_ms), _shown_time(end_ms))}"
            )
    for queue in sorted(starting.offsets.keys() & ending.offsets.keys()):
        begin, end = starting.offsets[queue], ending.offsets[queue]
        if begin > end >= 0:  # below 0 there are words: earliest, latest
            reader.problems.append(f"{_shown_queue(queue)}: {_reversed(f'offset {begin}', f'offset {end}')}")


def _reversed(begin: str, end: str) -> str:
    return (
        f"the read begins at {begin} and ends at {end}, before that; swap the starting… and ending… options"
    )


def _shown_time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    except (ValueError, OverflowError):  # beyond the year 9999
        return f"{time_ms} ms"


def _shown_queue(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


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


class _SecondsError(ValueError):
    """A time that was probably given in seconds."""


def _queue_time(value: Any, where: str) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    try:
        return _milliseconds(str(value) if is_number or isinstance(value, str) else "")
    except _SecondsError as error:
        raise ValueError(f"{where}: {error}") from None
    except ValueError:
        raise ValueError(f"{where}: {value!r:.80} is not a time; it is {_TIME}") from None


def _milliseconds(text: str) -> int:
    """Milliseconds since 1970, or a time in ISO 8601; without a zone it is UTC."""
    if text.isascii() and text.isdigit():
        if hint := seconds_hint(int(text)):
            raise _SecondsError(f"it is in milliseconds since 1970: {hint}")
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"it is {_TIME}") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)
