"""UnreadSearch: the first byte of the log that somebody has still to read.

Made by the store's owner, run in any thread: units that are in the files no longer change.
Not here: which groups count (retention_service.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue


class UnreadSearch:
    """Where the messages at these queue_offsets, by topic and queue_id, lie; the lowest is `phy_offset`.
    That is the end of the log where all are read."""

    def __init__(self, store: MessageStore, next_offsets: Mapping[tuple[str, int], int]) -> None:
        self.phy_offset = store.log.max_phy_offset
        self._in_files: list[tuple[ConsumeQueue, int]] = []
        for (topic, queue_id), queue_offset in next_offsets.items():
            queue = store.queues.find(topic, queue_id)
            if queue is not None:
                self._look_now_or_later(queue, max(queue_offset, queue.min_queue_offset))

    def _look_now_or_later(self, queue: ConsumeQueue, queue_offset: int) -> None:
        if queue_offset < queue.flushed_queue_offset:
            self._in_files.append((queue, queue_offset))
        else:
            self._look(queue, queue_offset)

    def run(self) -> None:
        """Look at what is in the files; no queue may be deleted meanwhile."""
        for queue, queue_offset in self._in_files:
            self._look(queue, queue_offset)

    def _look(self, queue: ConsumeQueue, queue_offset: int) -> None:
        unit = queue.unit(queue_offset)
        if unit is not None and unit.is_message:
            self.phy_offset = min(self.phy_offset, unit.phy_offset)
