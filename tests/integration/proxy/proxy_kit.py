"""A proxy, its brokers and a gRPC client in the process of a test; and remoting clients beside them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.admin.session import Admin
from kourou.admin.topics import create_topic
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.pull.pulls import PullStatus
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.message import MessageExt
from kourou.proxy.assembly import Proxy
from kourou.proxy.http2.settings import GrpcServerConfig
from kourou.proxy.settings import ProxySettings
from kourou.proxy.wire.rocketmq_v2 import (
    Address,
    AddressScheme,
    ClientType,
    Endpoints,
    Message,
    Publishing,
    Resource,
    SendMessageRequest,
    Settings,
    SystemProperties,
)
from kourou.testing.cluster import Cluster, cluster
from tests.integration.proxy.wire_client import WireClient, connected

_ids = itertools.count(1)


@dataclass(frozen=True)
class Proxied:
    """What runs."""

    cluster: Cluster
    proxy: Proxy
    client: WireClient

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv_addr

    async def create_topic(self, topic: str, kind: str = "", **fields: Any) -> None:
        """A topic at all brokers; `kind` is the type of its messages."""
        attributes = {"+message.type": kind} if kind else {}
        async with Admin(namesrv=self.namesrv) as admin:
            for broker in self.cluster.brokers:
                config = TopicConfig(
                    topic_name=topic,
                    **{"read_queue_nums": 4, "write_queue_nums": 4, "attributes": attributes, **fields},
                )
                await create_topic(admin, broker.address, config)

    async def send(self, *messages: Message) -> Any:
        """The response to one SendMessage."""
        return await self.client.unary("SendMessage", SendMessageRequest(messages=messages))

    async def stored(self, topic: str) -> list[MessageExt]:
        """The messages of a topic as a remoting client reads them, queue by queue."""
        found: list[MessageExt] = []
        async with AsyncPullConsumer("readers", namesrv=self.namesrv) as consumer:
            for queue in await consumer.fetch_queues(topic):
                queue_offset = 0
                while True:
                    result = await consumer.pull(queue, queue_offset=queue_offset)
                    found += result.messages()
                    queue_offset = result.next_begin_offset
                    if result.status is not PullStatus.FOUND:
                        break
        return found


@asynccontextmanager
async def proxied(
    folder: Path, *, brokers: int = 1, in_memory: bool = True, **settings: Any
) -> AsyncIterator[Proxied]:
    """A cluster behind a proxy; `in_memory`: its first broker is in the same process."""
    async with cluster(folder, brokers, **settings) as running:
        proxy = Proxy(
            ProxySettings(grpc=GrpcServerConfig(), namesrv=running.namesrv_addr),
            broker=running.broker if in_memory else None,
        )
        async with proxy, connected(proxy.port) as client:
            yield Proxied(running, proxy, client)


def message(
    topic: str,
    body: bytes = b"body",
    user: Mapping[str, str] | None = None,
    message_id: str = "",
    **system: Any,
) -> Message:
    """A message as clients send it."""
    return Message(
        topic=Resource(name=topic),
        user_properties=user,
        system_properties=SystemProperties(message_id=message_id or f"01{next(_ids):032X}", **system),
        body=body,
    )


def endpoints(port: int, host: str = "127.0.0.1") -> Endpoints:
    """The address of a proxy as clients have it."""
    return Endpoints(scheme=AddressScheme.IPv4, addresses=[Address(host=host, port=port)])


def producer_settings(*topics: str) -> Settings:
    """What a producer sends first."""
    return Settings(
        client_type=ClientType.PRODUCER,
        publishing=Publishing(topics=[Resource(name=each) for each in topics]),
    )
