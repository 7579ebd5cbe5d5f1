"""UnitBlocks: units of ConsumeQueues that pulls asked for lately, kept in memory.

A consumer that goes through a queue asks for neighbours each time: one read of the file serves the next
thirty pulls. A block is BLOCK_UNITS units, all of them flushed, so that they never change. Each queue has its
own in a dict, by number; a queue whose units are taken away, or in doubt, goes on with another dict.
Not here: which units a queue still has at its start (consume_queue.py).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kourou.store.queue.cq_unit import UNIT_BYTES

BLOCK_UNITS: Final = 1024
"""Five pages: one read of so much takes hardly longer than one of 32 units."""
CHUNK_UNITS: Final = 32
"""So many units are verified, and remembered as such, together (queue_verifier.py)."""
MAX_BLOCKS: Final = 256
"""5 MB; the oldest goes first."""


class UnitBlocks:
    """Bounds the blocks of all queues of one store. For the thread that owns the queues."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        # In the order in which they came: where each one is, and its number.
        self._kept: deque[tuple[dict[int, bytes], int]] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, blocks: dict[int, bytes], number: int, units: bytes) -> None:
        """Cache a whole block of units, in the dict of its queue."""
        assert len(units) == BLOCK_UNITS * UNIT_BYTES, "a part of a block"
        if len(self._kept) >= MAX_BLOCKS:
            oldest, oldest_number = self._kept.popleft()
            oldest.pop(oldest_number, None)
        self._kept.append((blocks, number))
        blocks[number] = units

    def clear(self) -> None:
        """Drop all cached blocks."""
        for blocks, _ in self._kept:
            blocks.clear()
        self._kept.clear()
