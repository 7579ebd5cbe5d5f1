"""`kourou topic`, `group`, `send` and `tail` against a cluster of two brokers in this process."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from kourou import Message, MessageExt, Producer, PushConsumer
from kourou.admin.targets import Outcome
from kourou.testing import LocalCluster
from tests.unit.admin.command_line import Result, run_now
from tests.unit.cli.daily.command_line import run_kourou

_SENT = re.compile(r"[0-9A-F]{32}  (broker-[ab]/\d@\d+)")


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def context(mq: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The cluster is the current context: no line here needs -n."""
    variables = {"XDG_CONFIG_HOME": str(tmp_path_factory.mktemp("config"))}
    with mock.patch.dict(os.environ, variables):
        for name in ("NAMESRV_ADDR", "KOUROU_CONTEXT"):
            os.environ.pop(name, None)
        assert run_kourou("context", "add", "here", "-n", mq.namesrv).exit_code == 0
        yield


def ok(*words: str, stdin: bytes = b"") -> Result:
    result = run_kourou(*words, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, ""), result
    return result


def tailed(*words: str) -> list[str]:
    """The bodies that a tail prints."""
    return ok("tail", *words, "--no-follow", "--raw").lines


# -- topics ------------------------------------------------------------------------------------------


def test_a_topic_from_creation_to_deletion() -> None:
    created = ok("topic", "create", "Orders", "-q", "2")
    assert re.fullmatch(r"created topic Orders with 2 queues on \S+, \S+\n", created.stdout)
    assert ok("topic", "create", "Orders", "--if-missing").stdout == "topic Orders already exists\n"
    assert "topic Orders already exists at" in run_kourou("topic", "create", "Orders").problem
    assert ok("topic", "list").lines == [
        "TOPIC   QUEUES  PERM  BROKERS",
        "Orders       4  RW    broker-a, broker-b",
    ]
    (listed,) = ok("topic", "list", "--json").json
    assert (listed["topic"], listed["read_queues"], listed["brokers"]) == (
        "Orders",
        4,
        ["broker-a", "broker-b"],
    )
    assert "TBW102" in ok("topic", "list", "--all").stdout

    sent = ok("send", "Orders", "hello").stdout
    place = _SENT.fullmatch(sent.strip())
    assert place is not None
    shown = ok("topic", "show", "Orders")
    assert "messages  1, " in shown.stdout and len(shown.lines) == 10
    assert ok("topic", "show", "Orders", "--json").json["messages"] == 1

    question = run_kourou("topic", "delete", "Orders").problem
    assert "Delete topic Orders and its messages from DefaultCluster at 127.0.0.1:" in question
    assert question.endswith("Confirm with --yes, as there is no terminal.")
    assert ok("topic", "delete", "Orders", "--yes").stdout == "deleted topic Orders from DefaultCluster\n"
    assert "no registered broker has topic Orders" in run_kourou("topic", "delete", "Orders", "--yes").problem
    assert ok("topic", "list", "--json").json == []


def test_a_topic_on_one_broker_by_its_type() -> None:
    attributes = "-a", "overflow.policy=reject", "-a", "overflow.bytes=64m"
    ok("topic", "create", "Small", "-q", "1", "-b", "broker-b", "--type", "fifo", *attributes)
    shown = ok("topic", "show", "Small", "--json").json
    assert shown["queues"][0]["broker_name"] == "broker-b"
    assert shown["attributes"]["broker-b"] == {
        "message.type": "FIFO",
        "overflow.bytes": "64m",
        "overflow.policy": "reject",
    }
    assert (
        "attributes  message.type=FIFO, overflow.bytes=64m, overflow.policy=reject"
        in ok("topic", "show", "Small").lines
    )
    again = run_kourou("topic", "create", "Small", "--if-missing", "--type", "mixed")
    assert again.exit_code == 0 and again.stdout == "topic Small already exists\n"
    assert "topic Small is not as requested: message.type is FIFO, not MIXED, at broker-b" in again.stderr
    ok("topic", "create", "Small", "--if-missing", "--type", "fifo")  # prints no note
    assert "is not in cluster Other, but in DefaultCluster" in (
        run_kourou("topic", "delete", "Small", "-c", "Other", "--yes").problem
    )


