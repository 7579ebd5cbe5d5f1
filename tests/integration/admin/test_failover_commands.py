"""Seeing and steering a broker set: getSyncStateSet, electMaster, handover, top and doctor."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.protocol.codes import ResponseCode
from kourou.testing.cluster import cluster
from tests.unit.admin.command_line import run_line

from .set_kit import BrokerSet, broker_set

pytestmark = pytest.mark.e2e


def shown_set(members: BrokerSet) -> list[str]:
    """What getSyncStateSet prints of a set of two, in Apache's words."""
    replicas = [
        f"InSyncReplica:\tReplicaIdentity{{brokerName='broker-a', brokerId={each}, "
        f"brokerAddress='{members.address(each)}', alive=true}}"
        for each in (1, 2)
    ]
    return [
        "",
        "#brokerName\tbroker-a",
        "#MasterBrokerId\t1",
        f"#MasterAddr\t{members.address(1)}",
        "#MasterEpoch\t7",
        "#SyncStateSetEpoch\t4",
        "#SyncStateSetNums\t2",
        *("", replicas[0]),
        *("", replicas[1]),
    ]


async def test_what_operators_see_of_a_set(tmp_path: Path) -> None:
    async with broker_set(tmp_path) as members:
        namesrv = members.running.namesrv_addr
        for words in (
            ("-b", "broker-a"),
            ("-c", "DefaultCluster"),
            (),
            ("-a", members.address(1), "-b", "broker-a"),
            ("-a", members.address(2), "-c", "DefaultCluster"),
        ):
            assert (await run_line(namesrv, "getSyncStateSet", *words)).lines == shown_set(members), words

        shown = await run_line(None, "getControllerMetaData", "-a", members.address(2))
        assert shown.lines == [
            "",
            "#ControllerGroup\tDefaultCluster/broker-a",
            "#ControllerLeaderId\t1",
            f"#ControllerLeaderAddress\t{members.address(1)}",
            f"#Peer:\t1-{members.address(1)}",
            f"#Peer:\t2-{members.address(2)}",
        ]

        shown = await run_line(namesrv, "top", "--once")
        head = next(line for line in shown.lines if line.startswith("BROKER"))
        assert head.endswith("MEMBER  EPOCH  IN SYNC")
        rows = [line.split() for line in shown.lines if line.startswith("broker-a ")]
        assert sorted((row[1], row[2]) for row in rows) == [
            ("0", members.address(1)),
            ("2", members.address(2)),
        ]
        assert sorted(" ".join(row[9:]) for row in rows) == ["1 7 2 of 2", "2 7 yes"]

        report = (await run_line(namesrv, "doctor", "--watch", "0", "--json")).json
        found = [each["what"] for each in report["findings"] if each["check"] in ("fail-over", "replication")]
        assert found == ["the set has no spare: 2 members in sync (1, 2), minInSyncReplicas is 2"]


async def test_without_a_master_every_member_shows_the_set_and_none_hands_over(tmp_path: Path) -> None:
    async with broker_set(tmp_path) as members:
        members.choose(None)
        namesrv, slave = members.running.namesrv_addr, members.address(2)
        shown = await run_line(None, "getSyncStateSet", "-a", slave, "-b", "broker-a")
        assert shown.lines[2:5] == ["#MasterBrokerId\tnull", "#MasterAddr\tnull", "#MasterEpoch\t7"]
        elect = ("electMaster", "-a", slave, "-c", "DefaultCluster", "-bn", "broker-a", "-b", "2")
        assert "the set has no master at present" in (await run_line(None, *elect)).problem
        problem = (await run_line(namesrv, "handover", "-b", "broker-a")).problem
        assert "broker-a has no master at present" in problem


async def test_elect_master_prints_what_apaches_does_and_any_member_will_do(tmp_path: Path) -> None:
    async with broker_set(tmp_path) as members:
        members.is_stuck = True
        rest = ("-c", "DefaultCluster", "-bn", "broker-a", "-b", "2")
        expected = [
            "",
            "#ClusterName\tDefaultCluster",
            "#BrokerName\tbroker-a",
            f"#BrokerMasterAddr\t{members.address(2)}",
            "#MasterEpoch\t8",
            "#SyncStateSetEpoch\t5",
            f"\t#Broker\t1\t{members.address(1)}",
            f"\t#Broker\t2\t{members.address(2)}",
        ]
        for words in (("-a", members.address(2)), ("-n", members.running.namesrv_addr)):
            assert (await run_line(None, "electMaster", *words, *rest)).lines == expected
        assert members.handovers == [2, 2]

        other = ("-c", "DefaultCluster", "-bn", "broker-b", "-b", "2")
        problem = (await run_line(None, "electMaster", "-a", members.address(1), *other)).problem
        assert f"CODE: {ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:d}" in problem
        assert "this is a member of broker broker-a of cluster DefaultCluster" in problem


@pytest.mark.parametrize("target", [("--to", "2"), ()])
async def test_a_handover_waits_until_clients_find_the_new_master(
    tmp_path: Path, target: tuple[str, ...]
) -> None:
    async with broker_set(tmp_path) as members:
        namesrv, (old, new) = members.running.namesrv_addr, (members.address(1), members.address(2))
        shown = await run_line(namesrv, "handover", "-b", "broker-a", *target)
        assert shown.exit_code == 0, shown
        assert shown.lines[0].startswith(f"broker-a: member 1 ({old}) handed over to member 2 ({new}) in "), (
            shown
        )
        assert shown.lines[1:] == ["epoch 8, in sync: 2"]
        assert members.handovers == [2 if target else None]
        listed = (await run_line(namesrv, "clusterList")).lines[1:]
        assert [line.split()[1:4] for line in listed] == [["broker-a", "0", new]]


async def test_handovers_that_are_not_possible(tmp_path: Path) -> None:
    async with broker_set(tmp_path) as members:
        namesrv = members.running.namesrv_addr

        async def problem(*words: str) -> str:
            return (await run_line(namesrv, "handover", *words)).problem

        assert "broker broker-z: no broker of this name is registered" in await problem("-b", "broker-z")
        assert "member 1 is the master already" in await problem("-b", "broker-a", "--to", "1")
        assert "member 3 is not alive; these are: 1, 2" in await problem("-b", "broker-a", "--to", "3")
        members.choose(in_sync=(1,))
        assert "member 2 is not in sync" in await problem("-b", "broker-a", "--to", "2")
        assert "no member but the master is alive and in sync" in await problem("-b", "broker-a")
        assert members.handovers == []

        members.choose()
        members.is_stuck = True
        assert "no new master is registered after 1 s" in await problem("-b", "broker-a", "--wait", "1")


async def test_brokers_that_belong_to_no_set(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        namesrv = running.namesrv_addr
        problem = (await run_line(namesrv, "handover", "-b", "broker-a")).problem
        assert "broker broker-a is not a member of a broker set that chooses its master" in problem
        problem = (await run_line(namesrv, "getSyncStateSet")).problem
        assert "no broker is a member of a broker set that chooses its master" in problem
        head = next(
            line for line in (await run_line(namesrv, "top", "--once")).lines if line.startswith("BROKER")
        )
        assert head.endswith("DISK")
