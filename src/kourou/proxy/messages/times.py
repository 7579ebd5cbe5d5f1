"""Times and time spans: protobuf's seconds and nanoseconds as milliseconds, and the reverse."""

from __future__ import annotations

from typing import Final

from kourou.proxy.wire.rocketmq_v2 import Duration, Timestamp

MAX_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999: protobuf's times end there."""


def duration_ms(value: Duration) -> int:
    """A time span in milliseconds."""
    return value.seconds * 1000 + value.nanos // 1_000_000


def duration_of_ms(value_ms: int) -> Duration:
    """A time span as protobuf has it."""
    return Duration(seconds=value_ms // 1000, nanos=value_ms % 1000 * 1_000_000)


def timestamp_ms(value: Timestamp) -> int:
    """Milliseconds since 1970."""
    return value.seconds * 1000 + value.nanos // 1_000_000


def set_timestamp(target: Timestamp, value_ms: int) -> None:
    """Let `target` be this time, in milliseconds since 1970."""
    target.seconds = value_ms // 1000
    target.nanos = value_ms % 1000 * 1_000_000
