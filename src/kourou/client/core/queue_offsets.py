"""QueueOffsets: requests about the offsets of a queue, and of a group in it.

QueueAddresses finds the broker of a queue, and registers the client there before the first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple, TypeVar

from kourou.argument_types import check_int, is_int, wrong_type
from kourou.client.core.instance import ClientInstance
from kourou.client.core.routes import BrokerAddress
from kourou.errors import NoRouteError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.bodies.route import MASTER_ID

_T = TypeVar("_T")


class QueueAddresses:
    """Addresses from the routes, refreshed from the name server where they have none."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._registered: set[str] = set()

    async def find(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> BrokerAddress:
        """The broker for requests about `queue`, preferably `broker_id`; NoRouteError if there is none."""
        instance = self._instance
        instance.check_running()
        place = instance.routes.read_from(queue.broker_name, broker_id)
        if place is None:
            # The route may be older than the broker.
            await instance.routes.refresh(queue.topic)
            place = instance.routes.read_from(queue.broker_name, broker_id)
        if place is None:
            raise NoRouteError(
                queue.topic,
                f"the name server knows no broker {queue.broker_name!r} of it; is it running and registered?",
            )
        if place.address not in self._registered:
            # A broker rejects offsets of a group that is not registered.
            self._registered.add(place.address)
            if place.address not in instance.broker_versions:
                await instance.heartbeat()
        return place

    async def call(self, queue: MessageQueue, request: Callable[[BrokerAddress], Awaitable[_T]]) -> _T:
        """Send a request about `queue` to its master, or to a slave if the master is away or does not
        respond."""
        await self.find(queue)
        return await self._instance.routes.call_broker(queue, request)


def time_ms(when: datetime | int) -> int:
    """A time in milliseconds since 1970; a number is already in that unit."""
    if isinstance(when, datetime):
        return int(when.timestamp() * 1000)
    if not is_int(when):
        raise wrong_type("when", "a datetime, or an int of milliseconds", when)
    return when


class QueueEnd(NamedTuple):
    """The offset that the next message will get, and the id of the broker that returned it: a slave may not
    have everything yet that its master has."""

    queue_offset: int
    broker_id: int


class QueueOffsets:
    """Offsets of any queue, and the progress of one group."""

    def __init__(self, instance: ClientInstance, group: str, addresses: QueueAddresses) -> None:
        self._instance = instance
        self._group = group
        self._addresses = addresses

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return (await self.end(queue)).queue_offset

    async def end(self, queue: MessageQueue) -> QueueEnd:
        """The same, with the id of the broker."""
        api = self._instance.api

        async def request(place: BrokerAddress) -> QueueEnd:
            return QueueEnd(await api.max_offset(place.address, queue), place.broker_id)

        return await self._addresses.call(queue, request)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that still exists."""
        api = self._instance.api
        return await self._addresses.call(queue, lambda place: api.min_offset(place.address, queue))

    async def search(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time."""
        api, timestamp_ms = self._instance.api, time_ms(when)
        return await self._addresses.call(
            queue, lambda place: api.search_offset(place.address, queue, timestamp_ms)
        )

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None when it never committed (0 from an Apache 4.9 broker)."""
        api, group = self._instance.api, self._group
        return await self._addresses.call(
            queue, lambda place: api.consumer_offset(place.address, group, queue, only_stored=True)
        )

    async def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit an offset of the group; on return the broker has it."""
        check_int("queue_offset", queue_offset)
        if queue_offset < 0:
            raise ValueError(f"{queue}: {queue_offset} is not a valid offset to commit")
        api, group = self._instance.api, self._group
        await self._addresses.call(
            queue, lambda place: api.update_consumer_offset(place.address, group, queue, queue_offset)
        )
