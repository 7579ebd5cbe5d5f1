"""Metrics beside Apache 5.5.0: the same work on both brokers, the same names and labels. And the exporter's
metrics of Apache's cluster, by our collector."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kourou import Message, MessageExt, Producer, PushConsumer, TransactionProducer, TransactionState
from kourou.admin.exporter import exporter_families
from kourou.admin.session import Admin
from kourou.errors import KourouError
from kourou.metrics.exposition import exposition
from kourou.standalone.one_process import Standalone
from kourou.standalone.options import StandaloneOptions
from tests.e2e.metrics_kit import BOARD_NAMES, NODE, ROCKETMQ_5, Scrape
from tests.interop.kit import apache
from tests.interop.kit.ports import free_port

pytestmark = pytest.mark.interop

_TIMEOUT_S: Final = 60
_MESSAGES: Final = 10
_VERSION: Final = "5.5.0"
_LATE: Final = (
    "rocketmq_send_to_dlq_messages_total",
    "rocketmq_timing_messages",
    "rocketmq_half_messages",
    "rocketmq_consumer_lag_messages",
)


@dataclass(frozen=True, slots=True)
class Brokers:
    """What was scraped of each after the same work; and the exporter's text of Apache's cluster."""

    theirs: Scrape
    ours: Scrape
    their_cluster: Scrape


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("metrics")
    port = free_port()
    keys = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    with apache.start_namesrv(_VERSION, folder) as namesrv:
        with apache.start_broker(_VERSION, folder, [namesrv.address], properties=keys):
            theirs, their_cluster = use(namesrv.address, f"127.0.0.1:{port}")
    yield Brokers(theirs, asyncio.run(ours_after_use(folder)), their_cluster)


async def ours_after_use(folder: Path) -> Scrape:
    options = StandaloneOptions(store=folder / "ours", namesrv_port=0, broker_port=0, http_port=0)
    async with Standalone(options) as standalone:
        assert standalone.probe_address is not None
        ours, _ = await asyncio.to_thread(use, standalone.address, standalone.probe_address)
        return ours


def use(namesrv: str, address: str) -> tuple[Scrape, Scrape]:
    """Sends, a delay, a timer, transactions, consumption, a dead letter. What is scraped at `address` while a
    consumer is connected, and the exporter's families."""
    with Producer("producers", namesrv=namesrv) as producer:
        wait_sent(producer, Message("Orders", b"first"))
        for number in range(_MESSAGES):
            producer.send(Message("Orders", b"bad" if number == 3 else b"x" * (300 * number + 1)))
        producer.send(Message("Orders", b"later", delay_time_level=18))
        producer.send(Message("Orders", b"timer", delay_time_ms=300_000))
    check = TransactionState.COMMIT
    with TransactionProducer("pays", namesrv=namesrv, check=lambda _: check) as producer:
        with producer.transaction(Message("Pays", b"1")):
            pass
        with producer.transaction(Message("Pays", b"2")) as transaction:
            transaction.rollback()
        with producer.transaction(Message("Pays", b"3")) as transaction:
            transaction.unknown()
    return consume(namesrv, address)