def test_a_topic_with_priorities() -> None:
    ok("topic", "create", "Urgent", "-q", "8", "--type", "priority")
    for priority, queue in (("0", "/0@"), ("7", "/7@"), ("9", "/7@")):
        assert queue in ok("send", "Urgent", "now", "--priority", priority).stdout
    assert (
        "has no --priority" in run_kourou("send", "Urgent", "x", "--priority", "1", "--delay", "9s").problem
    )


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_topic_that_the_name_server_does_not_list_yet_is_reported(
    form: tuple[str, ...], mq: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.cli.daily.topic._ROUTE_TIMEOUT_S", 0)
    result = run_kourou("topic", "create", f"Slow{len(form)}", *form)
    assert (result.exit_code, f"{mq.namesrv} does not list it on every broker yet" in result.stderr) == (
        1,
        True,
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("topic", "show", "Paymnets"),
            "no registered broker has topic Paymnets at {}; did you mean Payments? If not: it was never "
            "created, or its broker is down; kourou topic list shows all topics",
        ),
        (
            ("send", "payments", "x"),
            "no registered broker has topic payments at {}; did you mean Payments? If not: it was never "
            "created, or its broker is down; kourou topic create payments creates it",
        ),
        (
            ("tail", "Xyz"),
            "no registered broker has topic Xyz at {}: it was never created, or its broker is down; "
            "kourou topic create Xyz creates it",
        ),
        (
            ("topic", "delete", "Xyz"),
            "no registered broker has topic Xyz at {}: it was never created, or its broker is down; "
            "kourou topic list shows all topics",
        ),
        (
            ("tail", "%DLQ%bookkeeper"),
            "no registered broker has topic %DLQ%bookkeeper at {}: it was never created, or its broker is "
            "down; kourou topic list --all shows all topics",
        ),
        (("tail", "Payments", "-p", "=x"), "--property '=x': must be NAME or NAME=VALUE"),
        (("group", "show", "bookkeepr"), "group bookkeepr does not exist at {}; did you mean bookkeeper?"),
        (("group", "delete", "xyz"), "group xyz does not exist at {}; kourou group list shows all groups"),
        (("topic", "create", "New", "-c", "Other"), "cluster [Other] not exist"),
        (("topic", "create", "New", "-b", "broker-x"), "broker broker-x: no master has that name"),
    ],
)
def test_a_name_that_is_not_there(words: tuple[str, ...], problem: str, mq: LocalCluster) -> None:
    ok("topic", "create", "Payments", "--if-missing")
    ok("topic", "create", "%RETRY%bookkeeper", "--if-missing")
    assert problem.format(mq.namesrv) in run_kourou(*words).problem


def test_without_a_broker_every_command_says_so() -> None:
    with LocalCluster() as mq:
        mq.stop_broker()
        problem = f"no broker is registered at {mq.namesrv}; start one, or check its namesrvAddr"
        for kind in ("topic", "group"):
            listed = run_kourou(kind, "list", "-n", mq.namesrv)
            assert (listed.exit_code, len(listed.lines)) == (0, 1)
            assert listed.stderr == f"kourou {kind} list: {problem}\n"
            shown = run_kourou(kind, "show", "billing", "-n", mq.namesrv)
            assert shown.problem == f"kourou {kind} show: {kind} billing: {problem}"


# -- send and tail -----------------------------------------------------------------------------------


