"""The opaque table: our calls that wait for the peer's response.

One timer serves all calls of a connection: it is set to the earliest deadline and scans the table when it
fires, so a call costs no timer of its own. When it fires late, the process itself was suspended (by the
machine, a debugger, a long step), and responses may be unread: they are read first.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from kourou.errors import CallTimeoutError, ConnectionLostError, TooManyRequestsError
from kourou.protocol.command import CommandHead, RemotingCommand

_MAX_OPAQUE: Final = 0x7FFF_FFFF
# A timer that fires this late means that nothing was read meanwhile; then this much time remains for reading.
_LATE_S: Final = 0.05
_READING_S: Final = 0.05

Answer = asyncio.Future[RemotingCommand]


class AnswerSink(Protocol):
    """Receives the result of a call in place of a future: it costs no iteration of the loop, and decodes
    only what it needs. It never raises: it is called in the middle of a read, for one of many responses."""

    def done(self) -> bool: ...

    def set_answer(self, head: CommandHead, body: bytes, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


class PendingCalls:
    """Opaque numbers and their futures, for one connection."""

    __slots__ = ("_address", "_calls", "_is_reading", "_limit", "_loop", "_next_opaque", "_ring_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str, limit: int) -> None:
        self._loop = loop
        self._address = address
        self._limit = limit
        self._calls: dict[int, tuple[Answer | AnswerSink, float, int, int]] = {}
        self._next_opaque = 0
        self._is_reading = False
        self._ring_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def next_opaque(self) -> int:
        """A number that no waiting call uses."""
        while (opaque := self._next_opaque) in self._calls:
            self._advance()
        self._advance()
        return opaque

    def add(self, code: int, timeout_ms: int) -> tuple[int, Answer]:
        """Register a call; the future gets the response, CallTimeoutError or ConnectionLostError."""
        answer = self._loop.create_future()
        deadline = self._loop.time() + timeout_ms / 1000
        return self.enter(code, deadline, timeout_ms, answer), answer

    def enter(self, code: int, deadline: float, timeout_ms: int, answer: Answer | AnswerSink) -> int:
        """Register a call whose result goes to `answer`; `timeout_ms` is reported by CallTimeoutError."""
        if len(self._calls) >= self._limit:
            raise TooManyRequestsError(self._address, "calls", self._limit)
        opaque = self.next_opaque()
        self._calls[opaque] = (answer, deadline, code, timeout_ms)
        if self._timer is None or deadline < self._ring_at:
            self._ring(deadline)
        return opaque

    def take(self, opaque: int) -> Answer | AnswerSink | None:
        """The waiter for this response, once; None if there is none: too late, or never requested."""
        call = self._calls.pop(opaque, None)
        return None if call is None else call[0]

    def forget(self, opaque: int, answer: Answer) -> None:
        """Drop a call whose caller went away without its response."""
        call = self._calls.get(opaque)
        if call is not None and call[0] is answer:
            del self._calls[opaque]

    def fail_all(self, reason: str) -> None:
        """The connection is gone: fail every waiting call with the reason."""
        calls, self._calls = self._calls, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for answer, *_ in calls.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError(self._address, reason))

    def expire(self, now: float) -> None:
        """Fail the calls whose deadline is at or before `now`, and drop cancelled ones."""
        for opaque, (answer, deadline, code, timeout_ms) in list(self._calls.items()):
            if answer.done():
                del self._calls[opaque]
            elif deadline <= now:
                del self._calls[opaque]
                answer.set_exception(CallTimeoutError(self._address, code, timeout_ms))

    def _advance(self) -> None:
        self._next_opaque = 0 if self._next_opaque == _MAX_OPAQUE else self._next_opaque + 1

    def _ring(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ring_at = deadline
        self._timer = self._loop.call_at(deadline, self._rang)

    def _rang(self) -> None:
        self._timer = None
        now = self._loop.time()
        if now > self._ring_at + _LATE_S and not self._is_reading:
            self._is_reading = True
            self._ring(now + _READING_S)
            return
        self._is_reading = False
        self.expire(max(now, self._ring_at))
        if self._calls:
            self._ring(min(deadline for _, deadline, _, _ in self._calls.values()))
