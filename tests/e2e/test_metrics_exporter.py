"""rocketmq-exporter's metrics: of a broker from its own tables, of a cluster by admin requests. Both give
what the public dashboards query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kourou import AsyncProducer, AsyncPushConsumer, Message, MessageExt
from kourou.admin.exporter import ExporterCache, exporter_families
from kourou.admin.session import Admin
from kourou.metrics.exposition import exposition
from kourou.standalone.one_process import Standalone
from kourou.standalone.options import StandaloneOptions
from kourou.transport.http_get import http_get
from tests.e2e.metrics_kit import BOARD_NAMES, Scrape

pytestmark = pytest.mark.e2e

COUNT = 20


@asynccontextmanager
async def used_cluster(store: Path) -> AsyncIterator[Standalone]:
    """A broker with messages, a consumer that has consumed them all, and a dead letter."""
    options = StandaloneOptions(store=store, namesrv_port=0, broker_port=0, http_port=0)
    got: list[MessageExt] = []

    async def handler(message: MessageExt) -> None:
        got.append(message)
        if message.body == b"bad":
            raise ValueError("cannot be consumed")

    async with Standalone(options) as standalone:
        at = {"namesrv": standalone.address}
        async with AsyncProducer("producers", **at) as producer:
            for number in range(COUNT):
                await producer.send(Message("Orders", b"bad" if number == 3 else b"x" * 100))
            consumer = AsyncPushConsumer(
                "billing", consume_from="first", max_reconsume_times=0, persist_interval_ms=50, **at
            )
            await consumer.subscribe("Orders", handler=handler)
            async with consumer:
                async with asyncio.timeout(20):
                    while len(got) < COUNT or "%DLQ%billing" not in topics(standalone):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                    while committed(standalone) < COUNT:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                yield standalone


def topics(standalone: Standalone) -> set[str]:
    return set(standalone.broker.services.topics.table)


def committed(standalone: Standalone) -> int:
    return sum((standalone.broker.services.offsets.query_all("billing", "Orders") or {}).values())


async def test_both_ways_give_what_boards_query_and_the_same_numbers(tmp_path: Path) -> None:
    async with used_cluster(tmp_path) as standalone:
        assert standalone.probe_address is not None
        answer = await http_get(standalone.probe_address, "/metrics/exporter", 10_000, 10_000_000)
        of_broker = Scrape(answer.body)
        async with Admin(namesrv=standalone.address) as admin:
            cache = ExporterCache(admin)
            families = await cache.families()
            of_cluster = Scrape("".join(exposition(families)))
            assert await cache.families() is families  # the next scrape comes a moment later
    for found in (of_broker, of_cluster):
        missing = {name for name in BOARD_NAMES if not found.values(name)}
        assert missing == set()
        place = {"cluster": "DefaultCluster", "broker": "broker-a"}
        assert found.value("rocketmq_producer_offset", topic="Orders", **place) == COUNT
        assert found.value("rocketmq_consumer_offset", topic="Orders", group="billing", **place) == COUNT
        assert found.value("rocketmq_group_diff", group="billing", topic="Orders", msgModel="1") == 0
        assert found.value("rocketmq_group_dlqdiff", group="billing") == 1
        assert found.value("rocketmq_topic_dlq_offset", group="billing", **place) == 1
        assert found.value("rocketmq_producer_count", group="producers", **place) == 1
        assert found.value("rocketmq_brokeruntime_putmessage_times_total", brokerHost="broker-a") >= COUNT
        assert found.value("rocketmq_brokeruntime_commitlogdir_capacity_total") > 1024**3
    labels = {name: found.labels(name) for name in BOARD_NAMES}
    assert labels == {name: of_broker.labels(name) for name in BOARD_NAMES}


async def test_a_broker_that_is_away_is_counted_and_the_rest_is_there(tmp_path: Path) -> None:
    options = StandaloneOptions(store=tmp_path, namesrv_port=0, broker_port=0, http_port=0)
    async with Standalone(options) as standalone:
        assert standalone._namesrv is not None
        tables = standalone._namesrv.state.routes.tables
        async with Admin(namesrv=standalone.address) as admin:
            (group,) = tables.groups.values()
            (broker,) = group.brokers.values()
            found = Scrape("".join(exposition(await exporter_families(admin))))
            assert found.value("kourou_exporter_unreachable_brokers") == 0
            await standalone.broker.stop()
            group.brokers[0] = broker  # as if it had not said goodbye
            tables.groups[group.name] = group
            tables.clusters[group.cluster] = {group.name: None}
            tables.cluster_infos.clear()
            found = Scrape("".join(exposition(await exporter_families(admin))))
    assert found.value("kourou_exporter_unreachable_brokers") == 1
    assert found.values("rocketmq_broker_tps") == []