def test_what_is_sent_is_tailed() -> None:
    ok("topic", "create", "Sent")
    one = ok(
        "send", "Sent", "hello", "-k", "o-1", "-k", "o-2", "-t", "TagA", "-p", "color=red", "--json"
    ).json
    assert one["status"] == "SEND_OK"
    ok("send", "Sent", stdin=b"\xff\x00\n")
    lines = ok("send", "Sent", "--lines", "-t", "TagB", "--sharding-key", "s", stdin=b"l1\r\nl2\n\nl3").lines
    places = [_SENT.fullmatch(line) for line in lines]
    assert len(places) == 3 and len({place[1].partition("@")[0] for place in places if place}) == 1

    first, *_ = map(json.loads, ok("tail", "Sent", "--no-follow", "--json").lines)
    expected = {"topic": "Sent", "tag": "TagA", "keys": ["o-1", "o-2"], "properties": {"color": "red"}}
    assert first | expected | {"body": "hello", "body_encoding": "utf-8"} == first
    assert (first["msg_id"], first["queue_offset"]) == (one["msg_id"], one["queue_offset"])

    for words, bodies in {
        (): ["hello", "binary", "l1", "l2", "l3"],
        ("--last", "2"): ["l2", "l3"],
        ("--from", "latest"): [],
        ("--from", "earliest", "-c", "1"): ["hello"],
        ("--from", "-1h"): ["hello", "binary", "l1", "l2", "l3"],
        ("--from", "2020-01-01", "-t", "TagA || TagB"): ["hello", "l1", "l2", "l3"],
        ("--last", "1", "-t", "TagA"): ["hello"],
        ("-k", "o-2"): ["hello"],
        ("-p", "color"): ["hello"],
        ("-p", "color=blue"): [],
        ("--sql", "color = 'red' AND TAGS = 'TagA'"): ["hello"],
        ("-g", "l", "--last", "2"): ["l2", "l3"],
    }.items():
        out = ok("tail", "Sent", *words, "--no-follow", "--json").lines
        assert [json.loads(line)["body"].replace("/wAK", "binary") for line in out] == bodies, words
    text = ok("tail", "Sent", "--no-follow", "--last", "4").lines[0]
    assert text.endswith("  base64:/wAK")


def test_what_is_stored_comes_in_the_order_of_storing(mq: LocalCluster) -> None:
    mq.create_topic("Many", queues=4)
    with Producer("shop", namesrv=mq.namesrv) as producer:
        for number in range(300):
            producer.send(Message("Many", b"%d" % number, tags="Even" if number % 2 == 0 else "Odd"))
    stored = [message.body.decode() for message in mq.messages("Many")]
    everything = tailed("Many", "--from", "earliest")
    assert sorted(everything, key=int) == [str(number) for number in range(300)]
    assert everything == stored
    assert tailed("Many", "--last", "50") == stored[-50:]
    evens = [body for body in stored if int(body) % 2 == 0]
    assert tailed("Many", "-t", "Even", "--last", "40") == evens[-40:]
    assert tailed("Many", "-g", "7", "--last", "1000") == [body for body in stored if "7" in body]


def test_a_filter_looks_back_only_so_far_and_says_so(
    mq: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.admin.messages.tailing.LOOK_BACK", 20)
    mq.create_topic("Rare", queues=1)
    with Producer("shop", namesrv=mq.namesrv) as producer:
        producer.send_many([Message("Rare", b"needle" if number < 5 else b"hay") for number in range(100)])
    result = run_kourou("tail", "Rare", "-g", "needle", "--no-follow")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "kourou tail: of the last 20 of each queue 0 messages match; --from searches more\n"
    )
    assert tailed("Rare", "-g", "needle", "--from", "earliest") == ["needle"] * 5


def test_a_line_that_is_refused_ends_the_sending_and_is_named(tmp_path: Path) -> None:
    ok("topic", "create", "Lines")
    file = tmp_path / "lines"
    file.write_bytes(b"small\n\n" + b"x" * (5 * 1024 * 1024) + b"\nnever sent\n")
    result = run_kourou("send", "Lines", "--lines", "-f", str(file))
    assert len(result.lines) == 1
    assert "kourou send: message 2: " in result.problem and "4194304" in result.problem
    assert tailed("Lines") == ["small"]
    assert "--file gone: No such file" in run_kourou("send", "Lines", "-f", "gone").problem
    assert "the body is empty" in run_kourou("send", "Lines", stdin=b"").problem


