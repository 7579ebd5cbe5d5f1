"""The trace of a message on a cluster: a transaction that one group fails on once, and another handles."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.admin.messages.trace import MessageTrace, TraceStatus, message_trace, traces_of_key
from kourou.admin.session import Admin
from kourou.client.core.transaction_state import TransactionState
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.errors import ResponseError
from kourou.protocol.message import Message, MessageExt
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import make_topic, until
from tests.integration.admin.dead_broker import DEAD, register_dead_broker
from tests.unit.admin.command_line import run_line

pytestmark = pytest.mark.e2e

TRACES = "ShopTraces"


async def send(running: Cluster) -> str:
    async with AsyncTransactionProducer(
        "shop",
        namesrv=running.namesrv_addr,
        check=lambda message: TransactionState.UNKNOWN,
        trace=True,
        trace_topic=TRACES,
    ) as producer:
        async with producer.transaction(Message("Orders", b"one book", tags="A", keys=["o-1"])) as tx:
            pass
    return tx.msg_id


async def consume(running: Cluster, group: str, failures: int) -> None:
    seen: list[int] = []

    async def handle(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        seen.append(message.reconsume_times)
        context.delay_level = 1
        return ConsumeResult.LATER if len(seen) <= failures else ConsumeResult.SUCCESS

    member = AsyncPushConsumer(
        group, namesrv=running.namesrv_addr, consume_from="first", trace=True, trace_topic=TRACES
    )
    await member.subscribe("Orders", handle)
    async with member:
        await until(lambda: len(seen) > failures)


def attempts(trace: MessageTrace) -> dict[str, list[tuple[int | None, TraceStatus]]]:
    return {
        group.consumer_group: [(attempt.retry_times, attempt.status) for attempt in group.attempts]
        for group in trace.consumers
    }


async def test_a_transaction_and_its_retries(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as running:
        await make_topic(running, "Orders", queues=1)
        await make_topic(running, TRACES, queues=2)
        msg_id = await send(running)
        await consume(running, "billing", failures=1)
        await consume(running, "shipping", failures=0)
        async with Admin(namesrv=running.namesrv_addr) as admin:
            trace = await message_trace(admin, msg_id, trace_topic=TRACES)
            (by_key,) = await traces_of_key(admin, "o-1", topic="Orders", trace_topic=TRACES)
            assert await traces_of_key(admin, "o-1", topic="Parcels", trace_topic=TRACES) == []
            with pytest.raises(ResponseError, match="208"):
                await message_trace(admin, "7F0000015980", trace_topic=TRACES)
        shown = await run_line(
            running.namesrv_addr, "queryMsgTraceById", "-i", msg_id, "-t", TRACES, "--json"
        )
        stores = {broker.address for broker in running.brokers}
    assert by_key == trace
    assert trace.is_complete and trace.topic == "Orders"
    (sent,), (ended,) = trace.sends, trace.transactions
    assert (sent.group, sent.tags, sent.keys, sent.status) == ("shop", "A", "o-1", TraceStatus.SUCCESS)
    assert (sent.message_type, sent.client_host, sent.body_length) == ("transaction_half", "127.0.0.1", 8)
    assert sent.store_host in stores
    assert (ended.state, ended.is_from_check) == ("COMMIT_MESSAGE", False)
    assert attempts(trace) == {
        "billing": [(0, TraceStatus.FAILED), (1, TraceStatus.SUCCESS)],
        "shipping": [(0, TraceStatus.SUCCESS)],
    }
    first, second = trace.consumers[0].attempts
    assert trace.begin_ms == sent.begin_ms <= first.begin_ms <= second.begin_ms <= trace.end_ms
    assert shown.json["consumers"][0]["attempts"][0]["status"] == "failed"


async def test_a_trace_may_miss_what_a_dead_broker_has(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, "Orders", queues=1)
        await make_topic(running, TRACES, queues=1)
        msg_id = await send(running)
        await register_dead_broker(running, TRACES)
        async with Admin(namesrv=running.namesrv_addr) as admin:
            trace = await message_trace(admin, msg_id, trace_topic=TRACES)
        shown = await run_line(running.namesrv_addr, "queryMsgTraceById", "-i", msg_id, "-t", TRACES)
    assert len(trace.sends) == 1 and not trace.is_complete
    (problem,) = trace.problems
    assert "could not be queried" in problem and DEAD in problem
    assert "Pub" in shown.stdout and f"note: {problem}" in shown.stderr
