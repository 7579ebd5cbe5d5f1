"""A Python and a Java consumer in one group: they split the queues by the same strategy, at our broker and at
Apache's, take over from each other, keep order together, and mqadmin sees both."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from kourou.client.core.strategies import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
)
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.sync.push_consumer import PushConsumer
from kourou.protocol.message import MessageExt
from tests.interop.kit.broker_cluster import BrokerCluster
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.kourou_broker import BROKER_NAME
from tests.interop.kit.lanes import KOUROU, Lanes
from tests.interop.kit.messaging_session import Messaging, bodies

pytestmark = pytest.mark.interop

JAVA: Final = "5.5.0"
# So many that consistent hashing leaves no member without one.
QUEUES: Final = 16
_WAIT_S: Final = 60
_SENDER: Final = "client-consumer-sender"
STRATEGIES: Final[list[AllocateStrategy]] = [
    AllocateAveragely(),
    AllocateAveragelyByCircle(),
    AllocateConsistentHash(),
    AllocateMachineRoomNearby(AllocateAveragelyByCircle(), lambda queue: "room", lambda client_id: "room"),
]


@pytest.fixture(scope="module", params=[KOUROU, JAVA])
def cluster(request: pytest.FixtureRequest, shared_lanes: Lanes) -> BrokerCluster:
    """Our broker, and Apache's."""
    return shared_lanes.cluster(request.param)


@pytest.fixture
def java(cluster: BrokerCluster, messaging: Callable[[str], Messaging]) -> Iterator[Messaging]:
    """Apache's Java client, with a producer at the broker."""
    client = messaging(JAVA)
    client.namesrv = cluster.namesrv
    client.start_producer(_SENDER, selector="queue")
    yield client
    client.stop(_SENDER)


def send(java: Messaging, topic: str, count: int, queue: int, label: str) -> list[str]:
    """Messages into one queue; their names."""
    options = {"queue": queue, "broker": BROKER_NAME, "label": f"{label}-{queue}"}
    return bodies(java.send(_SENDER, "queue", topic, count, **options))


@dataclass(slots=True)
class Inbox:
    """A handler that notes what it gets; what is in `failing` fails the first time."""

    failing: set[str] = field(default_factory=set)
    messages: list[MessageExt] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, message: MessageExt) -> ConsumeResult:
        with self._lock:
            self.messages.append(message)
            name = message.body.decode()
            if name in self.failing:
                self.failing.discard(name)
                return ConsumeResult.LATER
        return ConsumeResult.SUCCESS

    def names(self) -> list[str]:
        """The bodies so far."""
        with self._lock:
            return [message.body.decode() for message in self.messages]


@contextmanager
def python_member(
    cluster: BrokerCluster, group: str, topic: str, inbox: Inbox, **options: Any
) -> Iterator[PushConsumer]:
    """A consumer of ours."""
    consumer = PushConsumer(group, namesrv=cluster.namesrv, consume_from="first", **options)
    consumer.subscribe(topic, inbox)
    with consumer:
        yield consumer


def owned(consumer: PushConsumer, topic: str) -> set[int]:
    """The queues of a topic that a consumer of ours has."""
    return {queue.queue_id for queue in consumer.queues if queue.topic == topic}


def start_java(java: Messaging, group: str, topic: str, queues: int, **options: str) -> None:
    """Start Java's consumer as the first member, and wait until it owns all queues.

    It takes them one by one. If Python joins meanwhile, the queues can look shared while Java still takes the
    rest, as computed from a list of members without Python; it computes its share again a second later.
    """
    java.start_consumer(group, topic, **options)
    everything = set(range(queues))
    wait_until(lambda: java.owned(group, topic) == everything, timeout_s=_WAIT_S, what="all queues Java's")


def wait_shared(
    java: Messaging, group: str, ours: PushConsumer, topic: str, queues: int = QUEUES
) -> set[int]:
    """Wait until each queue belongs to one of the two; ours."""

    def is_shared() -> bool:
        mine, theirs = owned(ours, topic), java.owned(group, topic)
        return bool(mine and theirs) and not mine & theirs and mine | theirs == set(range(queues))

    wait_until(is_shared, timeout_s=_WAIT_S, what=f"queues of {topic} shared by Java and Python")
    return owned(ours, topic)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_both_split_the_queues_by_the_same_strategy(
    cluster: BrokerCluster, java: Messaging, strategy: AllocateStrategy
) -> None:
    topic = cluster.new_topic(f"split-{strategy.name}", QUEUES)
    group, inbox = cluster.new_name("group"), Inbox()
    start_java(java, group, topic, QUEUES, strategy=strategy.name)
    with python_member(cluster, group, topic, inbox, strategy=strategy) as ours:
        mine = wait_shared(java, group, ours, topic)
        sent = {queue: send(java, topic, 3, queue, "first") for queue in range(QUEUES)}
        theirs = java.received(group, 3 * (QUEUES - len(mine)), _WAIT_S)
        wait_until(lambda: len(inbox.names()) == 3 * len(mine), timeout_s=_WAIT_S, what="our messages")
        assert sorted(inbox.names()) == sorted(name for queue in mine for name in sent[queue])
        assert {message["queueId"] for message in theirs} == set(range(QUEUES)) - mine
        # The one that is left has everything.
        java.stop(group)
        everything = set(range(QUEUES))
        wait_until(lambda: owned(ours, topic) == everything, timeout_s=_WAIT_S, what="all queues ours")
        more = [name for queue in range(QUEUES) for name in send(java, topic, 1, queue, "second")]
        wait_until(lambda: set(more) <= set(inbox.names()), timeout_s=_WAIT_S, what="the rest")
        assert len(inbox.names()) == len(set(inbox.names()))


