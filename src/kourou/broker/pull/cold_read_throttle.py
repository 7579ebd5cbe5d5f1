"""ColdReadThrottle: whoever reads what is old gives way to those who send.

A consumer far behind asks again as soon as it is answered, and a few of them can keep the loop busy by
themselves. While messages are put, one pull of old messages is served in some iterations of the loop, the
more it gets the longer the next one waits; the others wait for their turn in the order in which they came. An
iteration that finds nothing to do is over at once, so what senders leave is all there for readers. When
nobody sends, nobody waits.
Not here: which pulls those are (pull_message_processor.py), how many of a connection wait
(cold_pull_queues.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# A sender whose messages were answered has sent the next ones by then.
SENDING_S: Final = 0.01
ITERATIONS: Final = 5
"""How many iterations a turn lasts, for each `TURN_BYTES` of what is read in it, or fewer. To read so much
takes about as long as an iteration with 32 sends in it, which leaves these five sixths of the time."""
TURN_BYTES: Final = 40 * 1024


class ColdReadThrottle:
    """The turns of one broker. `end` tells how far its log has grown."""

    def __init__(self, end: Callable[[], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = end
        self._seen_end = end()
        self._sending_until_s = 0.0
        self._is_taken = False
        self._iterations_left = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_nowait(self) -> bool:
        """Whether an old read may go on at once; if not, it is one of those that `wait`."""
        if self._is_taken or self._waiting:
            return False
        if not self._is_sending():
            return True
        self._take()
        return True

    async def wait(self) -> None:
        """Return when it is the caller's turn."""
        if self.take_nowait():
            return
        turn = self._loop.create_future()
        self._waiting.append(turn)
        await turn

    def spend(self, size_bytes: int) -> None:
        """So much was read: the turn that is under way lasts the longer."""
        if self._is_taken:
            self._iterations_left = max(self._iterations_left, ITERATIONS * size_bytes // TURN_BYTES)

    def _is_sending(self) -> bool:
        end = self._end()
        if end == self._seen_end and not self._sending_until_s:
            return False  # nobody has sent since the clock was looked at
        now_s = self._loop.time()
        if end != self._seen_end:
            self._seen_end = end
            self._sending_until_s = now_s + SENDING_S
        elif now_s >= self._sending_until_s:
            self._sending_until_s = 0.0
        return now_s < self._sending_until_s

    def _take(self) -> None:
        self._is_taken = True
        self._iterations_left = ITERATIONS
        self._loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        """Once in an iteration. At the end of a turn one more may read; all, when nobody sends any longer."""
        is_sending = self._is_sending()
        self._iterations_left -= 1
        if is_sending and self._iterations_left:
            self._loop.call_soon(self._pass_on)
            return
        self._is_taken = False
        while self._waiting and not self._is_taken:
            turn = self._waiting.popleft()
            if turn.done():  # cancelled: its client is gone
                continue
            turn.set_result(None)
            if is_sending:
                self._take()
