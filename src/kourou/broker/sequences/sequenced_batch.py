"""SequencedBatch: a batch with messages of idempotent producers, decided message by message.

New ones are stored together; repeats are answered with their originals. So a batch of which a part is stored
already, since it was put together anew, is completed and never dropped as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kourou.broker.sequences.originals import Place
from kourou.broker.sequences.sequence_gate import SequenceGate, read_sequence
from kourou.errors import RequestError
from kourou.protocol.batch import BatchEntry
from kourou.protocol.codes import ResponseCode
from kourou.protocol.producer_sequence import (
    MAX_IN_FLIGHT,
    ProducerSequence,
    raw_sequence,
    raw_without_sequence,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def unsequenced(entries: Sequence[BatchEntry]) -> list[BatchEntry]:
    """The entries of a batch without their sequences: they do not count in it."""
    return [entry._replace(raw_properties=raw_without_sequence(entry.raw_properties)) for entry in entries]


class SequencedBatch:
    """One batch. `new_entries` are to be stored."""

    def __init__(self, gate: SequenceGate, entries: Sequence[BatchEntry], topic: str, queue_id: int) -> None:
        self._gate = gate
        self._entries = entries
        self._place = Place(topic, queue_id, ((topic, queue_id),))
        # Of each entry: what it repeats; None: it is new, or of no idempotent producer.
        self._repeated: list[ProducerSequence | None] = []
        self.new_entries: list[BatchEntry] = []

    @property
    def has_repeats(self) -> bool:
        """Whether originals have to be found for the answer."""
        return len(self.new_entries) < len(self._entries)

    def put_new(self, put: Callable[[list[BatchEntry]], None]) -> None:
        """Decide about each message and have the new ones put. RequestError: one is neither new nor a repeat,
        and nothing is put; so also with what `put` raises."""
        undo_count = self._gate.begin()
        try:
            self._decide()
            if self.new_entries:
                put(self.new_entries)
        except BaseException:
            self._gate.take_back(undo_count)
            raise

    def _decide(self) -> None:
        gate, repeated, new_entries = self._gate, self._repeated, self.new_entries
        topic, queue_id, _ = self._place
        sequences: dict[str, list[int]] = {}
        for entry in self._entries:
            value = raw_sequence(entry.raw_properties)
            if value is not None:
                identity, _, text = value.rpartition(":")
                if text.isdecimal():
                    sequences.setdefault(identity, []).append(int(text))
                if not gate.note_if_next(value, topic, queue_id):
                    sent = read_sequence(value)
                    if not gate.is_new(sent, topic, queue_id):
                        repeated.append(sent)
                        continue
                    gate.note(sent, topic, queue_id)
            repeated.append(None)
            new_entries.append(entry)
        for identity, numbers in sequences.items():
            if max(numbers) - min(numbers) >= MAX_IN_FLIGHT:
                raise RequestError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the message is illegal: a batch with sequences of {identity} from {min(numbers)} to "
                    f"{max(numbers)}, whose repeat could not be recognized; it may span {MAX_IN_FLIGHT}, "
                    "send it in several batches",
                )

    async def outcome(self, phy_offsets: Sequence[int], queue_offset: int) -> tuple[list[int], int]:
        """The phy_offset of every message, and the queue_offset of the first; given are those of the new
        ones. RequestError: an original is undecided, or gone."""
        new = iter(phy_offsets)
        found: list[int] = []
        first_queue_offset = queue_offset
        for sent in self._repeated:
            if sent is None:
                found.append(next(new))
                continue
            original = await self._gate.original(sent, self._place)
            if original is None:
                raise RequestError(
                    ResponseCode.SYSTEM_BUSY,
                    f"producer {sent.producer_id}: sequence {sent.sequence} could not be stored; "
                    "send it again",
                )
            if not found:
                first_queue_offset = original.queue_offset
            found.append(original.phy_offset)
        return found, first_queue_offset
