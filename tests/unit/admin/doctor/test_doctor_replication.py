"""What the doctor finds about masters and slaves."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.admin.doctor.checks_replication import (
    id_findings,
    lag_findings,
    role_findings,
    sync_findings,
)
from kourou.admin.doctor.findings import Severity
from kourou.admin.replication import Replica, SlaveLag
from kourou.admin.session import BrokerAddress
from kourou.protocol.bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo

MASTER = BrokerAddress("c", "broker-a", 0, "10.0.0.1:10911")
SLAVE = BrokerAddress("c", "broker-a", 1, "10.0.0.2:10911")
OF_MASTER = {"brokerRole": "ASYNC_MASTER", "brokerIP2": "10.0.0.1", "haListenPort": "10912"}
CONFIGS = {MASTER.address: OF_MASTER, SLAVE.address: {"brokerRole": "SLAVE"}}


def of_master(**ha: Any) -> Replica:
    return Replica(MASTER, {}, HARuntimeInfo(master=True, **ha))


def of_slave(follows: str | None = "10.0.0.1:10912") -> Replica:
    return Replica(SLAVE, {}, HARuntimeInfo(ha_client_runtime_info=HAClientRuntimeInfo(master_addr=follows)))


# -- ids ---------------------------------------------------------------------------------------------


def test_two_masters_of_one_name() -> None:
    second = BrokerAddress("c", "broker-a", 0, "10.0.0.9:10911")
    (found,) = id_findings([MASTER, second, SLAVE])
    assert (found.severity, found.where) == (Severity.PROBLEM, "broker broker-a")
    assert found.what == "2 masters have this name: 10.0.0.1:10911, 10.0.0.9:10911"


def test_two_slaves_of_one_id_but_not_of_two() -> None:
    twin = BrokerAddress("c", "broker-a", 1, "10.0.0.3:10911")
    (found,) = id_findings([MASTER, SLAVE, twin])
    assert "2 slaves with brokerId 1" in found.what
    assert not list(id_findings([MASTER, SLAVE, BrokerAddress("c", "broker-a", 2, "10.0.0.3:10911")]))


def test_one_name_in_two_clusters() -> None:
    """The name server lists the same addresses in both."""
    (found,) = id_findings([MASTER, BrokerAddress("d", "broker-a", 0, MASTER.address)])
    assert found.what == "brokers of this name are registered in 2 clusters: c, d"


# -- roles -------------------------------------------------------------------------------------------


def test_a_pair_that_fits() -> None:
    assert not list(role_findings([of_master(), of_slave()], CONFIGS))


@pytest.mark.parametrize(("place", "role"), [(MASTER, "SLAVE"), (SLAVE, "SYNC_MASTER")])
def test_an_id_that_does_not_fit_the_role(place: BrokerAddress, role: str) -> None:
    configs = {**CONFIGS, place.address: {"brokerRole": role}}
    (found,) = role_findings([Replica(MASTER, {}), Replica(SLAVE, {})], configs)
    assert found.what == f"it is registered with id {place.broker_id}, but its role is {role}"


def test_slaves_without_master_are_one_finding() -> None:
    second = BrokerAddress("c", "broker-a", 2, "10.0.0.3:10911")
    (found,) = role_findings([of_slave(), Replica(second, {})], CONFIGS)
    assert (found.severity, found.what) == (
        Severity.PROBLEM,
        "a slave (10.0.0.2:10911) is registered, but no master",
    )


def test_a_slave_of_another_master_of_the_name() -> None:
    (found,) = role_findings([of_master(), of_slave("10.0.0.9:10912")], CONFIGS)
    assert "follows a master at 10.0.0.9:10912" in found.what
    by_hand = {**CONFIGS, SLAVE.address: {"brokerRole": "SLAVE", "haMasterAddress": "10.0.0.9:10912"}}
    assert not list(role_findings([of_master(), of_slave("10.0.0.9:10912")], by_hand))


# -- SYNC_MASTER -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "ha", "severity", "words"),
    [
        ({}, {}, Severity.PROBLEM, ("no slave is connected", "SLAVE_NOT_AVAILABLE")),
        ({"inSyncReplicas": "2"}, {}, Severity.PROBLEM, ("1 copy in sync", "messages are rejected")),
        (
            {"inSyncReplicas": "4", "minInSyncReplicas": "3", "enableAutoInSyncReplicas": "true"},
            {"in_sync_slave_nums": 1},
            Severity.PROBLEM,
            ("2 copies in sync, the master's included; messages need 3", "messages are rejected"),
        ),
        (
            {"inSyncReplicas": "2", "enableAutoInSyncReplicas": "true"},
            {},
            Severity.PROBLEM,
            ("no slave is connected", "stored on this broker only"),
        ),
        (
            {},
            {"ha_connection_info": [HAConnectionRuntimeInfo()]},
            Severity.PROBLEM,
            ("none of 1 slave is in sync", "SLAVE_NOT_AVAILABLE"),
        ),
        ({"inSyncReplicas": "1"}, {}, Severity.WARNING, ("inSyncReplicas=1", "before a slave has it")),
    ],
)
def test_a_synchronous_master_without_slave(
    keys: dict[str, str], ha: dict[str, Any], severity: Severity, words: tuple[str, str]
) -> None:
    configs = {MASTER.address: {**OF_MASTER, "brokerRole": "SYNC_MASTER", **keys}}
    (found,) = sync_findings([of_master(**ha)], configs)
    assert found.severity is severity
    assert words[0] in found.what and words[1] in found.meaning


def test_a_synchronous_master_with_a_slave_and_an_asynchronous_one_without() -> None:
    configs = {MASTER.address: {**OF_MASTER, "brokerRole": "SYNC_MASTER"}}
    assert not list(sync_findings([of_master(in_sync_slave_nums=1)], configs))
    assert not list(sync_findings([of_master()], CONFIGS))


# -- lag ---------------------------------------------------------------------------------------------


def slave_lag(**fields: Any) -> SlaveLag:
    return SlaveLag("c", "broker-a", 1, SLAVE.address, **fields)


@pytest.mark.parametrize(
    ("fields", "severity", "words"),
    [
        ({"lag_bytes": 1_000, "lag_ms": 9_999}, None, ""),
        ({"lag_bytes": 1_000, "lag_ms": 10_000}, Severity.WARNING, "1000 bytes, 10000 ms behind its master"),
        ({"lag_bytes": 268_435_456}, Severity.WARNING, "268435456 bytes behind its master"),
        ({"problem": "stopped: logs differ"}, Severity.PROBLEM, "does not follow its master: stopped: logs"),
    ],
)
def test_a_slave_that_is_late_or_does_not_follow(
    fields: dict[str, Any], severity: Severity | None, words: str
) -> None:
    found = list(lag_findings([of_master(), of_slave()], [slave_lag(**fields)], CONFIGS))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert all(words in finding.what for finding in found)


@pytest.mark.parametrize("key", ["haMaxGapNotInSync", "haSlaveFallbehindMax"])
def test_how_far_is_too_far_is_the_masters_setting(key: str) -> None:
    configs = {**CONFIGS, MASTER.address: {**OF_MASTER, key: "1000"}}
    (found,) = lag_findings([of_master()], [slave_lag(lag_bytes=1_000, lag_ms=0)], configs)
    assert "above haMaxGapNotInSync (1000 bytes)" in found.meaning


def test_a_slave_without_master_or_answer_is_a_finding_of_another_check() -> None:
    assert not list(lag_findings([of_slave()], [slave_lag(problem="no master")], CONFIGS))
    assert not list(lag_findings([of_master()], [slave_lag(problem="x")], {MASTER.address: OF_MASTER}))
