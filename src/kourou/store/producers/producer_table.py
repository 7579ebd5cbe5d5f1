"""ProducerTable: the idempotent producers of a broker, and what each has stored in which queue.

Derived from the log: every message of such a producer carries its id, epoch and sequence as a property
(protocol/producer_sequence.py), and opening a producer is a message itself. So the table replicates with the
log, and is rebuilt from it after a crash, from a snapshot on (producer_snapshot.py).

A sequence is noted when its record is put into a commit cycle, and taken back if that cannot be written.
Whether a noted record is durable yet is known to the commit cycle, not here: a repeat waits for what is under
way. Queues are those that messages were sent to, also where a message waits elsewhere for its time or for the
end of its transaction.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from kourou.protocol.producer_sequence import (
    NAME_PREFIX,
    ProducerForgotten,
    ProducerOpening,
    ProducerSequence,
    identity_of,
)
from kourou.store.producers.sequence_windows import WINDOW, SequenceWindows, Standing

ID_EXPIRY_MS: Final = 7 * 24 * 3_600_000
MAX_PRODUCERS: Final = 100_000
MAX_NAMES: Final = 100_000
# 2026-01-01.
_FIRST_EPOCH_MS: Final = 1_767_225_600_000
# Removed at once when there are too many: finding the least recently used looks at all.
_EVICTED_SHARE: Final = 100
# A network delays a repeated request by minutes at most. Epochs are times.
_NONCE_EXPIRY_MS: Final = 3_600_000
_MAX_NONCES: Final = 16
_MAX_FORGOTTEN: Final = 10_000


class SequenceRuling(enum.Enum):
    """What becomes of a message of an idempotent producer."""

    STORE = "store"
    """It is new, or late: store it."""
    REPEAT = "repeat"
    """It is stored already, or about to be."""
    UNKNOWN_PRODUCER = "unknown producer"
    """The id was never opened here, or has expired."""
    FENCED = "fenced"
    """A newer program with the same name has been opened."""
    UNKNOWN_EPOCH = "unknown epoch"
    """No producer was opened with this epoch."""
    TOO_OLD = "too old"
    """So far behind that a repeat cannot be told from a new message."""
    JUMP = "jump"
    """So far ahead that messages in between must have been lost."""


REFUSALS: Final = tuple(
    ruling for ruling in SequenceRuling if ruling not in (SequenceRuling.STORE, SequenceRuling.REPEAT)
)
"""Those of a message that is neither stored nor answered as a repeat."""


@dataclass(slots=True)
class Producer:
    """One producer."""

    epoch: int
    opened_ms: int
    allows_gaps: bool
    """Whether sequences may jump: an application numbers its messages itself."""
    identity: str
    """Id and epoch, as messages carry them."""
    nonces: dict[str, int] = field(default_factory=dict)
    """Of the last openings of a name, with their epochs."""


class ProducerTable:
    """All idempotent producers of one broker. One thread owns it."""

    def __init__(self, *, max_producers: int = MAX_PRODUCERS, expiry_ms: int = ID_EXPIRY_MS) -> None:
        self.max_producers = max_producers
        self.expiry_ms = expiry_ms
        self.producers: dict[str, Producer] = {}
        self.windows = SequenceWindows()
        self.slots = self.windows.slots
        self.names = 0
        """Producers with names, which neither expire nor count as too many."""
        self.forgotten: dict[str, int] = {}
        """The epochs of producers that were forgotten lately: an older snapshot does not bring them back."""
        self.expired = 0
        """Ids removed since they were not used."""
        self.evicted = 0
        """Ids removed since there were too many."""
        self.repeats = 0
        """Repeats that were answered with their originals."""
        self.refused: Counter[SequenceRuling] = Counter()
        """Messages that were neither stored nor answered as repeats."""

    def __len__(self) -> int:
        return len(self.producers)

    # -- sends -----------------------------------------------------------------------------------

    def rule(self, sent: ProducerSequence, topic: str, queue_id: int) -> SequenceRuling:
        """What becomes of a message. Nothing is noted."""
        producer = self.producers.get(sent.producer_id)
        if producer is None:
            return SequenceRuling.UNKNOWN_PRODUCER
        if sent.epoch != producer.epoch:
            return SequenceRuling.FENCED if sent.epoch < producer.epoch else SequenceRuling.UNKNOWN_EPOCH
        slot = self._find(topic, queue_id, sent.identity)
        if slot is None:
            return (
                SequenceRuling.STORE
                if sent.sequence < WINDOW or producer.allows_gaps
                else SequenceRuling.JUMP
            )
        standing = self.windows.standing(slot, sent.sequence)
        if standing is Standing.STORED:
            return SequenceRuling.REPEAT
        if standing is Standing.TOO_OLD:
            return SequenceRuling.TOO_OLD
        if sent.sequence - self.windows.high(slot) > WINDOW and not producer.allows_gaps:
            return SequenceRuling.JUMP
        return SequenceRuling.STORE

    def note(self, sent: ProducerSequence, topic: str, queue_id: int, phy_offset: int, now_ms: int) -> None:
        """A message that may be stored is put, at `phy_offset` or behind it."""
        self.windows.note(self._slot(topic, queue_id, sent.identity), sent.sequence, phy_offset, now_ms)

    def next_sequence(self, identity: str, topic: str, queue_id: int) -> int | None:
        """The sequence behind the highest of a producer in a queue; None if it has stored nothing there."""
        slot = self._find(topic, queue_id, identity)
        return None if slot is None else self.windows.high(slot) + 1

    def note_next(
        self, identity: str, topic: str, queue_id: int, count: int, phy_offset: int, now_ms: int
    ) -> None:
        """The `count` messages from `next_sequence` on are put, at `phy_offset` or behind it."""
        self.windows.note_next(self.slots[topic][queue_id][identity], count, phy_offset, now_ms)

    def search_from(self, sent: ProducerSequence, topic: str, queue_id: int) -> int | None:
        """The phy_offset at or behind which a stored message lies; None if not known."""
        slot = self._find(topic, queue_id, sent.identity)
        return None if slot is None else self.windows.search_from(slot, sent.sequence)

    def last_sequences(self, producer_id: str, topic: str) -> dict[int, int]:
        """The highest sequence that each queue of a topic has of a producer."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return {}
        slots = {
            queue_id: of_queue[producer.identity]
            for queue_id, of_queue in self.slots.get(topic, {}).items()
            if producer.identity in of_queue
        }
        highs = {queue_id: self.windows.high(slot) for queue_id, slot in slots.items()}
        # -1: of a message that could not be written.
        return {queue_id: high for queue_id, high in highs.items() if high >= 0}

    def _find(self, topic: str, queue_id: int, identity: str) -> int | None:
        queues = self.slots.get(topic)
        of_queue = None if queues is None else queues.get(queue_id)
        return None if of_queue is None else of_queue.get(identity)

    def _slot(self, topic: str, queue_id: int, identity: str) -> int:
        of_queue = self.slots.setdefault(topic, {}).setdefault(queue_id, {})
        slot = of_queue.get(identity)
        if slot is None:
            producer_id = identity.rpartition(":")[0]
            # One text for all queues.
            slot = of_queue[self.producers[producer_id].identity] = self.windows.add()
        return slot

    # -- the log ---------------------------------------------------------------------------------

    def note_stored(
        self, sent: ProducerSequence, topic: str, queue_id: int, phy_offset: int, store_ms: int
    ) -> None:
        """The log has a message."""
        producer = self.producers.get(sent.producer_id)
        if producer is None or producer.epoch < sent.epoch:
            # Its opening lies before the beginning of the log.
            self.note_opened(ProducerOpening(sent.producer_id, sent.epoch, allows_gaps=True), store_ms)
            producer = self.producers[sent.producer_id]
        slot = self._slot(topic, queue_id, producer.identity)
        self.windows.note_written(slot, sent.sequence, phy_offset, store_ms)

    def merge_window(self, producer_id: str, topic: str, queue_id: int, window: bytes) -> None:
        """Add what another copy of the table knows of a queue; the producer is there already."""
        slot = self._slot(topic, queue_id, self.producers[producer_id].identity)
        self.windows.merge(slot, window)

    def next_epoch(self, producer_id: str, now_ms: int) -> int:
        """The epoch of the next program that opens this id: the time, so that it is another one where an
        opening was lost; greater than the one before in any case. An id that is no name is opened once."""
        if not producer_id.startswith(NAME_PREFIX):
            return 0
        producer = self.producers.get(producer_id)
        return max(now_ms - _FIRST_EPOCH_MS, 0 if producer is None else producer.epoch + 1)

    def epoch_of(self, producer_id: str, nonce: str | None) -> int | None:
        """The epoch that an opening with this nonce has got; None: there was none in the last hour."""
        producer = self.producers.get(producer_id)
        return None if producer is None or nonce is None else producer.nonces.get(nonce)

    def note_opened(self, opening: ProducerOpening, now_ms: int) -> None:
        """A producer has been opened: programs with a lower epoch are fenced. An opening that is noted again,
        by recovery, changes nothing."""
        producer_id, epoch, allows_gaps, nonce = opening
        producer = self.producers.get(producer_id)
        identity = identity_of(producer_id, epoch)
        if producer is None:
            if producer_id.startswith(NAME_PREFIX):
                self.names += 1
            elif len(self.producers) - self.names >= self.max_producers:
                self._evict()
            self.producers[producer_id] = Producer(epoch, now_ms, allows_gaps, identity)
        elif epoch > producer.epoch:
            for _, _, of_queue in self.queues():
                slot = of_queue.pop(producer.identity, None)
                if slot is not None:
                    of_queue[identity] = slot
            self.producers[producer_id] = Producer(epoch, now_ms, allows_gaps, identity, producer.nonces)
        if nonce is not None:
            self.note_nonces(producer_id, {nonce: epoch})

    def note_nonces(self, producer_id: str, nonces: dict[str, int]) -> None:
        """Openings of a name, the last of which are kept: their nonces and epochs."""
        producer = self.producers[producer_id]
        known = sorted({**producer.nonces, **nonces}.items(), key=itemgetter(1))[-_MAX_NONCES:]
        oldest = producer.epoch - _NONCE_EXPIRY_MS
        producer.nonces = {nonce: epoch for nonce, epoch in known if epoch > oldest}

    # -- removing --------------------------------------------------------------------------------

    def expire(self, now_ms: int, topics: Collection[str]) -> int:
        """Remove ids that were not used for a long time, except names, and what names have stored in topics
        that are gone, `topics` being those that are not; how many ids."""
        used = self._used_ms()
        old = [
            producer_id
            for producer_id, at_ms in used.items()
            if not producer_id.startswith(NAME_PREFIX) and now_ms - at_ms > self.expiry_ms
        ]
        self._remove(old)
        self.expired += len(old)
        for topic in [topic for topic in self.slots if topic not in topics]:
            self._expire_topic(topic, now_ms)
        return len(old)

    def forget(self, forgotten: ProducerForgotten) -> None:
        """Remove a producer that an operator has given up, unless a newer program has opened it since.
        Repeats of what it sent are not recognized any more."""
        producer_id, epoch = forgotten
        producer = self.producers.get(producer_id)
        if producer is None or producer.epoch > epoch:
            return
        self.remove([producer_id])
        self.forgotten[producer_id] = epoch
        if len(self.forgotten) > _MAX_FORGOTTEN:
            del self.forgotten[next(iter(self.forgotten))]

    def remove(self, producer_ids: Collection[str]) -> None:
        """Remove producers, with names or without, as if they had never been opened."""
        known = [producer_id for producer_id in producer_ids if producer_id in self.producers]
        self._remove(known)
        self.names -= sum(producer_id.startswith(NAME_PREFIX) for producer_id in known)

    def _expire_topic(self, topic: str, now_ms: int) -> None:
        queues = self.slots[topic]
        slots = [slot for of_queue in queues.values() for slot in of_queue.values()]
        if all(now_ms - self.windows.used_ms(slot) > self.expiry_ms for slot in slots):
            del self.slots[topic]
            for slot in slots:
                self.windows.remove(slot)

    def _evict(self) -> None:
        used = self._used_ms()
        evictable = [producer_id for producer_id in used if not producer_id.startswith(NAME_PREFIX)]
        evictable.sort(key=used.__getitem__)
        removed = evictable[: max(1, self.max_producers // _EVICTED_SHARE)]
        self._remove(removed)
        self.evicted += len(removed)

    def _used_ms(self) -> dict[str, int]:
        """When each producer was last used."""
        used = {producer.identity: producer.opened_ms for producer in self.producers.values()}
        for _, _, of_queue in self.queues():
            for identity, slot in of_queue.items():
                used[identity] = max(used[identity], self.windows.used_ms(slot))
        return {producer_id: used[producer.identity] for producer_id, producer in self.producers.items()}

    def _remove(self, producer_ids: list[str]) -> None:
        gone = {self.producers.pop(producer_id).identity for producer_id in producer_ids}
        if gone:
            for _, _, of_queue in self.queues():
                for identity in gone.intersection(of_queue):
                    self.windows.remove(of_queue.pop(identity))

    def queues(self) -> Iterator[tuple[str, int, dict[str, int]]]:
        """Topic and queue_id of every queue with messages of producers, and their slots by identity."""
        for topic, queues in self.slots.items():
            for queue_id, of_queue in queues.items():
                yield topic, queue_id, of_queue
