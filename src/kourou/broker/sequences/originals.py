"""Originals: finds the stored message of which a send is a repeat.

The table knows that there is one, and from which phy_offset on it can lie. Other producers may have stored
thousands of messages in between, so the log itself is searched for the bytes of the sequence, as far as it is
in memory; otherwise the messages of the queue are read one by one, by a disk thread.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.message import MessageExt
from kourou.protocol.producer_sequence import SEQUENCE_PROPERTY, ProducerSequence
from kourou.protocol.properties import property_start
from kourou.protocol.record import decode_record
from kourou.store.producers.log_notes import stored_sequence
from kourou.store.queue.cq_unit import CqUnit

if TYPE_CHECKING:
    from kourou.broker.storage.record_reads import RecordReader, RecordReads
    from kourou.store.producers.producer_table import ProducerTable
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues

# Read at once; other requests get a turn in between.
_CHUNK: Final = 128
_BLOCK_BYTES: Final = 256 * 1024
# Longer than a sequence, which may lie on both sides of the end of a block.
_OVERLAP_BYTES: Final = 256
# The messages of a batch lie behind one another.
_NEAR_BYTES: Final = 64 * 1024
_MAX_HINTS: Final = 1_000


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
        # Where the last original of a producer was found: its sequence and its phy_offset.
        self._hints: dict[tuple[str, str, int], tuple[int, int]] = {}

    async def find(self, sent: ProducerSequence, place: Place) -> MessageExt | None:
        """The message that readers can see already; None if there is none."""
        begin = self._table.search_from(sent, place.topic, place.queue_id)
        if begin is None:
            return None
        queues = [queue for each in place.stored_in if (queue := self._queues.find(*each)) is not None]
        wanted = _Wanted(sent, place, queues)
        key = (sent.producer_id, place.topic, place.queue_id)
        sequence, near = self._hints.get(key, (-1, 0))
        found = None
        if sequence == sent.sequence - 1:
            found = await self._search_log(wanted, near, near + _NEAR_BYTES)
        if found is None:
            found = await self._search_log(wanted, begin)
        if found is not None:
            if len(self._hints) >= _MAX_HINTS:
                self._hints.clear()
            self._hints[key] = (sent.sequence, found.phy_offset)
        return found

    async def _search_log(self, wanted: _Wanted, begin: int, end: int | None = None) -> MessageExt | None:
        """The first such message that the log has from `begin` on."""
        position: int | None = begin
        while position is not None and (end is None or position < end):
            found, position = await self._records.read(partial(wanted.in_block, position))
            if found is not None:
                return found
            if position == _COLD:
                return None if end is not None else await self._search_queues(wanted, begin)
            await asyncio.sleep(0)
        return None

    async def _search_queues(self, wanted: _Wanted, begin: int) -> MessageExt | None:
        for queue in wanted.queues:
            first = queue.first_where(lambda unit: _is_behind(unit, begin))
            for low in range(first, queue.max_queue_offset, _CHUNK):
                high = min(low + _CHUNK, queue.max_queue_offset)
                found = await self._records.read(partial(wanted.in_queue, queue, low, high))
                if found is not None:
                    return found
        return None


# In place of a position: the log there is not in memory.
_COLD: Final = -1


class _Wanted:
    """The original that is searched for, and the queues that it may lie in."""

    def __init__(self, sent: ProducerSequence, place: Place, queues: list[ConsumeQueue]) -> None:
        self.queues = queues
        self._place = place
        # Of any epoch: a new program repeats what an older one of the same name has sent.
        value = rf"{re.escape(sent.producer_id)}:[0-9]+:{sent.sequence}"
        self._value = re.compile(value)
        self._bytes = re.compile(rf"{property_start(SEQUENCE_PROPERTY)}{value}(?![0-9])".encode())

    def in_block(self, begin: int, reads: RecordReads) -> tuple[MessageExt | None, int | None]:
        """The original if a block of the log has it, and where the next block begins; None: there is none."""
        block = reads.block(begin, _BLOCK_BYTES)
        if block is None:
            return None, _COLD
        for match in self._bytes.finditer(block):
            for queue in self.queues:
                message = self._around(queue, begin + match.start(), reads)
                if message is not None:
                    return message, None
        if not block:
            return None, None
        # A short block is the rest of a file, or of the log.
        step = len(block) if len(block) < _BLOCK_BYTES else len(block) - _OVERLAP_BYTES
        return None, begin + step

    def _around(self, queue: ConsumeQueue, phy_offset: int, reads: RecordReads) -> MessageExt | None:
        """The message of a queue whose record has this byte, if it is the original."""
        behind = queue.first_where(lambda unit: _is_behind(unit, phy_offset))
        return self.in_queue(queue, max(behind - 1, queue.min_queue_offset), behind, reads)

    def in_queue(self, queue: ConsumeQueue, low: int, high: int, reads: RecordReads) -> MessageExt | None:
        """The original if it lies in a range of a queue."""
        for queue_offset in range(low, high):
            unit = reads.unit(queue, queue_offset)
            raw = reads.record(unit.phy_offset) if unit is not None and unit.is_message else None
            if raw is not None and self._is(message := decode_record(raw)):
                return message
        return None

    def _is(self, message: MessageExt) -> bool:
        try:
            stored = stored_sequence(message)
        except ProtocolError:
            return False
        if stored is None or self._value.fullmatch(stored.value) is None:
            return False
        return stored[1:] == self._place[:2]


def _is_behind(unit: CqUnit, phy_offset: int) -> bool:
    return unit.phy_offset >= phy_offset
