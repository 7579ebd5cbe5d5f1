"""ColdReadShare: with several cores, reads of old messages get a share of the loop's time.

Disk threads read and verify what is not in memory, on another core. The loop finds the place of a pull,
checks whether it may read, and hands its records over. Consumers far behind pull again at once, so this
alone could take most of each iteration. While messages are put, old reads therefore get `SHARE` of the time,
whatever one of them costs, and the time in which the loop has nothing else to do.
Not here: a single core, where reads give way by iterations (cold_pulls.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

from kourou.broker.pull.cold_pulls import ColdReadThrottle

_log = logging.getLogger(__name__)

SHARE: Final = 0.1
"""Senders keep the rest."""
MAX_CREDIT_S: Final = 0.001
"""Unused time is kept up to this much: a longer run of reads would delay sends."""
MAX_DEBT_S: Final = 0.01
"""A read during which the process did not run is charged no more."""
TICK_S: Final = 0.001
"""Reads that wait go on so often, if there is time."""
WRITE_S: Final = 0.3e-9
"""A byte's way into a socket; it is written after the read, when it is not measured."""
MAX_READS: Final = 1_024
"""Of the fast path, which wait; more have to wait in the queues of their connections."""
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

    may_use_thread = True

    def __init__(self, written: Callable[[], int], clock: Callable[[], float] = perf_counter) -> None:
        super().__init__(written)
        self._clock = clock
        self._credit_s = 0.0
        self._cost_s = MAX_CREDIT_S  # of a read, on average
        self._refilled_s = self._began_s = self._iteration_s = clock()
        self._idle_iterations = 0
        self._reads: deque[Callable[[], bool]] = deque()
        self._is_watched = False  # a probe or a tick is due, since reads wait

    def take_nowait(self) -> bool:
        """Whether an old read may go on at once; if so, `spend` follows."""
        self.resume()
        return self.is_unlimited

    @property
    def is_unlimited(self) -> bool:
        """Whether an old read may go on at once."""
        if self._reads:
            return False
        self._refill()
        return self._credit_s > 0 or not self.is_sending()

    async def wait(self) -> None:
        """Return when the caller may read; `spend` follows."""
        if self.take_nowait():
            return
        turn = self._loop.create_future()
        self._append(lambda: _grant(turn))
        await turn
        self.resume()

    def read_later(self, read: Callable[[], None]) -> bool:
        """Have `read` called when there is time for it, which calls `resume` and `spend`. False: too many
        wait."""
        if len(self._reads) >= MAX_READS:
            return False
        self._append(lambda: _done(read))
        return True

    def hurry(self) -> None:
        """Let all go on that wait: the broker stops."""
        for _ in range(len(self._reads)):
            self._reads.popleft()()

    def _append(self, read: Callable[[], bool]) -> None:
        self._reads.append(read)
        if not self._is_watched:
            self._is_watched = True
            self._begin_probe()

    def resume(self) -> None:
        """The loop's time is measured from here to `spend`: to be called after each wait."""
        self._began_s = self._clock()

    def spend(self, size_bytes: int) -> None:
        """Charge the time since `resume`, and that in which the loop will write so many bytes to a socket."""
        now_s = self._clock()
        spent_s = now_s - self._began_s + size_bytes * WRITE_S
        self._credit_s = max(-MAX_DEBT_S, self._credit_s - spent_s)
        self._cost_s += (spent_s - self._cost_s) / 8
        self._began_s = now_s

    def _refill(self) -> None:
        now_s = self._clock()
        self._credit_s = min(MAX_CREDIT_S, self._credit_s + SHARE * (now_s - self._refilled_s))
        self._refilled_s = now_s

    def _tick(self) -> None:
        """As many reads go on as there is time for; all, when sends have stopped."""
        self._refill()
        self._run(self._credit_s)
        self._is_watched = bool(self._reads)
        if self._reads:
            self._begin_probe()

    def _begin_probe(self) -> None:
        self._iteration_s = self._clock()
        self._idle_iterations = 0
        self._loop.call_soon(self._probe)

    def _probe(self) -> None:
        """In each iteration in which the loop has nothing else to do; the first other one ends that until the
        next tick. To wait for a tick costs nothing: without it the loop would turn all the time."""
        now_s = self._clock()
        if now_s - self._iteration_s >= IDLE_ITERATION_S:
            self._loop.call_later(TICK_S, self._tick)
            return
        self._idle_iterations += 1
        if self._idle_iterations >= IDLE_ITERATIONS:
            self._idle_iterations = 0
            self._run(self._cost_s)
        self._is_watched = bool(self._reads)
        if self._reads:
            self._iteration_s = self._clock()
            self._loop.call_soon(self._probe)

    def _run(self, left_s: float) -> None:
        """Let reads go on that take so long together."""
        is_sending = self.is_sending()
        while self._reads and (left_s > 0 or not is_sending):
            if self._reads.popleft()():
                left_s -= self._cost_s


def _grant(turn: asyncio.Future[None]) -> bool:
    """Let a read go on; False if its client is gone."""
    if turn.done():
        return False
    turn.set_result(None)
    return True


def _done(read: Callable[[], None]) -> bool:
    try:
        read()
    except Exception:
        _log.exception("a read of old messages failed")
    return True
