"""MinSearch: where a ConsumeQueue begins after the CommitLog has lost its oldest files.

The search reads units from disk, thousands of queues after each file of the log that goes: so it may
run in another thread than the queue's. Not here: which files of a queue go then (consume_queue.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.store.queue.cq_unit import CqUnit

if TYPE_CHECKING:
    from kourou.store.queue.consume_queue import ConsumeQueue


class MinSearch:
    """Looks for a queue's first message that the log still has. Made by the queue's owner, run in any
    thread, finished by the owner."""

    __slots__ = ("_end", "_epoch", "_found", "_min_phy_offset", "_phy_offset", "_queue")

    def __init__(self, queue: ConsumeQueue, min_phy_offset: int) -> None:
        self._queue = queue
        self._min_phy_offset = min_phy_offset
        self._epoch = queue.epoch
        self._end = self._found = max(queue.min_queue_offset, queue.flushed_queue_offset)
        self._phy_offset = -1

    def run(self) -> None:
        """Search in the files: what is there no longer changes."""
        self._found = self._queue.first_kept(self._is_kept, self._end)
        if self._found < self._end:
            unit = self._queue.unit(self._found)
            if unit is not None and unit.is_message and self._is_kept(unit):
                self._phy_offset = unit.phy_offset

    def finish(self) -> None:
        """Let the queue begin there, or at a message that is not in the files yet."""
        queue = self._queue
        if queue.epoch != self._epoch:
            return
        if self._found == self._end:
            self._found = queue.first_where(self._is_kept, low=self._end)
            unit = queue.unit(self._found)
            self._phy_offset = unit.phy_offset if unit is not None else -1
        queue.begin_at(self._found, self._phy_offset)

    def _is_kept(self, unit: CqUnit) -> bool | None:
        if unit.phy_offset >= self._queue.max_phy_offset:  # damaged: it says nothing
            return None
        return unit.phy_offset >= self._min_phy_offset
