"""Our proxy in front of Apache's broker 5.5.0: what gRPC clients send arrives, and comes back to them."""

from __future__ import annotations

import gzip
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.protocol.message import MessageExt
from kourou.proxy.assembly import Proxy
from kourou.proxy.http2.settings import GrpcServerConfig
from kourou.proxy.messages.message_groups import group_bucket
from kourou.proxy.settings import ProxySettings
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    Encoding,
    EndTransactionRequest,
    MessageType,
    QueryRouteRequest,
    RecallMessageRequest,
    Resource,
    SendMessageRequest,
    Timestamp,
    TransactionResolution,
    TransactionSource,
)
from tests.integration.proxy.proxy_kit import endpoints, message, producer_settings
from tests.integration.proxy.wire_client import WireClient, connected
from tests.interop.kit import wire
from tests.interop.kit.apache import start_broker
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

pytestmark = pytest.mark.interop

PROPERTIES = {
    "recallMessageEnable": "true",
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "2000",
    "transactionOpBatchInterval": "50",
}


@dataclass(frozen=True)
class Apache:
    """A broker of Apache's and its name server."""

    broker: str
    namesrv: str

    def new_topic(self, topic: str, kind: str = "") -> str:
        return wire.create_topic(self.broker, [self.namesrv], topic, 4, kind)

    async def stored(self, topic: str) -> list[MessageExt]:
        found: list[MessageExt] = []
        async with AsyncPullConsumer("readers", namesrv=self.namesrv) as consumer:
            for queue in await consumer.fetch_queues(topic):
                found += (await consumer.pull(queue, queue_offset=0)).messages()
        return found


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    folder = tmp_path_factory.mktemp("grpc-apache-broker")
    with launch_kourou_namesrv(folder).wait_ready() as namesrv:
        with start_broker("5.5.0", folder, [namesrv.address], properties=PROPERTIES) as broker:
            wire.wait_route(namesrv.address, "TBW102", broker.address)
            yield Apache(broker.address, namesrv.address)


@asynccontextmanager
async def client_of(apache: Apache) -> AsyncIterator[WireClient]:
    settings = ProxySettings(grpc=GrpcServerConfig(), namesrv=apache.namesrv)
    async with Proxy(settings) as proxy, connected(proxy.port) as client:
        yield client


async def send(client: WireClient, *messages: Any) -> Any:
    return await client.unary("SendMessage", SendMessageRequest(messages=messages))


def codes(response: Any) -> tuple[int, list[int]]:
    return response.status.code, [entry.status.code for entry in response.entries]


async def test_messages_of_each_type(apache: Apache) -> None:
    topics = {
        kind: apache.new_topic(f"Send-{kind}", kind) for kind in ("NORMAL", "FIFO", "DELAY", "PRIORITY")
    }
    async with client_of(apache) as client:
        route = await client.unary(
            "QueryRoute", QueryRouteRequest(topic=Resource(name=topics["FIFO"]), endpoints=endpoints(8081))
        )
        assert [(q.id, q.permission, list(q.accept_message_types)) for q in route.message_queues] == [
            (queue_id, 4, [MessageType.FIFO]) for queue_id in range(4)
        ]
        normal = topics["NORMAL"]
        sent = message(normal, b"hello", {"shop": "7"}, tag="t", keys=["a", "b"], born_host="shop-1")
        assert codes(await send(client, sent)) == (Code.OK, [Code.OK])
        zipped = message(normal, gzip.compress(b"text" * 99), body_encoding=Encoding.GZIP)
        assert codes(await send(client, zipped)) == (Code.OK, [Code.OK])
        batch = await send(client, *(message(normal, b"%d" % number) for number in range(5)))
        assert codes(batch) == (Code.OK, [Code.OK] * 5)
        by_id = {each.msg_id: each for each in await apache.stored(normal)}
        first = by_id[sent.system_properties.message_id]
        assert (first.body, first.tags, first.keys) == (b"hello", "t", ("a", "b"))
        assert (first.get_property("shop"), first.get_property("__BORNHOST")) == ("7", "shop-1")
        assert by_id[zipped.system_properties.message_id].body == b"text" * 99
        for number, entry in enumerate(batch.entries):
            found = by_id[entry.message_id]
            assert (found.body, found.queue_offset) == (b"%d" % number, entry.offset)

        assert codes(await send(client, message(topics["FIFO"], message_group="g"))) == (Code.OK, [Code.OK])
        (in_order,) = await apache.stored(topics["FIFO"])
        assert in_order.queue_id == group_bucket("g", 4)
        refused = await send(client, message(topics["FIFO"]))
        assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE

        assert codes(await send(client, message(topics["PRIORITY"], priority=2))) == (Code.OK, [Code.OK])
        (urgent,) = await apache.stored(topics["PRIORITY"])
        assert (urgent.queue_id, urgent.priority) == (2, 2)

        later = Timestamp(seconds=int(time.time()) + 60)
        delayed = await send(client, message(topics["DELAY"], delivery_timestamp=later))
        recall = RecallMessageRequest(
            topic=Resource(name=topics["DELAY"]), recall_handle=delayed.entries[0].recall_handle
        )
        recalled = await client.unary("RecallMessage", recall)
        assert (recalled.status.code, recalled.message_id) == (Code.OK, delayed.entries[0].message_id)
        absent = await send(client, message("Absent"))
        assert absent.status.code == Code.TOPIC_NOT_FOUND


async def test_transactions_and_their_check(apache: Apache) -> None:
    topic = apache.new_topic("Half", "TRANSACTION")
    async with client_of(apache) as client:
        telemetry = await client.telemetry(producer_settings(topic))

        async def end(transaction_id: str, resolution: int, source: int) -> int:
            request = EndTransactionRequest(
                topic=Resource(name=topic),
                message_id=transaction_id,
                transaction_id=transaction_id,
                resolution=resolution,
                source=source,
            )
            code: int = (await client.unary("EndTransaction", request)).status.code
            return code

        halves = []
        for body in (b"yes", b"no", b"orphan"):
            response = await send(client, message(topic, body, message_type=MessageType.TRANSACTION))
            assert codes(response) == (Code.OK, [Code.OK])
            halves.append(response.entries[0].transaction_id)
        of_client, of_check = TransactionSource.SOURCE_CLIENT, TransactionSource.SOURCE_SERVER_CHECK
        assert await end(halves[0], TransactionResolution.COMMIT, of_client) == Code.OK
        assert await end(halves[1], TransactionResolution.ROLLBACK, of_client) == Code.OK
        # Its broker notes ends with a delay, and may ask about those, too.
        while True:
            command = (await telemetry.next()).recover_orphaned_transaction_command
            if command.transaction_id == halves[2]:
                break
        assert (command.message.body, command.message.topic.name) == (b"orphan", topic)
        assert await end(halves[2], TransactionResolution.COMMIT, of_check) == Code.OK
        assert sorted(each.body for each in await apache.stored(topic)) == [b"orphan", b"yes"]
