"""HandOverTurns: when pulls of old messages are handed over to their thread, while messages are put.

Handing over takes the loop little time, but consumers far behind pull again at once. So pulls that come while
a commit cycle is open wait until its answers are written and no further messages have come, or for a tick,
and all of them together get `SHARE` of the time. Without sends nothing waits.
Not here: what the thread does (cold_answers.py), reads that Python does (cold_read_share.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

SHARE: Final = 0.15
"""Senders keep the rest."""
MAX_CREDIT_S: Final = 0.0002
"""Unused time is kept up to this much: five pulls in a row."""
TICK_S: Final = 0.001
"""Pulls wait no longer for the end of a cycle, as long as there is time for them."""
MAX_DEBT_S: Final = 0.002
"""One that took long is charged no more."""
MAX_WAITING: Final = 1_024


class HandOverTurns:
    """The turns of one broker."""

    def __init__(
        self,
        cycles: Cycles,
        is_sending: Callable[[], bool],
        clock: Callable[[], float] = perf_counter,
        cpu_clock: Callable[[], float] = thread_time,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._cycles = cycles
        self._is_sending = is_sending
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._credit_s = MAX_CREDIT_S
        self._refilled_s = clock()
        self._began_s: float | None = None  # None: what is handed over is not charged
        self._waiting: deque[Callable[[], None]] = deque()
        self._has_timer = False

    @property
    def is_free(self) -> bool:
        """Whether a pull may be handed over now, beside sends; if so, `spend` has to follow."""
        return not self._waiting and not self._cycles.is_open and self._has_credit()

    @property
    def is_waited_for(self) -> bool:
        """Whether pulls wait for their turn."""
        return bool(self._waiting)

    def later(self, hand_over: Callable[[], None]) -> bool:
        """Have `hand_over` called when it is its turn; False: too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(hand_over)
        if len(self._waiting) == 1:
            self._wait()
        return True

    def spend(self) -> None:
        """Charge the processor time since `is_free` was true, whatever was done in it."""
        if self._began_s is not None:
            spent_s = self._cpu_clock() - self._began_s
            self._credit_s = max(-MAX_DEBT_S, self._credit_s - spent_s)
            self._began_s = None

    def hurry(self) -> None:
        """Let all go on that wait: the broker stops."""
        while self._waiting:
            self._run_first()

    def _has_credit(self) -> bool:
        now_s = self._clock()
        self._credit_s = min(MAX_CREDIT_S, self._credit_s + SHARE * (now_s - self._refilled_s))
        self._refilled_s = now_s
        if self._credit_s <= 0:
            return False
        self._began_s = self._cpu_clock()
        return True

    def _wait(self) -> None:
        self._cycles.when_closed(self._cycle_closed)
        if not self._has_timer:
            self._has_timer = True
            self._loop.call_later(TICK_S, self._tick)

    def _cycle_closed(self) -> None:
        # In the next iteration: by then the answers of the cycle are written.
        self._loop.call_soon(self._take_idle_turn)

    def _take_idle_turn(self) -> None:
        """A turn unless further messages have come: senders that wait for answers leave such moments."""
        if not self._cycles.is_open:
            self._take_turn()
        elif self._waiting:
            self._cycles.when_closed(self._cycle_closed)

    def _tick(self) -> None:
        self._has_timer = False
        self._take_turn()

    def _take_turn(self) -> None:
        while self._waiting and (self._has_credit() or not self._is_sending()):
            self._run_first()
            self.spend()
        if self._waiting:
            self._wait()

    def _run_first(self) -> None:
        try:
            self._waiting.popleft()()
        except Exception:
            _log.exception("a pull of old messages failed")
