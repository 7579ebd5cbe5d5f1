"""DayTotals: messages put and got by this morning and by yesterday's, for what a day brought.

Mornings are local midnights that the broker lived through; before the first one all is 0.
"""

from __future__ import annotations

import time


class DayTotals:
    """The totals at the last two midnights."""

    __slots__ = (
        "_today",
        "get_today_morning",
        "get_yesterday_morning",
        "put_today_morning",
        "put_yesterday_morning",
    )

    def __init__(self, now_ms: int) -> None:
        self._today = _local_day(now_ms)
        self.put_yesterday_morning = 0
        self.put_today_morning = 0
        self.get_yesterday_morning = 0
        self.get_today_morning = 0

    def is_over(self, now_ms: int) -> bool:
        """True when a midnight has passed since the last `roll`."""
        return _local_day(now_ms) != self._today

    def roll(self, now_ms: int, put_nums: int, get_nums: int) -> None:
        """A new day begins with these totals."""
        self._today = _local_day(now_ms)
        self.put_yesterday_morning, self.put_today_morning = self.put_today_morning, put_nums
        self.get_yesterday_morning, self.get_today_morning = self.get_today_morning, get_nums


def _local_day(now_ms: int) -> tuple[int, int]:
    local = time.localtime(now_ms / 1000)
    return local.tm_year, local.tm_yday
