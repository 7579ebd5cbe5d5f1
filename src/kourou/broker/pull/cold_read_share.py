"""ColdReadShare: with several cores, reads of old messages get a share of the loop's time.

Disk threads read and verify what is not in memory, on another core. The loop finds the place of a pull,
checks whether it may read, and hands its records over. Consumers far behind pull again at once, so this
alone could take most of each iteration. While messages are put, old reads therefore get `SHARE` of the time,
whatever one of them costs, and the time in which the loop has nothing else to do.
Not here: a single core, where reads give way by iterations (cold_pulls.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import Final

from kourou.broker.pull.cold_pulls import ColdReadThrottle

SHARE: Final = 0.1
"""Senders keep the rest."""
MAX_CREDIT_S: Final = 0.001
"""Unused time is kept up to this much: a longer run of reads would delay sends."""
MAX_DEBT_S: Final = 0.01
"""A read during which the process did not run is charged no more."""
IDLE_ITERATION_S: Final = 25e-6
"""An iteration without events is shorter than this."""
IDLE_ITERATIONS: Final = 3
"""After so many of them in a row the loop is idle: a sender's next messages are not there yet."""


def make_cold_reads(written: Callable[[], int], cores: int | None = None) -> ColdReadThrottle:
    """What limits old reads on this machine; `cores`: how many the process may use."""
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ColdReadThrottle(written) if cores == 1 else ColdReadShare(written)


class ColdReadShare(ColdReadThrottle):
    """The share of one broker, in place of turns."""

    def __init__(self, written: Callable[[], int], clock: Callable[[], float] = perf_counter) -> None:
        super().__init__(written)
        self._clock = clock
        self._credit_s = 0.0
        self._cost_s = MAX_CREDIT_S  # of a read, on average
        self._refilled_s = self._began_s = self._iteration_s = clock()
        self._idle_iterations = 0

    def take_nowait(self) -> bool:
        """Whether an old read may go on at once; if so, `spend` follows."""
        if self._waiting:
            return False
        self._refill()
        self.resume()
        return self._credit_s > 0 or not self._is_sending()

    async def wait(self) -> None:
        """Return when the caller may read; `spend` follows."""
        if self.take_nowait():
            return
        turn = self._loop.create_future()
        if not self._waiting:
            self._iteration_s = self._clock()
            self._idle_iterations = 0
            self._loop.call_soon(self._pass_on)
        self._waiting.append(turn)
        await turn
        self.resume()

    def resume(self) -> None:
        """The loop's time is measured from here to `spend`: to be called after each wait."""
        self._began_s = self._clock()

    def spend(self, size_bytes: int) -> None:
        """Charge the time since `resume`."""
        now_s = self._clock()
        spent_s = now_s - self._began_s
        self._credit_s = max(-MAX_DEBT_S, self._credit_s - spent_s)
        self._cost_s += (spent_s - self._cost_s) / 8
        self._began_s = now_s

    def _refill(self) -> None:
        now_s = self._clock()
        self._credit_s = min(MAX_CREDIT_S, self._credit_s + SHARE * (now_s - self._refilled_s))
        self._refilled_s = now_s

    def _pass_on(self) -> None:
        """Once in an iteration while reads wait: as many go on as there is time for; all, when sends have
        stopped."""
        self._refill()
        is_idle = self._refilled_s - self._iteration_s < IDLE_ITERATION_S
        self._iteration_s = self._refilled_s
        self._idle_iterations = self._idle_iterations + 1 if is_idle else 0
        is_sending = self._is_sending()
        left_s = self._credit_s
        if left_s <= 0 and self._idle_iterations >= IDLE_ITERATIONS:
            left_s = self._cost_s
            self._idle_iterations = 0
        while self._waiting and (left_s > 0 or not is_sending):
            turn = self._waiting.popleft()
            if turn.done():  # cancelled: its client is gone
                continue
            turn.set_result(None)
            left_s -= self._cost_s
        if self._waiting:
            self._loop.call_soon(self._pass_on)
