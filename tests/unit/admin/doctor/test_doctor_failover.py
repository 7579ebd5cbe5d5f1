"""What the doctor finds about broker sets that choose their master, and about their etcd."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.admin.doctor.checks_failover import (
    MemberView,
    clock_findings,
    etcd_findings,
    lease_bugs,
    set_findings,
    sets_of,
)
from kourou.admin.doctor.checks_replication import role_findings, sync_findings
from kourou.admin.doctor.cluster_snapshot import BrokerView
from kourou.admin.doctor.findings import Severity
from kourou.admin.replication import Replica
from kourou.admin.session import BrokerAddress
from kourou.protocol.bodies import HARuntimeInfo
from kourou.protocol.failover_status import EtcdMember, FailoverStatus

PROBLEM, WARNING, HINT = Severity.PROBLEM, Severity.WARNING, Severity.HINT
THREE = tuple(EtcdMember(f"e{number}:2379", "3.6.14") for number in (1, 2, 3))


def status(member_id: int = 1, **fields: Any) -> FailoverStatus:
    """The report of a member of a set in which all is well."""
    well: dict[str, Any] = {
        "master": 1,
        "epoch": 7,
        "in_sync": (1, 2, 3),
        "alive": (1, 2, 3),
        "joined": 3,
        "min_in_sync": 2,
        "etcd": THREE,
    }
    return FailoverStatus(member_id=member_id, **{**well, **fields})


def member(member_id: int = 1, *, ahead_ms: int = 0, **fields: Any) -> MemberView:
    report = status(member_id, **fields)
    broker_id = 0 if report.is_master else member_id
    place = BrokerAddress("c", "broker-a", broker_id, f"10.0.0.{member_id}:10911")
    runtime = {
        **report.to_keys(),
        "bootTimestamp": str(1_000_000 + ahead_ms),
        "runtime": "[ 0 days, 0 hours, 0 minutes, 10 seconds ]",
    }
    return MemberView(BrokerView(place, runtime, 1_010_000, 1_010_050), report)


def test_a_set_in_which_all_is_well() -> None:
    members = [member(1), member(2), member(3, ahead_ms=900)]
    assert sets_of(each.broker for each in members) == {"broker-a": members}
    assert not [*set_findings("broker-a", members), *clock_findings("broker-a", members)]
    assert not list(etcd_findings("broker-a", members))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"in_sync": (1, 2), "alive": (1, 2), "joined": 2},
            [(WARNING, "no spare: 2 members in sync (1, 2)")],
        ),
        (
            {"in_sync": (1, 2), "alive": (1, 3)},
            [
                (PROBLEM, "1 member alive and in sync (1), but minInSyncReplicas is 2"),
                (WARNING, "not alive although in the in-sync set: member 2"),
                (WARNING, "alive, but not in sync: member 3"),
            ],
        ),
        ({"alive": (1, 2, 3), "joined": 4}, [(HINT, "4 members have joined the set, 3 are alive")]),
        (
            {"master": None, "in_sync": (1, 2), "alive": (3,)},
            [
                (PROBLEM, "the set has no master now; alive: 3, in sync: 1, 2"),
                (WARNING, "member 1, 2"),
                (WARNING, "not in sync: member 3"),
            ],
        ),
    ],
)
def test_members(fields: dict[str, Any], expected: list[tuple[Severity, str]]) -> None:
    found = list(set_findings("broker-a", [member(**fields)]))
    assert [each.severity for each in found] == [severity for severity, _ in expected]
    for each, (_, text) in zip(found, expected, strict=True):
        assert text in each.what


def test_without_a_master_the_cure_depends_on_whether_one_can_take_over() -> None:
    (found,) = set_findings("broker-a", [member(2, master=None)])
    assert "takes over within seconds" in found.cure
    found, *_ = set_findings("broker-a", [member(3, master=None, in_sync=(1, 2), alive=(3,))])
    assert "start one of the members in sync (1, 2)" in found.cure


def test_a_master_alone_that_needs_no_copies_has_no_successor() -> None:
    (found,) = set_findings("broker-a", [member(in_sync=(1,), alive=(1,), joined=1, min_in_sync=1)])
    assert found.meaning == "if the master is lost, no other member can take over"


def test_a_member_with_an_old_view_is_named_and_its_view_does_not_count() -> None:
    old = member(3, epoch=6, master=3, in_sync=(3,), alive=(3,))
    (found,) = set_findings("broker-a", [old, member(1), member(2)])
    assert (found.where, found.what) == (
        "broker broker-a (10.0.0.3:10911)",
        "it knows of epoch 6, others of epoch 7",
    )


def test_clocks_that_are_apart_although_each_is_near_this_machines() -> None:
    (found,) = clock_findings("broker-a", [member(1, ahead_ms=-2_500), member(2, ahead_ms=2_500)])
    assert "members 1 (10.0.0.1:10911) and 2 (10.0.0.2:10911) are at least" in found.what


# -- etcd --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "bugs"),
    [
        ("3.3.27", 2),
        ("3.4.30", 2),
        ("3.4.31", 1),
        ("3.4.38", 0),
        ("3.5.12", 2),
        ("3.5.13", 1),
        ("3.5.22", 1),
        ("3.5.23", 0),
        ("3.6.4", 1),
        ("3.6.5", 0),
        ("3.7.0", 0),
        ("3.6.0-rc.1", 1),
        ("unknown", 0),
    ],
)
def test_versions_with_bugs_of_leases(version: str, bugs: int) -> None:
    assert len(lease_bugs(version)) == bugs


def test_an_old_version_is_reported_once_for_all_members() -> None:
    old = (*THREE[:2], EtcdMember("e3:2379", "3.5.16"))
    (found,) = etcd_findings("broker-a", [member(1, etcd=old), member(2, etcd=old)])
    assert found.severity is WARNING and found.what.startswith("etcd 3.5.16 (e3:2379) has known bugs: ")


@pytest.mark.parametrize(("count", "meaning"), [(1, "without it no member"), (2, "if one of them is lost")])
def test_too_few_members_of_etcd(count: int, meaning: str) -> None:
    (found,) = etcd_findings("broker-a", [member(1, etcd=THREE[:count]), member(2, etcd=THREE[:count])])
    assert found.severity is WARNING and found.meaning.startswith(meaning)


def test_a_member_that_reaches_too_few_of_etcd_is_cut_off() -> None:
    gone = [EtcdMember(each.address, "", "no answer within 1 s") for each in THREE]
    (found,) = etcd_findings("broker-a", [member(1), member(2, etcd=(*THREE[:2], gone[2]))])
    assert (found.severity, found.where) == (WARNING, "broker broker-a (10.0.0.2:10911)")
    (found,) = etcd_findings("broker-a", [member(1), member(2, etcd=(THREE[0], *gone[1:]))])
    assert found.severity is PROBLEM and "e2:2379 (no answer within 1 s), e3:2379" in found.what


def test_the_rules_of_plain_replication_do_not_apply_to_sets() -> None:
    slave, master = member(2, master=None), member(1)
    assert not list(role_findings([Replica(slave.broker.place, slave.broker.runtime)], {}))
    lonely = Replica(master.broker.place, master.broker.runtime, HARuntimeInfo(master=True))
    assert not list(sync_findings([lonely], {master.broker.place.address: {"brokerRole": "SYNC_MASTER"}}))
