"""ControlAllowance: how many control frames a peer may send.

Control frames cost the server work and give nothing back. Clients need them in proportion to the data they
get: windows, and PINGs that measure bandwidth. So each DATA frame of ours earns some; beyond that there is a
burst, refilled slowly.
"""

from __future__ import annotations

from typing import Final

_EARNED_BY_DATA: Final = 4


class ControlAllowance:
    """Tokens of one connection: at most `burst`, `per_s` more each second."""

    __slots__ = ("_at", "_burst", "_data_frames", "_left", "_per_s")

    def __init__(self, burst: int, per_s: int) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._at: float | None = None
        self._data_frames = 0

    def spend(self, cost: int, now: float, data_frames: int) -> bool:
        """Whether a frame of this cost is allowed; `data_frames` is the count of DATA frames sent so far."""
        self._left -= cost
        if self._left >= self._burst / 2:
            return True  # nothing to work out
        if self._at is not None:
            earned = (now - self._at) * self._per_s + (data_frames - self._data_frames) * _EARNED_BY_DATA
            self._left = min(float(self._burst), self._left + earned)
        self._at, self._data_frames = now, data_frames
        return self._left >= 0
