"""Traces of a cluster arrive at a collector: once, in the right trace, whatever the collector answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kourou.admin.messages.otlp import ExportRefusedError, OtlpExporter
from kourou.admin.messages.trace_export import EXPORT_GROUP, TraceExport, TraceExportOptions
from kourou.admin.messages.trace_spans import SpanKind, TraceSpan
from kourou.admin.session import Admin
from kourou.client.producer.producer import AsyncProducer
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.errors import ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.producer_kit import all_stored
from tests.e2e.client.kit.push_kit import make_topic, stored_offset, until
from tests.integration.admin.messages.collector import Collector, collecting

pytestmark = pytest.mark.e2e

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


async def traffic(running: Cluster) -> list[str]:
    """Three messages that are traced from send to delivery: plain, with a context, with one not sampled."""
    seen: list[bytes] = []
    messages = [
        Message("Orders", b"plain"),
        Message("Orders", b"joined", properties={"traceparent": PARENT, "tracestate": "v=1"}),
        Message("Orders", b"unsampled", properties={"traceparent": UNSAMPLED}),
    ]
    async with AsyncProducer("shop", namesrv=running.namesrv_addr, trace=True) as producer:
        sent = [(await producer.send(message)).msg_id for message in messages]

    async def handle(message: MessageExt) -> None:
        seen.append(message.body)

    consumer = AsyncPushConsumer("billing", namesrv=running.namesrv_addr, trace=True, consume_from="first")
    await consumer.subscribe("Orders", handle)
    async with consumer:
        await until(lambda: len(seen) == 3)
    return sent


@asynccontextmanager
async def exporting(running: Cluster, collector: Collector, **options: Any) -> AsyncIterator[TraceExport]:
    exporter = OtlpExporter(f"{collector.url}/v1/traces", {"x-tenant": "shop"})
    async with Admin(namesrv=running.namesrv_addr) as admin:
        export = TraceExport(
            admin, exporter.export, TraceExportOptions(**{"consume_from": "first", **options})
        )
        task = asyncio.create_task(export.run())
        try:
            yield export
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_spans_of_a_cluster(collector: Collector, tmp_path: Path) -> None:
    async with cluster(tmp_path, trace_topic_enable=True) as running:
        await make_topic(running, "Orders", queues=1)
        plain, joined, unsampled = await traffic(running)
        async with exporting(running, collector) as export:
            await until(lambda: len(collector.spans) == 4)
            await until_committed(running)
    assert (export.stats.records, export.stats.spans, export.stats.left_out) == (9, 4, 2)
    sent, consumed = (collector.span(f"{operation} Orders", plain) for operation in ("send", "process"))
    assert consumed["parentSpanId"] == sent["spanId"] and consumed["traceId"] == sent["traceId"]
    assert "parentSpanId" not in sent
    for operation in ("send", "process"):
        span = collector.span(f"{operation} Orders", joined)
        assert (span["traceId"], span["parentSpanId"]) == (PARENT[3:35], PARENT[36:52])
        assert span["traceState"] == "v=1"
    shown = str(collector.spans)
    assert unsampled not in shown
    assert set(collector.services) == {"shop", "billing"}
    assert collector.headers[0]["X-Tenant"] == "shop"


async def test_a_second_run_continues_and_another_group_gets_the_same_spans(
    collector: Collector, tmp_path: Path
) -> None:
    async with cluster(tmp_path, trace_topic_enable=True) as running:
        await make_topic(running, "Orders", queues=1)
        await traffic(running)
        async with exporting(running, collector):
            await until(lambda: len(collector.spans) == 4)
            await until_committed(running)
        async with exporting(running, collector) as again:
            await traffic(running)
            await until(lambda: len(collector.spans) == 8)
        assert again.stats.records == 9
        ids = {span["spanId"] for span in collector.spans}
        assert len(ids) == 8
        async with exporting(running, collector, group="another", with_context=False) as other:
            await until(lambda: other.stats.left_out == 8 and len(collector.spans) == 12)
        assert {span["spanId"] for span in collector.spans} == ids


async def test_a_trace_message_that_was_stored_twice_is_exported_once(
    collector: Collector, tmp_path: Path
) -> None:
    """As after a send whose answer was lost: in one step, and in the next."""
    async with cluster(tmp_path, trace_topic_enable=True) as running:
        await make_topic(running, "Orders", queues=1)
        await traffic(running)
        stored = all_stored(running.broker, RMQ_SYS_TRACE_TOPIC, queues=1)
        async with Admin(namesrv=running.namesrv_addr) as admin:
            exporter = OtlpExporter(f"{collector.url}/v1/traces")
            export = TraceExport(admin, exporter.export, TraceExportOptions())
            await export.step([*stored, *stored])
            await export.step(stored)
    assert len(collector.spans) == exporter.exported == export.stats.spans == 4
    assert export.stats.repeated > 0


async def until_committed(running: Cluster) -> None:
    """Wait until the group has no unread trace messages."""
    stored = all_stored(running.broker, RMQ_SYS_TRACE_TOPIC, queues=1)
    async with asyncio.timeout(20):
        while (  # noqa: ASYNC110  # brokers do not notify
            await stored_offset(running, group=EXPORT_GROUP, topic=RMQ_SYS_TRACE_TOPIC) != len(stored)
        ):
            await asyncio.sleep(0.01)


async def test_spans_wait_for_the_collector(collector: Collector, tmp_path: Path) -> None:
    collector.answers = [(503, {"Retry-After": "0"}, {}), (429, {"Retry-After": "0"}, {})]
    troubles: list[str] = []
    exporter = OtlpExporter(f"{collector.url}/v1/traces", on_trouble=troubles.append)
    await exporter.export([span(1)])
    assert len(collector.spans) == 1 and (exporter.exported, exporter.rejected) == (1, 0)
    assert "503 Service Unavailable; next attempt in 0 s" in troubles[0] and "429" in troubles[1]


async def test_spans_that_a_collector_rejects_are_counted(collector: Collector) -> None:
    partial = {"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}
    collector.answers = [(400, {}, {}), (200, {}, partial)]
    troubles: list[str] = []
    exporter = OtlpExporter(f"{collector.url}/v1/traces", on_trouble=troubles.append)
    await exporter.export([span(number) for number in range(3)])
    assert (exporter.exported, exporter.rejected) == (0, 3)
    await exporter.export([span(number) for number in range(3)])
    assert (exporter.exported, exporter.rejected) == (2, 4)
    assert "rejected 3 spans: 400" in troubles[0] and "rejected 1 of 3 spans: too old" in troubles[1]


async def test_a_wrong_address_or_key_ends_the_export(collector: Collector) -> None:
    with pytest.raises(ExportRefusedError, match="answered 404"):
        await OtlpExporter(f"{collector.url}/elsewhere").export([span(1)])
    collector.answers = [(401, {}, {})]
    with pytest.raises(ExportRefusedError, match="answered 401 Unauthorized"):
        await OtlpExporter(f"{collector.url}/v1/traces").export([span(1)])


async def test_without_a_trace_topic(collector: Collector, tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, Admin(namesrv=running.namesrv_addr) as admin:
        export = TraceExport(
            admin, OtlpExporter(collector.url).export, TraceExportOptions(trace_topic="None")
        )
        with pytest.raises(ResponseError) as raised:
            await export.run()
    assert raised.value.code == ResponseCode.TOPIC_NOT_EXIST


def span(number: int) -> TraceSpan:
    return TraceSpan(
        *("0af7651916cd43dd8448eb211c80319c", f"{number:016x}", None, None, "send Orders"),
        *(SpanKind.PRODUCER, 1, 2, {}, None, "shop", "10.0.0.9"),
    )
