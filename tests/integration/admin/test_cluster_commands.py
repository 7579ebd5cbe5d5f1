"""Commands about clusters, whole command lines against a cluster in this process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.testing.cluster import Cluster, cluster
from tests.golden.mqadmin import VERSIONS, recordings
from tests.integration.admin.dead_broker import DEAD, register_dead_broker
from tests.unit.admin.command_line import Result, run_line


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as started:
        yield started


async def _line(running: Cluster, *words: str) -> Result:
    return await run_line(running.namesrv_addr, *words)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_list_has_apaches_head(running: Cluster, version: str) -> None:
    head, row = (await _line(running, "clusterList", "--format", version)).lines
    assert head == recordings(version)["clusterList"].stdout.splitlines()[0]
    assert row.split()[:4] == ["DefaultCluster", "broker-a", "0", running.broker.address]


async def test_the_list_in_all_its_forms(running: Cluster) -> None:
    listed = await _line(running, "clusterList", "-c", "DefaultCluster")
    assert re.search(r" +\d+\.\d\d\(\d+,\d+ms\) +\d+\.\d\d\(\d+,\d+ms\|[\dN]+,[\dN]+ms\)", listed.lines[1])
    assert listed.lines[1].endswith(" true")
    totals = await _line(running, "clusterList", "-m")
    assert totals.lines[1].split() == ["DefaultCluster", "broker-a", "0", "0", "0", "0"]
    as_json = (await _line(running, "clusterList", "--json")).json
    assert [broker["broker_name"] for broker in as_json] == ["broker-a"]


async def test_a_broker_that_is_down_is_listed_with_zeros(running: Cluster) -> None:
    await register_dead_broker(running)
    result = await _line(running, "clusterList")
    assert [line.split()[1] for line in result.lines[1:]] == ["broker-a", "broker-dead"]
    assert result.lines[2].split()[3:6] == [DEAD, "0.00(,ms)", "0.00(,ms|,ms)"]
    assert result.lines[2].endswith(" false")
    assert f"broker-dead: cannot connect to {DEAD}" in result.stderr
    assert len((await _line(running, "clusterList", "-m")).lines) == 3


async def test_the_list_is_printed_again_and_again(running: Cluster) -> None:
    result = await run_line(
        running.namesrv_addr,
        "clusterList",
        "-i",
        "0",
        is_enough=lambda text: text.count("#Cluster Name") == 3,
    )
    assert "interrupted" in result.problem
    assert result.lines[2] == "" and result.lines[0] == result.lines[3]


async def test_a_cluster_that_is_not_there(running: Cluster) -> None:
    for name in ("clusterList", "clusterRT"):
        result = await _line(running, name, "-c", "NoCluster")
        assert "cluster [NoCluster] not exist" in result.problem and result.stdout == ""


async def test_no_name_server_there() -> None:
    assert f"cannot connect to {DEAD}" in (await run_line(DEAD, "clusterList")).problem
    nowhere = await run_line(None, "clusterList")
    assert "-n host:9876" in nowhere.problem and "NAMESRV_ADDR" in nowhere.problem
    assert "not an address" in (await run_line("not an address", "clusterList")).problem


# -- clusterRT ---------------------------------------------------------------------------------------


def _masked(lines: list[str]) -> list[str]:
    """Without the times, which are padded to the same width."""
    return [re.sub(r"\d+\.\d\d +", "RT ", line) for line in lines]


@pytest.mark.parametrize("version", VERSIONS)
async def test_cluster_rt_prints_as_apaches(running: Cluster, version: str) -> None:
    # It sends real messages: times are others than those of the recording.
    recording = recordings(version)["clusterRT"]
    theirs = recording.stdout.splitlines()[:4]
    name, _, _, *words = recording.arguments
    words = [*words[:-1], "0"]  # not a second between rounds
    result = await run_line(
        running.namesrv_addr, name, *words, is_enough=lambda text: text.count("\n") == len(theirs)
    )
    assert _masked(result.lines) == _masked(theirs)
    assert "interrupted" in result.problem


async def test_cluster_rt_by_its_old_name_as_a_log(running: Cluster) -> None:
    words = ("clusterListRT", "-a", "2", "-i", "0", "-p", "true", "-m", "north")
    result = await run_line(running.namesrv_addr, *words, is_enough=lambda text: text.count("\n") == 2)
    for line in result.lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\|north\|DefaultCluster\|broker-a\|\d+", line)


async def test_cluster_rt_counts_failures(running: Cluster) -> None:
    await register_dead_broker(running, "broker-dead", cluster="Dead")
    words = ("clusterRT", "-c", "Dead", "-a", "1", "-i", "0")
    result = await run_line(running.namesrv_addr, *words, is_enough=lambda text: text.count("\n") == 2)
    assert result.lines[1].split()[-2:] == ["0", "1"]


async def test_cluster_rt_of_nothing(running: Cluster) -> None:
    assert "must be above 0" in (await _line(running, "clusterRT", "-a", "0")).problem
    assert "must be a whole number" in (await _line(running, "clusterRT", "-i", "soon")).problem
