"""SequencedBatch: a batch with messages of idempotent producers, decided message by message.

New ones are stored together; repeats are answered with their originals. So a batch of which a part is stored
already, since it was put together anew, is completed and never dropped as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from kourou.broker.sequences.originals import Place
from kourou.broker.sequences.sequence_gate import SequenceGate, check_refusal, read_sequence
from kourou.errors import RequestError
from kourou.protocol.batch import BatchEntry
from kourou.protocol.codes import ResponseCode
from kourou.protocol.producer_sequence import (
    MAX_IN_FLIGHT,
    MAX_SEQUENCE,
    RAW_SEQUENCE_START,
    ProducerSequence,
    raw_sequence,
    raw_without_sequence,
)
from kourou.protocol.properties import RAW_PROPERTY_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable


def unsequenced(entries: Sequence[BatchEntry]) -> list[BatchEntry]:
    """The entries of a batch without their sequences: they do not count in it."""
    return [entry._replace(raw_properties=raw_without_sequence(entry.raw_properties)) for entry in entries]


def identities_of(entries: Sequence[BatchEntry]) -> set[str]:
    """The producers of the messages of a batch."""
    values = [raw_sequence(entry.raw_properties) for entry in entries]
    return {value.rpartition(":")[0] for value in values if value is not None}


class BatchOutcome(NamedTuple):
    """Where the messages of a batch are, and the ids of those that were there already; "" for the others.
    `original_ends`: where those end in the log."""

    phy_offsets: list[int]
    queue_offsets: list[int]
    original_ids: list[str]
    original_ends: list[int]

    @property
    def end_phy_offset(self) -> int:
        """Up to where the log has to be safe for the originals to be."""
        return max(self.original_ends, default=0)

    def add(self, phy_offset: int, queue_offset: int, original_id: str) -> None:
        """The next message."""
        self.phy_offsets.append(phy_offset)
        self.queue_offsets.append(queue_offset)
        self.original_ids.append(original_id)


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
        and nothing is put; so also with what `put` raises. Of a batch with repeats it cannot be said that
        nothing is stored."""
        undo_count = self._gate.begin()
        try:
            self._decide()
            if self.new_entries:
                put(self.new_entries)
        except BaseException as error:
            self._gate.take_back(undo_count)
            if not any(self._repeated):
                check_refusal(error)
            raise

    def _decide(self) -> None:
        if self._note_if_next():
            self._repeated = [None] * len(self._entries)
            self.new_entries = list(self._entries)
        else:
            self._decide_singly()

    def _note_if_next(self) -> bool:
        """Note all messages if they are simply the next ones of one producer, as those of nearly all batches
        are; False: none is noted."""
        gate, entries, (topic, queue_id, _) = self._gate, self._entries, self._place
        count = len(entries)
        identity, _, text = (raw_sequence(entries[0].raw_properties) or "").rpartition(":")
        first = gate.next_sequence(identity, topic, queue_id)
        if first is None or text != str(first) or count > MAX_IN_FLIGHT or first + count > MAX_SEQUENCE:
            return False
        # Clients put the sequence last.
        start = b"%b%b%b:" % (RAW_PROPERTY_SEPARATOR, RAW_SEQUENCE_START, identity.encode())
        for sequence, (_, _, properties) in enumerate(entries, first):
            if not properties.endswith(b"%b%d%b" % (start, sequence, RAW_PROPERTY_SEPARATOR)):
                return False
        gate.note_next(identity, topic, queue_id, count)
        return True

    def _decide_singly(self) -> None:
        gate, repeated, new_entries = self._gate, self._repeated, self.new_entries
        topic, queue_id, _ = self._place
        sequences: dict[str, list[int]] = {}
        for entry in self._entries:
            value = raw_sequence(entry.raw_properties)
            if value is not None:
                sent = read_sequence(value)
                sequences.setdefault(sent.identity, []).append(sent.sequence)
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

    async def outcome(self, phy_offsets: Sequence[int], queue_offset: int) -> BatchOutcome:
        """Where every message is; given are the phy_offsets of the new ones, and the queue_offset of their
        first. RequestError: an original is undecided, or gone."""
        new = zip(phy_offsets, count(queue_offset), strict=False)
        outcome = BatchOutcome([], [], [], [])
        for sent in self._repeated:
            if sent is None:
                outcome.add(*next(new), "")
                continue
            original = await self._gate.original(sent, self._place)
            if original is None:
                raise RequestError(
                    ResponseCode.SYSTEM_BUSY,
                    f"producer {sent.producer_id}: sequence {sent.sequence} could not be stored; "
                    "send it again",
                )
            outcome.add(original.phy_offset, original.queue_offset, original.msg_id)
            outcome.original_ends.append(original.phy_offset + original.store_size)
        return outcome
