"""BrokerPair: the broker under test beside Apache's of one version, and mqadmin of that version at both.

Both sides have a name server of ours, a broker of the same name, the same topic with the same messages, and a
producer and a consumer group of the Java client; so every mqadmin command must print the same at either.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.kit import apache, wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import AdminResult, AdminSession
from tests.interop.kit.kourou_broker import BROKER_NAME, launch_broker_under_test
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.interop.kit.messaging_session import Fields, Messaging
from tests.interop.kit.mqadmin_output import masked, without_moments
from tests.interop.kit.process import ServerProcess

TOPIC: Final = "Orders"
"""The topic with messages, of 4 queues."""
GROUP: Final = "readers"
"""The group that consumes TOPIC, all of it."""
PRODUCER_GROUP: Final = "writers"
"""The group of the producer."""
MESSAGES: Final = 8
"""How many messages TOPIC has, as many in each queue."""
CLIENT_OF: Final = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}
"""The version of the Java client that goes with a version of mqadmin."""

_QUEUES: Final = 4
# Queue, offset of the broker, offset of the group, as consumerProgress shows them.
_CONSUMED_QUEUE: Final = re.compile(rf"^{TOPIC} +\S+ +\d+ +(\d+) +\1 ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Side:
    """One broker with its name server."""

    name: str
    namesrv: ServerProcess
    broker: ServerProcess
    sent: list[Fields]

    @property
    def reader(self) -> str:
        """The instance name of the consumer; as long as that of the other side's."""
        return f"reader-{self.name}"

    @property
    def writer(self) -> str:
        """The instance name of the producer."""
        return f"writer-{self.name}"

    def masks(self) -> dict[str, str]:
        """What is this side's own."""
        return {
            self.namesrv.address: "NAMESRV",
            self.broker.address: "BROKER",
            str(self.broker.log_path.parent): "HOME",
            self.reader: "READER",
            self.writer: "WRITER",
        }


@dataclass(frozen=True, slots=True)
class BrokerPair:
    """Two sides, and the mqadmin that looks at them."""

    version: str
    admin: AdminSession
    client: Messaging
    ours: Side
    theirs: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        """Ours, then theirs."""
        return self.ours, self.theirs

    def run(self, side: Side, command: str, *arguments: str) -> AdminResult:
        """A command at one side; BROKER among the arguments stands for its broker's address."""
        words = [side.broker.address if word == "BROKER" else word for word in arguments]
        return self.admin.run(command, "-n", side.namesrv.address, *words)

    def texts(self, command: str, *arguments: str) -> tuple[str, str]:
        """What a command prints at both sides, without what must differ."""
        ours, theirs = (
            without_moments(masked(self.run(side, command, *arguments), side.masks())) for side in self.sides
        )
        return ours, theirs

    def same(self, command: str, *arguments: str) -> str:
        """Assert that a command prints the same at both sides, and return it."""
        ours, theirs = self.texts(command, *arguments)
        assert ours == theirs
        return ours

    def same_lines(self, command: str, *arguments: str) -> list[str]:
        """As same(), for lines in the order of a hash table."""
        ours, theirs = (sorted(text.splitlines()) for text in self.texts(command, *arguments))
        assert ours == theirs
        return ours


@contextmanager
def running_pair(
    version: str, work_dir: Path, admin: AdminSession, client: Messaging
) -> Iterator[BrokerPair]:
    """Start both sides and give them the same messages and clients."""
    with ExitStack() as servers:
        namesrvs = [launch_kourou_namesrv(work_dir) for _ in range(2)]
        for server in namesrvs:
            servers.callback(server.kill)
            server.wait_ready()
        launched = [
            launch_broker_under_test(work_dir, [namesrvs[0].address]),
            apache.start_broker(
                version, work_dir, [namesrvs[1].address], broker_name=BROKER_NAME, wait=False
            ),
        ]
        for server in launched:
            servers.callback(server.kill)
        sides = [
            Side(name, namesrv, broker.wait_ready(), [])
            for name, namesrv, broker in zip(("1", "2"), namesrvs, launched, strict=True)
        ]
        for side in sides:
            _populate(side, client)
        pair = BrokerPair(version, admin, client, sides[0], sides[1])
        wait_until(lambda: _is_consumed(pair), timeout_s=30, what="all messages consumed on both sides")
        yield pair
        for side in sides:
            client.stop(side.reader, side.writer)


def _populate(side: Side, client: Messaging) -> None:
    client.namesrv = side.namesrv.address
    wire.set_config(side.broker.address, brokerPermission=6)
    wire.create_topic(side.broker.address, [side.namesrv.address], TOPIC, _QUEUES)
    client.start_producer(side.writer, group=PRODUCER_GROUP)
    for queue_id in range(_QUEUES):
        label = {"label": f"order-{queue_id}", "queue": queue_id}
        side.sent.extend(client.send(side.writer, "queue", TOPIC, MESSAGES // _QUEUES, **label))
    client.start_consumer(side.reader, TOPIC, group=GROUP, expression="TagA || TagB")
    client.received(side.reader, MESSAGES)


def _is_consumed(pair: BrokerPair) -> bool:
    """Whether each queue is, by the offsets that the broker has: without any, the total is 0 as well."""
    time.sleep(0.5)
    return all(
        len(_CONSUMED_QUEUE.findall(pair.run(side, "consumerProgress", "-g", GROUP).stdout)) == _QUEUES
        for side in pair.sides
    )
