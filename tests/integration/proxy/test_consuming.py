"""gRPC consumers at real brokers: long polling, acks and retries, order, dead letters, filters."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kourou.admin.connections import consumer_connection
from kourou.admin.doctor.checks_groups import check_unheld_queues
from kourou.admin.doctor.cluster_snapshot import take_snapshot
from kourou.admin.groups import update_group
from kourou.admin.messages.messages import consume_directly
from kourou.admin.running_info import running_info
from kourou.admin.session import Admin
from kourou.client.pop.pop_consumer import AsyncPopConsumer
from kourou.client.producer.producer import AsyncProducer
from kourou.errors import ResponseError
from kourou.protocol.bodies import CMResult, ConsumeType, SubscriptionGroupConfig
from kourou.protocol.message import Message as RemotingMessage
from kourou.proxy.messages.statuses import make_status
from kourou.proxy.wire.rocketmq_v2 import (
    ClientType,
    Code,
    NotifyClientTerminationRequest,
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageResult,
)
from tests.integration.proxy.grpc_consumer import GrpcConsumer, bodies, handle_of
from tests.integration.proxy.proxy_kit import Proxied, message, proxied
from tests.integration.proxy.wire_client import connected


async def set_group(kit: Proxied, **config: object) -> None:
    """Create the consumers' group at all brokers."""
    async with Admin(namesrv=kit.namesrv) as admin:
        addresses = [broker.address for broker in kit.cluster.brokers]
        await update_group(admin, addresses, SubscriptionGroupConfig(group_name="consumers", **config))  # type: ignore[arg-type]


