"""`kill -9` of a master with a slave: a Java and a Python consumer go on at the slave, lose nothing, and
return to the master when it is back. Our slave behind Apache's master, Apache's behind ours, ours behind
ours.

The consumers are slow and hold a few messages of a queue at once, so that most are still to be pulled when
the master dies. All pairs go through the outage at the same time (fixture `outages`). 5.5.0's slave gets its
master's topics once a minute, so pairs with it are for the night.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest

from kourou.client.sync.producer import Producer
from kourou.client.sync.push_consumer import PushConsumer
from kourou.protocol.message import Message, MessageExt
from tests.crash.rounds import NIGHTLY
from tests.interop.kit import replica_answers as answers
from tests.interop.kit import wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import CLIENT_SETS
from tests.interop.kit.lanes import KOUROU
from tests.interop.kit.messaging_session import CommandFailed, Messaging, bodies
from tests.interop.kit.replica_set import Replica, ReplicaSet, launch_replica_sets
from tests.interop.kit.replica_story import client_options

pytestmark = pytest.mark.interop

_PAIRS: Final = [("4.9.7", KOUROU), (KOUROU, "4.9.7"), (KOUROU, KOUROU)]
if NIGHTLY:
    _PAIRS.extend([("5.5.0", KOUROU), (KOUROU, "5.5.0")])
_JAVA_CLIENTS: Final = tuple(CLIENT_SETS) if NIGHTLY else ("5.5.0",)
_QUEUES: Final = 4
_BACKLOG_OF_QUEUE: Final = 60
# Four threads of each consumer take three seconds for the backlog.
_SLOW_MS: Final = 50
_HELD_OF_QUEUE: Final = 8
_WAIT_S: Final = 60
_TABLES_S: Final = 90

every_pair = pytest.mark.parametrize("pair", ["-".join(pair) for pair in _PAIRS])


@dataclass(slots=True)
class Reader:
    """A consumer of either client; `names` has the messages that it has consumed."""

    group: str
    names: Callable[[], list[str]]
    stop: Callable[[], None]


@dataclass(slots=True)
class Outage:
    """A pair with its consumers, and what became of them."""

    replicas: ReplicaSet
    topic: str
    producer: Producer
    readers: dict[str, Reader]
    sent: list[str] = field(default_factory=list)
    left_at_kill: dict[str, int] = field(default_factory=dict)
    pulled_of_slave: int = 0
    trouble: str = ""

    @property
    def master(self) -> Replica:
        """The one that is killed."""
        return self.replicas.master

    @property
    def slave(self) -> Replica:
        """The one that stays."""
        (slave,) = self.replicas.slaves.values()
        return slave

    def send(self, label: str, of_queue: int) -> None:
        """Send as many messages to each queue, in a batch."""
        for queue_id in range(_QUEUES):
            names = [f"{label}-{queue_id}-{number}" for number in range(of_queue)]
            results = self.producer.send_many(Message(self.topic, name.encode()) for name in names)
            assert all(result.is_ok for result in results), results
            self.sent += names

    def wait_all(self) -> None:
        """Wait until all consumers have all that was sent."""
        for client, reader in self.readers.items():
            what = f"all of {self.topic} at {client}"
            wait_until(
                lambda reader=reader: set(self.sent) <= set(reader.names()),  # type: ignore[misc]
                timeout_s=_WAIT_S,
                what=what,
            )

    def go_through(self, step: Callable[[Outage], None]) -> None:
        """One step; if it fails, that is trouble of this pair and not of the others."""
        if self.trouble:
            return
        try:
            step(self)
        except (AssertionError, CommandFailed, OSError) as error:
            self.trouble = f"{step.__name__}: {type(error).__name__}: {error}"


def begin(replicas: ReplicaSet, java: Sequence[Messaging], clients: ExitStack) -> Outage:
    """A topic at the master, and all consumers of it."""
    topic = wire.create_topic(
        replicas.master.address, [replicas.namesrv], f"outage-{replicas.name}", queues=_QUEUES
    )
    producer = clients.enter_context(Producer("outage-senders", **client_options(replicas.namesrv)))
    readers = {"python": start_python(replicas, topic)}
    for client in java:
        readers[f"java-{client.label}"] = start_java(replicas, topic, client)
    for reader in readers.values():
        clients.callback(reader.stop)
    return Outage(replicas, topic, producer, readers)


def start_java(replicas: ReplicaSet, topic: str, java: Messaging) -> Reader:
    """Apache's consumer."""
    group = f"java-{java.label}-{replicas.name}"
    java.namesrv = replicas.namesrv
    java.start_consumer(group, topic, slowMs=_SLOW_MS, threshold=_HELD_OF_QUEUE, pullBatch=_HELD_OF_QUEUE)
    return Reader(group, lambda: bodies(java.received(group, 0)), partial(java.stop, group))


