"""Topics in the console's API: the list, one topic, and changes."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from kourou import AsyncProducer
from kourou.admin.order_conf import order_conf
from kourou.cli.admin.topic_changes import _read_configs
from kourou.console.api import topic_changes
from kourou.console.endpoints import Call, Change, NoQuery, Role
from kourou.console.security.access import Visitor
from kourou.testing.cluster import Cluster
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.admin.group_kit import Traffic
from tests.integration.console.kit import Console


async def _create(console: Console, topic: str, **settings: object) -> None:
    await console.change("POST", "/topics", {"topic": topic, **settings})


async def test_a_topic_is_created_listed_changed_and_deleted(console: Console) -> None:
    body = {"topic": "Orders", "write_queues": 4, "read_queues": 4, "kind": "FIFO", "brokers": ["broker-b"]}
    preview = await console.preview("POST", "/topics", body)
    assert preview["effects"] == ["Creates topic Orders on broker-b: 4 queues, read and write, FIFO messages"]
    assert preview["commands"][0].endswith("-t Orders -r 4 -w 4 -p 6 -a +message.type=FIFO")
    assert (await console.get("/topics", search="orders"))["total"] == 0

    done = await console.change("POST", "/topics", body, plan=preview["plan"])
    assert [one["is_done"] for one in done["outcomes"]] == [True]
    (row,) = (await console.get("/topics", search="ORDERS", kinds="FIFO"))["items"]
    assert row.pop("in_tps") in (None, 0)  # None at the first reading
    assert row == {
        "topic": "Orders",
        "kind": "FIFO",
        "read_queues": 4,
        "write_queues": 4,
        "perm": "RW",
        "brokers": ["broker-b"],
        "is_uniform": True,
        "groups": 0,
        "lag": None,
    }

    change = {"write_queues": 2, "perm": 4, "kind": "NORMAL", "order": True}
    preview = await console.preview("PUT", "/topics/Orders", change)
    assert preview["effects"][1] == (
        "broker-b: message type FIFO → NORMAL; queues to write 4 → 2; permission read and write → read only; "
        "order not fixed → fixed"
    )
    assert preview["warnings"] == ["broker-b: sends are rejected"]
    await console.change("PUT", "/topics/Orders", change, plan=preview["plan"])
    view = await console.get("/topics/Orders")
    assert (view["kind"], view["brokers"][0]["perm"], view["brokers"][0]["config"]["order"]) == (
        "NORMAL",
        "R",
        True,
    )
    assert await order_conf(console.context.sessions.own.admin, "Orders") == "broker-b:2"

    preview = await console.preview("DELETE", "/topics/Orders")
    assert preview["effects"] == [
        "Deletes topic Orders from cluster DefaultCluster with all its messages: broker-b"
    ]
    await console.change("DELETE", "/topics/Orders", plan=preview["plan"])
    assert (await console.get("/topics/Orders", status=404))["error"]["message"] == (
        "topic Orders does not exist"
    )


async def test_two_administrators_who_change_the_same_topic(console: Console) -> None:
    await _create(console, "Orders")
    body = {"write_queues": 16, "read_queues": 16}
    preview = await console.preview("PUT", "/topics/Orders", body)
    await console.change("PUT", "/topics/Orders", {"write_queues": 12})
    answer = await console.change("PUT", "/topics/Orders", body, status=409, plan=preview["plan"])
    assert answer["error"]["code"] == "changed_meanwhile"
    assert "queues to write 12 → 16" in answer["preview"]["effects"][1]
    assert (await console.get("/topics", search="Orders"))["items"][0]["write_queues"] == 24

    preview = await console.preview("POST", "/topics", {"topic": "Payments"})
    await _create(console, "Payments")
    answer = await console.change("POST", "/topics", {"topic": "Payments"}, status=409, plan=preview["plan"])
    assert answer["error"]["code"] == "topic_exists"


async def test_a_topic_on_a_broker_that_is_away(console: Console, running: Cluster) -> None:
    await register_dead_broker(running, "Orders")
    body = {"topic": "Orders"}
    done = await console.change("POST", "/topics", body, status=207)
    outcomes = {one["target"].partition(" ")[0]: one for one in done["outcomes"]}
    assert [outcomes[name]["is_done"] for name in ("broker-a", "broker-b", "broker-dead")] == [
        True,
        True,
        False,
    ]
    assert "127.0.0.1:1" in outcomes["broker-dead"]["problem"]
    page = await console.get("/topics", search="Orders")
    assert page["items"][0]["brokers"] == ["broker-a", "broker-b"]
    assert "broker-dead" in page["problems"][0]
    view = await console.get("/topics/Orders")
    assert any("127.0.0.1:1" in problem for problem in view["problems"])

    done = await console.change("DELETE", "/topics/Orders", status=207)
    assert [one["target"].partition(" ")[0] for one in done["outcomes"] if not one["is_done"]] == [
        "broker-dead"
    ]

    # All brokers fail: nothing was done, and it is an error.
    answer = await console.change("POST", "/topics", {"topic": "New", "brokers": ["broker-dead"]}, status=502)
    assert answer["error"]["code"] == "cannot_reach_cluster"


async def test_name_servers_that_go_away_in_the_middle_of_a_change(
    console: Console, running: Cluster
) -> None:
    endpoint = next(one for one in topic_changes.ENDPOINTS if one.name == "post_topics")
    assert isinstance(endpoint, Change)
    body = topic_changes.NewTopic(topic="Orders", brokers=["broker-a"], order=True)
    visitor = Visitor("ada", Role.ADMINISTRATOR, "", None)
    plan = await endpoint.planner(
        Call(console.context, visitor, console.context.sessions.own, {}, NoQuery(), body)
    )
    await running.namesrv.stop()
    created, ordered = (await plan.run()).outcomes
    assert created.is_done and created.target.startswith("broker-a")
    assert (ordered.target, ordered.is_done) == ("order of Orders on broker-a", False)
    assert ordered.problem


async def test_settings_that_differ_are_named_and_copied(console: Console) -> None:
    await _create(console, "Orders", brokers=["broker-a"], kind="DELAY", read_queues=3, write_queues=3)
    preview = await console.preview(
        "POST", "/topics/Orders/copies", {"topic": "Orders", "brokers": ["broker-b"]}
    )
    assert preview["effects"] == [
        "Creates topic Orders on broker-b: 3 queues, read and write, DELAY messages "
        "(settings of Orders on broker-a)"
    ]
    await console.change("POST", "/topics/Orders/copies", {"topic": "Orders", "brokers": ["broker-b"]})
    assert (await console.get("/topics/Orders"))["differing"] == []
    await console.change("PUT", "/topics/Orders", {"brokers": ["broker-b"], "perm": 2})
    view = await console.get("/topics/Orders")
    assert view["differing"] == ["perm"]
    (row,) = (await console.get("/topics", search="Orders"))["items"]
    assert (row["perm"], row["is_uniform"], row["kind"]) == ("RW/W", False, "DELAY")


async def test_the_list_is_sorted_cut_and_filtered_by_kind(console: Console) -> None:
    for number, kind in enumerate(("NORMAL", "TRANSACTION", "FIFO")):
        await _create(console, f"T{number}", kind=kind, write_queues=number + 1, brokers=["broker-a"])
    page = await console.get(
        "/topics", search="T", sort="write_queues", order="desc", limit=2, kinds="FIFO,NORMAL"
    )
    assert [row["topic"] for row in page["items"]] == ["T2", "T0"]
    assert page["total"] == 2
    kinds = {row["topic"]: row["kind"] for row in (await console.get("/topics", limit=1000))["items"]}
    assert (kinds["broker-a"], kinds["DefaultCluster"], kinds["SCHEDULE_TOPIC_XXXX"]) == ("SYSTEM",) * 3
    assert (await console.get("/topics", broker="broker-b", search="T1"))["total"] == 0
    assert "did you mean FIFO" in (await console.get("/topics", status=400, kinds="FIF"))["error"]["message"]
    assert "lagg" in (await console.get("/topics", status=400, sort="lagg"))["error"]["message"]


async def test_a_consumed_topic_and_names_that_need_escaping(console: Console, running: Cluster) -> None:
    async with AsyncProducer("shop", namesrv=running.namesrv_addr) as producer:
        traffic = Traffic(running, producer, console.context.sessions.own.admin)
        await traffic.send(8)
        async with traffic.consumer("billing"):
            await traffic.until_consumed("billing")
            console.context.sessions.forget()
            view = await console.get("/topics/Orders")
            assert view["messages"] == 8
            (group,) = view["groups"]
            assert (group["group"], group["lag"], group["behind_ms"]) == ("billing", 0, 0)
            assert group["last_consumed_ms"] > 0
            preview = await console.preview("DELETE", "/topics/Orders")
            assert preview["warnings"] == ["billing has 1 member online"]
            assert preview["details"] == {
                "messages": 8,
                "groups": [{"group": "billing", "members": 1, "lag": 0}],
            }
            retry = await console.get(f"/topics/{quote('%RETRY%billing')}")
            assert (retry["topic"], retry["kind"]) == ("%RETRY%billing", "RETRY")
        await traffic.send(4)
        console.context.sessions.forget()
        (row,) = (await console.get("/topics", search="Orders", sort="lag"))["items"]
        assert (row["groups"], row["lag"]) == (1, 4)


async def test_bad_input_is_refused_with_a_reason(console: Console) -> None:
    for body, reason in (
        ({"topic": "<script>"}, "contains '<'"),
        ({"topic": ""}, "blank"),
        ({"topic": "T", "kind": "RETRY"}, "created by brokers"),
        ({"topic": "T", "write_queues": 0}, "$.write_queues"),
        ({"topic": "T", "brokers": ["broker-z"]}, "did you mean broker-"),
        ({"topic": "T", "colour": "red"}, "colour"),
    ):
        answer = await console.change("POST", "/topics", body, status=400)
        assert reason in answer["error"]["message"], answer
    await _create(console, "T")
    answer = await console.change("PUT", "/topics/T", {"perm": 6}, status=400)
    assert "has these settings already" in answer["error"]["message"]
    answer = await console.change("DELETE", "/topics/broker-a", status=400)
    assert "belongs to the brokers" in answer["error"]["message"]


async def test_a_refusal_of_the_broker_is_passed_on(console: Console) -> None:
    body = {"topic": "T", "attributes": {"no.such.attribute": "1"}}
    answer = await console.change("POST", "/topics", body, status=502)
    assert (answer["error"]["code"], "no.such.attribute" in answer["error"]["message"]) == (
        "refused_by_cluster",
        True,
    )


async def test_changes_are_audited(console: Console) -> None:
    await _create(console, "Orders", brokers=["broker-a"])
    (record,) = (await console.get("/audit"))["items"]
    assert (record["operation"], record["outcome"], record["body"]["topic"]) == (
        "post_topics",
        "done",
        "Orders",
    )


async def test_topics_are_exported_and_imported(console: Console, tmp_path: Path) -> None:
    await _create(console, "Orders", kind="FIFO", write_queues=4, read_queues=4)
    await _create(console, "Payments", brokers=["broker-a"])
    await console.change("PUT", "/topics/Orders", {"perm": 4, "brokers": ["broker-b"]})
    entries = await console.get("/exports/topics")
    assert [(one["topicName"], one["perm"], one["brokers"]) for one in entries] == [
        ("Orders", 6, ["broker-a"]),
        ("Orders", 4, ["broker-b"]),
        ("Payments", 6, ["broker-a"]),
    ]
    # mqadmin reads the same file.
    file = tmp_path / "topics.json"
    file.write_text(json.dumps(entries))
    assert [config.topic_name for config in _read_configs(file)] == ["Orders", "Orders", "Payments"]

    await console.change("DELETE", "/topics/Orders")
    preview = await console.preview("POST", "/imports/topics", {"topics": entries})
    assert preview["effects"] == [
        "Creates 1 topic on broker-a: Orders",
        "Creates 1 topic on broker-b: Orders",
        "Skips 1 topic on brokers that have them already",
    ]
    await console.change("POST", "/imports/topics", {"topics": entries}, plan=preview["plan"])
    assert await console.get("/exports/topics") == entries
    answer = await console.change("POST", "/imports/topics", {"topics": entries}, status=400)
    assert "exist already" in answer["error"]["message"]
    bad = [{"topicName": "a b"}]
    answer = await console.change("POST", "/imports/topics", {"topics": bad}, status=400)
    assert "topics[0]" in answer["error"]["message"]
    answer = await console.change("POST", "/imports/topics", {"topics": [{"name": "T"}]}, status=400)
    assert "topicName" in answer["error"]["message"]
