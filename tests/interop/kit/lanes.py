"""Lanes: one scenario, run by each official client at our broker and, as a reference, at Apache's.

A lane is a client with a broker. In a nightly run a scenario asks of Apache's broker what it asks of ours: a
test that fails in both lanes of a client is wrong, and one that fails in ours alone has found a difference.
Brokers have one name server of ours each, and short delay levels. Lanes with the same broker or the same
client share them, so that scenarios of all lanes can wait at the same time; names keep them apart.

Where client and broker are both Apache's, a lane is a reference: nothing in it is ours but the scenario. It
runs in nightly runs only (KOUROU_NIGHTLY=1); what fails there is reported as an expected failure, and does
not fail the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from tests.crash.rounds import NIGHTLY
from tests.interop.kit import apache
from tests.interop.kit.broker_cluster import BrokerCluster, LaunchBroker, running_broker
from tests.interop.kit.java_session import CLIENT_SETS, AdminResult, AdminSession
from tests.interop.kit.kourou_broker import BROKER_NAME, launch_kourou_broker
from tests.interop.kit.messaging_session import GO, Fields, Messaging
from tests.interop.kit.process import ServerProcess

KOUROU: Final = "kourou"
"""The name of our broker beside the versions of Apache's."""

DELAY_LEVELS_S: Final = (1, 3, *[1] * 15, 2)
"""The delay of each level from the first: levels 1, 2 and the last are distinguished by their time."""

PROPERTIES: Final = {
    "messageDelayLevel": " ".join(f"{delay_s}s" for delay_s in DELAY_LEVELS_S),
    # Off in Apache's unless it is asked for, on in ours.
    "recallMessageEnable": "true",
    "traceTopicEnable": "true",
    "enablePropertyFilter": "true",
    # Half messages are asked for every second, and five times at most. Apache's 5.5.0 notes the end of a
    # transaction after its interval for that, and would ask in the meantime.
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "5",
    "transactionOpBatchInterval": "50",
}
"""How every broker is configured."""

# The version of Apache's broker and of mqadmin that goes with a client; the Go client is of neither.
_VERSION_OF: Final = {"4.9.8": "4.9.7", "5.5.0": "5.5.0", GO: "5.5.0"}


def lanes_of(*clients: str) -> tuple[str, ...]:
    """The names of the lanes of official clients in this run."""
    return tuple(
        f"{client}-{broker}"
        for client in clients
        for broker in ((KOUROU, _VERSION_OF[client]) if NIGHTLY else (KOUROU,))
    )


JAVA_LANES: Final = lanes_of(*CLIENT_SETS)
"""The lanes of the Java client in this run, by name."""
ALL_LANES: Final = (*JAVA_LANES, *lanes_of(GO))
"""All lanes of official clients in this run, by name."""


def for_lanes(names: Iterable[str]) -> pytest.MarkDecorator:
    """Run a scenario of official clients in these lanes, as `lane_name`."""
    return pytest.mark.parametrize("lane_name", lane_params(names))


def lane_params(names: Iterable[str]) -> list[ParameterSet]:
    """The names of lanes as parameters of a scenario of official clients."""
    return [
        pytest.param(name, marks=() if name.endswith(KOUROU) else pytest.mark.reference) for name in names
    ]


every_lane: Final = for_lanes(ALL_LANES)
every_java_lane: Final = for_lanes(JAVA_LANES)


