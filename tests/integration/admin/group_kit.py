"""A cluster with a consumer group that has consumed a topic, for commands about groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kourou import AsyncProducer, AsyncPushConsumer, Message, MessageExt
from kourou.admin.consume_stats import GroupProgress, consume_stats
from kourou.admin.session import Admin
from kourou.errors import ResponseError
from kourou.protocol.bodies import (
    DataVersion,
    MessageQueue,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import RegisterBrokerRequestHeader
from kourou.testing.cluster import Cluster, cluster
from tests.unit.admin.command_line import Result, run_line

TOPIC = "Orders"
GROUP = "billing"
PRODUCERS = "shop"
WAIT_S = 10

T = TypeVar("T")


@dataclass
class Traffic:
    """What runs, and who talks to it."""

    running: Cluster
    producer: AsyncProducer
    admin: Admin
    seen: list[bytes] = field(default_factory=list)

    @property
    def namesrv(self) -> str:
        """The name server as clients write it."""
        return self.running.namesrv_addr

    @property
    def broker_addr(self) -> str:
        """The first broker as clients write it."""
        return self.running.broker.address

    async def line(self, *words: str, **options: Any) -> Result:
        """Run a command line."""
        return await run_line(self.namesrv, *words, **options)

    async def send(self, count: int, topic: str = TOPIC) -> None:
        """Send messages, one to each queue in turn."""
        for index in range(count):
            await self.producer.send(Message(topic, b"%d" % index, tags="TagA"))

    @asynccontextmanager
    async def consumer(self, group: str = GROUP, **options: Any) -> AsyncIterator[AsyncPushConsumer]:
        """A member of the group."""
        options = {"persist_interval_ms": 50, **options}
        consumer = AsyncPushConsumer(group, namesrv=self.namesrv, consume_from="first", **options)
        await consumer.subscribe(TOPIC, "TagA || TagB", self._on_message)
        async with consumer:
            yield consumer

    async def _on_message(self, message: MessageExt) -> None:
        self.seen.append(message.body)

    async def offset_of(self, group: str, topic: str = TOPIC, queue_id: int = 0) -> int | None:
        """How far the first broker says that a group is in a queue; None if it has no offset."""
        return await self.admin.api.consumer_offset(
            self.broker_addr, group, MessageQueue(topic, "broker-a", queue_id)
        )

    async def until_consumed(self, group: str = GROUP) -> GroupProgress:
        """Wait until brokers know that a group has consumed everything."""

        async def progress() -> GroupProgress | None:
            try:
                found = await consume_stats(self.admin, group)
            except ResponseError:
                return None
            return (
                found
                if found.diff_total == 0 and any(queue.broker_offset for queue in found.queues)
                else None
            )

        return await until(progress)


async def until(condition: Callable[[], Awaitable[T | None]]) -> T:
    """Wait for a condition to give something."""
    async with asyncio.timeout(WAIT_S):
        while (found := await condition()) is None:  # noqa: ASYNC110 (a broker knows, or a thread)
            await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def traffic(folder: Path, brokers: int = 1, **settings: Any) -> AsyncIterator[Traffic]:
    """A cluster with a topic of eight messages; it is not consumed yet."""
    async with (
        cluster(folder, brokers, **settings) as running,
        AsyncProducer(PRODUCERS, namesrv=running.namesrv_addr) as producer,
        Admin(namesrv=running.namesrv_addr) as admin,
    ):
        found = Traffic(running, producer, admin)
        await found.send(8)
        yield found


@asynccontextmanager
async def consumed(folder: Path, **settings: Any) -> AsyncIterator[Traffic]:
    """The same with a member of the group, that has consumed everything and is online."""
    async with traffic(folder, **settings) as found, found.consumer():
        await found.until_consumed()
        yield found


async def add_ghost_broker(running: Cluster, *topics: str) -> str:
    """Have the name server believe in a broker that cannot be reached; its address.

    One that is killed stays known as long as its machine keeps the connection.
    """
    address = "127.0.0.1:1"
    header = RegisterBrokerRequestHeader(
        broker_name="broker-z",
        broker_addr=address,
        cluster_name="DefaultCluster",
        ha_server_addr="",
        broker_id=0,
    )
    table = {topic: TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1) for topic in topics}
    body = RegisterBrokerBody(
        TopicConfigSerializeWrapper(table, DataVersion(timestamp=1, counter=1))
    ).encode()
    command = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
    answer = await running.client.call(running.namesrv_addr, command)
    assert answer.code == 0, answer.remark
    return address
