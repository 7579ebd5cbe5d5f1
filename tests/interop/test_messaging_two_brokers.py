"""Ordered messages over two brokers, of which one is killed: another queue, or none at all.

An ordinary topic goes on with the queues that are left, and the order of a key may break for a moment. A
topic with an order configuration keeps each key in its queue: the keys of the killed broker have to wait.
All lanes go through the kill at the same time (fixture `kills`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.interop.kit import wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.lanes import LAUNCHERS, PROPERTIES, Lane, every_lane
from tests.interop.kit.messaging_session import CommandFailed, Fields, bodies
from tests.interop.kit.ports import free_broker_port
from tests.interop.kit.process import ServerProcess

pytestmark = pytest.mark.interop

_SECOND: Final = "broker-b"
_BOTH: Final = {"broker-a", _SECOND}
_QUEUES: Final = 2
_KEYS: Final = 16
_WAIT_S: Final = 60


@dataclass(slots=True)
class SecondBroker:
    """A broker beside that of a lane, in the same cluster; it may be killed and started again."""

    kind: str
    namesrv: str
    work_dir: Path
    port: int = field(default_factory=free_broker_port)
    process: ServerProcess | None = None

    def launch(self) -> ServerProcess:
        """Launch it on its port and store."""
        store_dir = self.work_dir / "store"
        settings = {
            **PROPERTIES,
            "brokerName": _SECOND,
            "listenPort": str(self.port),
            "storePathRootDir": str(store_dir),
            "storePathCommitLog": str(store_dir / "commitlog"),
        }
        self.process = LAUNCHERS[self.kind](self.work_dir, [self.namesrv], settings)
        return self.process

    def wait_registered(self) -> None:
        """Wait until the name server has it."""
        assert self.process is not None
        wire.set_config(self.process.wait_ready().address, brokerPermission=6)
        wire.wait_route(self.namesrv, "TBW102", self.process.address)

    def kill(self) -> None:
        """End it at once."""
        assert self.process is not None
        self.process.kill()


@dataclass(slots=True)
class KeyedTopic:
    """A topic on both brokers, an orderly group, and what was sent to it by key."""

    lane: Lane
    topic: str
    group: str
    producer: str
    sent: dict[int, list[Fields]] = field(default_factory=lambda: {key: [] for key in range(_KEYS)})
    refused: dict[int, str] = field(default_factory=dict)

    def send(self, label: str) -> None:
        """Send one message of each key; `refused` are the keys that could not be sent."""
        self.refused = {}
        for key in range(_KEYS):
            options = {"label": label, "first": key, "keys": _KEYS}
            try:
                self.sent[key] += self.lane.client.send(self.producer, "hash", self.topic, 1, **options)
            except CommandFailed as refusal:
                self.refused[key] = str(refusal)

    def has_all(self) -> bool:
        """Whether the group has got all that was sent."""
        sent = {name for messages in self.sent.values() for name in bodies(messages)}
        return sent <= set(bodies(self.lane.client.received(self.group, 0)))

    def wait_all(self) -> None:
        """Wait until the group has got all that was sent."""
        wait_until(self.has_all, timeout_s=_WAIT_S, what=f"all messages of {self.topic}")

    def queues(self, key: int) -> list[tuple[str, int]]:
        """The queues of the messages of a key, in the order of the messages."""
        return [(message["broker"], message["queueId"]) for message in self.sent[key]]

    def new_producer(self) -> None:
        """Go on with another producer."""
        self.lane.client.stop(self.producer)
        self.producer = self.lane.start_producer(selector="hash")


@dataclass(slots=True)
class Kill:
    """Both topics of a lane after all that happened; what was refused meanwhile by key, what went wrong."""

    ordinary: KeyedTopic
    strict: KeyedTopic
    refused: dict[int, str] = field(default_factory=dict)
    trouble: str = ""

    def go_through(self, step: Callable[[Kill], None]) -> None:
        """One step of the story; if it fails, that is trouble of this lane and not of the others."""
        if self.trouble:
            return
        try:
            step(self)
        except (AssertionError, CommandFailed) as error:
            self.trouble = f"{step.__name__}: {error}"


def begin(lane: Lane, *, is_strict: bool) -> KeyedTopic:
    """Create the topic on both brokers with mqadmin; strict, with an order configuration."""
    topic = lane.new_name("strict" if is_strict else "ordinary")
    size = ("-r", str(_QUEUES), "-w", str(_QUEUES))
    order = ("-o", "true") if is_strict else ()
    made = lane.run_admin("updateTopic", "-c", "DefaultCluster", "-t", topic, *size, *order)
    assert made.stdout.count("success") == 2, made
    wait_until(lambda: len(addresses(lane, topic)) == 2, timeout_s=20, what=f"both brokers of {topic}")
    producer = lane.start_producer(selector="hash", retries=0)
    return KeyedTopic(lane, topic, lane.start_consumer(topic, listener="orderly"), producer)


def addresses(lane: Lane, topic: str) -> set[str]:
    """The brokers of a topic that the name server knows."""
    return wire.route_addresses(lane.cluster.namesrv, topic)


@pytest.fixture(scope="module")
def seconds(
    lanes: dict[str, Lane], tmp_path_factory: pytest.TempPathFactory, admins: dict[str, AdminSession]
) -> Iterator[list[SecondBroker]]:
    """A second broker beside that of each lane."""
    clusters = {lane.broker: lane.cluster for lane in lanes.values()}
    with ExitStack() as servers:
        work_dir = tmp_path_factory.mktemp("second-brokers")
        started = [SecondBroker(kind, cluster.namesrv, work_dir / kind) for kind, cluster in clusters.items()]
        for second in started:
            second.launch()
            servers.callback(second.kill)
        for second in started:
            second.wait_registered()
            # Without it a name server keeps order configurations for itself.
            enable = ("-k", "orderMessageEnable", "-v", "true")
            admins["5.5.0"].run("updateNamesrvConfig", "-n", second.namesrv, *enable)
        yield started


@pytest.fixture(scope="module")
def kills(lanes: dict[str, Lane], seconds: list[SecondBroker]) -> Iterator[dict[str, Kill]]:
    """Every lane after a kill of its second broker and its return."""
    begun = {
        name: Kill(begin(lane, is_strict=False), begin(lane, is_strict=True)) for name, lane in lanes.items()
    }
    for kill in begun.values():
        kill.go_through(send_with_both)
    for second in seconds:
        second.kill()
    for kill in begun.values():
        kill.go_through(send_without_second)
    for second in seconds:
        second.launch()
    for second in seconds:
        second.wait_registered()
    for kill in begun.values():
        kill.go_through(send_to_returned)
    yield begun
    for kill in begun.values():
        for topic in (kill.ordinary, kill.strict):
            topic.lane.client.stop(topic.group, topic.producer)


def send_with_both(kill: Kill) -> None:
    """Send to both topics before anything has happened."""
    for topic in (kill.ordinary, kill.strict):
        topic.send("before")
        assert topic.refused == {}
        topic.wait_all()


def send_without_second(kill: Kill) -> None:
    """Send to both topics while one broker is gone."""
    lane, topic = kill.ordinary.lane, kill.ordinary.topic
    wait_until(lambda: len(addresses(lane, topic)) == 1, timeout_s=20, what=f"{topic} without a broker")
    kill.strict.send("without")
    kill.refused = kill.strict.refused
    if not lane.is_java:
        # Its producer asks for routes every 30 s.
        kill.ordinary.new_producer()
    send_again(kill.ordinary)


def send_to_returned(kill: Kill) -> None:
    """Send to the strict topic as soon as it can be done again, and wait for all messages."""
    send_again(kill.strict)
    kill.ordinary.wait_all()
    kill.strict.wait_all()


def send_again(topic: KeyedTopic) -> None:
    """Send until the producer knows the route and each key can be sent."""

    def is_sent() -> bool:
        topic.send(topic.lane.new_name("again"))
        return topic.refused == {}

    wait_until(is_sent, timeout_s=_WAIT_S, what=f"a producer of {topic.topic}")


@pytest.fixture
def kill(kills: dict[str, Kill], lane_name: str) -> Kill:
    """The story of a lane, which went to its end."""
    assert not kills[lane_name].trouble, kills[lane_name].trouble
    return kills[lane_name]


@every_lane
def test_an_ordinary_topic_goes_on_with_the_queues_that_are_left(kill: Kill, lane_name: str) -> None:
    topic = kill.ordinary
    before = {queues[0][0] for queues in map(topic.queues, range(_KEYS))}
    assert before == _BOTH
    after = {topic.queues(key)[-1] for key in range(_KEYS)}
    assert after == {("broker-a", queue_id) for queue_id in range(_QUEUES)}
    # A key of the killed broker has moved to another queue.
    assert any(len(set(topic.queues(key))) > 1 for key in range(_KEYS))


@every_lane
def test_a_strict_topic_keeps_a_key_in_its_queue_even_if_that_is_gone(kill: Kill, lane_name: str) -> None:
    topic = kill.strict
    for key in range(_KEYS):
        assert len(set(topic.queues(key))) == 1
    of_second = {key for key in range(_KEYS) if topic.queues(key)[0][0] == _SECOND}
    assert 0 < len(of_second) < _KEYS
    assert kill.refused.keys() == of_second


@every_lane
def test_a_strict_topic_is_consumed_in_order_over_the_kill(kill: Kill, lane_name: str) -> None:
    topic = kill.strict
    received = list(dict.fromkeys(bodies(topic.lane.client.received(topic.group, 0))))
    for key in range(_KEYS):
        of_key = [name for name in received if name.endswith(f"-{key}")]
        assert of_key == bodies(topic.sent[key])
