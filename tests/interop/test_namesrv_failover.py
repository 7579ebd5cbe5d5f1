"""Two name servers of ours, Apache's brokers and Java clients: servers are killed, and the rest goes on.

Each test takes away another server of the same cluster; the name server of 5.5.0 survives all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.interop.kit.cluster import (
    Cluster,
    create_topic,
    route_brokers,
    running_cluster,
    wait_route,
    wait_until,
)
from tests.interop.kit.java_session import AdminSession, ClientSession
from tests.interop.kit.process import ServerProcess

pytestmark = pytest.mark.interop

_STREAM_SECONDS: Final = 6
# A closed connection is noticed at once; without that a dead broker would stay for 120 s.
_AT_ONCE_S: Final = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, admins: dict[str, AdminSession]) -> Iterator[Cluster]:
    work_dir = tmp_path_factory.mktemp("namesrv-failover")
    with running_cluster(work_dir, admins["4.9.7"], beside_apache=False) as running:
        yield running


@pytest.fixture
def survivor(cluster: Cluster) -> ServerProcess:
    """The name server that no test kills."""
    return cluster.ours["5.5.0"]


def test_clients_lose_nothing_when_one_of_two_name_servers_is_killed(
    cluster: Cluster,
    survivor: ServerProcess,
    admins: dict[str, AdminSession],
    clients: dict[str, ClientSession],
) -> None:
    victim = cluster.ours["4.9.7"]
    both = [victim.address, survivor.address]
    for version, client in clients.items():
        topic = f"StreamTopic-{version}".replace(".", "_")
        create_topic(cluster, admins["5.5.0"], topic, *cluster.brokers)
        client.start_stream(both, topic, f"group-{topic}", _STREAM_SECONDS)
    for client in clients.values():
        client.wait_received(5)
    victim.kill()
    for client in clients.values():
        run = client.finish()
        assert (run.failure, run.send_errors, run.lost) == (None, [], set())
        assert len(run.sent) == _STREAM_SECONDS * 10
        assert run.brokers == set(cluster.brokers)
    assert route_brokers(admins["5.5.0"], survivor.address, "TBW102") == set(cluster.brokers)
    for version, client in clients.items():
        # A topic that only the survivor learns of. A client that looks for its first route may try the dead
        # name server first and raise; its next send takes the other one.
        topic = f"LateTopic-{version}".replace(".", "_")
        first = client.send(both, topic, 17)
        # Both, unless the client on a busy machine learns of the topic when only one broker has it.
        assert first.brokers and first.brokers <= set(cluster.brokers)
        wait_route(survivor, admins["5.5.0"], topic, first.brokers)
        run = client.exchange(both, topic, f"group-{topic}", 17)
        assert (run.failure, run.lost) == (None, set())
        assert set(first.sent) <= set(run.received)
        for error in first.send_errors + run.send_errors:
            assert f"connect to {victim.address} failed" in error
        assert min(len(first.sent), len(run.sent)) >= 16


def test_a_killed_broker_leaves_the_routes_at_once(
    cluster: Cluster, survivor: ServerProcess, admins: dict[str, AdminSession]
) -> None:
    admin, broker = admins["4.9.7"], cluster.brokers["broker-a"]
    assert "broker-a" in route_brokers(admin, survivor.address, "TBW102")
    broker.kill()
    assert_gone(survivor, admin, "broker-a")


def test_a_broker_that_unregisters_leaves_the_routes(
    cluster: Cluster, survivor: ServerProcess, admins: dict[str, AdminSession]
) -> None:
    """A broker of 5.5.0 that is stopped unregisters first and runs for some seconds more."""
    admin, broker = admins["5.5.0"], cluster.brokers["broker-b"]
    assert "broker-b" in route_brokers(admin, survivor.address, "TBW102")
    broker.request_stop()
    assert_gone(survivor, admin, "broker-b")
    assert broker.is_alive


def assert_gone(namesrv: ServerProcess, admin: AdminSession, broker_name: str) -> None:
    """Assert that a broker and the topics that only it had are gone, or go within moments."""
    wait_until(
        lambda: broker_name not in route_brokers(admin, namesrv.address, "TBW102"),
        timeout_s=_AT_ONCE_S,
        what=f"end of the routes of {broker_name}",
    )
    assert broker_name not in admin.run("clusterList", "-n", namesrv.address).stdout
    # Every broker has a topic of its own name.
    assert broker_name not in admin.run("topicList", "-n", namesrv.address).stdout.splitlines()
