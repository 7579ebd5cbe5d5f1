"""UnitBlocks: units of ConsumeQueues that pulls asked for lately, kept in memory.

A consumer that goes through a queue asks for neighbours each time: one read of the file serves the next
thirty pulls. A block is BLOCK_UNITS units, all of them flushed, so that they never change; where a queue
loses units at its end it goes on with another epoch, and blocks of the one before are not found any more.
Not here: which units a queue still has at its start (consume_queue.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kourou.store.queue.cq_unit import UNIT_BYTES

if TYPE_CHECKING:
    from kourou.store.queue.consume_queue import ConsumeQueue

BLOCK_UNITS: Final = 1024
"""Five pages: one read of so much takes hardly longer than one of 32 units."""
CHUNK_UNITS: Final = 32
"""So many units are verified, and remembered as such, together (queue_verifier.py)."""
MAX_BLOCKS: Final = 256
"""5 MB; the oldest goes first."""

BlockKey = tuple["ConsumeQueue", int, int]
"""Queue, its epoch, and which block of it."""


class UnitBlocks:
    """The blocks of all queues of one store. For the thread that owns the queues."""

    __slots__ = ("_blocks", "get")

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, bytes] = {}
        # The dict's own method: each pull asks.
        self.get: Callable[[BlockKey], bytes | None] = self._blocks.get

    def __len__(self) -> int:
        return len(self._blocks)

    def keep(self, key: BlockKey, units: bytes) -> None:
        """Cache a whole block of units."""
        assert len(units) == BLOCK_UNITS * UNIT_BYTES, "a part of a block"
        if len(self._blocks) >= MAX_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        self._blocks[key] = units

    def clear(self) -> None:
        """Drop all cached blocks."""
        self._blocks.clear()