def test_a_body_that_is_not_utf_8_is_sent_as_it_was_typed() -> None:
    ok("topic", "create", "Latin", "-q", "1")
    ok("send", "Latin", "caf\udce9")  # as Python gives the byte E9 of a command line
    assert ok("tail", "Latin", "--no-follow").lines[0].endswith("  base64:Y2Fm6Q==")


def test_a_delayed_message_has_no_place_yet() -> None:
    ok("topic", "create", "Later", "-q", "1")
    assert re.fullmatch(r"[0-9A-F]{32}  delayed\n", ok("send", "Later", "soon", "--delay", "1ms").stdout)
    assert ok("send", "Later", "soon", "--delay-level", "1").stdout.endswith("  delayed\n")


def test_a_delay_that_the_broker_does_not_keep_is_refused(mq: LocalCluster) -> None:
    broker = min(mq.broker_addresses)
    ok("topic", "create", "TooLate")
    assert run_kourou("send", "TooLate", "x", "--delay", "10d").problem == (
        f"kourou send: --delay 10d: the longest delay is 3d (timerMaxDelaySec=259200 of {broker}); use a "
        f"shorter one, or mqadmin updateBrokerConfig -b {broker} -k timerMaxDelaySec -v 864000"
    )
    assert run_kourou("send", "TooLate", "x", "--delay-level", "19").problem == (
        f"kourou send: --delay-level 19: the levels of {broker} are 1 to 18: "
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )
    assert ok("send", "TooLate", "x", "--delay", "3d").stdout.endswith("  delayed\n")
    assert ok("send", "TooLate", "x", "--delay-level", "18").stdout.endswith("  delayed\n")


def test_tailing_makes_no_group_and_moves_none(mq: LocalCluster) -> None:
    mq.create_topic("Watched", queues=2)
    before = (ok("group", "list", "--all", "--json").json, ok("topic", "list", "--all", "--json").json)
    ok("send", "Watched", "hello")
    assert tailed("Watched") == ["hello"]
    assert ok("topic", "show", "Watched", "--json").json["groups"] == []
    assert (
        ok("group", "list", "--all", "--json").json,
        ok("topic", "list", "--all", "--json").json,
    ) == before


def test_a_topic_that_may_not_be_read_is_an_error_and_not_silence(mq: LocalCluster) -> None:
    mq.create_topic("WriteOnly")
    run_now(["updateTopicPerm", "-n", mq.namesrv, "-c", "DefaultCluster", "-t", "WriteOnly", "-p", "2"])
    assert run_kourou("tail", "WriteOnly").problem == (
        "kourou tail: topic WriteOnly may not be read; allow it: "
        f"mqadmin updateTopicPerm -n {mq.namesrv} -t WriteOnly -p 6 -c DefaultCluster"
    )


# -- groups ------------------------------------------------------------------------------------------


