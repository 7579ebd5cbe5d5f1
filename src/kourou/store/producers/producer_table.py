"""ProducerTable: the idempotent producers of a broker, and what each has stored in which queue.

Derived from the log: every message of such a producer carries its id, epoch and sequence as properties, and
opening a producer is a message itself. So the table replicates with the log, and is rebuilt from it after a
crash, from a snapshot on (producer_snapshot.py).

A sequence is noted when its record is put into a commit cycle, and taken back if the cycle fails. Whether a
noted record is durable yet is known to the commit cycle, not here: a repeat waits for what is under way.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kourou.store.producers.sequence_windows import (
    MAX_SEQUENCE,
    WINDOW,
    SequenceWindows,
    Standing,
    WindowState,
)

ID_EXPIRY_MS: Final = 7 * 24 * 3_600_000
MAX_PRODUCERS: Final = 100_000
NAME_PREFIX: Final = "@"
"""An id that begins with it is a name that an application chose: it does not expire."""
# Removed at once when there are too many: finding the least recently used looks at all.
_EVICTED_SHARE: Final = 100


class Ruling(enum.Enum):
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


@dataclass(slots=True)
class Producer:
    """One producer."""

    epoch: int
    opened_ms: int
    allows_gaps: bool
    """Whether sequences may jump: an application numbers its messages itself."""


class ProducerTable:
    """All idempotent producers of one broker. One thread owns it."""

    def __init__(self, *, max_producers: int = MAX_PRODUCERS, expiry_ms: int = ID_EXPIRY_MS) -> None:
        self.max_producers = max_producers
        self.expiry_ms = expiry_ms
        self.producers: dict[str, Producer] = {}
        self.windows = SequenceWindows()
        # Topic, queue_id, producer id, slot.
        self.slots: dict[str, dict[int, dict[str, int]]] = {}
        self.expired = 0
        """Ids removed since they were not used."""
        self.evicted = 0
        """Ids removed since there were too many."""

    def __len__(self) -> int:
        return len(self.producers)

    # -- sends -----------------------------------------------------------------------------------

    def rule(self, producer_id: str, epoch: int, topic: str, queue_id: int, sequence: int) -> Ruling:
        """What becomes of a message. Nothing is noted."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return Ruling.UNKNOWN_PRODUCER
        if epoch != producer.epoch:
            return Ruling.FENCED if epoch < producer.epoch else Ruling.UNKNOWN_EPOCH
        if not 0 <= sequence <= MAX_SEQUENCE:
            return Ruling.JUMP
        slot = self._find(topic, queue_id, producer_id)
        if slot is None:
            return Ruling.STORE if sequence < WINDOW or producer.allows_gaps else Ruling.JUMP
        standing = self.windows.standing(slot, sequence)
        if standing is Standing.STORED:
            return Ruling.REPEAT
        if standing is Standing.TOO_OLD:
            return Ruling.TOO_OLD
        if sequence - self.windows.high(slot) > WINDOW and not producer.allows_gaps:
            return Ruling.JUMP
        return Ruling.STORE

    def note(
        self,
        producer_id: str,
        epoch: int,
        topic: str,
        queue_id: int,
        sequence: int,
        queue_offset: int,
        now_ms: int,
    ) -> None:
        """A message with this sequence is put at `queue_offset`."""
        if producer_id not in self.producers:
            # Its opening lies before the beginning of the log.
            self.note_opened(producer_id, epoch, now_ms, allows_gaps=True)
        self.windows.note(self._slot(topic, queue_id, producer_id), sequence, queue_offset, now_ms)

    def take_back(self, producer_id: str, topic: str, queue_id: int, sequence: int) -> None:
        """A message that was noted could not be stored."""
        slot = self._find(topic, queue_id, producer_id)
        if slot is not None:
            self.windows.forget(slot, sequence)

    def search_from(self, producer_id: str, topic: str, queue_id: int, sequence: int) -> int | None:
        """The queue_offset at or behind which a stored message lies; None if not known."""
        slot = self._find(topic, queue_id, producer_id)
        return None if slot is None else self.windows.search_from(slot, sequence)

    def last_sequence(self, producer_id: str, topic: str, queue_id: int) -> int:
        """The highest sequence that a queue has of a producer; -1: none."""
        slot = self._find(topic, queue_id, producer_id)
        return -1 if slot is None else self.windows.high(slot)

    def _find(self, topic: str, queue_id: int, producer_id: str) -> int | None:
        queues = self.slots.get(topic)
        of_queue = None if queues is None else queues.get(queue_id)
        return None if of_queue is None else of_queue.get(producer_id)

    def _slot(self, topic: str, queue_id: int, producer_id: str) -> int:
        of_queue = self.slots.setdefault(topic, {}).setdefault(queue_id, {})
        slot = of_queue.get(producer_id)
        if slot is None:
            slot = of_queue[producer_id] = self.windows.add()
        return slot

    # -- producers -------------------------------------------------------------------------------

    def next_epoch(self, producer_id: str) -> int:
        """The epoch of the next program that opens this id."""
        producer = self.producers.get(producer_id)
        return 0 if producer is None else producer.epoch + 1

    def note_opened(self, producer_id: str, epoch: int, now_ms: int, *, allows_gaps: bool) -> None:
        """A producer has been opened: programs with a lower epoch are fenced. An opening that is noted again,
        by recovery, changes nothing."""
        producer = self.producers.get(producer_id)
        if producer is None:
            if len(self.producers) >= self.max_producers:
                self._evict()
            self.producers[producer_id] = Producer(epoch, now_ms, allows_gaps)
        elif epoch > producer.epoch:
            producer.epoch, producer.opened_ms, producer.allows_gaps = epoch, now_ms, allows_gaps

    def expire(self, now_ms: int) -> int:
        """Remove ids that were not used for a long time, except names; how many."""
        used = self._used_ms()
        old = [
            producer_id
            for producer_id, at_ms in used.items()
            if not producer_id.startswith(NAME_PREFIX) and now_ms - at_ms > self.expiry_ms
        ]
        self._remove(old)
        self.expired += len(old)
        return len(old)

    def _evict(self) -> None:
        used = self._used_ms()
        evictable = [producer_id for producer_id in used if not producer_id.startswith(NAME_PREFIX)]
        evictable.sort(key=used.__getitem__)
        removed = evictable[: max(1, self.max_producers // _EVICTED_SHARE)]
        self._remove(removed)
        self.evicted += len(removed)

    def _used_ms(self) -> dict[str, int]:
        """When each producer was last used."""
        used = {producer_id: producer.opened_ms for producer_id, producer in self.producers.items()}
        for _, _, of_queue in self._queues():
            for producer_id, slot in of_queue.items():
                used[producer_id] = max(used[producer_id], self.windows.used_ms(slot))
        return used

    def _remove(self, producer_ids: list[str]) -> None:
        gone = set(producer_ids)
        if not gone:
            return
        for _, _, of_queue in self._queues():
            for producer_id in gone.intersection(of_queue):
                self.windows.remove(of_queue.pop(producer_id))
        for producer_id in gone:
            del self.producers[producer_id]

    def _queues(self) -> Iterator[tuple[str, int, dict[str, int]]]:
        for topic, queues in self.slots.items():
            for queue_id, of_queue in queues.items():
                yield topic, queue_id, of_queue

    def drop_topic(self, topic: str) -> None:
        """A topic was deleted: what was stored in it no longer counts."""
        for of_queue in self.slots.pop(topic, {}).values():
            for slot in of_queue.values():
                self.windows.remove(slot)

    # -- saving ----------------------------------------------------------------------------------

    def states(self) -> Iterator[tuple[str, str, int, WindowState]]:
        """Producer id, topic, queue_id and state of every window."""
        for topic, queue_id, of_queue in self._queues():
            for producer_id, slot in of_queue.items():
                yield producer_id, topic, queue_id, self.windows.state(slot)

    def restore(self, producer_id: str, topic: str, queue_id: int, state: WindowState) -> None:
        """Set a window to a saved state; its producer is there already."""
        self.windows.restore(self._slot(topic, queue_id, producer_id), state)
