"""How far slaves are behind, from what brokers of each kind report."""

from __future__ import annotations

import pytest

from kourou.admin.replication import Replica, SlaveLag, slave_lags
from kourou.admin.session import BrokerAddress
from kourou.protocol.bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo

MASTER = BrokerAddress("c", "broker-a", 0, "m:1")
SLAVE = BrokerAddress("c", "broker-a", 1, "s:1")


def master(end: int, *links: HAConnectionRuntimeInfo, reports: bool = True) -> Replica:
    ha = HARuntimeInfo(master=True, ha_connection_info=list(links)) if reports else None
    return Replica(MASTER, {"commitLogMaxOffset": str(end)}, ha)


def slave(end: int, *, problem: str | None = None, reports: bool = True) -> Replica:
    ha = (
        HARuntimeInfo(ha_client_runtime_info=HAClientRuntimeInfo(kourou_problem=problem)) if reports else None
    )
    return Replica(SLAVE, {"commitLogMaxOffset": str(end)}, ha)


def lag(*replicas: Replica) -> SlaveLag:
    (found,) = slave_lags(replicas)
    assert (found.broker_name, found.broker_id, found.address) == ("broker-a", 1, "s:1")
    return found


def test_a_kourou_master_knows_bytes_and_time_of_each_slave() -> None:
    others = HAConnectionRuntimeInfo(kourou_broker_id=2, diff=999, kourou_lag_ms=999)
    own = HAConnectionRuntimeInfo(kourou_broker_id=1, diff=70, kourou_lag_ms=5)
    found = lag(master(100, others, own), slave(40))
    assert (found.lag_bytes, found.lag_ms, found.problem) == (70, 5, "")
    assert str(found) == "70 bytes, 5 ms behind its master"


@pytest.mark.parametrize("links", [(), (HAConnectionRuntimeInfo(kourou_broker_id=2),)])
def test_a_slave_that_its_master_does_not_know_is_not_connected(
    links: tuple[HAConnectionRuntimeInfo, ...],
) -> None:
    found = lag(master(100, *links), slave(40))
    assert (found.lag_bytes, found.lag_ms) == (60, None)
    assert str(found) == "it is not connected to its master"


def test_what_a_slave_itself_reports_comes_first() -> None:
    assert lag(master(100), slave(40, problem="stopped: logs differ")).problem == "stopped: logs differ"


@pytest.mark.parametrize("reports", [True, False])
def test_from_apache_brokers_there_are_bytes_only(reports: bool) -> None:
    """5.x lists connections without ids, 4.9 does not know the request."""
    found = lag(master(100, HAConnectionRuntimeInfo(diff=1), reports=reports), slave(130, reports=reports))
    assert (found.lag_bytes, found.lag_ms, found.problem) == (0, None, ""), "read later, so it may be ahead"


def test_without_master_or_answer_the_lag_is_not_known() -> None:
    assert lag(slave(40)).problem == "no master of its name is registered"
    silent = lag(master(100, reports=False), Replica(SLAVE, {}))
    assert str(silent) == "its lag is not known"
