"""Where a command is told to begin or end, checked before Spark starts.

Mistakes are told by the command's own option: nobody who typed `--from` knows what `startingTimestamp` is.
Not here: how the source reads a time (offset_spec.py).
"""

from __future__ import annotations

from typing import Final

from kourou.errors import ConfigError
from kourou.spark.option_reader import OptionReader
from kourou.spark.source.offset_spec import read_point

A_TIME: Final = (
    "a time such as 2026-01-31T08:00:00+00:00 (without a zone: UTC), or milliseconds since 1970 such as "
    "1769846400000"
)
_TIMESTAMP: Final = "startingTimestamp"


def parse_time_ms(option: str, text: str, accepted: str = A_TIME) -> int:
    """Milliseconds since 1970. ConfigError: it is no time; `accepted` says what the option takes."""
    reader = OptionReader("source", {_TIMESTAMP: text}, (), {})
    point = read_point(reader, "starting", None)
    if point is None:
        raise ConfigError(f"{option} {text}: must be {accepted}")
    return point.timestamp_ms


def start_option(option: str, text: str) -> dict[str, str]:
    """A word, offsets in JSON, or a time: the option of the source that says it. ConfigError: it is none."""
    if text.lower() in ("earliest", "latest") or text.startswith("{"):
        return {"startingOffsets": text}
    parse_time_ms(option, text, f"earliest, latest, {A_TIME}")
    return {_TIMESTAMP: text}
