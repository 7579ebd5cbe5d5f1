"""MessageLookup: finds single messages, by place, key or time.

For operators, queries and consumers that start somewhere; may wait for the disk. Not here: pulls
(get_message.py).
"""

from __future__ import annotations

from kourou.errors import ProtocolError
from kourou.protocol.layout import MESSAGE_MAGIC_CODES, RECORD
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_mark, record_phy_offset, record_store_timestamp
from kourou.store.index.index_service import IndexService
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import read_dispatch_request
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.queue_time_search import BoundaryType, search_queue_offset


def decode_sound_record(raw: bytes, phy_offset: int) -> MessageExt:
    """The message of a whole record that lies at `phy_offset`; ProtocolError when it is damaged, as far as
    that can be seen: by its place, its lengths, the CRC of its body and zeros in its properties."""
    read_dispatch_request(raw, 0, phy_offset, ())
    return decode_record(raw)


class MessageLookup:
    """Reads one store's files; owned by the store's thread."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, index: IndexService | None) -> None:
        self._log = log
        self._queues = queues
        self._index = index

    # -- by place --------------------------------------------------------------------------------

    def look_message(self, phy_offset: int) -> MessageExt | None:
        """The message whose record starts at `phy_offset`; None when there is none, or it is damaged."""
        head = self._head(phy_offset)
        if head is None:
            return None
        raw = self._log.read(phy_offset, max(len(head), record_mark(head)[0]))
        try:
            return None if raw is None else decode_sound_record(raw, phy_offset)
        except ProtocolError:
            return None

    def _head(self, phy_offset: int) -> bytes | None:
        """The first bytes of the record at `phy_offset`; None when no record says it lies there."""
        if not 0 <= phy_offset < self._log.max_phy_offset:
            return None
        head = self._log.read(phy_offset, RECORD.size)
        if head is None or record_mark(head)[1] not in MESSAGE_MAGIC_CODES:
            return None
        return head if record_phy_offset(head) == phy_offset else None

    def store_timestamp(self, phy_offset: int) -> int:
        """When the record at `phy_offset` was stored; -1 when it is gone."""
        head = self._head(phy_offset)
        return -1 if head is None else record_store_timestamp(head)

    # -- by key ----------------------------------------------------------------------------------

    def query_message(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> list[MessageExt]:
        """Messages of `topic` indexed under `key` and stored in the time range, oldest first.

        Keys with the same hash may come along, as with Apache's: the caller compares the text.
        """
        if self._index is None:
            return []
        found = self._index.query(topic, key, max_messages, begin_ms, end_ms)
        messages = (self.look_message(phy_offset) for phy_offset in sorted(set(found)))
        return [message for message in messages if message is not None]

    # -- by time ---------------------------------------------------------------------------------

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first queue_offset that can be read; 0 where there is no queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_queue_offset

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The queue_offset of the next message that readers will see; 0 where there is no queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_queue_offset

    def offset_in_queue_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The queue_offset for a point in time (queue_time_search.py); 0 where there is no queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        return search_queue_offset(queue, timestamp_ms, self.store_timestamp, boundary)

    def message_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored; -1 when there is none at this queue_offset."""
        queue = self._queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue_offset)
        return self.store_timestamp(unit.phy_offset) if unit is not None and unit.is_message else -1

    def earliest_message_time(self, topic: str, queue_id: int) -> int:
        """When the first message of a queue was stored; -1 when there is none."""
        return self.message_time(topic, queue_id, self.min_offset_in_queue(topic, queue_id))
