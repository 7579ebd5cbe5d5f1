"""OffsetSpec: a position in every queue, as the options specify where a source begins and ends.

A position is a word (`earliest`, `latest`), a time, or an offset or a time per queue. Not here: resolving it
to offsets (queue_lookup.py).
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

SpecKind = Literal["earliest", "latest", "timestamp", "offsets", "timestamps"]


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A position in every queue: by word, by time, or per queue."""

    kind: SpecKind
    timestamp_ms: int = 0
    offsets: QueueOffsets = field(default_factory=dict)
    timestamps_ms: QueueOffsets = field(default_factory=dict)
    """A time for each named queue."""

    def time_of(self, queue: MessageQueue) -> int | None:
        """The time for a queue; None if there is none."""
        return self.timestamp_ms if self.kind == "timestamp" else self.timestamps_ms.get(queue)


EARLIEST_SPEC: Final = OffsetSpec("earliest")
LATEST_SPEC: Final = OffsetSpec("latest")


def read_offset_spec(reader: OptionReader, word: str, default: OffsetSpec | None) -> OffsetSpec | None:
    """The position given by the options; `word` is `starting` or `ending`."""
    ways: dict[str, Callable[[str], OffsetSpec]] = {
        f"{word}Offsets": _parse_offsets,
        f"{word}Timestamp": _parse_timestamp,
        f"{word}OffsetsByTimestamp": _parse_timestamps,
    }
    given = [name for name in ways if reader.has(name)]
    if len(given) > 1:
        reader.problems.append(f"{' and '.join(given)} are mutually exclusive: use one of them")
    for name in given:
        default = reader.value(name, default, ways[name])
    return default


def check_order(reader: OptionReader, starting: OffsetSpec | None, ending: OffsetSpec | None) -> None:
    """Report an end that lies before the beginning: such a read would be empty.

    Only options of the same kind are compared; only brokers know whether a time lies before an offset.
    """
    if starting is None or ending is None:
        return
    if starting.kind == ending.kind == "timestamp":
        if starting.timestamp_ms > ending.timestamp_ms:
            reader.problems.append(
                _reversed(_format_time(starting.timestamp_ms), _format_time(ending.timestamp_ms))
            )
        return
    for queue in sorted({*starting.timestamps_ms, *ending.timestamps_ms}):
        begin_ms, end_ms = starting.time_of(queue), ending.time_of(queue)
        if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
            reader.problems.append(
                f"{_format_queue(queue)}: {_reversed(_format_time(begin_ms), _format_time(end_ms))}"
            )
    for queue in sorted(starting.offsets.keys() & ending.offsets.keys()):
        begin, end = starting.offsets[queue], ending.offsets[queue]
        if begin > end >= 0:  # negative values stand for earliest and latest
            reader.problems.append(f"{_format_queue(queue)}: {_reversed(f'offset {begin}', f'offset {end}')}")


def _reversed(begin: str, end: str) -> str:
    return f"the read would end at {end}, before it begins at {begin}; swap the starting… and ending… options"


def _format_time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    except (ValueError, OverflowError):  # beyond the year 9999
        return f"{time_ms} ms"


def _format_queue(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def _parse_offsets(text: str) -> OffsetSpec:
    word = text.lower()
    if word == "earliest":
        return EARLIEST_SPEC
    if word == "latest":
        return LATEST_SPEC
    if not text.startswith("{"):
        raise ValueError(f"must be earliest, latest, or JSON with the offset of each queue: {OFFSETS_FORM}")
    return OffsetSpec("offsets", offsets=parse_offsets(text))


def _parse_timestamp(text: str) -> OffsetSpec:
    return OffsetSpec("timestamp", milliseconds_of(text))


def _parse_timestamps(text: str) -> OffsetSpec:
    return OffsetSpec("timestamps", timestamps_ms=parse_by_queue(text, _queue_time, _TIMES_FORM))


class SecondsError(ValueError):
    """A time that was probably given in seconds; `hint` says so."""

    def __init__(self, hint: str) -> None:
        super().__init__(f"it is in milliseconds since 1970: {hint}")
        self.hint = hint


def _queue_time(value: Any, where: str) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    try:
        return milliseconds_of(str(value) if is_number or isinstance(value, str) else "")
    except SecondsError as error:
        raise ValueError(f"{where}: {error}") from None
    except ValueError:
        raise ValueError(f"{where}: {value!r:.80} is not a time; it is {_TIME}") from None


def milliseconds_of(text: str) -> int:
    """Milliseconds since 1970 of such a number, or of a time in ISO 8601; without a zone it is UTC.
    ValueError for anything else, SecondsError for a time in seconds."""
    if text.isascii() and text.isdigit():
        if hint := seconds_hint(int(text)):
            raise SecondsError(hint)
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"it is {_TIME}") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)
