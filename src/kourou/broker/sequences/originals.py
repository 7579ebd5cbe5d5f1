"""Originals: finds the stored message of which a send is a repeat.

The table knows that there is one, and from which phy_offset on it can lie; the queue is read from there. What
is not in memory a disk thread reads.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.protocol.message import MessageExt
from kourou.protocol.producer_sequence import SEQUENCE_PROPERTY, ProducerSequence
from kourou.protocol.properties import MessageConst, PropertyScanner, properties_from_bytes
from kourou.protocol.record import decode_record
from kourou.store.queue.cq_unit import CqUnit

if TYPE_CHECKING:
    from kourou.broker.storage.record_reads import RecordReader, RecordReads
    from kourou.store.producers.producer_table import ProducerTable
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues

# Read at once, so that other requests get a turn in between.
_CHUNK: Final = 128
_scan: Final = PropertyScanner(
    SEQUENCE_PROPERTY, MessageConst.PROPERTY_REAL_TOPIC, MessageConst.PROPERTY_REAL_QUEUE_ID
).values


class Place(NamedTuple):
    """Where a message of a producer counts, and the queues that it may lie in: others if it waits for its
    time or for the end of its transaction."""

    topic: str
    queue_id: int
    stored_in: tuple[tuple[str, int], ...]


class Originals:
    """Searches the queues of one broker."""

    def __init__(self, table: ProducerTable, queues: ConsumeQueues, records: RecordReader) -> None:
        self._table = table
        self._queues = queues
        self._records = records

    async def find(self, sent: ProducerSequence, place: Place) -> MessageExt | None:
        """The message that readers can see already; None if there is none."""
        begin = self._table.search_from(sent, place.topic, place.queue_id)
        if begin is None:
            return None
        # Of any epoch: a new program repeats what an older one of the same name has sent.
        wanted = re.compile(rf"{re.escape(sent.producer_id)}:[0-9]+:{sent.sequence}")
        for topic, queue_id in place.stored_in:
            queue = self._queues.find(topic, queue_id)
            found = None if queue is None else await self._search(queue, begin, wanted, place)
            if found is not None:
                return found
        return None

    async def _search(
        self, queue: ConsumeQueue, begin: int, wanted: re.Pattern[str], place: Place
    ) -> MessageExt | None:
        """The first message of a queue, in the log from `begin` on, that has the sequence."""

        def search(low: int, high: int, reads: RecordReads) -> MessageExt | None:
            for queue_offset in range(low, high):
                unit = reads.unit(queue, queue_offset)
                raw = reads.record(unit.phy_offset) if unit is not None and unit.is_message else None
                if raw is None:
                    continue
                message = decode_record(raw)
                text = properties_from_bytes(message.raw_properties)
                sequence, real_topic, real_queue_id = _scan(text)
                if wanted.fullmatch(sequence or "") and (
                    (message.topic, message.queue_id) == place[:2]
                    or (real_topic, real_queue_id) == (place.topic, str(place.queue_id))
                ):
                    return message
            return None

        first = queue.first_where(lambda unit: _is_behind(unit, begin))
        for low in range(first, queue.max_queue_offset, _CHUNK):
            high = min(low + _CHUNK, queue.max_queue_offset)
            found = await self._records.read(partial(search, low, high))
            if found is not None:
                return found
        return None


def _is_behind(unit: CqUnit, phy_offset: int) -> bool:
    return unit.phy_offset >= phy_offset
