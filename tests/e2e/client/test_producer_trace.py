"""A producer with trace: Apache's records about its sends and transactions are in the trace topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.trace.trace_data import (
    EndTransactionTrace,
    PubTrace,
    TraceMessageType,
    TraceRecord,
    decode_trace,
)
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.protocol.message import Message
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.producer_kit import TOPIC, all_stored
from tests.e2e.client.kit.scripted_broker import scripted, stored

pytestmark = pytest.mark.e2e

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def traced(running: Cluster) -> list[TraceRecord]:
    records = []
    for message in all_stored(running.broker, TRACE_TOPIC):
        found = decode_trace(message.body.decode())
        assert {record.msg_id for record in found} <= set(message.keys)
        records += found
    return records


async def test_every_stored_message_is_recorded(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        async with AsyncProducer(
            "Traced", namesrv=running.namesrv_addr, trace=True, namespace="shop"
        ) as producer:
            sent = [await producer.send(Message(TOPIC, b"hello", tags="T", keys=["k1", "k2"]))]
            sent.append(await producer.send(Message(TOPIC, b"later", delay_time_level=1)))
            sent += await producer.send_many([Message(TOPIC, b"%d" % number) for number in range(30)])
            await producer.send_oneway(Message(TOPIC, b"nobody knows"))
        records = {record.msg_id: record for record in traced(running)}
        assert set(records) == {result.msg_id for result in sent}
        first = records[sent[0].msg_id]
        assert isinstance(first, PubTrace)
        assert (first.group, first.topic, first.tags, first.keys) == ("Traced", TOPIC, "T", "k1 k2")
        assert (first.store_host, first.body_length, first.region) == (
            running.broker.address,
            5,
            "DefaultRegion",
        )
        assert (first.offset_msg_id, first.is_success) == (sent[0].offset_msg_id, True)
        assert first.message_type is TraceMessageType.NORMAL and 0 <= first.cost_ms < 10_000
        delayed = records[sent[1].msg_id]
        assert isinstance(delayed, PubTrace) and delayed.message_type is TraceMessageType.DELAY


async def test_transactions_are_reported_twice(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        async with AsyncTransactionProducer(
            "Traced", namesrv=running.namesrv_addr, check=lambda message: TransactionState.UNKNOWN, trace=True
        ) as producer:
            async with producer.transaction(Message(TOPIC, b"hello")) as tx:
                pass
        half, end = traced(running)
        assert isinstance(half, PubTrace) and half.message_type is TraceMessageType.TRANSACTION_HALF
        assert isinstance(end, EndTransactionTrace)
        assert (end.msg_id, end.state, end.is_from_check) == (tx.msg_id, "COMMIT_MESSAGE", False)
        assert end.transaction_id == tx.msg_id and end.store_host == running.broker.address


async def test_a_broker_that_wants_no_trace_gets_none() -> None:
    async with scripted(stored(TRACE_ON="false")) as broker:
        async with AsyncProducer("Traced", namesrv=broker.address, trace=True) as producer:
            await producer.send(Message(TOPIC, b"x"))
        assert len(broker.sends) == 1


async def test_a_trace_that_cannot_be_sent_is_dropped_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as running:
        async with AsyncProducer(TOPIC, namesrv=running.namesrv_addr) as producer:
            await producer.send(Message(TOPIC, b"so that the topic is there"))
    async with cluster(tmp_path, auto_create_topic_enable=False, trace_topic_enable=False) as running:
        async with AsyncProducer("Traced", namesrv=running.namesrv_addr, trace=True) as producer:
            for _ in range(25):
                assert (await producer.send(Message(TOPIC, b"x"))).is_ok
    reported = [
        record for record in caplog.records if "could not send trace to RMQ_SYS_TRACE_TOPIC" in record.message
    ]
    assert len(reported) == 1 and "not exist" in reported[0].message
