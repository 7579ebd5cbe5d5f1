"""Session: what an idempotent producer has opened at one broker, and the sequences it gives out there.

A sequence is *undecided* from the moment it is given to a message until the broker has stored the message, or
its send has ended. One that was given is never given again: a request may arrive long after its send has
ended. So a send that fails leaves a gap. The broker accepts gaps, and late messages in them, within a window;
QueueNumbers stays inside it. Not here: requests (sequenced_sends.py).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.producer_sequence import MAX_IN_FLIGHT, identity_of

if TYPE_CHECKING:
    from kourou.client.producer.pending_send import QueuedSend

MAX_AHEAD: Final = 1_000
"""How far sequences may be ahead of the lowest undecided one. Less than the broker remembers, so that a
repeat of that one is still recognised."""


class Room(enum.Enum):
    """Whether a queue has sequences for a message."""

    FREE = enum.auto()
    WAIT = enum.auto()
    """Not before others are decided."""
    RENEW = enum.auto()
    """Not in this session: too many in a row were given to sends that failed, and the broker would refuse the
    next as a jump."""


class QueueNumbers:
    """The sequences of one queue in one session. `last`: the highest that the queue has already."""

    __slots__ = ("_next", "_stored", "_undecided", "is_waking", "waiting")

    def __init__(self, last: int = -1) -> None:
        self._next = last + 1
        self._stored = last
        # The first sequence of each request and how many it has; the lowest is the first entry.
        self._undecided: dict[int, int] = {}
        self.waiting: dict[QueuedSend, None] = {}
        """Sends that wait for room, in order."""
        self.is_waking = False
        """Whether they are being written now."""

    def room(self, count: int) -> Room:
        """Whether `count` sequences may be given out now."""
        end = self._next + count
        undecided = self._undecided
        if undecided and end - next(iter(undecided)) > MAX_AHEAD:
            return Room.WAIT
        if end - 1 - self._stored > MAX_IN_FLIGHT:
            return Room.WAIT if undecided else Room.RENEW
        return Room.FREE

    def take(self, count: int) -> int:
        """Give out `count` sequences; the first of them."""
        first = self._next
        self._next = first + count
        self._undecided[first] = count
        return first

    def settle(self, first: int, *, is_stored: bool) -> None:
        """The request with these sequences is stored, or its send has ended."""
        count = self._undecided.pop(first, 0)
        if is_stored:
            self._stored = max(self._stored, first + count - 1)


class Session:
    """An opening of a producer at one broker. `lasts`: of a named producer, the last sequence by topic and
    queue_id, for the topics that are known; None: all queues begin with 0."""

    __slots__ = ("epoch", "identity", "in_flight", "is_ending", "lasts", "producer_id", "queues")

    def __init__(self, producer_id: str, epoch: int, lasts: dict[str, dict[int, int]] | None = None) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.identity = identity_of(producer_id, epoch)
        self.lasts = lasts
        self.queues: dict[MessageQueue, QueueNumbers] = {}
        self.in_flight = 0
        self.is_ending = False
        """Whether it gives out no more sequences: another one is opened when none is in flight."""

    def numbers(self, queue: MessageQueue) -> QueueNumbers | None:
        """The sequences of a queue; None if the last one has to be requested first."""
        found = self.queues.get(queue)
        if found is None:
            last = -1
            if self.lasts is not None:
                if (of_topic := self.lasts.get(queue.topic)) is None:
                    return None
                last = of_topic.get(queue.queue_id, -1)
            found = self.queues[queue] = QueueNumbers(last)
        return found


class Numbered:
    """The sequences of one send, in one session."""

    __slots__ = ("first", "is_settled", "numbers", "session")

    def __init__(self, session: Session, numbers: QueueNumbers | None, first: int) -> None:
        self.session = session
        self.numbers = numbers
        """None: the application numbers its messages."""
        self.first = first
        self.is_settled = False
        session.in_flight += 1

    def settle(self, *, is_stored: bool) -> bool:
        """The send is stored, or has ended; False if that was known."""
        if self.is_settled:
            return False
        self.is_settled = True
        self.session.in_flight -= 1
        if self.numbers is not None:
            self.numbers.settle(self.first, is_stored=is_stored)
        return True
