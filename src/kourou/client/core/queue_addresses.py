"""QueueAddresses: where the brokers of queues are, and that they know us before we ask them."""

from __future__ import annotations

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
