"""Times on a command line: parsing and formatting."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kourou.cli.option_types import parse_duration_ms
from kourou.cli.problems import UsageError
from kourou.clock import seconds_hint, wall_ms

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_DAY: Final = "20261117"  # a date in ISO 8601's basic format, not milliseconds


def parse_time_ms(option: str, text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970 of a time. UsageError if it is not a time.

    `-10m` is ten minutes ago; otherwise ISO 8601, in local time without a zone, or milliseconds.

    >>> parse_time_ms("--from", "-10m", now_ms=1_000_000)
    400000
    >>> parse_time_ms("--from", "1970-01-01T00:00:01Z"), parse_time_ms("--from", "1763382600000")
    (1000, 1763382600000)
    """
    if text.startswith("-"):
        now_ms = wall_ms() if now_ms is None else now_ms
        return max(0, now_ms - parse_duration_ms(option, text[1:]))
    try:
        if text.isascii() and text.isdigit() and len(text) != len(_DAY):
            format_time(int(text))  # raises if the year is out of range
            if hint := seconds_hint(int(text)):
                raise UsageError(f"{option} {text}: must be in milliseconds since 1970: {hint}")
            return int(text)
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{option} {text}: must be {EARLIEST}, {LATEST}, a time before now such as -10m, a time such as "
            "2026-11-17T12:30, or milliseconds since 1970"
        ) from None


def format_time(timestamp_ms: int) -> str:
    """A time in the local zone; `-` for none."""
    if timestamp_ms <= 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "milliseconds")