def wait_sent(producer: Producer, message: Message) -> None:
    """Send as soon as the broker has registered."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            producer.send(message)
            return
        except KourouError:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def consume(namesrv: str, address: str) -> tuple[Scrape, Scrape]:
    got: list[MessageExt] = []

    def handler(message: MessageExt) -> None:
        got.append(message)
        if message.body == b"bad":
            raise ValueError("cannot be consumed")

    consumer = PushConsumer(
        "billing", namesrv=namesrv, consume_from="first", max_reconsume_times=0, persist_interval_ms=100
    )
    consumer.subscribe("Orders", handler)
    with consumer:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            families = Scrape(asyncio.run(cluster_text(namesrv)))
            if len(got) > _MESSAGES and is_settled(families):
                return scraped(address), families
            assert time.monotonic() < deadline, (len(got), families.text)
            time.sleep(0.5)


def is_settled(families: Scrape) -> bool:
    """Whether offsets and counters of what was consumed have arrived; they come one after the other."""
    return (
        families.values("rocketmq_group_dlqdiff", group="billing") == [1]
        and families.values("rocketmq_group_diff", group="billing", topic="Orders") == [0]
        and all(families.values(name) for name in BOARD_NAMES)
    )


async def cluster_text(namesrv: str) -> str:
    async with Admin(namesrv=namesrv) as admin:
        return "".join(exposition(await exporter_families(admin)))


def scraped(address: str) -> Scrape:
    """A scrape that has what appears a moment later."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            found = Scrape(answer.read().decode())
        if all(found.values(name) for name in _LATE):
            return found
        assert time.monotonic() < deadline, found.text
        time.sleep(0.5)


def test_names_and_kinds_are_the_same(brokers: Brokers) -> None:
    theirs = {name for name in brokers.theirs.names if not name.startswith("rocketmq_pop_")}
    assert theirs - {"target_info"} <= brokers.ours.names
    for name in theirs - {"target_info"}:
        kinds = [f"# TYPE {name} {kind}" for kind in ("counter", "gauge", "histogram")]
        assert [kind in brokers.ours.text for kind in kinds] == [
            kind in brokers.theirs.text for kind in kinds
        ]


def test_labels_are_the_same(brokers: Brokers) -> None:
    seen = 0
    for name, labels in ROCKETMQ_5.items():
        theirs = brokers.theirs.labels(name)
        if theirs:  # producers are gone by now, and some appear late
            seen += 1
            assert theirs == brokers.ours.labels(name) == {NODE | labels}, name
    assert seen > 30


def test_the_same_work_gives_the_same_numbers(brokers: Brokers) -> None:
    for theirs, ours in ((brokers.theirs, brokers.ours),):
        for name, labels in {
            "rocketmq_messages_in_total": {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
            "rocketmq_messages_out_total": {"topic": "Orders", "consumer_group": "billing"},
            "rocketmq_throughput_out_total": {"topic": "Orders", "consumer_group": "billing"},
            "rocketmq_commit_messages_total": {"topic": "Pays"},
            "rocketmq_rollback_messages_total": {"topic": "Pays"},
            "rocketmq_half_messages": {"topic": "Pays"},
            "rocketmq_send_to_dlq_messages_total": {"topic": "Orders", "consumer_group": "billing"},
            "rocketmq_timing_messages": {"topic": "Orders"},
            "rocketmq_delay_message_latency_seconds_count": {"topic": "Orders"},
        }.items():
            assert theirs.value(name, **labels) == ours.value(name, **labels), name
        for name in ("rocketmq_messages_in_total", "rocketmq_throughput_in_total"):
            assert sum(theirs.values(name, topic="Orders")) == sum(ours.values(name, topic="Orders")), name


def test_histograms_have_the_same_ranges(brokers: Brokers) -> None:
    for name in (
        "rocketmq_message_size",
        "rocketmq_rpc_latency_milliseconds",
        "rocketmq_delay_message_latency_seconds",
        "rocketmq_finish_message_latency_milliseconds",
    ):
        theirs, ours = (
            {
                line.split('le="')[1].split('"')[0]
                for line in scrape.text.splitlines()
                if f"{name}_bucket" in line
            }
            for scrape in (brokers.theirs, brokers.ours)
        )
        assert theirs == ours, name


def test_the_exporters_metrics_of_apaches_cluster_are_what_boards_query(brokers: Brokers) -> None:
    found = brokers.their_cluster
    assert {name for name in BOARD_NAMES if not found.values(name)} == set()
    assert found.value("rocketmq_group_diff", group="billing", topic="Orders") == 0
    assert found.value("kourou_exporter_unreachable_brokers") == 0