async def test_a_push_consumer(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Orders")
        await set_group(kit, retry_max_times=1)
        consumer = GrpcConsumer(kit.client, "Orders")
        settings = await consumer.start()
        assert settings.backoff_policy.max_attempts == 2
        assert await consumer.heartbeat() == Code.OK
        # A receive that waits gets what comes, from producers of either protocol.
        waiting = consumer.begin()
        async with AsyncProducer("shop", namesrv=kit.namesrv) as producer:
            await producer.send(RemotingMessage("Orders", b"remoting", tags="A", keys="k1 k2"))
        code, (first,) = await consumer.end(waiting)
        system = first.system_properties
        assert (code, first.topic.name, first.body, system.tag) == (Code.OK, "Orders", b"remoting", "A")
        assert (list(system.keys), system.delivery_attempt) == (["k1", "k2"], 1)
        await kit.send(message("Orders", b"grpc", {"colour": "red"}))
        (second,) = await consumer.receive_some()
        assert (second.body, dict(second.user_properties)) == (b"grpc", {"colour": "red"})
        # Once more is no mistake; a forged handle is one.
        acks = await consumer.ack(first, second, first, "forged")
        assert acks == [Code.OK, Code.OK, Code.OK, Code.INVALID_RECEIPT_HANDLE]
        # What is returned comes again, once, and is a dead letter then.
        await kit.send(message("Orders", b"failing", message_id="01" + "F" * 32))
        (failing,) = await consumer.receive_some()
        code, after = await consumer.change(handle_of(failing), 0)
        assert code == Code.OK and after != handle_of(failing)
        (again,) = await consumer.receive_some()
        assert (again.body, again.system_properties.delivery_attempt) == (b"failing", 2)
        assert again.topic.name == "Orders"
        assert (await consumer.change(handle_of(again), 0))[0] == Code.OK
        for _ in range(3):
            assert await consumer.receive() == []
            if letters := await kit.stored("%DLQ%consumers"):
                break
        assert [(letter.body, letter.msg_id) for letter in letters] == [(b"failing", "01" + "F" * 32)]


async def test_a_simple_consumer_keeps_messages_for_as_long_as_it_says(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Orders")
        consumer = GrpcConsumer(kit.client, "Orders")
        await consumer.start(client_type=ClientType.SIMPLE_CONSUMER)
        await kit.send(message("Orders", b"one"))
        (one,) = await consumer.receive_some(invisible_s=10)
        code, handle = await consumer.change(handle_of(one), 30)
        assert code == Code.OK
        # The old handle is of the time before.
        assert await consumer.ack(handle) == [Code.OK]
        assert await consumer.receive(invisible_s=10) == []


async def test_a_message_is_acknowledged_by_its_first_handle_after_extensions(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Orders")
        consumer = GrpcConsumer(kit.client, "Orders")
        await consumer.start()
        await kit.send(message("Orders", b"slow"))
        (slow,) = await consumer.receive_some()
        services = kit.proxy._services
        assert services is not None
        (client,) = services.clients
        in_flight = kit.cluster.broker.running.in_flight.in_flight
        key = "consumers", "Orders", handle_of(slow)
        held = services.held.find(client, key)
        assert held is not None
        for extensions in 1, 2:
            before = held.handle
            services.renewals.extend_due(held.expires_s - 1)
            answered = asyncio.Event()
            held.use(answered.set)
            async with asyncio.timeout(10):
                await answered.wait()
            held.release()
            assert (held.renewals, held.handle != before) == (extensions, True)
        assert held.handle.invisible_time == 180_000
        assert in_flight.count("Orders", "consumers") == 1
        assert await consumer.ack(slow) == [Code.OK]
        assert (in_flight.count("Orders", "consumers"), len(services.held)) == (0, 0)


async def test_a_group_in_order(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Orders", "FIFO", read_queue_nums=1, write_queue_nums=1)
        await set_group(kit, consume_message_orderly=True)
        consumer = GrpcConsumer(kit.client, "Orders")
        assert (await consumer.start()).subscription.fifo
        for number in range(4):
            await kit.send(message("Orders", b"%d" % number, message_group="a"))
        first = await consumer.receive_some(batch_size=2, attempt_id="one")
        assert bodies(first) == [b"0", b"1"]
        # The same attempt gets the same; another one waits for the acks.
        again = await consumer.receive_some(batch_size=2, attempt_id="one")
        assert bodies(again) == [b"0", b"1"]
        waiting = consumer.begin(batch_size=2, attempt_id="two")
        assert await consumer.ack(again[0]) == [Code.OK]
        assert await consumer.forward(again[1]) == Code.OK
        code, rest = await consumer.end(waiting)
        assert (code, bodies(rest)) == (Code.OK, [b"2", b"3"])
        assert await consumer.ack(*rest) == [Code.OK] * 2
        assert [letter.body for letter in await kit.stored("%DLQ%consumers")] == [b"1"]


async def test_filters(tmp_path: Path) -> None:
    async with proxied(tmp_path, enable_property_filter=True) as kit:
        await kit.create_topic("Orders")
        by_sql, by_tag = GrpcConsumer(kit.client, "Orders", "sql"), GrpcConsumer(kit.client, "Orders", "tag")
        await kit.send(message("Orders", b"1", {"price": "1"}, tag="Aa"))
        await kit.send(message("Orders", b"9", {"price": "9"}, tag="BB"))  # of the same hash
        await by_tag.start(tags="Aa")
        assert bodies(await by_tag.receive_some()) == [b"1"]
        await by_sql.start(sql="price > 5")
        assert bodies(await by_sql.receive_some()) == [b"9"]
        await by_sql.start(sql="price >")
        code, _ = await by_sql.end(by_sql.begin())
        assert code == Code.ILLEGAL_FILTER_EXPRESSION


async def test_what_brokers_know_of_consumers_and_ask_them(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit, Admin(namesrv=kit.namesrv) as admin:
        await kit.create_topic("Orders")
        consumer = GrpcConsumer(kit.client, "Orders")
        assert await consumer.heartbeat() == Code.UNRECOGNIZED_CLIENT_TYPE
        await consumer.start()
        assert await consumer.heartbeat() == Code.OK
        online = await consumer_connection(admin, "consumers")
        assert [member.client_id for member in online.connection_set] == ["client-1"]
        assert online.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert list(online.subscription_table) == ["Orders"]
        # Its queues have a consumer, although none is assigned.
        snapshot = await take_snapshot(admin, None, 0.0)
        assert [view.group for view in snapshot.groups] == ["consumers"]
        assert (await check_unheld_queues(snapshot), snapshot.not_checked) == ([], [])
        # Its stack traces.
        asking = asyncio.ensure_future(running_info(admin, "consumers", "client-1", with_stacks=True))
        command = (await consumer.stream.next()).print_thread_stack_trace_command
        trace = ThreadStackTrace(nonce=command.nonce, thread_stack_trace="at work")
        consumer.stream.write(TelemetryCommand(status=make_status(Code.OK), thread_stack_trace=trace))
        assert (await asking).jstack == "at work"
        # A message that it consumes at once.
        async with AsyncProducer("shop", namesrv=kit.namesrv) as producer:
            await producer.send(RemotingMessage("Orders", b"now"))
        (stored,) = await kit.stored("Orders")
        verifying = asyncio.ensure_future(consume_directly(admin, "consumers", "client-1", stored))
        verify = (await consumer.stream.next()).verify_message_command
        assert verify.message.body == b"now"
        result = VerifyMessageResult(nonce=verify.nonce)
        consumer.stream.write(TelemetryCommand(status=make_status(Code.OK), verify_message_result=result))
        assert (await verifying).consume_result is CMResult.CR_SUCCESS
        # It leaves.
        assert (
            await kit.client.unary("NotifyClientTermination", NotifyClientTerminationRequest())
        ).status.code == Code.OK
        async with asyncio.timeout(10):
            while True:
                try:
                    await consumer_connection(admin, "consumers")
                except ResponseError:
                    break
                await asyncio.sleep(0.05)


async def test_messages_of_a_client_that_has_gone_come_soon(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit:
        await kit.create_topic("Orders")
        await kit.send(message("Orders", b"one"))
        async with connected(kit.proxy.port, "client-2") as other:
            gone = GrpcConsumer(other, "Orders")
            await gone.start()
            assert bodies(await gone.receive_some()) == [b"one"]
            await other.unary("NotifyClientTermination", NotifyClientTerminationRequest())
        consumer = GrpcConsumer(kit.client, "Orders")
        await consumer.start()
        # Else it would be invisible for a minute.
        (one,) = await consumer.receive_some()
        assert (one.body, one.system_properties.delivery_attempt) == (b"one", 2)


async def test_a_group_with_members_of_both_protocols(tmp_path: Path) -> None:
    async with proxied(tmp_path, brokers=2) as kit:
        await kit.create_topic("Orders")
        consumer = GrpcConsumer(kit.client, "Orders")
        await consumer.start()
        async with AsyncPopConsumer("consumers", namesrv=kit.namesrv) as remoting:
            await remoting.subscribe("Orders")
            for number in range(40):
                await kit.send(message("Orders", b"%d" % number))
            got = []
            async with asyncio.timeout(30):
                while len(got) < 40:
                    for batch in [await remoting.receive(max_messages=4, wait_ms=100)]:
                        for popped in batch:
                            got.append(popped.body)
                            await popped.ack()
                    for broker in "broker-a", "broker-b":
                        receiving = consumer.begin(broker=broker, batch_size=4)
                        if len(got) < 40:
                            received = (await consumer.end(receiving))[1]
                            got += bodies(received)
                            if received:
                                assert set(await consumer.ack(*received)) == {Code.OK}
            assert sorted(got, key=int) == [b"%d" % number for number in range(40)]