@dataclass(frozen=True, slots=True)
class Lane:
    """A client, a broker, and the mqadmin of the version; producers and consumers get names of their own."""

    name: str
    client: Messaging
    cluster: BrokerCluster
    admin: AdminSession

    @property
    def sender(self) -> str:
        """The producer that every scenario may send with."""
        return f"sender-{self.name}"

    @property
    def is_java(self) -> bool:
        """Whether the client is the Java client."""
        return self.client.name != GO

    @property
    def broker(self) -> str:
        """The kind of the broker: KOUROU, or a version of Apache's."""
        return self.name.partition("-")[2]

    def new_name(self, purpose: str) -> str:
        """A name that nothing else has, in any lane."""
        return self.cluster.new_name(f"{purpose}-{self.name}")

    def new_topic(self, purpose: str, queues: int = 4) -> str:
        """Create a topic that no other scenario has."""
        return self.cluster.new_topic(f"{purpose}-{self.name}", queues)

    def start_producer(self, **options: object) -> str:
        """Start a producer; its name."""
        name = self.new_name("producer")
        self.client.namesrv = self.cluster.namesrv
        self.client.start_producer(name, **options)
        return name

    def start_consumer(self, topic: str, *, name: str = "", **options: object) -> str:
        """Start a push consumer; its name, which is that of its group unless options say otherwise."""
        name = name or self.new_name("group")
        self.client.namesrv = self.cluster.namesrv
        self.client.start_consumer(name, topic, **options)
        return name

    def send(self, topic: str, count: int, *, queue: int = 0, **options: object) -> list[Fields]:
        """Send messages one after the other to a queue."""
        options = {"label": f"m-{topic}", "queue": queue, "broker": BROKER_NAME, **options}
        return self.client.send(self.sender, "queue", topic, count, **options)

    def calls(self, consumer: str, count: int, timeout_s: float = 30) -> list[Fields]:
        """All that a consumer's listener was called with, once that were `count` messages, again or not."""
        calls: list[Fields] = self.client.ask(
            "received", consumer=consumer, count=count, calls=True, timeoutMs=int(timeout_s * 1000)
        )
        return calls

    def run_admin(self, command: str, *arguments: str) -> AdminResult:
        """mqadmin at the name server of the lane."""
        return self.admin.run(command, "-n", self.cluster.namesrv, *arguments)


class Lanes:
    """Lanes by name, official clients' or ours; brokers and clients start when a lane needs them first."""

    def __init__(
        self,
        work_dir: Path,
        clients: Callable[[str], Messaging],
        admins: Mapping[str, AdminSession],
        servers: ExitStack,
    ) -> None:
        self._work_dir = work_dir
        self._clients = clients
        self._admins = admins
        self._servers = servers
        self._clusters: dict[str, BrokerCluster] = {}
        self._lanes: dict[str, Lane] = {}

    def __getitem__(self, name: str) -> Lane:
        """A lane, with its producer."""
        if name not in self._lanes:
            client, broker = name.split("-")
            lane = Lane(name, self._clients(client), self.cluster(broker), self._admins[_VERSION_OF[client]])
            lane.client.namesrv = lane.cluster.namesrv
            lane.client.start_producer(lane.sender, group="senders", selector="queue")
            self._lanes[name] = lane
        return self._lanes[name]

    def cluster(self, broker: str) -> BrokerCluster:
        """A broker, ours or Apache's of a version; beside Apache's there is Apache's name server, too."""
        if broker not in self._clusters:
            work_dir = self._work_dir / broker
            theirs = [] if broker == KOUROU else [apache.start_namesrv(broker, work_dir)]
            for namesrv in theirs:
                self._servers.callback(namesrv.kill)
            self._clusters[broker] = self._servers.enter_context(
                running_broker(
                    work_dir, properties=PROPERTIES, more_namesrvs=theirs, launch_broker=LAUNCHERS[broker]
                )
            )
        return self._clusters[broker]


def _launch_apache(
    version: str, work_dir: Path, namesrvs: Sequence[str], properties: Mapping[str, str] | None = None
) -> ServerProcess:
    name = (properties or {}).get("brokerName", BROKER_NAME)
    return apache.start_broker(
        version, work_dir, namesrvs, broker_name=name, properties=properties, wait=False
    )


LAUNCHERS: Final[dict[str, LaunchBroker]] = {
    KOUROU: launch_kourou_broker,
    **{version: partial(_launch_apache, version) for version in apache.VERSIONS},
}
"""How each broker is launched, by the name that it has in a lane's."""
