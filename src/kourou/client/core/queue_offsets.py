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
    """From the routes, and from the name server if they do not know."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._registered: set[str] = set()

    async def find(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        """The address to ask about `queue`, preferably of that broker; NoRouteError when there is none."""
        instance = self._instance
        instance.check_running()
        address = instance.routes.any_address(queue.broker_name, broker_id)
        if address is None:
            # A route from before the broker joined is of no use: ask again.
            await instance.routes.refresh(queue.topic)
            address = instance.routes.any_address(queue.broker_name, broker_id)
        if address is None:
            raise NoRouteError(
                queue.topic,
                f"the name server knows no broker {queue.broker_name!r} of it; is it running and registered?",
            )
        if address not in self._registered:
            # A broker takes no offsets of a group that it has not heard of.
            self._registered.add(address)
            if address not in instance.broker_versions:
                await instance.heartbeat()
        return address


def time_ms(when: datetime | int) -> int:
    """A time as RocketMQ counts it; a number is milliseconds already."""
    if isinstance(when, datetime):
        return int(when.timestamp() * 1000)
    if not is_int(when):
        raise wrong_type("when", "a datetime, or an int of milliseconds", when)
    return when


class QueueOffsets:
    """Offsets of any queue, and how far one group is."""

    def __init__(self, instance: ClientInstance, group: str, addresses: QueueAddresses) -> None:
        self._instance = instance
        self._group = group
        self._addresses = addresses

    async def max_offset(self, queue: MessageQueue) -> int:
        """The next offset to be written."""
        return await self._instance.api.max_offset(await self._addresses.find(queue), queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset still there."""
        return await self._instance.api.min_offset(await self._addresses.find(queue), queue)

    async def search(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time."""
        address = await self._addresses.find(queue)
        return await self._instance.api.search_offset(address, queue, time_ms(when))

    async def committed(self, queue: MessageQueue) -> int | None:
        """How far the group is; None when it never committed (0 from an Apache 4.9 broker)."""
        address = await self._addresses.find(queue)
        return await self._instance.api.consumer_offset(address, self._group, queue, only_stored=True)

    async def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Set how far the group is; on return the broker has it."""
        check_int("queue_offset", queue_offset)
        if queue_offset < 0:
            raise ValueError(f"{queue}: {queue_offset} is not a valid offset to commit")
        address = await self._addresses.find(queue)
        await self._instance.api.update_consumer_offset(address, self._group, queue, queue_offset)
