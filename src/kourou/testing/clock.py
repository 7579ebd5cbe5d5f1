"""FakeClock: a clock that a test advances, and a wall clock that it can step."""

from __future__ import annotations

from typing import Final

from kourou.clock import Clock

_MS_NS: Final = 1_000_000


class FakeClock(Clock):
    """Stands still at `wall_ms`; by default it runs with the machine's clock. Calling it returns the wall
    time."""

    def __init__(self, wall_ms: int | None = None) -> None:
        self._stands_at_ms = wall_ms
        self._passed_ms = 0
        self._stepped_ms = 0

    def wall_ms(self) -> int:
        return self.wall_ns() // _MS_NS

    def monotonic_ms(self) -> int:
        return self.monotonic_ns() // _MS_NS

    def wall_ns(self) -> int:
        base_ns = super().wall_ns() if self._stands_at_ms is None else self._stands_at_ms * _MS_NS
        return base_ns + (self._passed_ms + self._stepped_ms) * _MS_NS

    def monotonic_ns(self) -> int:
        return (super().monotonic_ns() if self._stands_at_ms is None else 0) + self._passed_ms * _MS_NS

    def __call__(self) -> int:
        return self.wall_ms()

    def advance(self, ms: int) -> None:
        """Let time pass, on both clocks."""
        self._passed_ms += ms

    def step(self, ms: int) -> None:
        """Step the wall clock forward or back; no time passes."""
        self._stepped_ms += ms
