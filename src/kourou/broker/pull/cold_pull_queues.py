"""ColdPullQueues: pulls that cannot be answered at once wait here, each in the queue of its connection.

A few of a connection are under way at a time, the others follow in the order in which they came, and none
continues while the peer does not read its answers. So a consumer far behind gets as much as it reads: it is
not closed for its own requests, and does not keep the disk from the other clients.
Not here: what is done for a pull (pull_message_processor.py), pulls that wait for messages (long_polling.py).
"""

from __future__ import annotations

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
