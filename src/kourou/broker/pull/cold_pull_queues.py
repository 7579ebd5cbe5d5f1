"""ColdPullQueues: pulls that cannot be answered at once wait here, each in the line of its connection.

A few of a connection are under way at a time, the others follow in the order in which they came, and none
goes on while the peer does not take its answers. So a consumer far behind gets as much as it takes: it is
not closed for what it has asked for itself, and does not keep the disk from everybody else.
Not here: what is done for a pull (pull_message_processor.py), pulls that wait for messages (long_polling.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

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

_LINE: Final = "pull_line"

Work = Callable[[], Coroutine[Any, Any, None]]


class _Line:
    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[Request, Work]] = deque()
        self.under_way = 0


class ColdPullQueues:
    """The lines of all connections; what is under way are tasks of `requests`."""

    def __init__(self, requests: TaskOwner) -> None:
        self._requests = requests

    def run(self, request: Request, work: Work) -> None:
        """Do `work`, which answers `request`, when it is its turn; never, if the peer goes away before.
        What it raises becomes the answer. RequestError: too many wait."""
        connection = request.connection
        line: _Line | None = connection.attributes.get(_LINE)
        if line is None:
            line = connection.attributes[_LINE] = _Line()
        if len(line.waiting) >= MAX_WAITING:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"[PULL_BUSY]{MAX_WAITING} pulls of this connection wait for the disk, try again later",
            )
        line.waiting.append((request, work))
        if line.under_way < MAX_UNDER_WAY:
            line.under_way += 1
            self._requests.start(_serve(connection, line), "pulls")


async def _serve(connection: Connection, line: _Line) -> None:
    try:
        while line.waiting:
            await connection.wait_writable()
            if connection.closed:
                line.waiting.clear()
            elif line.waiting:  # another may have taken the last one
                await _answer(*line.waiting.popleft())
    finally:
        line.under_way -= 1


async def _answer(request: Request, work: Work) -> None:
    try:
        await work()
    except Exception as error:
        answer_failure(request, error)
