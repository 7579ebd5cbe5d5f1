"""gRPC producers at real brokers: routes, sends of each type, transactions, recalls."""

from __future__ import annotations

import asyncio
import gzip
import time
from pathlib import Path
from typing import Any

from kourou.client.pop.pop_consumer import AsyncPopConsumer
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.protocol.message import MessageExt
from kourou.proxy.messages.message_groups import group_bucket
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    Encoding,
    Endpoints,
    EndTransactionRequest,
    MessageType,
    QueryAssignmentRequest,
    QueryRouteRequest,
    RecallMessageRequest,
    Resource,
    Timestamp,
    TransactionResolution,
    TransactionSource,
)
from tests.integration.proxy.proxy_kit import Proxied, endpoints, message, producer_settings, proxied

HALF = MessageType.TRANSACTION


def in_ms(delay_ms: int) -> Timestamp:
    at_ms = time.time_ns() // 1_000_000 + delay_ms
    return Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


def codes(response: Any) -> tuple[int, list[int]]:
    return response.status.code, [entry.status.code for entry in response.entries]


async def consumed(kit: Proxied, topic: str, count: int) -> list[bytes]:
    """The next bodies that a remoting consumer gets."""
    got: asyncio.Queue[MessageExt] = asyncio.Queue()
    async with AsyncPushConsumer("consumers", namesrv=kit.namesrv, consume_from="first") as consumer:
        await consumer.subscribe(topic, got.put)
        async with asyncio.timeout(30):
            return [(await got.get()).body for _ in range(count)]


async def query_route(kit: Proxied, topic: str, **sent: Any) -> Any:
    request = QueryRouteRequest(
        topic=Resource(name=topic), **{"endpoints": endpoints(8081, "proxy.test"), **sent}
    )
    return await kit.client.unary("QueryRoute", request)


async def test_routes(tmp_path: Path) -> None:
    async with proxied(tmp_path, brokers=2, auto_create_topic_enable=True) as kit:
        await kit.create_topic("Fifo", "FIFO", read_queue_nums=3, write_queue_nums=2)
        route = await query_route(kit, "Fifo")
        assert route.status.code == Code.OK
        assert [(queue.broker.name, queue.id, queue.permission) for queue in route.message_queues] == [
            (broker, queue_id, permission)
            for broker in ("broker-a", "broker-b")
            # Read-only queues come first, as with Apache's proxy.
            for queue_id, permission in ((0, 2), (1, 4), (2, 4))
        ]
        for queue in route.message_queues:
            assert (queue.topic.name, list(queue.accept_message_types)) == ("Fifo", [MessageType.FIFO])
            (address,) = queue.broker.endpoints.addresses
            assert (address.host, address.port, queue.broker.endpoints.scheme) == ("proxy.test", 8081, 3)
        # A topic that is not there is not created, whatever brokers are configured to do.
        assert (await query_route(kit, "Absent")).status.code == Code.TOPIC_NOT_FOUND
        assert (await query_route(kit, "TBW102")).status.code == Code.ILLEGAL_TOPIC
        assert (
            await query_route(kit, "Fifo", endpoints=endpoints(0))
        ).status.code == Code.ILLEGAL_ACCESS_POINT
        # Without an address in the request, it is that of the call.
        route = await query_route(kit, "Fifo", endpoints=Endpoints())
        assert route.message_queues[0].broker.endpoints.addresses[0].host == "broker"

        async def assigned(topic: str) -> Any:
            request = QueryAssignmentRequest(
                topic=Resource(name=topic), group=Resource(name="readers"), endpoints=endpoints(8081)
            )
            return await kit.client.unary("QueryAssignment", request)

        answer = await assigned("Fifo")
        queues = [each.message_queue for each in answer.assignments]
        assert [(queue.broker.name, queue.id) for queue in queues] == [("broker-a", -1), ("broker-b", -1)]
        await kit.create_topic("WriteOnly", perm=2)
        assert (await assigned("WriteOnly")).status.code == Code.FORBIDDEN
        assert (await assigned("Absent")).status.code == Code.TOPIC_NOT_FOUND


