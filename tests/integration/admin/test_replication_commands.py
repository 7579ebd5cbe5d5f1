"""What operators see of a master and its slave: haStatus, getBrokerEpoch, clusterList, top, doctor."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.embed import Broker
from kourou.standalone.following import wait_followed
from kourou.testing.cluster import Cluster, broker_config, cluster
from tests.e2e.broker.test_cluster import send_command
from tests.integration.admin.gone_broker import register
from tests.unit.admin.command_line import run_line

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[tuple[Cluster, Broker]]:
    """A SYNC_MASTER and a slave that follows it."""
    async with cluster(folder, broker_role="SYNC_MASTER") as running:
        config = broker_config(folder, 0, running.namesrv_addr, broker_id=1)
        async with Broker(config) as slave:
            assert not await wait_followed([running.broker.address], 1, timeout_s=30)
            yield running, slave


async def findings(running: Cluster, *other_namesrvs: str) -> tuple[list[dict[str, Any]], str]:
    """What the doctor finds about replication, and the whole text."""
    line, namesrvs = ("doctor", "--watch", "0"), ";".join((running.namesrv_addr, *other_namesrvs))
    report = json.loads((await run_line(namesrvs, *line, "--json")).stdout)
    text = (await run_line(namesrvs, *line)).stdout
    return [each for each in report["findings"] if each["check"] == "replication"], text


async def test_a_pair_that_works_and_one_without_slave(tmp_path: Path) -> None:
    async with pair(tmp_path) as (running, slave):
        namesrv, master = running.namesrv_addr, running.broker.address
        assert (await running.client.call(master, send_command(b"x"), 5_000)).code == 0
        end = running.broker.services.store.log.max_phy_offset

        shown = await run_line(namesrv, "haStatus", "-b", master)
        assert shown.lines[:5] == [
            "",
            f"#MasterAddr\t{master}",
            f"#MasterCommitLogMaxOffset\t{end}",
            "#SlaveNum\t1",
            "#InSyncSlaveNum\t1",
        ]
        assert shown.lines[6].split()[1:3] == [str(end), "0"] and "OK" in shown.lines[6]
        shown = await run_line(namesrv, "haStatus", "-b", slave.address)
        assert shown.lines[1:3] == [
            f"#MasterAddr\t127.0.0.1:{running.broker.config.ha_listen_port}",
            f"#CommitLogMaxOffset\t{end}",
        ]

        shown = await run_line(namesrv, "getBrokerEpoch", "-b", "broker-a")
        epoch = f"#Epoch: EpochEntry{{epoch=1, startOffset=0, endOffset={end}}}"
        assert [line for line in shown.lines if line.startswith(("#brokerAddr", "#brokerId", "#Epoch"))] == [
            *(f"#brokerAddr\t{master}", "#brokerId\t0", epoch),
            *(f"#brokerAddr\t{slave.address}", "#brokerId\t1", epoch),
        ]

        listed = (await run_line(namesrv, "clusterList")).lines[1:]
        assert [line.split()[1:4] for line in listed] == [
            ["broker-a", "0", master],
            ["broker-a", "1", slave.address],
        ]
        shown = await run_line(namesrv, "brokerStatus", "-c", "DefaultCluster")
        assert sum(f"commitLogMaxOffset              : {end}" in line for line in shown.lines) == 2

        rows = json.loads((await run_line(namesrv, "top", "--once", "--json")).stdout)["brokers"]
        assert [(row["broker_id"], row["lag_bytes"], row["lag_ms"]) for row in rows] == [
            (0, None, None),
            (1, 0, 0),
        ]
        found, text = await findings(running)
        assert not found
        assert f"Slave broker-a ({slave.address}, id 1): 0 bytes, 0 ms behind its master." in text

        await slave.stop()
        found, _ = await findings(running)
        assert [finding["what"] for finding in found] == [
            "its role is SYNC_MASTER, but no slave is connected"
        ]


async def test_a_slave_that_does_not_follow_is_reported_with_its_reason(tmp_path: Path) -> None:
    async with pair(tmp_path) as (running, slave):
        await running.broker.stop()
        found, text = await findings(running)
        assert [finding["what"] for finding in found] == [
            f"a slave ({slave.address}) is registered, but no master"
        ]
        assert f"Slave broker-a ({slave.address}, id 1): connecting" in text
        shown = await run_line(running.namesrv_addr, "top", "--once")
        row = next(line for line in shown.lines if line.startswith("broker-a "))
        assert "no link" in row


async def test_two_masters_of_one_name_at_different_name_servers(tmp_path: Path) -> None:
    async with cluster(tmp_path / "first") as running, cluster(tmp_path / "second") as other:
        found, _ = await findings(running, other.namesrv_addr)
        addresses = sorted((running.broker.address, other.broker.address))
        assert [finding["what"] for finding in found] == [f"2 masters have this name: {', '.join(addresses)}"]
        # One that has moved is still registered at its old address with the other name server.
        await register(other, "broker-a", "127.0.0.1:1")
        found, _ = await findings(running, other.namesrv_addr)
        assert found == []
