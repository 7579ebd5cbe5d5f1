"""`kourou send`, `tail`, `topic` and `group` at Apache's brokers and name servers, of both lines."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from kourou import Message, MessageExt, Producer, PushConsumer
from tests.interop.kit import apache
from tests.interop.kit.broker_cluster import BrokerCluster
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import Lanes
from tests.unit.admin.command_line import Result
from tests.unit.cli.daily.command_line import run_kourou

pytestmark = pytest.mark.interop


@pytest.fixture(params=apache.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


@pytest.fixture
def cluster(shared_lanes: Lanes, version: str) -> BrokerCluster:
    return shared_lanes.cluster(version)


def run(cluster: BrokerCluster, *words: str, stdin: bytes = b"") -> Result:
    """Run a command at Apache's name server."""
    return run_kourou(*words, "-n", cluster.namesrvs[-1].address, stdin=stdin)


def ok(cluster: BrokerCluster, *words: str, stdin: bytes = b"") -> Result:
    result = run(cluster, *words, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, ""), result
    return result


def group_names(cluster: BrokerCluster) -> list[str]:
    """The groups alone: lag and rate of those of earlier tests still change."""
    return [group["group"] for group in ok(cluster, "group", "list", "--all", "--json").json]


def bodies(result: Result) -> list[str]:
    return [json.loads(line)["body"] for line in result.lines]


def test_what_is_sent_is_tailed_and_nothing_is_left_behind(cluster: BrokerCluster, version: str) -> None:
    topic = cluster.new_name("daily")
    ok(cluster, "topic", "create", topic, "-q", "2", "-b", cluster.broker_name)
    groups = group_names(cluster)
    assert topic in [place["topic"] for place in ok(cluster, "topic", "list", "--json").json]

    sent = ok(cluster, "send", topic, "héllo", "-k", "k-1", "-t", "TagA", "-p", "weight=3", "--json").json
    assert sent["status"] == "SEND_OK"
    assert len(ok(cluster, "send", topic, "--lines", "-t", "TagB", stdin=b"one\ntwo\nthree\n").lines) == 3
    ok(cluster, "send", topic, stdin=b"\xff\x00")

    first, *others = map(json.loads, ok(cluster, "tail", topic, "--no-follow", "--json").lines)
    assert (first["msg_id"], first["body"], first["tag"]) == (sent["msg_id"], "héllo", "TagA")
    assert (first["keys"], first["properties"]) == (["k-1"], {"weight": "3"})
    assert sorted(other["body"] for other in others) == ["/wA=", "one", "three", "two"]
    for words, expected in {
        ("--from", "-1h", "-t", "TagB"): {"one", "two", "three"},
        ("--from", "earliest", "--sql", "weight > 2"): {"héllo"},
        ("--last", "1", "-k", "k-1"): {"héllo"},
        ("--from", "latest"): set(),
    }.items():
        found = bodies(ok(cluster, "tail", topic, "--no-follow", "--json", *words))
        assert set(found) == expected, words

    # Held pulls bring what comes, delayed messages too.
    with ThreadPoolExecutor(1) as other, Producer("daily", namesrv=cluster.namesrv) as producer:
        words = ("tail", topic, "--from", "earliest", "-c", "7", "--json")
        tailing = other.submit(ok, cluster, *words)
        producer.send(Message(topic, b"later", delay_time_level=1))
        producer.send(Message(topic, b"live"))
        assert {"live", "later"} <= set(bodies(tailing.result(60)))

    delayed = run(cluster, "send", topic, "soon", "--delay", "1s")
    if version.startswith("4"):
        assert "which has delays by level only; use --delay-level 1 to 18" in delayed.problem
    else:
        assert delayed.stdout.endswith("  delayed\n")
    assert ok(cluster, "topic", "show", topic, "--json").json["groups"] == []
    assert group_names(cluster) == groups
    ok(cluster, "topic", "delete", topic, "--yes")
    assert f"no registered broker has topic {topic} at" in run(cluster, "tail", topic).problem


def test_a_group_is_shown_reset_and_deleted(cluster: BrokerCluster) -> None:
    topic, group = cluster.new_topic("daily-group", queues=2), cluster.new_name("daily-readers")
    ok(cluster, "send", topic, "--lines", stdin=b"one\ntwo\nthree\n")
    seen: list[bytes] = []

    def handle(message: MessageExt) -> None:
        seen.append(message.body)

    with PushConsumer(group, namesrv=cluster.namesrv, consume_from="first") as consumer:
        consumer.subscribe(topic, handle)
        wait_until(lambda: len(seen) == 3, timeout_s=30, what="three messages")
        shown = ok(cluster, "group", "show", group, "--json").json
        assert [member["language"] for member in shown["members"]] == ["PYTHON"]
    assert shown["subscriptions"][topic] == "*"

    def lag() -> int:
        shown = ok(cluster, "group", "show", group, "-t", topic, "--json").json
        return int(shown["lag"])

    assert lag() == 0
    moved = ok(cluster, "group", "reset", group, "-t", topic, "--to", "earliest", "--yes", "--json").json
    assert [queue["offset"] for queue in moved] == [0, 0] and lag() == 3
    ok(cluster, "group", "reset", group, "--to", "latest", "--yes")
    assert lag() == 0
    assert ok(cluster, "group", "delete", group, "--yes").stdout == f"deleted group {group}\n"
    assert f"group {group} does not exist" in run(cluster, "group", "show", group).problem