async def test_what_is_sent_is_read_by_remoting_consumers(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Plain")
        sent = message(
            "Plain",
            b"hello",
            {"shop": "7"},
            tag="paid",
            keys=["a", "b"],
            born_timestamp=Timestamp(seconds=1_700_000_000, nanos=5_000_000),
            born_host="shop-1",
            trace_context="trace",
        )
        response = await kit.send(sent)
        entry = response.entries[0]
        assert codes(response) == (Code.OK, [Code.OK])
        assert (entry.message_id, entry.offset) == (sent.system_properties.message_id, 0)
        assert (entry.transaction_id, entry.recall_handle) == ("", "")
        zipped = await kit.send(message("Plain", gzip.compress(b"text" * 99), body_encoding=Encoding.GZIP))
        assert zipped.status.code == Code.OK
        first, second = sorted(await kit.stored("Plain"), key=lambda each: each.store_timestamp)
        assert (first.body, first.tags, first.keys, first.msg_id) == (
            b"hello",
            "paid",
            ("a", "b"),
            sent.system_properties.message_id,
        )
        assert (first.get_property("shop"), first.get_property("TRACE_CONTEXT")) == ("7", "trace")
        assert (first.get_property("__BORNHOST"), first.get_property("PGROUP")) == ("shop-1", "Plain")
        assert first.born_timestamp == 1_700_000_000_005
        assert second.body == b"text" * 99
        async with AsyncPopConsumer("poppers", namesrv=kit.namesrv, consume_from="first") as consumer:
            await consumer.subscribe("Plain", "paid")
            (popped,) = await consumer.receive(wait_ms=20_000)
            assert popped.body == b"hello"


async def test_messages_that_are_refused(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Normal", "NORMAL")
        await kit.create_topic("ReadOnly", perm=4)
        fifo = await kit.send(message("Normal", message_group="g"))
        assert codes(fifo) == (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, [])
        for refused, code in (
            ([], Code.MESSAGE_CORRUPTED),
            ([message("Normal"), message("Other")], Code.MESSAGE_CORRUPTED),
            ([message("Normal"), message("Normal", b"")], Code.MESSAGE_BODY_EMPTY),
            ([message("Absent")], Code.TOPIC_NOT_FOUND),
            ([message("ReadOnly")], Code.FORBIDDEN),
            ([message("SCHEDULE_TOPIC_XXXX")], Code.ILLEGAL_TOPIC),
            ([message("bad topic")], Code.ILLEGAL_TOPIC),
        ):
            assert codes(await kit.send(*refused)) == (code, [])
        assert await kit.stored("Normal") == []


async def test_several_messages_in_one_request(tmp_path: Path) -> None:
    async with proxied(tmp_path, brokers=2) as kit:
        await kit.create_topic("Plain")
        plain = await kit.send(*(message("Plain", b"%d" % number) for number in range(20)))
        assert codes(plain) == (Code.OK, [Code.OK] * 20)
        stored = await kit.stored("Plain")
        # One queue: they were one batch, and the offsets of the result are those of the queue.
        assert [each.body for each in stored] == [b"%d" % number for number in range(20)]
        assert [entry.offset for entry in plain.entries] == [each.queue_offset for each in stored]
        assert [entry.message_id for entry in plain.entries] == [each.msg_id for each in stored]

        await kit.create_topic("Fifo", "FIFO")
        groups = ["a", "b", "c"] * 10
        squeezed = gzip.compress(b"27")
        messages = [
            message("Fifo", b"%d" % number, message_group=group)
            if number != 27
            else message("Fifo", squeezed, message_group=group, body_encoding=Encoding.GZIP)
            for number, group in enumerate(groups)
        ]
        assert codes(await kit.send(*messages)) == (Code.OK, [Code.OK] * 30)
        stored = await kit.stored("Fifo")
        assert len(stored) == 30
        for group in "abc":
            own = [each for each in stored if each.get_property("__SHARDINGKEY") == group]
            assert [int(each.body) for each in own] == [n for n, each in enumerate(groups) if each == group]
            bucket = group_bucket(group, 8)
            queue = "broker-a" if bucket < 4 else "broker-b", bucket % 4
            assert {(each.broker_name, each.queue_id) for each in own} == {queue}


async def test_priorities(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Urgent", "PRIORITY")
        for priority in (0, 2, 9):
            assert (await kit.send(message("Urgent", priority=priority))).status.code == Code.OK
        # Queues stand for priorities; the broker chooses.
        assert [(each.queue_id, each.priority) for each in await kit.stored("Urgent")] == [
            (0, 0),
            (2, 2),
            (3, 9),
        ]
        plain = await kit.send(message("Urgent"))
        assert plain.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_delayed_messages_and_their_recall(tmp_path: Path) -> None:
    async with proxied(tmp_path, timer_wheel_enable=True) as kit:
        await kit.create_topic("Later", "DELAY")
        await kit.create_topic("Plain")
        soon = await kit.send(message("Later", b"soon", delivery_timestamp=in_ms(1_500)))
        late = await kit.send(message("Later", b"late", delivery_timestamp=in_ms(60_000)))
        over = await kit.send(message("Later", b"over", delivery_timestamp=in_ms(-60_000)))
        for response in (soon, late, over):
            assert response.status.code == Code.OK
        handle = late.entries[0].recall_handle
        assert handle

        async def recall(topic: str, handle: str) -> Any:
            request = RecallMessageRequest(topic=Resource(name=topic), recall_handle=handle)
            return await kit.client.unary("RecallMessage", request)

        recalled = await recall("Later", handle)
        assert (recalled.status.code, recalled.message_id) == (Code.OK, late.entries[0].message_id)
        assert (await recall("Later", "forged")).status.code == Code.BAD_REQUEST
        assert (await recall("Plain", handle)).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert await consumed(kit, "Later", 2) == [b"over", b"soon"]


async def end(kit: Proxied, entry: Any, resolution: int, **fields: Any) -> int:
    request = EndTransactionRequest(
        topic=Resource(name="Half"),
        message_id=entry.message_id,
        resolution=resolution,
        **{
            "transaction_id": entry.transaction_id,
            "source": TransactionSource.SOURCE_CLIENT,
            **fields,
        },
    )
    response = await kit.client.unary("EndTransaction", request)
    code: int = response.status.code
    return code


async def test_transactions(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Half", "TRANSACTION")
        halves = [
            (await kit.send(message("Half", body, message_type=HALF))).entries[0] for body in (b"yes", b"no")
        ]
        assert all(entry.transaction_id == entry.message_id for entry in halves)
        assert await kit.stored("Half") == []
        assert await end(kit, halves[0], TransactionResolution.COMMIT) == Code.OK
        assert await end(kit, halves[1], TransactionResolution.ROLLBACK) == Code.OK
        (committed,) = await kit.stored("Half")
        assert (committed.body, committed.msg_id) == (b"yes", halves[0].message_id)
        # It has ended: what comes now is not known any more.
        assert await end(kit, halves[0], TransactionResolution.COMMIT) == Code.INTERNAL_SERVER_ERROR
        assert await end(kit, halves[0], TransactionResolution.COMMIT, transaction_id=" ") == 40008
        assert len(await kit.stored("Half")) == 1


async def test_a_broker_checks_an_orphaned_transaction(tmp_path: Path) -> None:
    async with proxied(
        tmp_path, transaction_time_out=1_000, transaction_check_interval=1_000, transaction_check_max=15
    ) as kit:
        await kit.create_topic("Half", "TRANSACTION")
        telemetry = await kit.client.telemetry(producer_settings("Half"))
        sent = await kit.send(message("Half", b"orphan", {"shop": "7"}, tag="t", message_type=HALF))
        entry = sent.entries[0]
        command = (await telemetry.next()).recover_orphaned_transaction_command
        assert (command.transaction_id, command.message.body) == (entry.transaction_id, b"orphan")
        assert (command.message.topic.name, command.message.system_properties.tag) == ("Half", "t")
        assert command.message.user_properties["shop"] == "7"
        assert command.message.system_properties.message_type == HALF
        # A client that does not know yet is asked again.
        unknown = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
        check = {"source": TransactionSource.SOURCE_SERVER_CHECK}
        assert await end(kit, entry, unknown, **check) == Code.OK
        assert (
            await telemetry.next()
        ).recover_orphaned_transaction_command.transaction_id == entry.transaction_id
        assert await end(kit, entry, TransactionResolution.COMMIT, **check) == Code.OK
        assert await consumed(kit, "Half", 1) == [b"orphan"]


async def test_a_proxy_of_its_own_reaches_brokers_by_tcp(tmp_path: Path) -> None:
    async with proxied(tmp_path, brokers=2, in_memory=False) as kit:
        await kit.create_topic("Plain")
        answers = await asyncio.gather(*(kit.send(message("Plain")) for _ in range(100)))
        assert {answer.status.code for answer in answers} == {Code.OK}
        stored = await kit.stored("Plain")
        assert len(stored) == 100
        # In turn over the queues of both brokers.
        assert {(each.broker_name, each.queue_id) for each in stored} == {
            (broker, queue_id) for broker in ("broker-a", "broker-b") for queue_id in range(4)
        }
