"""Pulls of old messages: ColdPullQueues, in which they wait, and ColdReadThrottle, which lets them read.

A pull that cannot be answered at once waits in the queue of its connection. A few of a connection are under
way at a time, the others follow in the order in which they came, and none continues while the peer does not
read its answers. So a consumer far behind gets as much as it reads: it is not closed for its own requests,
and does not keep the disk from the other clients.

Reads of old messages give way to sends; with a single core as here, with several as in cold_read_share.py. A
consumer far behind pulls again as soon as it is answered, and a few of them can keep the loop busy by
themselves. While messages are put, one pull of old messages is served in some iterations of the loop, the
more it gets the longer the next one waits; the others wait for their turn in the order in which they came. An
iteration that finds nothing to do is over at once, so readers get all the time that senders leave. Without
sends there is no waiting.
Not here: what is done for a pull (pull_message_processor.py), pulls that wait for messages (long_polling.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from kourou.broker.connection_state import ColdPullQueue, ConnectionState, PullWork
from kourou.errors import RequestError
from kourou.protocol.codes import ResponseCode
from kourou.transport.connection import Connection
from kourou.transport.dispatcher import answer_failure
from kourou.transport.request import Request
from kourou.transport.tasks import TaskOwner

# One is read while the answer to another is on its way. Each may hold `maxTransferBytesPerPull`.
MAX_UNDER_WAY: Final = 2
# Beyond this a pull is answered SYSTEM_BUSY. As many as may wait for messages (long_polling.py).
MAX_WAITING: Final = 20_000
# A sender whose messages were answered has sent the next ones by then.
SENDING_S: Final = 0.01
ITERATIONS: Final = 5
"""How many iterations a turn lasts, for each `TURN_BYTES` of what is read in it, or fewer. To read so much
takes about as long as an iteration with 32 sends in it, which leaves these five sixths of the time."""
TURN_BYTES: Final = 40 * 1024


class ColdPullQueues:
    """The queues of all connections; what is under way are tasks of `requests`."""

    def __init__(self, requests: TaskOwner) -> None:
        self._requests = requests

    def run(self, request: Request, work: PullWork) -> None:
        """Do `work`, which answers `request`, when it is its turn; never, if the peer goes away before.
        What it raises becomes the answer. RequestError: too many wait."""
        connection = request.connection
        state: ConnectionState = connection.state
        queue = state.cold_pulls
        if queue is None:
            queue = state.cold_pulls = ColdPullQueue()
        if len(queue.waiting) >= MAX_WAITING:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"[PULL_BUSY]{MAX_WAITING} pulls of this connection wait for the disk, try again later",
            )
        queue.waiting.append((request, work))
        if queue.under_way < MAX_UNDER_WAY:
            queue.under_way += 1
            self._requests.start(_serve(connection, queue), "pulls")


async def _serve(connection: Connection, queue: ColdPullQueue) -> None:
    try:
        while queue.waiting:
            await connection.wait_writable()
            if connection.closed:
                queue.waiting.clear()
            elif queue.waiting:  # another may have taken the last one
                await _answer(*queue.waiting.popleft())
    finally:
        queue.under_way -= 1


async def _answer(request: Request, work: PullWork) -> None:
    try:
        await work()
    except Exception as error:
        answer_failure(request, error)


class ColdReadThrottle:
    """The turns of one broker. `written` tells how many messages it has written."""

    may_use_thread = False
    """Whether there is a core for a thread that answers pulls (cold_answers.py)."""

    def __init__(self, written: Callable[[], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._written = written
        self._seen = written()
        self._sending_until_s = 0.0
        self._is_taken = False
        self._iterations_left = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_nowait(self) -> bool:
        """Whether an old read may go on at once; if not, it is one of those that `wait`."""
        if self._is_taken or self._waiting:
            return False
        if not self.is_sending():
            return True
        self._take()
        return True

    @property
    def is_unlimited(self) -> bool:
        """Whether an old read of the fast path may go on: it needs no turn, or there is time for it."""
        return not (self._is_taken or self._waiting or self.is_sending())

    def read_later(self, read: Callable[[], None]) -> bool:
        """Have `read` called when there is time for an old read; False if it has to wait for a turn."""
        return False

    def hurry(self) -> None:
        """Have no read of the fast path wait any longer: the broker stops."""

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

    def resume(self) -> None:
        """The read goes on after a wait for the disk: a turn does not depend on time."""

    def ignore_next(self) -> None:
        """The next message is not a send: a pop has put it, which would wait for itself."""
        self._seen += 1

    def is_sending(self) -> bool:
        """Whether messages were put a moment ago."""
        written = self._written()
        if written <= self._seen and not self._sending_until_s:
            return False  # no send since the clock was read
        now_s = self._loop.time()
        if written > self._seen:
            self._seen = written
            self._sending_until_s = now_s + SENDING_S
        elif now_s >= self._sending_until_s:
            self._sending_until_s = 0.0
        return now_s < self._sending_until_s

    def _take(self) -> None:
        self._is_taken = True
        self._iterations_left = ITERATIONS
        self._loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        """Once in an iteration. At the end of a turn one more may read; all, when sends have stopped."""
        is_sending = self.is_sending()
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
