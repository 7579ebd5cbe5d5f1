"""How far behind a slave is in time, and how fast it catches up: what operators see of a link."""

from __future__ import annotations

from typing import Final

_WINDOW_S: Final = 1.0


class ReplicaLag:
    """For how long a slave has been behind, by the master's clock.

    Under load a slave is always a little behind the end of the log. So the end is noted together with the
    time: a slave that has everything up to there was up to date at that time.
    """

    __slots__ = ("_noted_end", "_noted_s", "_up_to_date_s", "is_behind")

    def __init__(self) -> None:
        self.is_behind = False
        self._noted_end = 0
        self._noted_s = 0.0
        self._up_to_date_s = 0.0

    def grown(self, end_phy_offset: int, now_s: float) -> None:
        """The log of a master whose slave had everything has grown."""
        self.is_behind = True
        self._noted_end, self._noted_s, self._up_to_date_s = end_phy_offset, now_s, now_s

    def acknowledged(self, ack_phy_offset: int, end_phy_offset: int, now_s: float) -> None:
        """The slave has everything below `ack_phy_offset`, where the log ends at `end_phy_offset`."""
        if ack_phy_offset >= end_phy_offset:
            self.is_behind = False
        elif not self.is_behind:
            self.grown(end_phy_offset, now_s)
        elif ack_phy_offset >= self._noted_end:
            self._up_to_date_s = self._noted_s
            self._noted_end, self._noted_s = end_phy_offset, now_s

    def seconds(self, now_s: float) -> float:
        """How old the last state of the log is that the slave has; 0 if it has everything."""
        return now_s - self._up_to_date_s if self.is_behind else 0.0


class TransferRate:
    """Bytes per second, over about the last second."""

    __slots__ = ("_bytes", "_per_second", "_since_s")

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._bytes = 0
        self._per_second = 0.0

    def add(self, size: int, now_s: float) -> None:
        """Count bytes that were transferred now."""
        self._roll(now_s)
        self._bytes += size

    def per_second(self, now_s: float) -> int:
        """The current rate."""
        self._roll(now_s)
        return round(self._per_second)

    def _roll(self, now_s: float) -> None:
        elapsed_s = now_s - self._since_s
        if elapsed_s >= _WINDOW_S:
            self._per_second = self._bytes / elapsed_s
            self._since_s, self._bytes = now_s, 0
