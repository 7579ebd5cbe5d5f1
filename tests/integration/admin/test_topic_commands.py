"""Commands about topics, whole command lines against a cluster in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou import AsyncProducer, AsyncPushConsumer, ConsumeResult, Message, MessageExt
from kourou.testing.cluster import Cluster, cluster
from tests.integration.admin.dead_broker import DEAD, register_dead_broker
from tests.integration.admin.group_kit import until
from tests.unit.admin.command_line import Result, run_line


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path, brokers=2) as started:
        yield started


async def _line(running: Cluster, *words: str) -> Result:
    return await run_line(running.namesrv_addr, *words)


async def _made(running: Cluster, topic: str, *words: str) -> Result:
    result = await _line(running, "updateTopic", "-c", "DefaultCluster", "-t", topic, *words)
    assert (result.exit_code, result.stderr) == (0, ""), result
    return result


# -- updateTopic -------------------------------------------------------------------------------------


async def test_a_topic_is_made_on_all_masters(running: Cluster) -> None:
    result = await _made(running, "Orders", "-r", "3", "-w", "2")
    assert result.lines == [
        *(f"create topic to {broker.address} success." for broker in running.brokers),
        "TopicConfig [topicName=Orders, readQueueNums=3, writeQueueNums=2, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}]",
    ]
    table = await _line(running, "topicRoute", "-t", "Orders", "-l")
    assert [line.split()[1] for line in table.lines[1:3]] == ["broker-a", "broker-b"]
    assert table.lines[-1].split() == ["Total:", "2", "6", "4"]


async def test_a_topic_is_made_on_one_broker_given_by_its_name(running: Cluster) -> None:
    result = await _line(running, "updateTopic", "-b", "broker-b", "-t", "Orders", "--format", "4.9")
    assert result.stdout == (
        f"create topic to {running.brokers[1].address} success.\n"
        "TopicConfig [topicName=Orders, readQueueNums=8, writeQueueNums=8, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false]"
    )
    route = (await _line(running, "topicRoute", "-t", "Orders", "--json")).json
    assert [data["brokerName"] for data in route["queueDatas"]] == ["broker-b"]


async def test_order_is_kept_by_all_name_servers(running: Cluster) -> None:
    one = await _line(running, "updateTopic", "-b", "broker-b", "-t", "Ordered", "-w", "4", "-o", "true")
    assert one.lines[0] == "set broker orderConf. isOrder=true, orderConf=[broker-b:4]"
    other = await _line(running, "updateTopic", "-b", "broker-a", "-t", "Ordered", "-w", "2", "-o", "true")
    assert other.lines[0] == "set broker orderConf. isOrder=true, orderConf=[broker-a:2]"
    conf = await _line(running, "updateOrderConf", "-t", "Ordered", "-m", "get")
    assert conf.stdout == "get orderConf success. topic=[Ordered], orderConf=[broker-a:2;broker-b:4] "
    whole = await _made(running, "Ordered", "-w", "3", "-o", "true")
    assert whole.lines[2] == "set cluster orderConf. isOrder=true, orderConf=[broker-a:3;broker-b:3]"


async def test_attributes_are_changed(running: Cluster) -> None:
    result = await _made(running, "Ordered", "-a", "+message.type=FIFO")
    assert result.lines[-1].endswith("attributes={+message.type=FIFO}]")
    wrong = await _line(running, "updateTopic", "-b", "broker-a", "-t", "X", "-a", "message.type=FIFO")
    assert "add/alter attribute format is wrong: message.type" in wrong.problem
    unknown = await _line(running, "updateTopic", "-b", "broker-a", "-t", "X", "-a", "+no.such=1")
    assert "CODE: 1  DESC:" in unknown.problem


async def test_bad_input_is_one_line(running: Cluster) -> None:
    cases = [
        (("-b", DEAD, "-t", "X"), f"cannot connect to {DEAD}"),
        (("-b", "no-such-broker", "-t", "X"), "no-such-broker"),
        (("-c", "NoCluster", "-t", "X"), "Make sure the specified clusterName exists"),
        (("-c", "DefaultCluster", "-t", "a name!"), "CODE: "),
        (("-c", "DefaultCluster", "-t", "X", "-r", "many"), "-r many: must be a whole number"),
    ]
    for words, expected in cases:
        result = await _line(running, "updateTopic", *words)
        assert expected in result.problem
        assert "Traceback" not in result.stderr


async def test_missing_and_surplus_arguments_are_reported_with_the_usage(running: Cluster) -> None:
    missing = await _line(running, "updateTopic", "-t", "X")
    assert "Missing required option" in missing.problem and missing.lines[0].startswith(
        "usage: mqadmin updateTopic"
    )
    both = await _line(running, "updateTopic", "-t", "X", "-b", "a:1", "-c", "C")
    assert "an option from this group has already been selected: 'b'" in both.problem


async def test_all_brokers_are_down(running: Cluster) -> None:
    await register_dead_broker(running, cluster="Dead")
    result = await _line(running, "updateTopic", "-c", "Dead", "-t", "X")
    assert f"cannot connect to {DEAD}" in result.problem and result.stdout == ""


# -- updateTopicList ---------------------------------------------------------------------------------


async def test_many_topics_are_made_from_a_file(running: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text(json.dumps([{"topicName": "A", "writeQueueNums": 2}, {"topicName": "B"}]))
    result = await _line(running, "updateTopicList", "-c", "DefaultCluster", "-f", str(path))
    assert result.lines == [
        f"submit batch of topic config to {broker.address} success, please check the result later."
        for broker in running.brokers
    ]
    assert {"A", "B"} <= set((await _line(running, "topicList")).lines)


async def test_a_file_that_is_no_list_of_topics(running: Cluster, tmp_path: Path) -> None:
    cases = ["", "{", '{"topicName": "A"}', "[]", "[{}]", '["A"]']
    for text in cases:
        path = tmp_path / "topics.json"
        path.write_text(text)
        result = await _line(running, "updateTopicList", "-b", "broker-a", "-f", str(path))
        assert str(path) in result.problem


async def test_a_file_that_is_not_there(running: Cluster, tmp_path: Path) -> None:
    result = await _line(running, "updateTopicList", "-b", "broker-a", "-f", str(tmp_path / "none.json"))
    assert f"the file path {tmp_path / 'none.json'} does not exists" in result.problem


# -- deleteTopic, updateTopicPerm --------------------------------------------------------------------


async def test_a_topic_is_deleted(running: Cluster) -> None:
    await _made(running, "Orders")
    words = ("deleteTopic", "-c", "DefaultCluster", "-t", "Orders", "--yes")
    assert (await _line(running, *words)).lines == [
        "delete topic [Orders] from cluster [DefaultCluster] success.",
        "delete topic [Orders] from NameServer success.",
    ]
    again = await _line(running, *words)
    assert again.problem.startswith(
        "mqadmin deleteTopic: CODE: 17  DESC: topic [Orders] does not exist in cluster [DefaultCluster]; "
    )
    gone = await _line(running, "topicRoute", "-t", "Orders")
    assert "CODE: 17  DESC: No topic route info in name server for the topic: Orders" in gone.problem
    assert "clusterName exists" in (await _line(running, "deleteTopic", "-c", "No", "-t", "Orders")).problem


async def test_a_permission_is_changed_and_queues_stay(running: Cluster) -> None:
    await _line(running, "updateTopic", "-b", "broker-a", "-t", "Orders", "-r", "8", "-w", "8")
    await _line(running, "updateTopic", "-b", "broker-b", "-t", "Orders", "-r", "2", "-w", "2")
    address = running.brokers[1].address
    result = await _line(running, "updateTopicPerm", "-b", address, "-t", "Orders", "-p", "4")
    assert result.lines == [
        f"update topic perm from 6 to 4 in {address} success.",
        "TopicConfig [topicName=Orders, readQueueNums=2, writeQueueNums=2, perm=R--, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}].",
    ]
    same = await _line(running, "updateTopicPerm", "-b", address, "-t", "Orders", "-p", "4")
    assert same.stdout == "new perm equals to the old one!\n"
    whole = await _line(running, "updateTopicPerm", "-c", "DefaultCluster", "-t", "Orders", "-p", "6")
    assert whole.lines == [
        f"update topic perm from 6 to 6 in {broker.address} success." for broker in running.brokers
    ]
    route = (await _line(running, "topicRoute", "-t", "Orders", "--json")).json
    found = {data["brokerName"]: (data["readQueueNums"], data["perm"]) for data in route["queueDatas"]}
    assert found == {"broker-a": (8, 6), "broker-b": (2, 6)}


async def test_a_permission_of_what_is_not_there(running: Cluster) -> None:
    await _line(running, "updateTopic", "-b", "broker-a", "-t", "Orders")
    none = await _line(running, "updateTopicPerm", "-b", DEAD, "-t", "Orders", "-p", "4")
    assert "broker not exit or broker is not master" in none.problem
    assert (
        "CODE: 17"
        in (await _line(running, "updateTopicPerm", "-b", "broker-a", "-t", "No", "-p", "4")).problem
    )
    assert "-b host:port" in (await _line(running, "updateTopicPerm", "-t", "Orders", "-p", "4")).problem


# -- what there is -----------------------------------------------------------------------------------


async def test_the_status_of_a_topic_under_all_its_names(running: Cluster) -> None:
    await _made(running, "Orders", "-r", "1", "-w", "1")
    async with AsyncProducer("P", namesrv=running.namesrv_addr) as producer:
        for number in range(4):
            await producer.send(Message("Orders", str(number).encode()))
    texts = [
        await _line(running, name, "-t", "Orders") for name in ("topicStatus", "topicStauts", "TOPICSTATS")
    ]
    assert len({text.stdout for text in texts}) == 1
    head, one, two, empty, tps = texts[0].lines
    assert head.split("  ")[0] == "#Broker Name" and (empty, tps) == ("", "Topic Put TPS: 0.0")
    assert [row.split()[:4] for row in (one, two)] == [
        ["broker-a", "0", "0", "2"],
        ["broker-b", "0", "0", "2"],
    ]
    old = await _line(running, "topicStatus", "-t", "Orders", "--format", "4.9")
    assert old.lines == texts[0].lines[:3]
    as_json = (await _line(running, "topicStatus", "-t", "Orders", "--json")).json
    assert [queue["max_offset"] for queue in as_json["queues"]] == [2, 2]


async def test_a_status_with_a_broker_down_shows_the_other(running: Cluster) -> None:
    await _line(running, "updateTopic", "-b", "broker-a", "-t", "Orders", "-r", "1", "-w", "1")
    await register_dead_broker(running, "Orders")
    result = await _line(running, "topicStatus", "-t", "Orders")
    assert result.exit_code == 1 and [line.split()[0] for line in result.lines[1:-2]] == ["broker-a"]
    assert f"cannot connect to {DEAD}" in result.problem
    as_json = await _line(running, "topicStatus", "-t", "Orders", "--json")
    assert as_json.exit_code == 1 and as_json.json["silent"][0]["address"] == DEAD


async def test_a_change_with_a_broker_down_is_done_on_the_others(running: Cluster) -> None:
    await register_dead_broker(running)
    result = await _line(running, "updateTopic", "-c", "DefaultCluster", "-t", "Orders")
    assert result.exit_code == 1
    assert result.lines[:-1] == [f"create topic to {broker.address} success." for broker in running.brokers]
    assert f"cannot connect to {DEAD}" in result.stderr and len(result.stderr.splitlines()) == 1
    deleted = await _line(running, "deleteTopic", "-c", "DefaultCluster", "-t", "Orders")
    assert deleted.stdout == "delete topic [Orders] from NameServer success.\n"
    assert f"from cluster [DefaultCluster]: cannot connect to {DEAD}" in deleted.stderr


async def _with_row(running: Cluster, row: str) -> Result | None:
    result = await _line(running, "topicList", "-c")
    return result if row in result.lines else None


async def test_topics_with_their_groups(running: Cluster) -> None:
    await _made(running, "Orders")

    async def take(messages: list[MessageExt]) -> ConsumeResult:
        return ConsumeResult.SUCCESS

    async with AsyncPushConsumer("Payments", namesrv=running.namesrv_addr) as consumer:
        await consumer.subscribe("Orders", take)
        row = f"{'DefaultCluster':<20}  {'Orders':<64}  {'Payments':<64}"
        result = await until(lambda: _with_row(running, row))
    assert result.lines[0] == f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}"
    assert not [line for line in result.lines if "%RETRY%" in line]


async def test_clusters_and_shares_of_a_topic(running: Cluster) -> None:
    await _made(running, "Orders", "-r", "2", "-w", "2")
    assert (await _line(running, "topicClusterList", "-t", "Orders")).stdout == "DefaultCluster\n"
    shares = json.loads((await _line(running, "allocateMQ", "-t", "Orders", "-i", "a,b,c")).stdout)["result"]
    assert [[(queue["brokerName"], queue["queueId"]) for queue in shares[name]] for name in "abc"] == [
        [("broker-a", 0), ("broker-a", 1)],
        [("broker-b", 0)],
        [("broker-b", 1)],
    ]
    assert "separated by commas" in (await _line(running, "allocateMQ", "-t", "Orders", "-i", ",")).problem


async def test_no_such_topic(running: Cluster) -> None:
    cases = ["topicRoute", "topicStatus", "topicClusterList"]
    for name in cases:
        result = await _line(running, name, "-t", "NoSuchTopic")
        assert result.stdout == ""
        assert (
            "CODE: 17  DESC: No topic route info in name server for the topic: NoSuchTopic" in result.problem
        )


async def test_no_name_server_there() -> None:
    cases = [
        ("topicList",),
        ("topicRoute", "-t", "X"),
        ("topicStatus", "-t", "X"),
        ("deleteTopic", "-t", "X", "-c", "DefaultCluster"),
        ("updateOrderConf", "-t", "X", "-m", "get"),
    ]
    for words in cases:
        assert f"no name server answers: cannot connect to {DEAD}" in (await run_line(DEAD, *words)).problem


# -- updateOrderConf ---------------------------------------------------------------------------------


async def test_order_configuration(running: Cluster) -> None:
    words = ("updateOrderConf", "-t", "Orders", "-m")
    put = await _line(running, *words, "put", "-v", "broker-a:4;broker-b:4")
    assert put.stdout == "update orderConf success. topic=[Orders], orderConf=[broker-a:4;broker-b:4]"
    assert "[broker-a:4;broker-b:4] " in (await _line(running, *words, "get")).stdout
    assert (await _line(running, *words, "delete")).stdout == "delete orderConf success. topic=[Orders]"
    assert "CODE: 22" in (await _line(running, *words, "get")).problem
    assert "please set orderConf with option -v." in (await _line(running, *words, "put")).problem
    assert "must be get, put or delete" in (await _line(running, *words, "set")).problem
