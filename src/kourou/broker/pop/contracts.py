"""What delivery needs of the other parts of POP: messages in flight, and orderly POP.

Not here: those parts (in_flight.py, order_info.py and its journal), delivery itself (pop_service.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kourou.broker.pop.order_info import OrderKey
from kourou.protocol.pop.offset_infos import OrderCounts
from kourou.store.log.put_status import PutStatus

PopStored: TypeAlias = Callable[[PutStatus], None]
"""Called once, at the end of the commit cycle or later, with the result of storing what a pop has changed."""


class Popped(NamedTuple):
    """Messages of one queue that a pop has taken for a group. `topic` is the one that they lie in. All queues
    of one pop have the same `pop_time` and `revive_queue_id`: an answer names each only once."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    offsets: Sequence[int]
    next_offset: int
    """Where the group continues: behind the last message, and those that it does not want."""
    pop_time: int
    invisible_time_ms: int
    revive_queue_id: int


class InFlight(Protocol):
    """The messages that are popped and not acknowledged."""

    def take(self, popped: Popped, done: PopStored) -> None:
        """Put the check point of a pop in the open commit cycle, which is opened if none is. `done` is called
        once, not from inside this call. PutRefusedError, RequestError: nothing is put, `done` is not called.
        """
        ...

    def count(self, topic: str, group: str, queue_id: int | None = None) -> int:
        """Messages in flight, of one queue or of all of the topic."""
        ...


class Orders(Protocol):
    """What orderly POP has handed out, and the journal of it."""

    def is_blocked(self, key: OrderKey, attempt_id: str | None) -> bool:
        """Whether a pop must wait for the acknowledgements of an earlier one, or for the end of its time."""
        ...

    def pop(
        self,
        key: OrderKey,
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_time_ms: int,
        offsets: Sequence[int],
        done: PopStored,
    ) -> OrderCounts:
        """Record a pop, at once in memory and in the open commit cycle in the journal; returns how often each
        message was handed out before. `done` as that of `InFlight.take`; if it says that nothing is stored,
        the pop is undone."""
        ...

    def clear(self, key: OrderKey) -> None:
        """Forget what was handed out of a queue: an administrator has moved the group."""
        ...
