"""Groups and producers in the console's API: lists, one group, its members and clients, and changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kourou import AsyncProducer, AsyncPushConsumer, MessageExt
from kourou.cli.admin.group_commands import _read_configs
from kourou.testing.cluster import Cluster
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.admin.gone_broker import register
from tests.integration.admin.group_kit import GROUP, TOPIC, Traffic, until
from tests.integration.console.kit import Console


@pytest.fixture
async def traffic(console: Console, running: Cluster) -> AsyncIterator[Traffic]:
    """Eight messages on two brokers, consumed by a group with one member."""
    async with AsyncProducer("shop", namesrv=running.namesrv_addr) as producer:
        found = Traffic(running, producer, console.context.sessions.own.admin)
        await found.send(8)
        async with found.consumer():
            await found.until_consumed()
            console.context.sessions.forget()
            yield found


async def test_the_list_has_members_lag_and_kind(console: Console, traffic: Traffic) -> None:
    (row,) = (await console.get("/groups", search=GROUP.upper(), kinds="NORMAL"))["items"]
    assert row["members"] == 1
    assert (row["lag"], row["behind_ms"], row["message_model"]) == (0, 0, "CLUSTERING")
    assert row["version"].startswith("V")
    page = await console.get("/groups", sort="lag", order="desc", limit=1, kinds="SYSTEM")
    assert page["total"] > 1 and len(page["items"]) == 1
    assert page["items"][0]["kind"] == "SYSTEM"
    assert [one["group"] for one in (await console.get("/groups", topic=TOPIC))["items"]] == [GROUP]
    assert "members" in (await console.get("/groups", status=400, sort="members"))["error"]["message"]
    assert "NORMAL" in (await console.get("/groups", status=400, kinds="NORML"))["error"]["message"]


async def test_one_group_with_its_members_and_a_client(console: Console, traffic: Traffic) -> None:
    page = await console.get(f"/groups/{GROUP}")
    assert {topic["topic"]: topic["lag"] for topic in page["topics"]}[TOPIC] == 0
    assert [one["topic"] for one in page["subscriptions"] if not one["topic"].startswith("%")] == [TOPIC]
    assert page["retry_topic"] == f"%RETRY%{GROUP}" and page["dead_letter_topic"] == ""
    (member,) = page["members"]
    report = await console.get(f"/groups/{GROUP}/members")
    assert report["members"][0]["client_id"] == member["client_id"]
    assert {queue["topic"] for queue in report["members"][0]["queues"]} >= {TOPIC}
    assert report["findings"] == []
    # A client id contains @ and #.
    path = f"/groups/{GROUP}/clients/{quote(member['client_id'], safe='')}"
    client = await console.get(path, stacks="true")
    info = client["client"]["info"]
    assert {one["topic"] for one in info["subscriptions"]} >= {TOPIC}
    assert {one["queue"]["brokerName"] for one in info["queues"]} >= {"broker-a", "broker-b"}
    assert "Thread" in info["jstack"] or "thread" in info["jstack"]
    assert await console.get(path) != {}
    await console.get(f"/groups/{GROUP}/clients/nobody", status=502)


async def test_a_client_whose_id_has_slashes(console: Console, traffic: Traffic) -> None:
    """As from the name of a container image, or a path."""

    async def handle(message: MessageExt) -> None:
        """Consumes."""

    name = "registry/shop//worker"
    consumer = AsyncPushConsumer("slashed", namesrv=traffic.namesrv, instance_name=name)
    await consumer.subscribe(TOPIC, "*", handle)
    async with consumer:

        async def member() -> str | None:
            console.context.sessions.forget()
            members = (await console.get("/groups/slashed"))["members"]
            return str(members[0]["client_id"]) if members else None

        client_id = await until(member)
        assert name in client_id
        page = await console.get(f"/groups/slashed/clients/{quote(client_id, safe='')}")
    assert page["client"]["client_id"] == client_id


async def test_members_with_different_subscriptions_are_a_conflict(
    console: Console, traffic: Traffic
) -> None:
    other = AsyncPushConsumer(GROUP, namesrv=traffic.namesrv, instance_name="other")

    async def handle(message: MessageExt) -> None:
        """Never called: no message has the tag."""

    await other.subscribe(TOPIC, "TagB", handle)
    async with other:

        async def both() -> Any:
            found = await console.get(f"/groups/{GROUP}/members")
            return found if len(found["members"]) == 2 else None

        report = await until(both)
    (finding,) = [one for one in report["findings"] if one["check"] == "subscriptions"]
    assert "different subscriptions" in finding["what"]
    assert "TagB" in finding["what"]


async def test_a_group_is_created_changed_and_deleted(console: Console) -> None:
    body = {"group": "billing", "retry_max_times": 3, "brokers": ["broker-a"]}
    preview = await console.preview("POST", "/groups", body)
    assert preview["effects"] == ["Creates group billing on broker-a: retries 16 → 3"]
    assert "-r 3" in preview["commands"][0]
    await console.change("POST", "/groups", body, plan=preview["plan"])
    answer = await console.change("POST", "/groups", body, status=409)
    assert answer["error"]["code"] == "group_exists"

    change = {"consume_enable": False, "consume_message_orderly": True}
    preview = await console.preview("PUT", "/groups/billing", change)
    assert preview["effects"][1] == "broker-a: may consume yes → no; consumes in order no → yes"
    await console.change("PUT", "/groups/billing", {"retry_queue_nums": 2})
    preview = await console.preview("PUT", "/groups/billing", change)
    await console.change("PUT", "/groups/billing", change, plan=preview["plan"])
    page = await console.get("/groups/billing")
    config = page["brokers"][0]["config"]
    assert (page["kind"], config["consumeEnable"], config["retryQueueNums"], config["retryMaxTimes"]) == (
        "FIFO",
        False,
        2,
        3,
    )
    preview = await console.preview("DELETE", "/groups/billing")
    assert preview["effects"] == ["Deletes group billing from broker-a with its offsets"]
    await console.change("DELETE", "/groups/billing", plan=preview["plan"])
    assert (await console.get("/groups/billing", status=404))["error"]["code"] == "not_found"


async def test_a_change_of_another_administrator_is_noticed(console: Console) -> None:
    await console.change("POST", "/groups", {"group": "billing"})
    preview = await console.preview("PUT", "/groups/billing", {"retry_max_times": 3})
    await console.change("PUT", "/groups/billing", {"retry_max_times": 5})
    answer = await console.change(
        "PUT", "/groups/billing", {"retry_max_times": 3}, status=409, plan=preview["plan"]
    )
    assert answer["preview"]["effects"][1] == "broker-a: retries 5 → 3"
    assert (await console.get("/groups/billing"))["brokers"][0]["config"]["retryMaxTimes"] == 5


async def test_a_consuming_group_is_deleted_with_its_topics(console: Console, traffic: Traffic) -> None:
    preview = await console.preview("DELETE", f"/groups/{GROUP}")
    assert preview["effects"] == [
        f"Deletes group {GROUP} from broker-a, broker-b with its offsets",
        f"Deletes topic %RETRY%{GROUP}",
    ]
    assert preview["warnings"] == [f"{GROUP} has 1 member online; a connected consumer may create it again"]
    assert {"topic": TOPIC, "lag": 0} in preview["details"]["lags"]
    preview = await console.preview(
        "DELETE", f"/groups/{GROUP}", {"brokers": ["broker-b"], "drops_offsets": False}
    )
    assert preview["effects"] == [f"Deletes group {GROUP} from broker-b; its offsets stay"]
    assert "-r" not in preview["commands"][0].split()


async def test_settings_that_differ_and_a_broker_away(console: Console, running: Cluster) -> None:
    await console.change("POST", "/groups", {"group": "billing"})
    await console.change("PUT", "/groups/billing", {"retry_max_times": 1, "brokers": ["broker-b"]})
    assert (await console.get("/groups/billing"))["differing"] == ["retryMaxTimes"]
    await register_dead_broker(running)
    done = await console.change("POST", "/groups", {"group": "late"}, status=207)
    assert [one["is_done"] for one in done["outcomes"]] == [True, True, False]
    page = await console.get("/groups", search="late")
    assert "broker-dead" in page["problems"][0]


async def test_bad_groups_are_refused(console: Console) -> None:
    for body, reason in (
        ({"group": "<b>"}, "contains '<'"),
        ({"group": "g", "retry_queue_nums": 0}, "$.retry_queue_nums"),
        ({"group": "g", "brokers": ["no"]}, "no broker 'no'"),
    ):
        answer = await console.change("POST", "/groups", body, status=400)
        assert reason in answer["error"]["message"], answer
    answer = await console.change("DELETE", "/groups/CID_RMQ_SYS_TRANS", status=400)
    assert "belongs to the brokers" in answer["error"]["message"]
    await console.change("POST", "/groups", {"group": "g"})
    answer = await console.change("PUT", "/groups/g", {"retry_max_times": 16}, status=400)
    assert "already" in answer["error"]["message"]


async def test_producers_are_listed_by_group_and_client(console: Console, traffic: Traffic) -> None:
    page = await console.get("/producers", search="shop", sort="client_id")
    (row,) = page["items"]
    assert (row["group"], row["brokers"]) == ("shop", ["broker-a", "broker-b"])
    assert row["last_update_ms"] > 0
    found = await console.get("/producers/shop", topic=TOPIC)
    assert [client["client_id"] for client in found["clients"]] == [row["client_id"]]
    answer = await console.get("/producers/none", status=502, topic=TOPIC)
    assert "none" in answer["error"]["message"]
    assert "topic" in (await console.get("/producers/shop", status=400))["error"]["message"]


async def test_a_broker_that_cannot_list_its_producers_is_named(console: Console, traffic: Traffic) -> None:
    # Name servers reject the request as brokers of RocketMQ 4 do.
    await register(traffic.running, "broker-old", traffic.namesrv)
    console.context.sessions.forget()
    page = await console.get("/producers", search="shop")
    assert [row["group"] for row in page["items"]] == ["shop"]
    (problem,) = page["problems"]
    assert "broker-old" in problem and "not supported" in problem


async def test_one_group_while_a_broker_is_away(console: Console, traffic: Traffic) -> None:
    await register_dead_broker(traffic.running, TOPIC, f"%RETRY%{GROUP}")
    console.context.sessions.forget()
    page = await console.get(f"/groups/{GROUP}")
    assert any("broker-dead" in problem for problem in page["problems"])
    (orders,) = [topic for topic in page["topics"] if topic["topic"] == TOPIC]
    assert {queue["broker_name"] for queue in orders["queues"]} == {"broker-a", "broker-b"}
    view = await console.get(f"/topics/{TOPIC}")
    assert [(group["group"], group["lag"]) for group in view["groups"]] == [(GROUP, 0)]


@pytest.mark.parametrize("kind", ["topics", "groups"])
async def test_an_export_without_a_broker_is_refused(running: Cluster, console: Console, kind: str) -> None:
    await register_dead_broker(running)
    answer = await console.get(f"/exports/{kind}", status=502)
    assert answer["error"]["code"] == "incomplete"
    assert "broker-dead" in answer["error"]["message"]


async def test_groups_are_exported_and_imported(console: Console, tmp_path: Path) -> None:
    await console.change("POST", "/groups", {"group": "billing", "retry_max_times": 3})
    await console.change("POST", "/groups", {"group": "stock", "brokers": ["broker-a"]})
    await console.change("PUT", "/groups/billing", {"consume_enable": False, "brokers": ["broker-b"]})
    entries = await console.get("/exports/groups")
    assert [(one["groupName"], one["consumeEnable"], one["brokers"]) for one in entries] == [
        ("billing", True, ["broker-a"]),
        ("billing", False, ["broker-b"]),
        ("stock", True, ["broker-a"]),
    ]
    # mqadmin reads the same file.
    file = tmp_path / "groups.json"
    file.write_text(json.dumps(entries))
    assert [config.retry_max_times for config in _read_configs(file)] == [3, 3, 16]

    await console.change("DELETE", "/groups/billing")
    preview = await console.preview("POST", "/imports/groups", {"groups": entries})
    assert preview["effects"] == [
        "Creates 1 group on broker-a: billing",
        "Creates 1 group on broker-b: billing",
        "Skips 1 group on brokers that have them already",
    ]
    await console.change("POST", "/imports/groups", {"groups": entries}, plan=preview["plan"])
    assert await console.get("/exports/groups") == entries
    for wrong, named in (([{"groupName": "a b"}], "groups[0]"), ([{"name": "G"}], "groupName")):
        answer = await console.change("POST", "/imports/groups", {"groups": wrong}, status=400)
        assert named in answer["error"]["message"]
