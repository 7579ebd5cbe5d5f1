"""Overview, brokers, name servers, doctor, access: what the API returns of a real cluster, and changes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kourou import AsyncProducer, Message
from kourou.console.app import CSRF_HEADER
from kourou.testing.cluster import Cluster
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.console.kit import Console


async def test_the_overview_counts_what_was_sent(running: Cluster, console: Console) -> None:
    async with AsyncProducer("shop", namesrv=running.namesrv_addr) as producer:
        for number in range(10):
            await producer.send(Message("Orders", b"%d" % number))
    console.context.sessions.forget()
    overview = await console.get("/overview")
    totals = overview["totals"]
    assert (totals["brokers"], totals["slaves"], totals["topics"]) == (2, 0, 1)
    assert totals["in_today"] == 10
    assert [(row["topic"], row["messages"]) for row in overview["top_topics"]] == [("Orders", 10)]
    assert [broker["broker_name"] for broker in overview["brokers"]] == ["broker-a", "broker-b"]
    assert (overview["problems"], overview["findings"]) == ([], None)


async def test_the_history_has_rates_and_gaps(running: Cluster, console: Console) -> None:
    history, view = console.context.history, console.context.sessions.own.view
    assert history is not None
    await history.sample()
    async with AsyncProducer("shop", namesrv=running.namesrv_addr) as producer:
        await producer.send(Message("Orders", b"one"))
    view.forget()
    await history.sample()
    series = history.last_hour()
    assert series.in_tps[-1] and series.in_tps[-1] > 0
    assert series.out_tps[-1] == 0


async def test_brokers_are_listed_searched_and_sorted(console: Console) -> None:
    page = await console.get("/brokers", sort="broker_name", order="desc")
    assert [item["broker_name"] for item in page["items"]] == ["broker-b", "broker-a"]
    assert page["commands"][0].startswith("mqadmin clusterList -n ")
    page = await console.get("/brokers", search="BROKER-A")
    assert [(item["broker_name"], item["role"]) for item in page["items"]] == [("broker-a", "master")]
    answer = await console.get("/brokers", status=400, sort="in_tp")
    assert answer["error"]["message"] == "sort: no column 'in_tp'; did you mean in_tps?"


async def test_a_broker_that_is_away_is_listed_with_its_problem(running: Cluster, console: Console) -> None:
    await register_dead_broker(running)
    console.context.sessions.forget()
    page = await console.get("/brokers")
    away = [item for item in page["items"] if item["problem"]]
    assert len(away) == 1 and len(page["problems"]) == 1
    overview = await console.get("/overview")
    assert away[0]["broker_name"] in overview["problems"][0]


async def test_the_state_of_a_broker(console: Console) -> None:
    detail = await console.get("/brokers/broker-a/0")
    assert detail["broker"]["broker_name"] == "broker-a"
    assert "commitLogMaxOffset" in detail["runtime"]
    answer = await console.get("/brokers/broker-x/0", status=404)
    assert answer["error"]["hint"] == "there are: broker-a 0, broker-b 0"


async def test_a_configuration_is_searched_and_changed(running: Cluster, console: Console) -> None:
    page = await console.get("/brokers/broker-a/0/config", search="fileReservedTime")
    item = next(item for item in page["items"] if item["key"] == "fileReservedTime")
    assert (item["value"], item["is_live"], item["is_changeable"]) == ("72", True, True)
    assert item["doc"]

    path, body = "/brokers/broker-a/0/config", {"values": {"fileReservedTime": "48"}}
    preview = await console.preview("PUT", path, body)
    address = running.brokers[0].address
    assert preview["effects"] == [f"Sets fileReservedTime of broker-a ({address}) to '48'; it is '72' now"]
    assert preview["commands"][0].endswith(f"-b {address} -k fileReservedTime -v 48")
    done = await console.change("PUT", path, body, plan=preview["plan"])
    assert done["outcomes"] == [{"target": f"{address} fileReservedTime", "is_done": True, "problem": ""}]
    page = await console.get("/brokers/broker-a/0/config", search="fileReservedTime")
    assert page["items"][0]["value"] == "48"


async def test_a_change_whose_preview_is_out_of_date_is_not_made(console: Console) -> None:
    path, mine = "/brokers/broker-a/0/config", {"values": {"fileReservedTime": "48"}}
    preview = await console.preview("PUT", path, mine)
    await console.change("PUT", path, {"values": {"fileReservedTime": "24"}})
    answer = await console.change("PUT", path, mine, plan=preview["plan"], status=409)
    assert answer["error"]["code"] == "changed_meanwhile"
    assert "it is '24' now" in answer["preview"]["effects"][0]
    page = await console.get("/brokers/broker-a/0/config", search="fileReservedTime")
    assert page["items"][0]["value"] == "24"
    await console.change("PUT", path, mine, plan=answer["preview"]["plan"])


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("fileReservedTime", "never", "fileReservedTime: must be"),
        ("fileReservdTime", "48", "fileReservdTime: there is no such key; did you mean fileReservedTime?"),
        ("flushDiskType", "SOMETIMES", "flushDiskType: must be"),
    ],
)
async def test_what_a_broker_would_refuse_is_refused_before(
    console: Console, key: str, value: str, problem: str
) -> None:
    path, body = "/brokers/broker-a/0/config", {"values": {key: value}}
    answer = await console.preview("PUT", path, body, status=400)
    assert answer["error"]["message"].startswith(problem)
    await console.change("PUT", path, body, status=400)
    assert not console.context.audit.path.read_text()


async def test_a_key_that_the_broker_refuses_changes_nothing(console: Console) -> None:
    body = {"values": {"brokerConfigPath": "/tmp/other"}}
    answer = await console.change("PUT", "/brokers/broker-a/0/config", body, status=403)
    assert answer["error"]["code"] == "refused_by_cluster"
    assert "black list" in answer["error"]["message"]
    assert [outcome["is_done"] for outcome in answer["outcomes"]] == [False]


async def test_a_cluster_is_changed_as_far_as_it_can_be_reached(running: Cluster, console: Console) -> None:
    body = {"values": {"fileReservedTime": "48"}, "scope": "cluster"}
    done = await console.change("PUT", "/brokers/broker-a/0/config", body)
    assert [outcome["is_done"] for outcome in done["outcomes"]] == [True, True]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tls.server.keyPassword", "s3cret"),
        ("initAuthenticationUser", '{"username":"root","password":"s3cret"}'),
    ],
)
async def test_secrets_of_a_configuration_are_neither_shown_nor_recorded(
    console: Console, key: str, value: str
) -> None:
    path, body = "/brokers/broker-a/0/config", {"values": {key: value}}
    preview = await console.preview("PUT", path, body)
    assert preview["effects"][0].endswith("to a new value, which is not shown")
    headers = {CSRF_HEADER: console.csrf_token}
    await console.http.put(f"/api{path}", json=body, headers=headers)  # a broker may refuse some of them
    (line,) = console.context.audit.path.read_text().splitlines()
    assert "s3cret" not in line and key in line
    assert "s3cret" not in str(await console.get(path, limit=1000))


async def test_changes_are_written_to_the_audit_log(console: Console) -> None:
    path = "/brokers/broker-a/0/config"
    await console.preview("PUT", path, {"values": {"fileReservedTime": "48"}})
    await console.change("PUT", path, {"values": {"fileReservedTime": "48"}})
    await console.change("PUT", path, {"values": {"brokerConfigPath": "x"}}, status=403)
    lines = console.context.audit.path.read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["done", "failed"]
    newest = (await console.get("/audit"))["items"][0]
    assert (newest["path"], newest["body"]["values"]) == (f"/api{path}", {"brokerConfigPath": "x"})
    assert newest["effects"] and newest["problems"]


async def test_the_write_permission_of_a_broker(running: Cluster, console: Console) -> None:
    async with AsyncProducer("shop", namesrv=running.namesrv_addr) as producer:
        await producer.send(Message("Orders", b"one"))
    path = "/brokers/broker-a/0/write-permission"
    done = await console.change("PUT", path, {"is_writable": False})
    assert done["outcomes"][0]["is_done"] and done["result"][0]["topics"] > 0
    await console.change("PUT", path, {"is_writable": True})


async def test_a_store_is_cleaned(console: Console) -> None:
    for what in ("expired_consume_queues", "unused_topics", "expired_commit_log"):
        done = await console.change("POST", "/brokers/broker-a/0/cleanup", {"what": what})
        assert done["outcomes"][0]["is_done"]
    answer = await console.change("POST", "/brokers/broker-a/0/cleanup", {"what": "all"}, status=400)
    assert "$.what" in answer["error"]["message"]


async def test_name_servers_and_their_values(running: Cluster, console: Console) -> None:
    namesrvs = await console.get("/namesrvs")
    item = namesrvs["items"][0]
    assert item["brokers"] == ["DefaultCluster/broker-a:0", "DefaultCluster/broker-b:0"]
    assert (item["address"], item["problem"], namesrvs["differences"]) == (running.namesrv_addr, "", [])

    key: dict[str, Any] = {"namespace": "ops", "key": "contact"}
    assert await console.get("/namesrvs/kv", **key) == {"value": None}
    preview = await console.preview("PUT", "/namesrvs/kv", {**key, "value": "ada"})
    assert "it does not exist now" in preview["effects"][0]
    await console.change("PUT", "/namesrvs/kv", {**key, "value": "ada"})
    assert await console.get("/namesrvs/kv", **key) == {"value": "ada"}
    await console.change("PUT", "/namesrvs/kv", key)
    assert await console.get("/namesrvs/kv", **key) == {"value": None}


async def test_doctor_examines_once_for_all(console: Console) -> None:
    first, second = await asyncio.gather(console.get("/doctor"), console.get("/doctor"))
    assert first["as_of"] == second["as_of"]
    assert first["report"]["brokers"] == 2
    assert (await console.get("/overview"))["findings"]["as_of"] == first["as_of"]


async def test_a_cluster_without_access_control(console: Console) -> None:
    access = (await console.get("/access"))["access"]
    assert not any(access.values()), access


async def test_keys_without_effect_can_be_left_out(console: Console) -> None:
    path, search = "/brokers/broker-a/0/config", "accountStatsEnable"
    (item,) = (await console.get(path, search=search))["items"]
    assert (item["is_changeable"], item["doc"]) == (False, "there are no billing statistics")
    assert (await console.get(path, search=search, with_effect=True))["items"] == []
