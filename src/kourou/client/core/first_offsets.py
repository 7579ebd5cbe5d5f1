"""FirstOffsets: the first offset of a group in a topic is told to a broker alone.

Apache's broker makes a table for it. Of two that come at once each makes one, and the offset in the other
table is lost; from the second on they may come side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FirstOffsets:
    """Remembers where a broker knows a group in a topic, for one client."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str, str]] = set()
        self._turns: dict[tuple[str, str, str], asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, address: str, group: str, topic: str) -> AsyncIterator[None]:
        """Within it an offset may be told. Until one was, without an error, there is one at a time."""
        place = address, group, topic
        if place in self._known:
            yield
            return
        async with self._turns.setdefault(place, asyncio.Lock()):
            yield
        self._known.add(place)
        self._turns.pop(place, None)
