"""Where a consumer begins in a queue: at the stored offset, else by Java's rules for `consume_from`."""

from __future__ import annotations

from kourou.client.core.api import ClientApi
from kourou.client.core.routes import Routes
from kourou.client.push.consumer_offsets import ConsumerOffsets
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.errors import NoRouteError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import is_retry_topic


class StartOffset:
    """Finds the offset to begin at."""

    def __init__(
        self, api: ClientApi, routes: Routes, offsets: ConsumerOffsets, options: ConsumerOptions
    ) -> None:
        self._api = api
        self._routes = routes
        self._offsets = offsets
        self._options = options

    async def find(self, queue: MessageQueue) -> int:
        """The queue offset to pull first. An error means: not now, for a guess could skip messages."""
        end = None
        if self._may_begin_at_end(queue.topic):
            # Before the stored offset: a message that comes between the two questions lies behind this end.
            end = await self._api.max_offset(self._address(queue), queue)
        stored = await self._offsets.read(queue)
        if stored is not None and stored >= 0:
            return stored
        if end is not None:
            return end
        if self._options.consume_from in ("first", "last"):
            return 0
        return await self._api.search_offset(self._address(queue), queue, self._options.consume_timestamp_ms)

    def _may_begin_at_end(self, topic: str) -> bool:
        consume_from = self._options.consume_from
        # What is in a retry topic was meant for this group, so it is not skipped as news of others would be.
        return consume_from != "first" and is_retry_topic(topic) != (consume_from == "last")

    def _address(self, queue: MessageQueue) -> str:
        address = self._routes.any_address(queue.broker_name)
        if address is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name!r} is not known")
        return address
