"""Allocation strategies: which queues of a topic each consumer of a group takes.

Every consumer computes its own share, so the shares must be consistent: the results equal those of Apache's
Java client, queue for queue, and Java consumers may be in the same group. Callers pass both lists sorted:
queues by topic, broker name and queue id (the order of MessageQueue), ids as text.
Not here: when shares are computed and how a change is applied (rebalance.py).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol, TypeVar

from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.queue_shares import AVG, AVG_BY_CIRCLE, average_share, circle_share, member_index

T = TypeVar("T")

_ROOM_SEPARATOR: Final = "@"


class AllocateStrategy(Protocol):
    """Computes the share of each consumer. `name` identifies the strategy to a 5.x broker."""

    @property
    def name(self) -> str:
        """The strategy's name on the wire."""
        ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The share of `client_id`; empty if it is not among `client_ids`.

        ValueError if there are no queues or no ids.
        """
        ...


def check_strategy(strategy: object) -> None:
    """TypeError for an object that is not a strategy; the message lists the known ones."""
    name, allocate = getattr(strategy, "name", None), getattr(strategy, "allocate", None)
    if isinstance(name, str) and callable(allocate) and not isinstance(strategy, type):
        return
    known = ", ".join(each.__name__ for each in _ALL)
    raise TypeError(
        "strategy is an object with a name and a method allocate, such as those of "
        f"kourou.client ({known}), not {strategy!r}"
    )


class AllocateAveragely:
    """Contiguous ranges of queues; the first consumers get one more each if the division leaves a rest."""

    name: Final = AVG

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return average_share(group, client_id, queues, client_ids)


class AllocateAveragelyByCircle:
    """Round robin: one queue to each consumer in turn."""

    name: Final = AVG_BY_CIRCLE

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return circle_share(group, client_id, queues, client_ids)


class AllocateByConfig:
    """Always the configured queues, whatever the other consumers have.

    Two consumers may have the same queue, and a queue may have no consumer.
    """

    name: Final = "CONFIG"

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = tuple(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self._queues)


class AllocateByMachineRoom:
    """Only queues in the given machine rooms: those of brokers named `room@name`, divided evenly.

    Queues in other rooms are not assigned.
    """

    name: Final = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        index = member_index(group, client_id, queues, client_ids)
        if index is None:
            return []
        here = [queue for queue in queues if machine_room(queue) in self._rooms]
        size, rest = divmod(len(here), len(client_ids))
        # The rest is at the end; the first consumers get one each.
        left_over = here[size * len(client_ids) :]
        return here[size * index : size * (index + 1)] + left_over[index : index + 1]


def machine_room(queue: MessageQueue) -> str | None:
    """The room of a broker that is named `room@name`; None for other names."""
    room, separator, name = queue.broker_name.partition(_ROOM_SEPARATOR)
    return room if separator and name and _ROOM_SEPARATOR not in name else None


class AllocateMachineRoomNearby:
    """Queues to consumers in the same room, by the inner strategy; queues of rooms without consumers to all.

    `queue_room` and `client_room` return the room of a queue's broker and of a consumer.
    """

    def __init__(
        self,
        inner: AllocateStrategy,
        queue_room: Callable[[MessageQueue], str],
        client_room: Callable[[str], str],
    ) -> None:
        self._inner = inner
        self._queue_room = queue_room
        self._client_room = client_room

    @property
    def name(self) -> str:
        """The inner strategy is part of the name."""
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if member_index(group, client_id, queues, client_ids) is None:
            return []
        queues_by_room = _by_room(queues, self._queue_room, "queue")
        ids_by_room = _by_room(client_ids, self._client_room, "consumer")
        my_room = self._client_room(client_id)
        share = []
        if mine := queues_by_room.pop(my_room, None):
            share += self._inner.allocate(group, client_id, mine, ids_by_room[my_room])
        for room in sorted(queues_by_room.keys() - ids_by_room.keys()):
            share += self._inner.allocate(group, client_id, queues_by_room[room], client_ids)
        return share


def _by_room(items: Sequence[T], room_of: Callable[[T], str], kind: str) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ValueError(f"{kind} {item}: no machine room is known for it; correct {kind}_room")
        rooms.setdefault(room, []).append(item)
    return rooms


class AllocateConsistentHash:
    """Each queue to the next consumer on a ring of hashes: few queues move when the group changes.

    In exchange, shares differ in size, and a consumer may get none.
    """

    name: Final = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"virtual_nodes is {virtual_nodes}; each consumer needs at least one")
        self._virtual_nodes = virtual_nodes

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if member_index(group, client_id, queues, client_ids) is None:
            return []
        ring = {
            _ring_hash(f"{each}-{number}"): each
            for each in client_ids
            for number in range(self._virtual_nodes)
        }
        places = sorted(ring)
        return [queue for queue in queues if ring[_next_place(places, _queue_key(queue))] == client_id]


_ALL: Final = (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateConsistentHash,
)


def _next_place(places: list[int], key: str) -> int:
    index = bisect_left(places, _ring_hash(key))
    return places[index % len(places)]


def _ring_hash(key: str) -> int:
    # For distribution, not for security.
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def _queue_key(queue: MessageQueue) -> str:
    # Java hashes the queue's toString().
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
