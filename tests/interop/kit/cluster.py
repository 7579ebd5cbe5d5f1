"""Cluster: Apache brokers of both versions, registered at name servers of ours and, to compare, of Apache's.

Both brokers register at all name servers, so that all of these hold the same tables. There is one name server
of ours per version of mqadmin: what one version changes does not disturb the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.interop.kit import apache
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.kourou_namesrv import launch_namesrv_under_test
from tests.interop.kit.mqadmin_output import permissions
from tests.interop.kit.process import ServerProcess

BROKER_NAMES: Final = {"4.9.7": "broker-a", "5.5.0": "broker-b"}
"""Broker name per version of Apache's broker."""

_REGISTRATION_TIMEOUT_S: Final = 45


@dataclass(frozen=True, slots=True)
class Cluster:
    """Running servers, by version (name servers) and by broker name."""

    ours: Mapping[str, ServerProcess]
    theirs: Mapping[str, ServerProcess]
    brokers: Mapping[str, ServerProcess]

    @property
    def namesrvs(self) -> list[ServerProcess]:
        """All name servers."""
        return [*self.ours.values(), *self.theirs.values()]


@contextmanager
def running_cluster(work_dir: Path, admin: AdminSession, *, beside_apache: bool) -> Iterator[Cluster]:
    """A cluster whose brokers are registered everywhere; `beside_apache` adds Apache's name servers."""
    with ExitStack() as servers:
        # Launched side by side, since each takes seconds to boot; killed at the end, since the orderly stop
        # of a broker takes up to ten.
        ours = _launch_each(partial(launch_namesrv_under_test, work_dir=work_dir), servers)
        launch_apache = partial(apache.start_namesrv, work_dir=work_dir, wait=False)
        theirs = _launch_each(launch_apache, servers) if beside_apache else {}
        namesrvs = [namesrv.wait_ready() for namesrv in (*ours.values(), *theirs.values())]
        addresses = [namesrv.address for namesrv in namesrvs]
        launched = _launch_each(partial(_launch_broker, work_dir=work_dir, addresses=addresses), servers)
        brokers = {BROKER_NAMES[version]: broker.wait_ready() for version, broker in launched.items()}
        cluster = Cluster(ours, theirs, brokers)
        _register_everywhere(cluster, admin)
        yield cluster


def _launch_each(launch: Callable[[str], ServerProcess], servers: ExitStack) -> dict[str, ServerProcess]:
    launched: dict[str, ServerProcess] = {}
    for version in apache.VERSIONS:
        launched[version] = launch(version)
        servers.callback(launched[version].kill)
    return launched


def _launch_broker(version: str, *, work_dir: Path, addresses: list[str]) -> ServerProcess:
    name = BROKER_NAMES[version]
    return apache.start_broker(version, work_dir, addresses, broker_name=name, wait=False)


def create_topic(cluster: Cluster, admin: AdminSession, topic: str, *broker_names: str) -> None:
    """Create a topic on brokers and wait until every name server has its route."""
    for broker_name in broker_names:
        broker = cluster.brokers[broker_name].address
        arguments = ("-n", cluster.namesrvs[0].address, "-b", broker, "-t", topic, "-r", "4", "-w", "4")
        created = admin.run("updateTopic", *arguments)
        assert f"create topic to {broker} success." in created.stdout, created.stderr
    for namesrv in cluster.namesrvs:
        wait_route(namesrv, admin, topic, broker_names)


def wait_route(namesrv: ServerProcess, admin: AdminSession, topic: str, broker_names: Iterable[str]) -> None:
    """Wait until a name server has the route of a topic to exactly these brokers."""
    has_route = partial(_has_route, admin, namesrv.address, topic, set(broker_names))
    wait_until(has_route, timeout_s=30, what=f"route of {topic} at {namesrv.name} ({namesrv.address})")


def _has_route(admin: AdminSession, address: str, topic: str, broker_names: set[str]) -> bool:
    return route_brokers(admin, address, topic) == broker_names


def route_brokers(admin: AdminSession, address: str, topic: str) -> set[str]:
    """The brokers in the route of a topic; none where there is no route."""
    stdout = admin.run("topicRoute", "-n", address, "-t", topic).stdout
    return set(permissions(stdout)) if stdout.strip() else set()


def _register_everywhere(cluster: Cluster, admin: AdminSession) -> None:
    for broker in cluster.brokers.values():
        # 5.5.0 connects to name servers in the background, may find none in its first round, and comes again
        # 10 s later. A change of its permission makes it register now.
        arguments = ("-b", broker.address, "-k", "brokerPermission", "-v", "6")
        admin.run("updateBrokerConfig", "-n", cluster.namesrvs[0].address, *arguments)
    for namesrv in cluster.namesrvs:
        what = f"registration of {', '.join(cluster.brokers)} at {namesrv.name} ({namesrv.address})"
        lists_all = partial(_lists_all, admin, namesrv.address, cluster.brokers.keys())
        wait_until(lists_all, timeout_s=_REGISTRATION_TIMEOUT_S, what=what)


def _lists_all(admin: AdminSession, address: str, broker_names: Iterable[str]) -> bool:
    listed = admin.run("clusterList", "-n", address).stdout
    return all(f" {name} " in listed for name in broker_names)


def wait_until(condition: Callable[[], bool], *, timeout_s: float, what: str) -> float:
    """Poll a condition; returns the seconds that it took, and raises AssertionError past the timeout."""
    started = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - started
        assert waited_s < timeout_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.05)
    return time.monotonic() - started
