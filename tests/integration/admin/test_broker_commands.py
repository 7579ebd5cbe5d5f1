"""Commands about brokers, whole command lines against a cluster in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.admin import Admin
from kourou.admin.topics import topic_status
from kourou.testing.cluster import Cluster, cluster
from tests.golden.mqadmin import VERSIONS, recordings
from tests.integration.admin.dead_broker import DEAD, register_dead_broker
from tests.integration.admin.group_kit import GROUP, TOPIC, consumed, until
from tests.unit.admin.command_line import Result, run_line


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as started:
        yield started


async def _line(running: Cluster, *words: str) -> Result:
    return await run_line(running.namesrv_addr, *words)


# -- state and configuration -------------------------------------------------------------------------


async def test_the_state_of_a_broker(running: Cluster) -> None:
    by_address = await _line(running, "brokerStatus", "-b", running.broker.address)
    names = [line.split(":")[0].rstrip() for line in by_address.lines]
    assert names == sorted(names) and {"putTps", "brokerVersionDesc", "commitLogMaxOffset"} <= set(names)
    by_name = await _line(running, "brokerStatus", "-b", "broker-a")
    assert [line.split(":")[0] for line in by_name.lines] == [line.split(":")[0] for line in by_address.lines]
    of_cluster = await _line(running, "brokerStatus", "-c", "DefaultCluster")
    assert of_cluster.lines[0].startswith(f"{running.broker.address:<24} {names[0]:<32}: ")
    assert (await _line(running, "brokerStatus", "-c", "DefaultCluster", "--json")).json[0]["table"][
        "brokerActive"
    ]


async def test_a_cluster_with_a_broker_down(running: Cluster) -> None:
    await register_dead_broker(running)
    result = await _line(running, "brokerStatus", "-c", "DefaultCluster")
    assert {line.split()[0] for line in result.lines} == {running.broker.address}
    assert f"cannot connect to {DEAD}" in result.stderr and len(result.stderr.splitlines()) == 1


async def test_a_key_that_takes_effect_at_the_next_start_is_noted(running: Cluster) -> None:
    address = running.broker.address
    words = ("updateBrokerConfig", "-b", address, "-k", "listenPort", "-v", "10911")
    updated = await _line(running, *words)
    assert (updated.exit_code, updated.stdout) == (0, f"update broker config success, {address}\n")
    assert updated.stderr == "note: listenPort takes effect at the next start of the server\n"
    as_json = await _line(running, *words, "--json")
    assert as_json.json[0]["note"] == "listenPort takes effect at the next start of the server"


async def test_the_configuration_of_a_broker(running: Cluster) -> None:
    address = running.broker.address
    key = ("-k", "fileReservedTime", "-v", "37")
    updated = await _line(running, "updateBrokerConfig", "-b", address, *key)
    assert (updated.stdout, updated.stderr) == (f"update broker config success, {address}\n", "")
    shown = await _line(running, "getBrokerConfig", "-b", address)
    assert shown.lines[0] == f"============{address}============" and shown.lines[-1] == ""
    assert f"{'fileReservedTime':<50}=  37" in shown.lines
    of_cluster = await _line(running, "getBrokerConfig", "-c", "DefaultCluster")
    assert of_cluster.lines[0] == f"============Master: {address}============"
    assert of_cluster.lines[1:] == shown.lines[1:]


async def test_slaves_are_listed_after_their_master(running: Cluster) -> None:
    await register_dead_broker(running, name="broker-a", broker_id=1)
    masters = await _line(
        running, "updateBrokerConfig", "-c", "DefaultCluster", "-k", "fileReservedTime", "-v", "48"
    )
    assert (masters.lines, masters.stderr) == (
        [f"update broker config success, {running.broker.address}"],
        "",
    )
    words = ("updateBrokerConfig", "-c", "DefaultCluster", "-k", "fileReservedTime", "-v", "48", "-a", "true")
    everybody = await _line(running, *words)
    assert everybody.lines == masters.lines and f"cannot connect to {DEAD}" in everybody.stderr
    config = await _line(running, "getBrokerConfig", "-c", "DefaultCluster", "--json")
    assert [entry["broker"] for entry in config.json] == [
        {"address": running.broker.address, "master": running.broker.address},
        {"address": DEAD, "master": running.broker.address},
    ]


async def test_how_far_the_groups_of_a_broker_are(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        result = await _line(found.running, "brokerConsumeStats", "-b", "broker-a")
        rows = [line.split() for line in result.lines[1:-2] if line.startswith(TOPIC)]
        assert rows and {row[1] for row in rows} == {GROUP}
        assert all(row[4] == row[5] and row[6] == "0" for row in rows)
        assert result.lines[-2:] == ["", "Diff Total: 0"]
        behind = await _line(found.running, "brokerConsumeStats", "-b", "broker-a", "-l", "1")
        assert len(behind.lines) == 3
        in_order = await _line(found.running, "brokerConsumeStats", "-b", "broker-a", "-o", "true")
        assert len(in_order.lines) == 3


# -- writing, cleaning -------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["name", "address"])
async def test_writing_to_a_broker_is_stopped_and_allowed(running: Cluster, by: str) -> None:
    broker = "broker-a" if by == "name" else running.broker.address
    await _line(running, "updateTopic", "-b", "broker-a", "-t", "Orders")
    place = f"of broker[broker-a] in name server[{running.namesrv_addr}] OK, "
    wiped = await _line(running, "wipeWritePerm", "-b", broker)
    assert re.fullmatch(re.escape(f"wipe write perm {place}") + r"\d+\n", wiped.stdout)
    assert (await _line(running, "topicRoute", "-t", "Orders", "--json")).json["queueDatas"][0]["perm"] == 4
    added = await _line(running, "addWritePerm", "-b", broker)
    assert re.fullmatch(re.escape(f"add write perm {place}") + r"\d+\n", added.stdout)
    assert (await _line(running, "topicRoute", "-t", "Orders", "--json")).json["queueDatas"][0]["perm"] == 6


async def test_one_name_server_of_two_is_down(running: Cluster) -> None:
    result = await run_line(f"{running.namesrv_addr};{DEAD}", "wipeWritePerm", "-b", "broker-a")
    assert result.exit_code == 1
    assert sorted(line.split("]")[-1].split(",")[0].strip() for line in result.lines) == ["Failed", "OK"]
    assert f"cannot connect to {DEAD}" in result.stderr


async def test_cleaning(running: Cluster) -> None:
    names = ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"]
    for name in names:
        for words in ((), ("-b", running.broker.address), ("-b", "broker-a"), ("-c", "DefaultCluster")):
            assert (await _line(running, name, *words)).stdout == "success"
    await register_dead_broker(running)
    for name in names:
        result = await _line(running, name)
        assert result.stdout == "false" and f"cannot connect to {DEAD}" in result.stderr
        assert "clusterName exists" in (await _line(running, name, "-c", "NoCluster")).problem


# -- parts of 5.x that Kourou's brokers do not have --------------------------------------------------


async def test_the_broker_says_what_it_cannot(running: Cluster) -> None:
    cases = [
        ("resetMasterFlushOffset", "-o", "5"),
        ("getColdDataFlowCtrInfo",),
        ("updateColdDataFlowCtrGroupConfig", "-g", "G", "-v", "1000"),
        ("removeColdDataFlowCtrGroupConfig", "-g", "G"),
        ("setCommitLogReadAheadMode", "-m", "1"),
        ("switchTimerEngine", "-e", "F"),
    ]
    for words in cases:
        result = await _line(running, *words, "-b", running.broker.address)
        assert "CODE: 3  DESC:" in result.problem and f"(from {running.broker.address})" in result.problem
        assert result.stdout == ""


async def test_values_that_are_none(running: Cluster) -> None:
    cases = [
        (("setCommitLogReadAheadMode", "-m", "2"), "set the read mode error; 0 is default, 1 random read"),
        (("switchTimerEngine", "-e", "X"), "switchTimerEngine engineType must be R or F"),
        (("updateColdDataFlowCtrGroupConfig", "-g", "G", "-v", "much"), "-v much: must be a whole number"),
    ]
    for words, expected in cases:
        assert expected in (await _line(running, *words, "-b", "broker-a")).problem


# -- bad input ---------------------------------------------------------------------------------------


async def test_no_server_at_that_address(running: Cluster) -> None:
    cases = [
        ("brokerStatus",),
        ("getBrokerConfig",),
        ("updateBrokerConfig", "-k", "fileReservedTime", "-v", "1"),
        ("brokerConsumeStats",),
        ("cleanExpiredCQ",),
        ("cleanUnusedTopic",),
        ("deleteExpiredCommitLog",),
        ("haStatus",),
    ]
    for words in cases:
        result = await _line(running, *words, "-b", DEAD)
        assert f"cannot connect to {DEAD}" in result.problem and result.stdout == ""
        unknown = await _line(running, *words, "-b", "no-such-broker")
        assert "no-such-broker" in unknown.problem


async def test_bad_input_is_one_line(running: Cluster) -> None:
    cases = [
        (("getBrokerConfig",), "give a broker with -b host:port, or a cluster with -c name"),
        (("haStatus",), "give a broker with -b host:port, or a cluster with -c name"),
        (("getBrokerConfig", "-c", "NoCluster"), "clusterName exists"),
        (("brokerStatus", "-c", "NoCluster"), "clusterName exists"),
        (("updateBrokerConfig", "-b", "broker-a", "-k", "noSuchKey", "-v", "1"), "noSuchKey"),
        (("brokerConsumeStats", "-b", "broker-a", "-t", "soon"), "-t soon: must be a whole number"),
        (("sendMsgStatus", "-b", "no-such-broker", "-c", "1"), "no-such-broker"),
        (("sendMsgStatus", "-b", "broker-a", "-c", "0"), "-c and -s must be above 0"),
    ]
    for words, expected in cases:
        assert expected in (await _line(running, *words)).problem


async def test_wiping_a_broker_that_is_not_there_is_refused(running: Cluster) -> None:
    result = await _line(running, "wipeWritePerm", "-b", "no-such-broker")
    assert "broker no-such-broker: no broker has that name" in result.problem


# -- sendMsgStatus -----------------------------------------------------------------------------------


def _masked(text: str) -> str:
    for pattern in (r"rt=\d+ms", r"[mM]sgId=[0-9A-F]+", r"queueOffset=\d+", r"queueId=\d+"):
        text = re.sub(pattern, "MASKED", text)
    return text


@pytest.mark.parametrize("version", VERSIONS)
async def test_send_msg_status_prints_as_apaches(running: Cluster, version: str) -> None:
    # It sends real messages: times, ids and offsets are others than those of the recording.
    recording = recordings(version)["sendMsgStatus"]
    name, _, _, *words = recording.arguments
    result = await _line(running, name, *words, "--format", version)
    assert _masked(result.stdout) == _masked(recording.stdout)
    assert (await _line(running, "topicStatus", "-t", "broker-a")).lines[1].split()[3] == "4"


async def test_send_msg_status_as_json(running: Cluster) -> None:
    result = await _line(running, "sendMsgStatus", "-b", running.broker.address, "-c", "2", "--json")
    assert len(result.lines) == 2 and '"status": "SEND_OK"' in result.stdout


async def _has_messages(admin: Admin) -> bool | None:
    status = await topic_status(admin, "broker-a")
    return status.queues[0].max_offset > 20 or None


async def test_a_broker_stops_in_the_middle(running: Cluster) -> None:
    async with Admin(namesrv=running.namesrv_addr) as admin:
        sending = asyncio.create_task(_line(running, "sendMsgStatus", "-b", "broker-a", "-c", "1000000"))
        await until(lambda: _has_messages(admin))
        await running.broker.stop()
        result = await sending
    assert "broker-a" in result.problem and "Traceback" not in result.problem
    assert len(result.lines) > 10 and all(line.startswith("rt=") for line in result.lines)
