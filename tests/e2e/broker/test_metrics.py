"""`GET /metrics` of a broker: RocketMQ 5.5's names and labels, and numbers that are what clients did."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from kourou.broker.controller import BrokerController
from kourou.config import NamesrvConfig
from kourou.errors import ConfigError
from kourou.namesrv import NameServer
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import UpdateConsumerOffsetRequestHeader
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.transport.http_get import http_get
from tests.e2e.broker import producer_kit
from tests.e2e.broker.broker_kit import COMMIT_OFFSET, SUBSCRIPTION, Peer, config, messages, running
from tests.e2e.broker.replication_kit import following, master, namesrv, slave, until
from tests.e2e.metrics_kit import NODE, ROCKETMQ_5, Scrape
from tests.integration.broker.atomic import atomic_kit

pytestmark = pytest.mark.e2e

TIMEOUT_MS = 10_000
MANY_BYTES = 32 * 1024 * 1024


async def scrape(server: BrokerController | NameServer, path: str = "/metrics") -> Scrape:
    assert server.metrics_address is not None
    answer = await http_get(server.metrics_address, path, TIMEOUT_MS, MANY_BYTES)
    assert answer.status == "200", answer
    return Scrape(answer.body)


async def use_everything(peer: Peer) -> None:
    """Sends of all kinds, pulls, offsets, a message given up."""
    for size in (10, 2_000, 30_000):
        await peer.send("Orders", b"x" * size)
    await peer.send_batch("Orders", [b"a", b"b", b"c"])
    await peer.send("Orders", b"later", "DELAY\x0118\x02")
    await peer.send("Orders", b"timer", "TIMER_DELAY_SEC\x01200\x02")
    await peer.send("Pays", b"half", "TRAN_MSG\x01true\x02PGROUP\x01p\x02", sys_flag=4)
    first = messages(await peer.pull("Orders", max_msg_nums=2))
    await peer.call(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        ConsumerSendMsgBackRequestHeader(
            phy_offset=first[0].phy_offset, group="consumers", delay_level=-1, origin_topic="Orders"
        ),
    )
    fields = {"sys_flag": SUBSCRIPTION | COMMIT_OFFSET, "commit_offset": 1, "max_msg_nums": 3}
    await peer.pull("Orders", 2, **fields)
    timers = peer.controller.services.timers
    assert timers is not None
    await until(lambda: timers.metrics.totals({"Orders"}) == {"Orders": (1, 0)}, "the timer is on the wheel")


async def test_the_numbers_are_what_clients_did(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0) as peer:
        await use_everything(peer)
        found = await scrape(peer.controller)
        assert found.value("rocketmq_messages_in_total", topic="Orders") == 6
        stored_bytes = found.value("rocketmq_throughput_in_total", topic="Orders")
        assert 32_013 < stored_bytes < 32_013 + 6 * 300
        assert found.value("rocketmq_message_size_sum", topic="Orders") == stored_bytes
        assert found.value("rocketmq_message_size_count", topic="Orders") == 6
        for bound, count in (("1024.0", 4), ("4096.0", 5), ("524288.0", 6)):
            assert found.value("rocketmq_message_size_bucket", topic="Orders", le=bound) == count
        assert (
            found.value("rocketmq_messages_in_total", topic="SCHEDULE_TOPIC_XXXX", message_type="delay") == 1
        )
        assert found.value("rocketmq_messages_out_total", topic="Orders", consumer_group="consumers") == 5
        assert found.value("rocketmq_send_to_dlq_messages_total", consumer_group="consumers") == 1
        assert found.value("rocketmq_timing_messages", topic="Orders") == 1
        assert found.value("rocketmq_timer_message_snapshot", timer_bound_s="300") == 1
        assert found.value("rocketmq_half_messages", topic="Pays") == 1
        group = {"topic": "Orders", "consumer_group": "consumers"}
        assert found.value("rocketmq_consumer_lag_messages", **group) == 5
        assert found.value("rocketmq_consumer_inflight_messages", **group) == 4
        assert found.value("rocketmq_consumer_ready_messages", **group) == 1
        assert found.value("rocketmq_consumer_lag_latency_milliseconds", **group) >= 0
        sends = found.values("rocketmq_rpc_latency_milliseconds_count", request_code="send_message_v2")
        batches = found.values("rocketmq_rpc_latency_milliseconds_count", request_code="send_batch_message")
        # Sends by the fast path count per message.
        assert sum(sends) + sum(batches) in {7, 9}
        stored = found.value("kourou_commitlog_max_offset_bytes")
        assert stored == peer.controller.services.store.max_phy_offset
        # Orders 6, delayed 2, half 1, dead letter 1.
        assert found.value("kourou_send_latency_seconds_count") == 10
        assert found.value("kourou_delivery_latency_seconds_count") == 5
        assert found.value("process_resident_memory_bytes") > 10_000_000


async def test_idempotent_producers_and_atomic_publishes_are_counted(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0) as peer:
        producer = await producer_kit.opened(peer, "loader")
        for sequence in (0, 1, 0, 5_000, 5_001):
            await producer.send(sequence)
        newer = await producer_kit.opened(peer, "loader")
        await producer.send(2)
        publishes = [atomic_kit.Publish(peer, (newer.id, newer.epoch), number) for number in range(4)]
        for number, publish in enumerate(publishes):
            for part in range(2):
                group = atomic_kit.group(producer_kit.TOPIC, [b"x"])
                # The last but one is abandoned.
                answer = await publish.stage(peer, part, group, timeout_ms=1 if number == 2 else 60_000)
                assert answer.code == 0, answer.remark
        for commit, publish in zip((True, False), publishes, strict=False):
            for _ in range(2):
                atomic_kit.outcome(await publish.decide(commit=commit))
        table = atomic_kit.part_of(peer)._journal.table
        await until(lambda: set(table.participations) == {publishes[3].id}, "all but the last are over")
        await until(lambda: not table.decisions, "the decisions are confirmed")
        found = await scrape(peer.controller)
        assert found.value("kourou_idempotent_producers") == 1
        assert found.value("kourou_repeated_messages_total") == 1
        reasons = {"jump": 2, "fenced": 1, "unknown_producer": 0, "unknown_epoch": 0, "too_old": 0}
        for reason, count in reasons.items():
            assert found.value("kourou_refused_sequences_total", reason=reason) == count
        assert found.value("kourou_atomic_begun_total") == 4
        for outcome in ("committed", "rolled_back", "abandoned"):
            assert found.value("kourou_atomic_decided_total", outcome=outcome) == 1
        assert found.value("kourou_atomic_open") == 1
        assert 0 < found.value("kourou_atomic_oldest_open_seconds") < 60
        assert found.value("kourou_atomic_staged_bytes") == table.staged_bytes > 0
        assert found.value("kourou_atomic_unconfirmed_decisions") == 0


async def test_names_and_labels_are_those_of_rocketmq_5(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0) as peer:
        await use_everything(peer)
        found = await scrape(peer.controller)
    ours = {name for name in found.names if name.startswith("rocketmq_")}
    assert ours == ROCKETMQ_5.keys()
    for name, labels in ROCKETMQ_5.items():
        assert found.labels(name) <= {NODE | labels}, name
    for name in found.names - ours - {"kourou_metrics_dropped_series"}:
        assert all({"cluster", "node_type", "node_id"} <= labels for labels in found.labels(name)), name


def promtool_complaints(text: str) -> list[str]:
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    return (checked.stdout + checked.stderr).splitlines()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
async def test_promtool_finds_no_fault_but_apaches_unit(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0) as peer:
        await use_everything(peer)
        text = (await scrape(peer.controller)).text
    complaints = await asyncio.to_thread(promtool_complaints, text)
    apaches = 'use base unit "seconds" instead of "milliseconds"'
    assert [
        line for line in complaints if not (line.startswith("rocketmq_") and line.endswith(apaches))
    ] == []


async def test_each_queue_and_own_labels_and_sections_are_options(tmp_path: Path) -> None:
    keys = {"metrics_label": "zone:a", "metrics_lag_per_queue": True, "enable_request_metrics": False}
    async with running(tmp_path, http_port=0, **keys) as peer:
        await peer.send("Orders", queue_id=3)
        await peer.pull("Orders", queue_id=3)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="consumers", topic="Orders", queue_id=3, commit_offset=0
        )
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        found = await scrape(peer.controller)
        labels = {"topic": "Orders", "consumer_group": "consumers", "zone": "a"}
        assert found.value("kourou_consumer_lag_queue_messages", queue_id="3", **labels) == 1
        assert found.value("kourou_consumer_lag_queue_messages", queue_id="0", **labels) == 0
        assert "rocketmq_messages_in_total" not in found.names


async def test_series_above_the_limit_are_counted_and_the_broker_comes_first(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0, metrics_otel_cardinality_limit=1_000) as peer:
        stats = peer.controller.services.stats
        for number in range(2_000):
            stats.topic_put(f"T{number}", 1, 1)
        found = await scrape(peer.controller)
        assert found.value("kourou_metrics_dropped_series", node_id="broker-a") > 3_000
        assert len(found.values("rocketmq_messages_in_total")) > 500
        assert found.value("rocketmq_topic_number") > 1


async def test_apaches_keys_open_the_port_of_the_exporter(tmp_path: Path) -> None:
    keys = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
    async with running(tmp_path, metrics_prom_exporter_host="127.0.0.2", **keys) as peer:
        assert peer.controller.probe_address is None
        assert (peer.controller.metrics_address or "").startswith("127.0.0.2:")
        assert "rocketmq_topic_number" in (await scrape(peer.controller)).names
        taken = int((peer.controller.metrics_address or "").rpartition(":")[2])
        wanted = {**keys, "metrics_prom_exporter_port": taken, "metrics_prom_exporter_host": "127.0.0.2"}
        with pytest.raises(ConfigError, match=f":{taken}: the port is taken; .* metricsPromExporterPort"):
            await BrokerController(config(tmp_path / "two", **wanted)).start()


async def test_health_and_metrics_may_have_ports_of_their_own(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0, metrics_port=0) as peer:
        assert peer.controller.probe_address != peer.controller.metrics_address
        assert "rocketmq_topic_number" in (await scrape(peer.controller)).names


async def test_nothing_is_measured_where_nothing_is_served(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        assert peer.controller.metrics_address is None
        assert await peer.controller.metric_families() == []
        assert peer.controller.services.pulls.on_delivery is None


async def test_a_master_shows_its_slaves_and_a_slave_has_a_label_of_its_own(tmp_path: Path) -> None:
    async with (
        namesrv() as address,
        master(tmp_path, address, http_port=0) as of_master,
        slave(tmp_path, address, http_port=0) as of_slave,
    ):
        await following(of_master, 1)
        found = await scrape(of_master.controller)
        assert found.value("kourou_slaves") == 1
        assert found.values("kourou_slave_lag_bytes", slave="1")
        copy = await scrape(of_slave.controller)
        assert copy.value("rocketmq_topic_number", broker_id="1") > 0


async def test_a_name_server_counts_routes_and_requests() -> None:
    server = NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0, http_port=0))
    async with server:
        found = await scrape(server)
        assert found.value("kourou_namesrv_topics", node_type="namesrv", node_id=server.address) == 0
        assert found.value("process_open_fds", node_type="namesrv") > 3
