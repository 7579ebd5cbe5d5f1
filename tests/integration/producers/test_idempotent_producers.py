"""Idempotent and named producers at real brokers: every kind of send, and answers that are lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.queue_processor import AsyncQueueProcessor
from kourou.client.producer.request_reply import reply_to
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.sync.producer import Producer
from kourou.client.sync.pull_consumer import PullConsumer
from kourou.client.sync.queue_processor import QueueProcessor
from kourou.client.sync.transaction_producer import TransactionProducer
from kourou.errors import MessageRefusedError, ProducerFencedError, SendFailedError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.names import PRODUCERS_TOPIC
from kourou.testing import LocalCluster
from kourou.testing.tcp_proxy import Direction
from tests.e2e.client.kit.fault_kit import FaultyCluster, faulty_cluster
from tests.e2e.client.kit.push_kit import TOPIC

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
TARGET = MessageQueue("Target", "broker-a", 0)
PATIENT: dict[str, Any] = {"send_timeout_ms": 30_000, "attempt_timeout_ms": 300}


def lose_answer(cluster: FaultyCluster) -> None:
    """The next answer is lost, and its connection with it."""
    cluster.proxy.halve(Direction.TO_CLIENT)


async def test_ordinary_producers_store_twice_what_idempotent_ones_store_once(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as cluster:
        for idempotent, count in ((False, 2), (True, 1)):
            body = b"idempotent" if idempotent else b"ordinary"
            options = {"namesrv": cluster.namesrv_addr, "idempotent": idempotent, **PATIENT}
            async with AsyncProducer(f"producers-{idempotent}", **options) as producer:
                await producer.send(Message(TOPIC, b"warm"))
                lose_answer(cluster)
                await producer.send(Message(TOPIC, body))
                assert producer.stats().retried
            assert cluster.stored().count(body) == count


@pytest.mark.parametrize("fault", ["cut", "forgotten", "half a request", "half an answer", "restart"])
async def test_each_message_is_stored_once_through_every_fault(tmp_path: Path, fault: str) -> None:
    async with (
        faulty_cluster(tmp_path, queues=2) as cluster,
        AsyncProducer("producers", namesrv=cluster.namesrv_addr, idempotent=True, **PATIENT) as producer,
    ):
        await producer.send(Message(TOPIC, b"warm"))
        sends = [producer.send_nowait(Message(TOPIC, b"%d" % number)) for number in range(200)]
        batches = [
            asyncio.ensure_future(
                producer.send_many([Message(TOPIC, b"%d-%d" % (each, n)) for n in range(20)])
            )
            for each in range(5)
        ]
        await asyncio.sleep(0)
        await cluster.do(fault)
        await asyncio.gather(*sends, *batches)
        wanted = [b"warm", *(b"%d" % number for number in range(200))]
        wanted += [b"%d-%d" % (each, n) for each in range(5) for n in range(20)]
        assert sorted(cluster.stored()) == sorted(wanted)


async def test_a_send_that_ended_undecided_is_continued_after_a_restart(tmp_path: Path) -> None:
    async with (
        faulty_cluster(tmp_path) as cluster,
        AsyncProducer(
            "producers", namesrv=cluster.namesrv_addr, idempotent=True, attempt_timeout_ms=200
        ) as producer,
    ):
        await producer.send(Message(TOPIC, b"warm"))
        cluster.proxy.freeze(Direction.TO_CLIENT)
        with pytest.raises(SendFailedError) as caught:
            await producer.send(Message(TOPIC, b"undecided"), timeout_ms=500)
        assert caught.value.may_be_stored and cluster.stored() == [b"warm", b"undecided"]
        cluster.proxy.thaw()
        await cluster.restart()
        result = await producer.send_again(caught.value, timeout_ms=20_000)
        assert result.queue_offset == 1 and cluster.stored() == [b"warm", b"undecided"]


def test_two_programs_with_one_name() -> None:
    with LocalCluster() as mq:
        mq.create_topic(TOPIC, queues=1)
        options: dict[str, Any] = {"namesrv": mq.namesrv, "name": "loader"}
        with Producer("old", **options) as old, Producer("new", **options) as new:
            old.send(Message(TOPIC, b"0"))
            assert new.last_sequence(QUEUE) == 0
            with pytest.raises(ProducerFencedError, match="producer name 'loader'"):
                old.send(Message(TOPIC, b"late"))
            with pytest.raises(ProducerFencedError):
                old.last_sequence(QUEUE)
            new.send(Message(TOPIC, b"1"))
            assert new.last_sequence(QUEUE) == 1
            with pytest.raises(MessageRefusedError, match="one-way"):
                new.send_oneway(Message(TOPIC, b"x"))
        assert [message.body for message in mq.messages(TOPIC)] == [b"0", b"1"]


async def test_an_opening_that_the_network_repeats_late_fences_no_newer_program(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as cluster:
        store = cluster.broker.services.store
        options: dict[str, Any] = {"namesrv": cluster.namesrv_addr, "name": "loader", **PATIENT}
        cluster.proxy.disturb(lambda: (0.0, 0.3), Direction.TO_SERVER)
        async with AsyncProducer("old", **options) as old, AsyncProducer("new", **options) as new:
            await old.last_sequence(QUEUE)
            cluster.proxy.disturb(None)
            await new.send(Message(TOPIC, b"0"))
            async with asyncio.timeout(30):
                while store.max_offset_in_queue(PRODUCERS_TOPIC, 0) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await new.send(Message(TOPIC, b"1"))
            with pytest.raises(ProducerFencedError):
                await old.send(Message(TOPIC, b"late"))
        assert cluster.stored() == [b"0", b"1"]


def test_a_name_continues_over_restarts_of_program_and_broker() -> None:
    with LocalCluster() as mq:
        mq.create_topic(TOPIC, queues=1)
        for number in range(3):
            with Producer("loaders", namesrv=mq.namesrv, name="loader") as producer:
                assert producer.last_sequence(QUEUE) == 2 * number - 1
                producer.send_many([Message(TOPIC, b"%d" % each) for each in range(2)])
            mq.restart_broker()
        assert len(mq.messages(TOPIC)) == 6


@pytest.mark.parametrize("compiled_kernel_enable", [True, False])
async def test_repeats_of_a_program_before_have_the_ids_and_places_of_the_originals(
    tmp_path: Path, compiled_kernel_enable: bool
) -> None:
    async with faulty_cluster(tmp_path, compiled_kernel_enable=compiled_kernel_enable) as cluster:

        def producer() -> AsyncProducer:
            return AsyncProducer(
                "loaders", namesrv=cluster.namesrv_addr, name="loader", explicit_sequences=True, **PATIENT
            )

        async with producer() as first:
            one = await first.send(Message(TOPIC, b"7"), queue=QUEUE, sequence=7)
            await cluster.put(b"of another producer")
            two, three = await first.send_many(
                [Message(TOPIC, b"8"), Message(TOPIC, b"9")], queue=QUEUE, sequences=[8, 9]
            )
        async with producer() as second:
            assert await second.send(Message(TOPIC, b"7"), queue=QUEUE, sequence=7) == one
            results = await second.send_many(
                [Message(TOPIC, b"%d" % n) for n in range(7, 12)], queue=QUEUE, sequences=range(7, 12)
            )
        records = cluster.records()
        assert [result.queue_offset for result in results] == [0, 2, 3, 4, 5]
        assert [result.msg_id for result in results[:3]] == [one.msg_id, two.msg_id, three.msg_id]
        for result in results:
            record = records[result.queue_offset]
            assert (result.msg_id, result.offset_msg_id) == (record.msg_id, record.offset_msg_id)
        assert [record.body for record in records] == [b"7", b"of another producer", b"8", b"9", b"10", b"11"]


def test_transactions_and_delays_of_an_idempotent_producer() -> None:
    def check(_: MessageExt) -> TransactionState:
        return TransactionState.ROLLBACK

    with LocalCluster() as mq:
        mq.create_topic(TOPIC, queues=1)
        with TransactionProducer("tx", namesrv=mq.namesrv, check=check, idempotent=True) as producer:
            for body in (b"1", b"2"):
                with producer.transaction(Message(TOPIC, body)):
                    pass
            producer.send(Message(TOPIC, b"late", delay_time_level=1))
            producer.send(Message(TOPIC, b"3"))
            assert producer.last_sequence(QUEUE) == 3
        assert [message.body for message in mq.messages(TOPIC)] == [b"1", b"2", b"3"]


async def test_requests_and_replies_of_idempotent_producers() -> None:
    async with LocalCluster() as mq:
        await mq.create_topic(TOPIC, queues=1)
        async with AsyncProducer("replies", namesrv=mq.namesrv, idempotent=True) as replies:

            async def handle(message: MessageExt) -> None:
                await replies.send(reply_to(message, b"pong"))

            consumer = AsyncPushConsumer("servers", namesrv=mq.namesrv, consume_from="first")
            await consumer.subscribe(TOPIC, handle)
            async with consumer, AsyncProducer("asking", namesrv=mq.namesrv, idempotent=True) as asking:
                reply = await asking.request(Message(TOPIC, b"ping"), timeout_ms=20_000)
                assert reply.body == b"pong"


def _processed(message: MessageExt) -> Message | None:
    return None if message.body == b"2" else Message(TARGET.topic, b">" + message.body)


def test_a_queue_processor_resumes_behind_its_last_result() -> None:
    with LocalCluster() as mq:
        for topic in (TOPIC, TARGET.topic):
            mq.create_topic(topic, queues=1)
        with Producer("sources", namesrv=mq.namesrv) as producer:
            producer.send_many([Message(TOPIC, b"%d" % number) for number in range(6)])
        for end in (3, 6, 6):
            named = Producer("copies", namesrv=mq.namesrv, name="copy", explicit_sequences=True)
            with named, PullConsumer("copies", namesrv=mq.namesrv) as consumer:
                processor = QueueProcessor(
                    QUEUE, TARGET, _processed, consumer=consumer, producer=named, max_messages=2
                )
                assert processor.run(end) == processor.position == end
        assert [message.body for message in mq.messages(TARGET.topic)] == [b">0", b">1", b">3", b">4", b">5"]


async def test_an_async_processor_awaits_its_function_and_refuses_wrong_results() -> None:
    async def made(message: MessageExt) -> Message:
        return Message(TARGET.topic if message.body == b"0" else "Elsewhere", message.body)

    async with LocalCluster() as mq:
        for topic in (TOPIC, TARGET.topic):
            await mq.create_topic(topic, queues=1)
        producer = AsyncProducer("copies", namesrv=mq.namesrv, name="copy", explicit_sequences=True)
        async with producer, AsyncPullConsumer("copies", namesrv=mq.namesrv) as consumer:
            processor = AsyncQueueProcessor(QUEUE, TARGET, made, consumer=consumer, producer=producer)
            async with AsyncProducer("sources", namesrv=mq.namesrv) as sources:
                await sources.send(Message(TOPIC, b"0"))
                assert await processor.run(1) == 1
                await sources.send(Message(TOPIC, b"1"))
                with pytest.raises(MessageRefusedError, match="for topic 'Elsewhere', the target is Target"):
                    await processor.run(2)
        ordinary = AsyncProducer("copies", namesrv=mq.namesrv)
        with pytest.raises(ValueError, match="explicit_sequences=True"):
            AsyncQueueProcessor(QUEUE, TARGET, made, consumer=consumer, producer=ordinary)
