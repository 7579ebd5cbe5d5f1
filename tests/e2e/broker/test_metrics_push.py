"""Metrics pushed by OTLP: a collector gets, as OpenTelemetry's own messages, what a scrape has."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.controller import BrokerController
from kourou.errors import ConfigError
from tests.e2e.broker.broker_kit import config, running
from tests.needed import need_module

pytestmark = pytest.mark.e2e

need_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
requests_pb = need_module("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")


class Collector:
    """Takes what is posted; `status` is its answer."""

    def __init__(self) -> None:
        self.status = b"200 OK"
        self.posted: asyncio.Queue[tuple[dict[str, str], Any]] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")[1:-2]
                headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers["content-length"]))
                self.posted.put_nowait(
                    (headers, requests_pb.ExportMetricsServiceRequest.FromString(_plain(body, headers)))
                )
                writer.write(b"HTTP/1.1 " + self.status + b"\r\nContent-Length: 0\r\n\r\n")
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


def _plain(body: bytes, headers: dict[str, str]) -> bytes:
    coding = headers.get("content-encoding", "")
    return {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(coding, bytes)(body)


@asynccontextmanager
async def listening(collector: Collector) -> AsyncIterator[str]:
    async with await asyncio.start_server(collector.serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/metrics"


def points(request: Any) -> dict[str, list[Any]]:
    """Data points by the name of their metric."""
    found = {}
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name] = list(getattr(metric, metric.WhichOneof("data")).data_points)
    return found


async def test_a_collector_gets_counters_gauges_and_histograms(tmp_path: Path) -> None:
    collector = Collector()
    async with listening(collector) as target:
        keys = {
            "metrics_exporter_type": "OTLP_HTTP",
            "metrics_grpc_exporter_target": target,
            "metrics_grpc_exporter_header": "x-token:secret",
            "metric_grpc_exporter_interval_in_mills": 1_000,
        }
        async with running(tmp_path, **keys) as peer:
            await peer.send("Orders", b"x" * 2_000)
            async with asyncio.timeout(20):
                headers, request = await collector.posted.get()
    assert headers["x-token"] == "secret"
    found = points(request)
    (sent,) = [
        point
        for point in found["rocketmq_messages_in_total"]
        if {"key": "topic", "value": "Orders"} in [_pair(each) for each in point.attributes]
    ]
    assert (sent.as_int or sent.as_double) == 1
    sizes = [point for point in found["rocketmq_message_size"] if point.count]
    assert [list(point.bucket_counts) for point in sizes] == [[0, 1, 0, 0, 0, 0, 0]]
    assert found["rocketmq_topic_number"][0].as_int > 1


def _pair(attribute: Any) -> dict[str, str]:
    return {"key": attribute.key, "value": attribute.value.string_value}


async def test_a_collector_that_is_away_does_not_disturb_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector()
    collector.status = b"400 Bad Request"
    async with listening(collector) as target:
        keys = {
            "metrics_exporter_type": "OTLP_HTTP",
            "metrics_grpc_exporter_target": target,
            "metric_grpc_exporter_interval_in_mills": 1_000,
        }
        async with running(tmp_path, **keys) as peer:
            async with asyncio.timeout(20):
                await collector.posted.get()
                while "does not take metrics" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (await peer.send("Orders")).code == 0


async def test_a_push_without_a_target_is_refused(tmp_path: Path) -> None:
    wanted = config(tmp_path, metrics_exporter_type="OTLP_HTTP")
    with pytest.raises(ConfigError, match="OTLP_HTTP needs metricsGrpcExporterTarget"):
        await BrokerController(wanted).start()
