"""Exports of a cluster in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.admin.dead_broker import DEAD, register_dead_broker
from tests.integration.admin.group_kit import GROUP, TOPIC, Traffic, consumed, traffic
from tests.unit.admin.command_line import run_line


async def _exported(found: Traffic, folder: Path, name: str, file: str, *words: str) -> dict[str, Any]:
    result = await found.line(name, *words, "-f", str(folder))
    assert (result.exit_code, result.stderr) == (0, ""), result
    assert result.stdout.strip() == f"export {folder / file} success"
    tree: dict[str, Any] = json.loads((folder / file).read_text())
    return tree


async def test_metadata(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        folder = tmp_path / "a" / "b"
        cluster = ("-c", "DefaultCluster")
        tree = await _exported(found, folder, "exportMetadata", "metadata.json", *cluster)
        assert list(tree["topicConfigTable"]) == [TOPIC]
        assert tree["topicConfigTable"][TOPIC]["readQueueNums"] == 4
        assert list(tree["subscriptionGroupTable"]) == [GROUP]
        assert tree["exportTime"] > 1_700_000_000_000
        topics = await _exported(found, folder, "exportMetadata", "topic.json", *cluster, "-t", "-s")
        assert list(topics["topicConfigTable"]) == [f"%RETRY%{GROUP}", TOPIC]
        assert "subscriptionGroupTable" not in topics
        groups = await _exported(
            found, folder, "exportMetadata", "subscriptionGroup.json", "-b", "broker-a", "-g"
        )
        assert list(groups["subscriptionGroupTable"]) == [GROUP] and "topicConfigTable" not in groups
        in_json = (await found.line("exportMetadata", *cluster, "-f", str(folder), "--json")).json
        assert in_json == {"path": str(folder / "metadata.json")}


async def test_queues_of_all_brokers_are_added_up(tmp_path: Path) -> None:
    async with traffic(tmp_path, brokers=2) as found:
        made = await found.line("updateTopic", "-c", "DefaultCluster", "-t", "Wide", "-r", "3", "-w", "2")
        assert made.exit_code == 0
        tree = await _exported(found, tmp_path, "exportMetadata", "metadata.json", "-c", "DefaultCluster")
        wide = tree["topicConfigTable"]["Wide"]
        assert (wide["readQueueNums"], wide["writeQueueNums"]) == (6, 4)


async def test_configs(tmp_path: Path) -> None:
    async with traffic(tmp_path, brokers=2) as found:
        tree = await _exported(found, tmp_path, "exportConfigs", "configs.json", "-c", "DefaultCluster")
        assert tree["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 2, "slaveBrokerSize": 0}
        assert sorted(tree["brokerConfigs"]) == ["broker-a", "broker-b"]
        config = tree["brokerConfigs"]["broker-a"]
        assert config["brokerName"] == "broker-a" and config["flushDiskType"] == "ASYNC_FLUSH"
        assert config["maxMessageSize"] == "4194304"


async def test_metrics(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        tree = await _exported(found, tmp_path, "exportMetrics", "metrics.json", "-c", "DefaultCluster")
        broker = tree["evaluateReport"]["broker-a"]
        assert broker["runtimeQuota"]["topicSize"] == 1 and broker["runtimeQuota"]["groupSize"] == 1
        assert broker["runtimeVersion"]["rocketmqVersion"].startswith("V5_")
        (client,) = broker["runtimeVersion"]["clientInfo"]
        assert "%V5_" in client
        assert float(broker["runtimeQuota"]["messageAverageSize"]) > 0
        assert set(tree["totalData"]) == {"totalTps", "totalOneDayNum"}


async def test_what_cannot_be_exported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with traffic(tmp_path) as found:
        for name in ("exportMetadata", "exportConfigs", "exportMetrics"):
            in_the_way = await found.line(name, "-c", "DefaultCluster", "-f", str(tmp_path / "file"))
            assert f"{tmp_path}/file" in in_the_way.problem and "with -f" in in_the_way.problem
            unknown = await found.line(name, "-c", "NoSuchCluster", "-f", str(tmp_path))
            assert "cluster [NoSuchCluster] not exist" in unknown.problem
        neither = await found.line("exportMetadata", "-f", str(tmp_path))
        assert "give a broker with -b, or a cluster with -c" in neither.problem
        gone = await found.line("exportMetadata", "-b", DEAD, "-f", str(tmp_path))
        assert DEAD in gone.problem
        await register_dead_broker(found.running)
        for name in ("exportMetadata", "exportConfigs", "exportMetrics"):
            half = await run_line(found.namesrv, name, "-c", "DefaultCluster", "-f", str(tmp_path / "half"))
            assert DEAD in half.problem
        assert not (tmp_path / "half").exists()
