"""Where a consumer begins in a queue while messages are being stored."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kourou.client.core.api import ClientApi
from kourou.client.core.routes import Routes
from kourou.client.push.consumer_offsets import BrokerOffsets, StartOffset
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.protocol.bodies import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


class ApacheBroker:
    """A queue of a broker of 5.x that holds `[min, max)`; a message is stored after the `stores_after`-th
    request. Takes the place of ClientApi."""

    def __init__(self, low: int, high: int, *, stores_after: int, stored: int | None = None) -> None:
        self.low, self.high = low, high
        self._stores_after = stores_after
        self._stored = stored
        self.requests: list[str] = []

    async def consumer_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        is_young = self.low == 0 < self.high
        return self._answered("consumer_offset", 0 if is_young and self._stored is None else self._stored)

    async def max_offset(self, address: str, queue: MessageQueue) -> int | None:
        return self._answered("max_offset", self.high)

    def _answered(self, request: str, answer: int | None) -> int | None:
        self.requests.append(request)
        if len(self.requests) == self._stores_after:
            self.high += 1
        return answer

    async def start_offset(self, topic: str = "T", **options: Any) -> int:
        api = cast(ClientApi, self)
        routes = Routes(api)
        routes.brokers["broker-a"] = {0: "127.0.0.1:10911"}
        offsets = BrokerOffsets(api, routes, "CG")
        return await StartOffset(api, routes, offsets, ConsumerOptions(**options)).find(
            MessageQueue(topic, "broker-a", 0)
        )


@pytest.mark.parametrize("stores_after", [1, 2])
@pytest.mark.parametrize("low", [0, 7])
async def test_a_message_stored_while_a_new_group_begins_in_an_empty_queue_is_consumed(
    low: int, stores_after: int
) -> None:
    broker = ApacheBroker(low, low, stores_after=stores_after)
    assert await broker.start_offset() == low
    assert broker.high == low + 1


@pytest.mark.parametrize("stores_after", [1, 2])
async def test_a_message_stored_while_a_new_group_begins_at_the_end_of_a_queue_is_consumed(
    stores_after: int,
) -> None:
    assert await ApacheBroker(3, 9, stores_after=stores_after).start_offset() == 9


async def test_a_group_goes_on_where_it_was() -> None:
    assert await ApacheBroker(3, 9, stores_after=1, stored=5).start_offset() == 5


@pytest.mark.parametrize(("topic", "options"), [("%RETRY%CG", {}), ("T", {"consume_from": "first"})])
async def test_the_end_of_a_queue_that_is_not_begun_at_is_not_asked_for(
    topic: str, options: dict[str, Any]
) -> None:
    broker = ApacheBroker(3, 9, stores_after=0)
    assert await broker.start_offset(topic, **options) == 0
    assert broker.requests == ["consumer_offset"]
