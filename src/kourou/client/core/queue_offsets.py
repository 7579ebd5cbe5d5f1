"""QueueOffsets: requests about the offsets of a queue, and of a group in it.

QueueAddresses finds the broker of a queue, and registers the client there before the first request.
"""

from __future__ import annotations

from datetime import datetime

from kourou.argument_types import check_int, is_int, wrong_type
from kourou.client.core.instance import ClientInstance
from kourou.errors import NoRouteError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.bodies.route import MASTER_ID


class QueueAddresses:
    """Addresses from the routes, refreshed from the name server where they have none."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._registered: set[str] = set()

    async def find(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        """The address for requests about `queue`, preferably of `broker_id`; NoRouteError if there is
        none."""
        instance = self._instance
        instance.check_running()
        address = instance.routes.any_address(queue.broker_name, broker_id)
        if address is None:
            # The route may be older than the broker.
            await instance.routes.refresh(queue.topic)
            address = instance.routes.any_address(queue.broker_name, broker_id)
        if address is None:
            raise NoRouteError(
                queue.topic,
                f"the name server knows no broker {queue.broker_name!r} of it; is it running and registered?",
            )
        if address not in self._registered:
            # A broker rejects offsets of a group that is not registered.
            self._registered.add(address)
            if address not in instance.broker_versions:
                await instance.heartbeat()
        return address


def time_ms(when: datetime | int) -> int:
    """A time in milliseconds since 1970; a number is already in that unit."""
    if isinstance(when, datetime):
        return int(when.timestamp() * 1000)
    if not is_int(when):
        raise wrong_type("when", "a datetime, or an int of milliseconds", when)
    return when


class QueueOffsets:
    """Offsets of any queue, and the progress of one group."""

    def __init__(self, instance: ClientInstance, group: str, addresses: QueueAddresses) -> None:
        self._instance = instance
        self._group = group
        self._addresses = addresses

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._instance.api.max_offset(await self._addresses.find(queue), queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that still exists."""
        return await self._instance.api.min_offset(await self._addresses.find(queue), queue)

    async def search(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time."""
        address = await self._addresses.find(queue)
        return await self._instance.api.search_offset(address, queue, time_ms(when))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None when it never committed (0 from an Apache 4.9 broker)."""
        address = await self._addresses.find(queue)
        return await self._instance.api.consumer_offset(address, self._group, queue, only_stored=True)

    async def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit an offset of the group; on return the broker has it."""
        check_int("queue_offset", queue_offset)
        if queue_offset < 0:
            raise ValueError(f"{queue}: {queue_offset} is not a valid offset to commit")
        address = await self._addresses.find(queue)
        await self._instance.api.update_consumer_offset(address, self._group, queue, queue_offset)
