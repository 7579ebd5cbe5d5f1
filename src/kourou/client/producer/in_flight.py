"""InFlight: how many sends are under way, and who waits for room.

Two bounds, messages and bytes; a message larger than all bytes goes alone. Who waits gets in in the
order of coming. Not here: what a send is.
"""

from __future__ import annotations

import asyncio
from collections import deque


class InFlight:
    """Counts sends under way. On one loop."""

    __slots__ = ("_idle", "_loop", "_waiters", "count", "max_bytes", "max_count", "size_bytes")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.size_bytes = 0

    def try_enter(self, size_bytes: int) -> bool:
        """Get in if there is room and nobody waits."""
        if self._waiters or (self.count and not self._has_room(size_bytes)):
            return False
        self.count += 1
        self.size_bytes += size_bytes
        return True

    async def enter(self, size_bytes: int, deadline: float) -> None:
        """Get in, at the latest at `deadline` of the loop's clock; then TimeoutError."""
        if self.try_enter(size_bytes):
            return
        waiter = (self._loop.create_future(), size_bytes)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter[0]
        except BaseException:
            if waiter[0].done() and not waiter[0].cancelled():
                self.leave(size_bytes)  # let in and given up in the same moment
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._let_in()  # a smaller one behind may fit now
            raise

    def leave(self, size_bytes: int) -> None:
        """One send is over."""
        self.count -= 1
        self.size_bytes -= size_bytes
        if self._waiters:
            self._let_in()
        if not self.count and self._idle:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_idle(self) -> None:
        """Wait until nothing is under way."""
        while self.count:
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    def _has_room(self, size_bytes: int) -> bool:
        if not self.count:
            return True
        return self.count < self.max_count and self.size_bytes + size_bytes <= self.max_bytes

    def _let_in(self) -> None:
        while self._waiters and self._has_room(self._waiters[0][1]):
            waiter, size_bytes = self._waiters.popleft()
            if not waiter.done():
                self.count += 1
                self.size_bytes += size_bytes
                waiter.set_result(None)