def test_java_takes_over_when_python_leaves_and_begins_where_it_ended(
    cluster: BrokerCluster, java: Messaging
) -> None:
    topic, group, inbox = cluster.new_topic("leave", 4), cluster.new_name("group"), Inbox()
    start_java(java, group, topic, 4)
    with python_member(cluster, group, topic, inbox) as ours:
        wait_shared(java, group, ours, topic, 4)
        before = [name for queue in range(4) for name in send(java, topic, 5, queue, "before")]
        wait_until(
            lambda: len(inbox.names()) + len(java.received(group, 0)) >= 20, timeout_s=_WAIT_S, what="all"
        )
    wait_until(lambda: java.owned(group, topic) == {0, 1, 2, 3}, timeout_s=_WAIT_S, what="all queues Java's")
    after = [name for queue in range(4) for name in send(java, topic, 5, queue, "after")]
    wait_until(
        lambda: set(after) <= set(bodies(java.received(group, 0))), timeout_s=_WAIT_S, what="what came later"
    )
    # Offsets that Python stored are where Java went on: nothing twice, nothing lost.
    assert sorted(inbox.names() + bodies(java.received(group, 0))) == sorted(before + after)
    java.stop(group)


def test_what_python_fails_on_comes_again_to_either(cluster: BrokerCluster, java: Messaging) -> None:
    topic, group = cluster.new_topic("fail", 4), cluster.new_name("group")
    inbox = Inbox(failing={f"fail-{queue}-{number}" for queue in range(4) for number in range(2)})
    start_java(java, group, topic, 4)
    with python_member(cluster, group, topic, inbox) as ours:
        mine = wait_shared(java, group, ours, topic, 4)
        sent = {queue: send(java, topic, 2, queue, "fail") for queue in range(4)}
        failed = {name for queue in mine for name in sent[queue]}

        def came_again() -> set[str]:
            here = {m.body.decode() for m in inbox.messages if m.reconsume_times == 1 and m.topic == topic}
            received = java.received(group, 0)
            there = {m["body"] for m in received if m["reconsumeTimes"] == 1 and m["topic"] == topic}
            return here | there

        wait_until(lambda: came_again() == failed, timeout_s=_WAIT_S, what="second attempts")
        assert not failed & inbox.failing
    java.stop(group)


def test_order_holds_across_the_two(cluster: BrokerCluster, java: Messaging) -> None:
    topic, group, inbox = cluster.new_topic("order", 4), cluster.new_name("group"), Inbox()
    start_java(java, group, topic, 4, listener="orderly")
    with python_member(cluster, group, topic, inbox, orderly=True) as ours:
        wait_shared(java, group, ours, topic, 4)
        sent = {queue: send(java, topic, 10, queue, "a") for queue in range(4)}
        wait_until(
            lambda: len(inbox.names()) + len(java.received(group, 0)) == 40, timeout_s=_WAIT_S, what="all"
        )
        java.stop(group)
        wait_until(lambda: owned(ours, topic) == {0, 1, 2, 3}, timeout_s=_WAIT_S * 2, what="locks given back")
        for queue in range(4):
            sent[queue] += send(java, topic, 10, queue, "b")
        wait_until(
            lambda: len(inbox.names()) + len(java.received(group, 0)) == 80,
            timeout_s=_WAIT_S,
            what="the rest",
        )
    seen: dict[int, list[str]] = defaultdict(list)
    for message in java.received(group, 0):
        seen[message["queueId"]].append(message["body"])
    for ours_message in inbox.messages:
        seen[ours_message.queue_id].append(ours_message.body.decode())
    assert seen == sent


def test_mqadmin_looks_into_a_python_consumer(
    cluster: BrokerCluster, java: Messaging, admins: dict[str, AdminSession]
) -> None:
    topic, group, inbox = cluster.new_topic("admin", 2), cluster.new_name("group"), Inbox()
    send(java, topic, 3, 0, "admin")
    with python_member(cluster, group, topic, inbox) as ours:
        wait_until(lambda: len(inbox.names()) == 3, timeout_s=_WAIT_S, what="messages")

        def run(command: str, *arguments: str) -> str:
            result = admins[JAVA].run(command, "-n", cluster.namesrv, *arguments)
            assert "Exception" not in result.stdout + result.stderr, result
            return result.stdout

        connection = run("consumerConnection", "-g", group)
        assert ours.client_id in connection and "PYTHON" in connection and topic in connection
        status = run("consumerStatus", "-g", group, "-i", ours.client_id, "-s")
        assert "#Consumer Subscription#" in status and topic in status
        directly = run(
            "queryMsgById",
            *("-i", inbox.messages[0].offset_msg_id, "-g", group, "-d", ours.client_id, "-t", topic),
        )
        assert "CR_SUCCESS" in directly
        wait_until(lambda: len(inbox.names()) == 4, timeout_s=_WAIT_S, what="the message once more")
