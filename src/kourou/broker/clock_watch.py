"""ClockWatch: notices steps of the wall clock, and keeps a time that does not have them.

Steady time is wall time without the steps since the start of the process: it goes by the monotonic clock,
and follows the wall clock's small corrections. Delays and ages are measured in it, so that a step of the
wall clock brings nothing early or late. What was stored before a step carries the wall time of then:
`steady_of` translates it by where it lies in the log.
Not here: the clocks themselves (clock.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kourou.clock import Clock, duration_text

_log = logging.getLogger(__name__)

STEP_MS: Final = 1_000
"""Smaller differences are corrections of a running clock, which everything follows."""


_MS_NS: Final = 1_000_000
# Two programs may set the clock in turn, for ever: then the oldest steps count as one.
_MAX_STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The wall clock was set ahead by `ms`, back if negative. Records below `phy_offset` are older."""

    ms: int
    phy_offset: int
    wall_ms: int
    """The wall time after it."""


class ClockWatch:
    """The clocks of one broker. `last_known_ms`: the latest wall time that the store tells of; if it is
    ahead, the clock was set back before the process started."""

    def __init__(self, clock: Clock, log_end: Callable[[], int], last_known_ms: int = 0) -> None:
        self._clock = clock
        self._log_end = log_end
        # In nanoseconds, and the wall clock is read first: steady time is never ahead of wall time, so that
        # no timestamp says that a message came early.
        self._base_ns = clock.wall_ns() - clock.monotonic_ns()
        self._stepped_ms = 0
        self.start_ms = clock.wall_ms()
        """Wall and steady time of the start."""
        self.start_phy_offset = log_end()
        """Records below it were stored by an earlier process, by a clock of which nothing is known."""
        self.steps: list[ClockStep] = []
        self.step_count = 0
        self.last_step: ClockStep | None = None
        """Also one that happened while the broker was down; it is not in `steps`."""
        if last_known_ms - self.start_ms >= STEP_MS:
            self._note(ClockStep(self.start_ms - last_known_ms, self.start_phy_offset, self.start_ms))
            _log.warning(
                "the clock was set back by at least %s while the broker was down: the store was last used at "
                "a later time than now; delayed messages wait for what is left of their delay",
                duration_text(last_known_ms - self.start_ms),
            )

    def steady_ms(self) -> int:
        """The time without steps; wall time as long as there was none."""
        return (self._clock.monotonic_ns() + self._base_ns) // _MS_NS

    @property
    def stepped_ms(self) -> int:
        """How far the wall clock is ahead of the steady time, in whole steps."""
        return self._stepped_ms

    def look(self) -> None:
        """Compare the clocks. Called several times a second."""
        wall_ns = self._clock.wall_ns()
        drift_ns = wall_ns - self._clock.monotonic_ns() - self._base_ns - self._stepped_ms * _MS_NS
        drift_ms = round(drift_ns / _MS_NS)
        if abs(drift_ms) < STEP_MS:
            if not 0 <= drift_ns < _MS_NS:
                self._base_ns += drift_ns
            return
        step = ClockStep(drift_ms, self._log_end(), wall_ns // _MS_NS)
        self._stepped_ms += drift_ms
        self.steps.append(step)
        if len(self.steps) > _MAX_STEPS:
            first, second = self.steps[:2]
            self.steps[:2] = [replace(second, ms=first.ms + second.ms)]
        self._note(step)
        _log.warning(
            "the clock was set %s by %s: messages that wait for a delay keep it, new ones go by the new time",
            "ahead" if drift_ms > 0 else "back",
            duration_text(abs(drift_ms)),
        )

    def _note(self, step: ClockStep) -> None:
        self.step_count += 1
        self.last_step = step

    def steady_of(self, time_ms: int, phy_offset: int) -> int:
        """The steady time of a wall time that belongs to the record at `phy_offset`."""
        if not self.steps:
            return time_ms
        return time_ms - sum(step.ms for step in self.steps if step.phy_offset <= phy_offset)

    def steady_now_of(self, time_ms: int) -> int:
        """The steady time of a wall time as the clock is set now."""
        return time_ms - self._stepped_ms

    def age_ms(self, born_ms: int) -> int | None:
        """How long ago a wall time of unknown setting was: the smaller of what both times say; None when
        it lies ahead of both."""
        ages = (self._clock.wall_ms() - born_ms, self.steady_ms() - born_ms)
        return min((age for age in ages if age >= 0), default=None)

    def file_age_ms(self, modified_ms: int, end_phy_offset: int) -> int:
        """How long ago a file of the log was filled, which ends at `end_phy_offset`. Of one that an earlier
        process filled: the least that both clocks say, but not less than the time since the start."""
        steady_ms = self.steady_ms()
        if end_phy_offset > self.start_phy_offset:
            return steady_ms - self.steady_of(modified_ms, end_phy_offset - 1)
        return max(min(self._clock.wall_ms(), steady_ms) - modified_ms, steady_ms - self.start_ms)
