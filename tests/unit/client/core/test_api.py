"""First offsets: those of a group in a topic that a broker does not know yet come one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pytest

from kourou.client.core.api import ClientApi
from kourou.client.core.namesrv_list import NamesrvList
from kourou.client.core.settings import ClientSettings
from kourou.errors import ConnectError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient

ADDRESS = "127.0.0.1:10911"


class Connections:
    """Takes requests, and notes how many of them were under way at once for each topic."""

    def __init__(self) -> None:
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.is_failing = False

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """As RemotingClient has it."""
        topic = (command.ext_fields or {})["topic"]
        self.under_way[topic] += 1
        self.most[topic] = max(self.most[topic], self.under_way[topic])
        await asyncio.sleep(0)
        self.under_way[topic] -= 1
        if self.is_failing:
            raise ConnectError(address, "gone")
        return RemotingCommand(code=0)


class Teller:
    """A client that tells offsets of three queues at once."""

    def __init__(self) -> None:
        self.connections = Connections()
        settings = ClientSettings()
        self.api = ClientApi(cast(RemotingClient, self.connections), NamesrvList(settings), settings)

    async def tell(self, topic: str = "T", group: str = "CG", address: str = ADDRESS) -> int:
        """How many of the topic were under way at once."""
        self.connections.most.clear()
        queues = [MessageQueue(topic, "broker-a", queue_id) for queue_id in range(3)]
        await asyncio.gather(
            *[self.api.update_consumer_offset(address, group, queue, 5) for queue in queues],
            return_exceptions=True,
        )
        return self.connections.most[topic]


async def test_the_first_come_one_by_one_and_the_next_at_once() -> None:
    teller = Teller()
    assert [await teller.tell(), await teller.tell()] == [1, 3]


async def test_they_do_so_until_one_is_stored() -> None:
    teller = Teller()
    teller.connections.is_failing = True
    assert await teller.tell() == 1
    teller.connections.is_failing = False
    assert [await teller.tell(), await teller.tell()] == [1, 3]


@pytest.mark.parametrize("other", [{"topic": "U"}, {"group": "CG2"}, {"address": "127.0.0.1:10912"}])
async def test_each_topic_group_and_broker_has_first_ones(other: dict[str, str]) -> None:
    teller = Teller()
    await teller.tell()
    assert [await teller.tell(**other), await teller.tell(**other)] == [1, 3]


async def test_one_that_is_cancelled_lets_the_next_go() -> None:
    teller = Teller()
    first = asyncio.ensure_future(teller.tell())
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.wait_for(teller.tell(), 5) == 1
