"""W3C trace context in a message's properties is the same, byte for byte, wherever the message goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kourou import AsyncProducer, AsyncTransactionProducer, ConsumeContext, ConsumeResult, Message, MessageExt
from kourou.admin.messages.redrive import plan_redrive, redrive
from kourou.admin.session import Admin
from kourou.client.core.transaction_state import TransactionState
from kourou.protocol.names import dlq_topic, retry_topic
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.producer_kit import all_stored
from tests.e2e.client.kit.push_kit import GROUP, TOPIC, consumer_of, make_topic, until

pytestmark = pytest.mark.e2e

# tracestate as vendors write it: separators, padding, and characters that brokers treat specially elsewhere.
CONTEXT = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7;p:1~2/3@x, vendor@sys=a%20b=c",
    "baggage": "user=ann,plan=gold;ttl=3",
}


def message(body: bytes, **options: int) -> Message:
    return Message(TOPIC, body, properties=dict(CONTEXT), **options)


def context_of(found: MessageExt) -> dict[str, str]:
    return {name: value for name, value in found.properties.items() if name in CONTEXT}


def assert_kept(found: Sequence[MessageExt], count: int) -> None:
    assert [context_of(each) for each in found] == [CONTEXT] * count


async def send_all(running: Cluster) -> set[bytes]:
    """One message in each way of sending."""
    async with AsyncProducer("p", namesrv=running.namesrv_addr) as producer:
        await producer.send(message(b"plain"))
        await producer.send(message(b"delayed", delay_time_level=1))
        await producer.send(message(b"timed", delay_time_ms=1_000))
        await producer.send(message(b"large" * 2_000))
        await producer.send_many([message(b"batch 1"), message(b"batch 2")])
        await producer.send_oneway(message(b"oneway"))
    async with AsyncTransactionProducer(
        "tx", namesrv=running.namesrv_addr, check=lambda half: TransactionState.COMMIT
    ) as producer:
        async with producer.transaction(message(b"committed")):
            pass
    return {
        *(b"plain", b"delayed", b"timed", b"large" * 2_000, b"batch 1", b"batch 2", b"oneway", b"committed"),
    }


async def test_ways_to_send(tmp_path: Path) -> None:
    received: list[MessageExt] = []
    async with cluster(tmp_path) as running:
        await make_topic(running)
        bodies = await send_all(running)
        async with consumer_of(running, consume_from="first") as consumer:

            async def on_message(found: MessageExt) -> None:
                received.append(found)

            await consumer.subscribe(TOPIC, on_message)
            await until(lambda: len(received) >= len(bodies))
    assert {found.body for found in received} == bodies
    assert_kept(received, len(bodies))


async def test_retries_dead_letters_and_redrive(tmp_path: Path) -> None:
    received: list[MessageExt] = []
    is_well = False

    async def on_message(found: MessageExt, context: ConsumeContext) -> ConsumeResult:
        received.append(found)
        if is_well:
            return ConsumeResult.SUCCESS
        context.delay_level = 1 if found.reconsume_times == 0 else -1
        return ConsumeResult.LATER

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        async with AsyncProducer("p", namesrv=running.namesrv_addr) as producer:
            await producer.send(message(b"one"))
        async with consumer_of(running, consume_from="first") as consumer:
            await consumer.subscribe(TOPIC, on_message)
            await until(lambda: all_stored(running.broker, dlq_topic(GROUP), queues=1))
            assert [found.reconsume_times for found in received] == [0, 1]
            is_well = True
            async with Admin(namesrv=running.namesrv_addr) as admin:
                for to_topic in (False, True):
                    plan = await plan_redrive(admin, GROUP, to_topic=to_topic, again=to_topic)
                    assert len([each async for each in redrive(admin, plan)]) == 1
            await until(lambda: len(received) == 4)
        assert_kept(received, 4)
        assert_kept(all_stored(running.broker, dlq_topic(GROUP), queues=1), 1)
        assert_kept(all_stored(running.broker, retry_topic(GROUP), queues=1), 2)