def test_a_group_from_its_first_member_to_its_deletion(mq: LocalCluster) -> None:
    mq.create_topic("Billed", queues=1)
    seen: list[bytes] = []

    def handle(message: MessageExt) -> None:
        seen.append(message.body)

    with Producer("shop", namesrv=mq.namesrv) as producer:
        producer.send_many([Message("Billed", b"%d" % number) for number in range(3)])
    with PushConsumer("billing", namesrv=mq.namesrv, consume_from="first") as consumer:
        consumer.subscribe("Billed", handle)
        mq.wait_consumed("billing")
        online = ok("group", "show", "billing", "--holders", "--json").json
        (member,) = online["members"]
        assert (online["message_model"], online["subscriptions"]["Billed"]) == ("CLUSTERING", "*")
        assert {queue["holder"] for queue in online["queues"] if queue["topic"] == "Billed"} <= {
            member["client_id"],
            None,
        }
        shown = ok("group", "show", "billing")
        assert member["client_id"] in shown.stdout and "model    clustering" in shown.lines
        assert "mode     as its members choose" in shown.lines
        where = ["-n", mq.namesrv, "-c", "DefaultCluster"]
        run_now(["setConsumeMode", *where, "-t", "Billed", "-g", "billing", "-m", "PULL"])
        assert "mode     PULL of Billed" in ok("group", "show", "billing").lines
        refused = run_kourou("group", "delete", "billing", "--yes").problem
        assert "group billing has 1 member online, which would create it again; stop them first" in refused

    listed = {row["group"]: row for row in ok("group", "list", "--json").json}
    assert (listed["billing"]["members"], listed["billing"]["lag"]) == (0, 0)
    question = run_kourou("group", "reset", "billing", "--to", "earliest").problem
    assert f"Reset billing on Billed to the earliest message at {mq.namesrv}?" in question
    moved = ok("group", "reset", "billing", "--to", "earliest", "--yes", "--json").json
    assert {(queue["topic"], queue["offset"]) for queue in moved} == {("Billed", 0)}
    shown = ok("group", "show", "billing", "-t", "Billed")
    assert "lag      3 messages, " in shown.stdout
    assert [line.split()[2:6] for line in shown.lines if "  3  3  " in re.sub(" +", "  ", line)] != []
    ok("group", "reset", "billing", "-t", "Billed", "--to", "-1h", "--yes")
    ends = ok("group", "reset", "billing", "--to", "latest", "--yes").lines
    assert sum(int(line.split()[-1]) for line in ends[1:]) == 3
    assert ok("group", "show", "billing", "-t", "Billed", "--json").json["lag"] == 0

    assert ok("group", "delete", "billing", "--yes").stdout == "deleted group billing\n"
    assert "billing" not in ok("group", "list").stdout
    assert len(seen) == 3


def test_a_group_without_members_so_far(mq: LocalCluster) -> None:
    run_now(["updateSubGroup", "-n", mq.namesrv, "-c", "DefaultCluster", "-g", "planned"])
    assert "planned" in [row["group"] for row in ok("group", "list", "--json").json]
    assert {row["group"]: row["lag"] for row in ok("group", "list", "--json").json}["planned"] is None
    assert re.search(r"^planned +0 +- ", ok("group", "list").stdout, re.MULTILINE)
    assert ok("group", "show", "planned", "--json").json["lag"] is None
    shown = ok("group", "show", "planned").lines
    assert "lag      -, 0.0 consumed per second" in shown
    assert shown[-1].startswith("No offsets: none committed yet")
    assert "group planned has no offsets; name the topic" in (
        run_kourou("group", "reset", "planned", "--to", "latest", "--yes").problem
    )
    assert ok("group", "delete", "planned", "--yes").stdout == "deleted group planned\n"
    assert "planned" not in ok("group", "list").stdout


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_group_that_a_broker_keeps_is_not_reported_as_deleted(
    form: tuple[str, ...], mq: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object, **__: object) -> list[Outcome]:
        return [Outcome("127.0.0.1:1", "disk full"), Outcome("127.0.0.1:2")]

    run_now(["updateSubGroup", "-n", mq.namesrv, "-c", "DefaultCluster", "-g", "kept"])
    monkeypatch.setattr("kourou.cli.daily.group.delete_group", failing)
    result = run_kourou("group", "delete", "kept", "--yes", *form)
    assert result.exit_code == 1 and "deleted" not in result.stdout
    assert result.stderr == "kourou group delete: could not delete group kept at 127.0.0.1:1: disk full\n"


def test_a_name_server_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "no name server answers" in run_kourou("topic", "list", "-n", "127.0.0.1:1").problem
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("kourou.cli.daily.cluster_command.DEFAULT_NAMESRV", "127.0.0.1:1")
    problem = run_kourou("group", "list").problem
    assert problem.endswith(
        "Start one with kourou standalone, or name another with -n, kourou context add, or NAMESRV_ADDR."
    )
