"""Options for the beginning or end of a command's range, checked before Spark starts.

Mistakes are reported by the name of the command's own option, not by the source's (`startingTimestamp`).
Not here: how the source reads a time (offset_spec.py).
"""

from __future__ import annotations

from typing import Final

from kourou.errors import ConfigError
from kourou.spark.source.offset_spec import SecondsError, milliseconds_of

A_TIME: Final = (
    "a time such as 2026-01-31T08:00:00+00:00 (without a zone: UTC), or milliseconds since 1970 such as "
    "1769846400000"
)
_TIMESTAMP: Final = "startingTimestamp"


def parse_time_ms(option: str, text: str, accepted: str = A_TIME) -> int:
    """Milliseconds since 1970. ConfigError if it is not a time; `accepted` describes valid values."""
    try:
        return milliseconds_of(text.strip())
    except SecondsError as error:
        raise ConfigError(f"{option} {text}: must be {accepted}; {error.hint}") from None
    except ValueError:
        raise ConfigError(f"{option} {text}: must be {accepted}") from None


def start_option(option: str, text: str) -> dict[str, str]:
    """The source's option for a word, offsets in JSON, or a time. ConfigError for anything else."""
    if text.lower() in ("earliest", "latest") or text.startswith("{"):
        return {"startingOffsets": text}
    parse_time_ms(option, text, f"earliest, latest, {A_TIME}")
    return {_TIMESTAMP: text}
