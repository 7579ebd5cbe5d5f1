"""Clock: the two times of a process, the one of day and the one that only goes forward.

Wall time is for what other programs read: timestamps of records, files and answers. It may be stepped
either way at any moment. Durations, deadlines and leases are measured by the monotonic time, which also
runs while the machine is suspended, where the system has such a clock.
Not here: finding out that the wall clock was stepped (broker/clock_watch.py).
"""

from __future__ import annotations

import time
from typing import Final

# September 2001 in milliseconds; the same number as seconds lies 30,000 years ahead.
EARLIEST_TIME_MS: Final = 10**12
# Linux: CLOCK_MONOTONIC stands still in suspend, CLOCK_BOOTTIME does not. Elsewhere the former runs on.
_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clock:
    """The clocks of this machine; tests give components another one."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the machine is set."""
        return time.time_ns() // 1_000_000  # not by wall_ms(): a broker reads it twice per commit cycle

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back or leaps."""
        return monotonic_ms()

    def wall_ns(self) -> int:
        """The wall time in nanoseconds."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """The monotonic time in nanoseconds."""
        return _monotonic_ns()


def seconds_hint(time_ms: int) -> str | None:
    """What to say of a time in milliseconds that was probably given in seconds; None if it was not.

    >>> seconds_hint(1794948102), seconds_hint(1794948102000)
    ('1794948102 looks like seconds', None)
    """
    is_likely = time_ms < EARLIEST_TIME_MS <= time_ms * 1000
    return f"{time_ms} looks like seconds" if is_likely else None


def wall_ms() -> int:
    """Milliseconds since 1970, as the machine is set."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds since some moment; never goes back or leaps."""
    return _monotonic_ns() // 1_000_000


def _monotonic_ns() -> int:
    if _MONOTONIC is None:  # no clock_gettime: Windows
        return time.monotonic_ns()
    return time.clock_gettime_ns(_MONOTONIC)


def duration_text(ms: int) -> str:
    """`2d 3h`, `1h 0m 5s`, `1.5s`: for log lines."""
    if ms < 59_950:
        return f"{ms / 1000:.1f}s"
    minutes, seconds = divmod((ms + 500) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return " ".join(f"{number}{unit}" for number, unit in parts if number)
