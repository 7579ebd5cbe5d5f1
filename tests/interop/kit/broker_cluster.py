"""BrokerCluster: a broker under test and its name servers, and what scenarios need of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.interop.kit import wire
from tests.interop.kit.kourou_broker import BROKER_NAME, launch_broker_under_test
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.interop.kit.ports import free_broker_port
from tests.interop.kit.process import ServerProcess


class LaunchBroker(Protocol):
    """A way to launch a broker: ours, or Apache's of some version."""

    def __call__(
        self, work_dir: Path, namesrvs: Sequence[str], properties: Mapping[str, str] | None = None
    ) -> ServerProcess:
        """Launch it; `.wait_ready()` waits until it serves."""
        ...


@dataclass(slots=True)
class BrokerCluster:
    """One broker, registered at every name server; topics and groups with names of their own."""

    namesrvs: Sequence[ServerProcess]
    launch: Callable[[], ServerProcess]
    store_dir: Path
    broker: ServerProcess
    broker_name: str = BROKER_NAME
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def namesrv(self) -> str:
        """The address of the first name server, which is ours."""
        return self.namesrvs[0].address

    def new_topic(self, purpose: str, queues: int = 4) -> str:
        """Create a topic that no other test has, known to every name server."""
        addresses = [namesrv.address for namesrv in self.namesrvs]
        return wire.create_topic(self.broker.address, addresses, self.new_name(purpose), queues)

    def new_name(self, purpose: str) -> str:
        """A name that no other test has."""
        return f"{purpose.replace('.', '_')}-{next(self._numbers)}"

    def start_again(self) -> None:
        """Start the broker, which has ended, with the same port and store; returns when it is registered."""
        self.broker = self.launch().wait_ready()
        self.wait_registered()

    def wait_registered(self) -> None:
        """Wait until every name server has the broker."""
        # Apache's 5.5.0 may find no name server in its first round, and comes again 10 s later; a change of
        # its permission makes it register now.
        self.set_config(brokerPermission=6)
        for namesrv in self.namesrvs:
            wire.wait_route(namesrv.address, "TBW102", self.broker.address)

    def set_config(self, **properties: object) -> None:
        """Change keys of the running broker."""
        wire.set_config(self.broker.address, **properties)


@contextmanager
def running_broker(
    work_dir: Path,
    *,
    properties: Mapping[str, str] | None = None,
    more_namesrvs: Sequence[ServerProcess] = (),
    launch_broker: LaunchBroker = launch_broker_under_test,
) -> Iterator[BrokerCluster]:
    """The broker under test with a name server of ours, and with more that run already."""
    with ExitStack() as servers:
        namesrv = launch_kourou_namesrv(work_dir)
        # Killed at the end, since the orderly stop of Apache's broker takes up to ten seconds.
        servers.callback(namesrv.kill)
        namesrvs = [namesrv.wait_ready(), *more_namesrvs]
        store_dir = work_dir / "store"
        settings = {
            "listenPort": str(free_broker_port()),
            "storePathRootDir": str(store_dir),
            "storePathCommitLog": str(store_dir / "commitlog"),
            **(properties or {}),
        }
        addresses = [server.address for server in namesrvs]
        launch = partial(launch_broker, work_dir, addresses, settings)
        cluster = BrokerCluster(namesrvs, launch, store_dir, launch())
        servers.callback(lambda: cluster.broker.kill())
        cluster.broker.wait_ready()
        cluster.wait_registered()
        yield cluster
