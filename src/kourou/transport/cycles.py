"""Cycles: the work of one loop iteration, ended once.

Adding work (from a socket, a timer, a response of a replica) opens the cycle. It ends after all work of the
iteration: `end` runs first (a broker writes its log there and creates the responses), then every connection
with collected bytes gets one write, then `after` runs for work without waiters. So 64 connections with one
request each batch as well as one connection with 64. Not here: what a request means, and writing to a socket
(connection.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Flushable(Protocol):
    """An object to flush at the end of a cycle; `flush` never raises."""

    def flush(self) -> None: ...


def _nothing() -> None:
    return None


class Cycles:
    """Opens with the first work of a loop iteration and closes once, after all of it."""

    def __init__(
        self,
        *,
        begin: Callable[[], object] = _nothing,
        end: Callable[[], None] = _nothing,
        after: Callable[[], None] = _nothing,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin = begin
        self._end = end
        self._after = after
        self._failed = failed
        # Whether there is work that waits for the end of the cycle; asked for each read.
        self.is_open = False
        self._dirty: list[Flushable] = []
        self._when_closed: Callable[[], None] | None = None

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once, when the answers of the next cycle are with their transports."""
        self._when_closed = callback

    def open(self) -> None:
        """Start a cycle unless one is open; it closes by itself."""
        if not self.is_open:
            self.is_open = True
            self._begin()
            self._loop.call_soon(self.close)

    def mark_dirty(self, connection: Flushable) -> None:
        """Have `connection` flushed when the cycle ends. Call once per cycle and connection."""
        if not self.is_open:
            self.open()
        self._dirty.append(connection)

    def close(self) -> None:
        """End the open cycle now; nothing happens when none is open.

        Called by the loop; `renew` ends it earlier.
        """
        if not self.is_open:
            return
        try:
            self._end()
        except Exception as error:
            self._fail(error)
        # Work done by `end` belongs to this cycle: what it marks is flushed below.
        self.is_open = False
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()
        if self._when_closed is not None:
            callback, self._when_closed = self._when_closed, None
            callback()
        try:
            self._after()
        except Exception as error:
            self._fail(error)

    def run_now(self, work: Callable[[], None]) -> None:
        """Do work whose responses leave at once, before other work of the iteration."""
        if self.is_open:
            work()
            self._flush()
            return
        self.is_open = True
        self._begin()
        try:
            work()
        finally:
            self.close()

    def renew(self) -> None:
        """End the open cycle and continue in a new one: enough work is pending."""
        self.close()
        self.open()

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    def _fail(self, error: Exception) -> None:
        # A hook that raises is a bug. The server's owner must be notified, and the other
        # connections must still get their responses.
        if self._failed is None:
            raise error
        self._failed(error)
