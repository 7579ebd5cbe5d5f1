"""The runbooks of docs/operations.md, followed word by word on processes that serve clients meanwhile:
nothing is lost, and no send fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.doc_programs import NAMESRV
from tests.e2e.runbooks import GROUP, TOPIC, RunningCluster, Traffic, runbook, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """A name server and two brokers with four queues of a topic each."""
    running = RunningCluster(tmp_path, {})
    try:
        running.start_namesrv()
        first = runbook("Adding a broker to a running cluster")[0]
        for name in ("broker-a", "broker-b"):
            running.start_broker(first.replace("broker-c", name))
        running.run(f"mqadmin updateTopic -n {NAMESRV} -c DefaultCluster -t {TOPIC} -r 4 -w 4")
        yield running
    finally:
        for server in running.servers.values():
            server.kill()


def names(lines: list[str]) -> list[str]:
    """What a runbook calls, in order."""
    return [" ".join(line.split()[:2]) for line in lines]


def queues_by_broker(cluster: RunningCluster, route: str) -> dict[str, tuple[int, int, int]]:
    """Read and write queues and permission of each broker, as `topicRoute -l` shows them."""
    rows = [line.split() for line in cluster.run(route).splitlines()]
    return {row[1]: (int(row[3]), int(row[4]), int(row[5])) for row in rows if row[0] == "DefaultCluster"}


def until(cluster: RunningCluster, line: str, is_so: Callable[[str], bool]) -> None:
    """Repeat a command, as the operator does, until it shows what was waited for."""
    wait_for(lambda: is_so(cluster.run(line)), line)


def test_adding_a_broker(cluster: RunningCluster) -> None:
    lines = runbook("Adding a broker to a running cluster")
    start, topic, group, route, status, progress = lines
    assert names(lines)[1:] == [
        "mqadmin updateTopic",
        "mqadmin updateSubGroup",
        "mqadmin topicRoute",
        "mqadmin topicStatus",
        "mqadmin consumerProgress",
    ]
    with Traffic(cluster.namesrv) as traffic:
        traffic.wait_queues("broker-a", 4)
        traffic.wait_queues("broker-b", 4)
        cluster.start_broker(start)
        assert "broker-c" not in queues_by_broker(cluster, route)
        assert "success" in cluster.run(topic) and "success" in cluster.run(group)
        wait_for(
            lambda: queues_by_broker(cluster, route).get("broker-c") == (4, 4, 6), "broker-c has the topic"
        )
        traffic.wait_queues("broker-c", 4)
        assert cluster.run(status).count("broker-c") == 4
        assert cluster.run(progress).count("broker-c") >= 4


def test_taking_a_broker_out(cluster: RunningCluster) -> None:
    lines = runbook("Taking a broker out")
    wipe, status, lags, stop, clusters, route = lines
    assert names(lines) == [
        "mqadmin wipeWritePerm",
        "mqadmin topicStatus",
        "mqadmin brokerConsumeStats",
        "mqshutdown broker",
        "mqadmin clusterList",
        "mqadmin topicRoute",
    ]
    with Traffic(cluster.namesrv) as traffic:
        traffic.wait_queues("broker-b", 4)
        assert "broker-b" in cluster.run(wipe)
        assert queues_by_broker(cluster, route)["broker-b"][2] == 4
        wait_for(lambda: _is_quiet(cluster, status, "broker-b"), "producers leave broker-b")
        sent = traffic.sent_to("broker-b")
        of_group = re.compile(rf"^{TOPIC} +{GROUP} ", re.M)
        assert of_group.search(cluster.run(lags.replace("-l 1", "-l 0"))), "what is looked for below"
        until(cluster, lags, lambda shown: not of_group.search(shown))
        cluster.run(stop, on="broker-b")
        assert cluster.servers["broker-b"].wait_end() == 0
        until(cluster, clusters, lambda shown: "broker-a" in shown and "broker-b" not in shown)
        assert set(queues_by_broker(cluster, route)) == {"broker-a"}
        before = traffic.sent_to("broker-a")
        wait_for(lambda: traffic.sent_to("broker-a") > before + 100, "producers go on")
        assert traffic.sent_to("broker-b") == sent


def _is_quiet(cluster: RunningCluster, status: str, broker: str) -> bool:
    """Whether nothing came to a broker for as long as clients need to ask for routes again, twice."""

    def rows() -> list[str]:
        return [line for line in cluster.run(status).splitlines() if line.startswith(broker)]

    before = rows()
    time.sleep(0.7)  # the measure itself: a time without messages
    return rows() == before


def test_growing_a_topic(cluster: RunningCluster) -> None:
    lines = runbook("Growing a topic")
    grow, route, progress = lines
    assert names(lines) == ["mqadmin updateTopic", "mqadmin topicRoute", "mqadmin consumerProgress"]
    with Traffic(cluster.namesrv) as traffic:
        traffic.wait_queues("broker-a", 4)
        assert cluster.run(grow).count("success") == 2
        whole = {"broker-a": (8, 8, 6), "broker-b": (8, 8, 6)}
        wait_for(lambda: queues_by_broker(cluster, route) == whole, "both brokers have eight queues")
        for broker in whole:
            traffic.wait_queues(broker, 8)
        until(cluster, progress, lambda shown: len(re.findall(rf"^{TOPIC} ", shown, re.M)) == 16)