def start_python(replicas: ReplicaSet, topic: str) -> Reader:
    """Ours."""
    names: list[str] = []

    def consume(message: MessageExt) -> None:
        time.sleep(_SLOW_MS / 1000)
        names.append(message.body.decode())

    group = f"python-{replicas.name}"
    consumer = PushConsumer(
        group,
        consume_from="first",
        concurrency=4,
        pull_threshold_messages=_HELD_OF_QUEUE,
        pull_batch_size=_HELD_OF_QUEUE,
        persist_interval_ms=1_000,
        rebalance_interval_ms=1_000,
        **client_options(replicas.namesrv),
    )
    consumer.start()
    consumer.subscribe(topic, "*", consume)
    return Reader(group, lambda: list(names), consumer.stop)


# -- the steps -----------------------------------------------------------------------------------------------


def send_before(outage: Outage) -> None:
    """Some messages, until all is in motion, and the slave knows the topic."""
    outage.send("before", 2)
    outage.wait_all()
    wait_until(
        lambda: outage.topic in answers.topics(outage.slave.address),
        timeout_s=_TABLES_S,
        what=f"{outage.topic} at the slave",
    )
    outage.slave.wait_caught_up(outage.master)


def kill_with_backlog(outage: Outage) -> None:
    """More messages; the master dies as soon as the slave has them."""
    outage.send("backlog", _BACKLOG_OF_QUEUE)
    outage.slave.wait_caught_up(outage.master)
    outage.master.kill()
    outage.left_at_kill = {
        client: len(outage.sent) - len(reader.names()) for client, reader in outage.readers.items()
    }


def go_on(outage: Outage) -> None:
    """The consumers get the rest from the slave."""
    outage.wait_all()
    outage.pulled_of_slave = pulled_messages(outage.slave)


def come_back(outage: Outage) -> None:
    """The master is started, and the slave follows it."""
    outage.master.wait_registered()
    outage.send("back", 1)
    outage.slave.wait_caught_up(outage.master)


def return_to_master(outage: Outage) -> None:
    """All consumers get what comes from the master alone."""
    rounds = 0

    def pulled_from_master_alone() -> bool:
        nonlocal rounds
        rounds += 1
        before = pulled_messages(outage.master), pulled_messages(outage.slave)
        outage.send(f"returned-{rounds}", 1)
        outage.wait_all()
        after = pulled_messages(outage.master), pulled_messages(outage.slave)
        messages = len(outage.readers) * _QUEUES
        return after[0] - before[0] >= messages and after[1] == before[1]

    what = f"all consumers of {outage.topic} at the master"
    wait_until(pulled_from_master_alone, timeout_s=_WAIT_S, what=what)


def pulled_messages(broker: Replica) -> int:
    """How many messages a broker has given to consumers."""
    return int(broker.figures()["msgGetTotalTodayNow"])


@pytest.fixture(scope="module")
def outages(
    tmp_path_factory: pytest.TempPathFactory, java_messaging_clients: dict[str, Messaging]
) -> Iterator[dict[str, Outage]]:
    """Every pair after the outage of its master."""
    with ExitStack() as servers, ExitStack() as clients:
        work_dir = tmp_path_factory.mktemp("outages")
        sets = launch_replica_sets([(master, (slave,)) for master, slave in _PAIRS], work_dir, servers)
        java = [java_messaging_clients[version] for version in _JAVA_CLIENTS]
        begun = {
            "-".join(pair): begin(replicas, java, clients)
            for pair, replicas in zip(_PAIRS, sets, strict=True)
        }
        for step in (send_before, kill_with_backlog, go_on):
            for outage in begun.values():
                outage.go_through(step)
        for outage in begun.values():
            outage.go_through(lambda outage: outage.master.launch())
        for step in (come_back, return_to_master):
            for outage in begun.values():
                outage.go_through(step)
        yield begun


@pytest.fixture
def outage(outages: dict[str, Outage], pair: str) -> Outage:
    """The story of a pair, which went to its end."""
    assert not outages[pair].trouble, outages[pair].trouble
    return outages[pair]


# -- what has to hold ----------------------------------------------------------------------------------------


@every_pair
def test_consumers_go_on_at_the_slave_and_lose_nothing(outage: Outage, pair: str) -> None:
    # More than a consumer holds: the rest came from the slave.
    assert all(left > _QUEUES * 2 * _HELD_OF_QUEUE for left in outage.left_at_kill.values()), outage
    assert outage.pulled_of_slave > 0
    for reader in outage.readers.values():
        assert set(reader.names()) == set(outage.sent)


@every_pair
def test_consumers_return_to_the_master_and_commit_there(outage: Outage, pair: str) -> None:
    ends = [answers.queue_range(outage.master.address, outage.topic, number)[1] for number in range(_QUEUES)]
    for reader in outage.readers.values():

        def offsets(key: str = f"{outage.topic}@{reader.group}") -> list[int]:
            table = answers.consumer_offsets(outage.master.address).get(key, {})
            return [table.get(queue_id, -1) for queue_id in range(_QUEUES)]

        wait_until(lambda: offsets() == ends, timeout_s=15, what=f"offsets of {reader.group}")  # noqa: B023


@every_pair
def test_the_logs_are_equal_after_the_outage(outage: Outage, pair: str) -> None:
    outage.slave.wait_caught_up(outage.master)
    begin, end = outage.slave.log_range()
    assert outage.slave.read_log(begin, end) == outage.master.read_log(begin, end)
