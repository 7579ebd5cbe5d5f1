"""Java's push consumers in POP mode at our broker. Apache's mqadmin sets the mode, the broker assigns the
queues, and what fails comes again by the retry topic of POP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.offsets import QueryConsumerOffsetRequestHeader
from kourou.protocol.headers.topics import GetTopicConfigRequestHeader
from kourou.protocol.pop.retry_topics import pop_retry_topic
from tests.interop.kit import wire
from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.kourou_broker import BROKER_NAME
from tests.interop.kit.messaging_session import Fields, Messaging, bodies

pytestmark = pytest.mark.interop

_COUNT: Final = 100
_REBALANCE_S: Final = 40
# The client makes what fails invisible for 10 s.
_AGAIN_S: Final = 40
VERSION: Final = "5.5.0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with running_broker(tmp_path_factory.mktemp("broker-pop")) as running:
        yield running


MEMBERS: Final[dict[str, dict[str, object]]] = {
    "once": {},
    "failing": {"fails": 1, "failing": "-1"},
    "beside": {},
    "moved": {"fails": 1, "failing": "-1"},
}
"""The consumer of each test."""


class Popping(NamedTuple):
    """A consumer that pops."""

    name: str
    topic: str
    group: str


@pytest.fixture(scope="module")
def members(
    cluster: BrokerCluster, messaging: Callable[[str], Messaging], admins: dict[str, AdminSession]
) -> Iterator[dict[str, Popping]]:
    """All of them, started at once: a client asks every 20 s whether it is to pop."""
    java = messaging(VERSION)
    java.namesrv = cluster.namesrv
    started = {}
    for name, options in MEMBERS.items():
        topic = cluster.new_topic(name, queues=1 if options else 4)
        group = cluster.new_name("group")
        java.start_consumer(name, topic, group=group, assigned=True, **options)
        where = ("-n", cluster.namesrv, "-c", "DefaultCluster", "-t", topic, "-g", group, "-q", "0")
        assert "success" in admins[VERSION].run("setConsumeMode", *where, "-m", "POP").stdout
        started[name] = Popping(name, topic, group)
    for name, topic, _ in started.values():
        what = f"{name} pops"
        wait_until(lambda of=(name, topic): java.popped(*of) == {-1}, timeout_s=_REBALANCE_S, what=what)
    java.start_producer("sender", group=cluster.new_name("sender"), selector="hash")
    yield started
    java.stop("sender", *started)


@pytest.fixture
def java(messaging: Callable[[str], Messaging]) -> Messaging:
    return messaging(VERSION)


def received(java: Messaging, name: str, count: int) -> list[Fields]:
    def has_all() -> bool:
        return len(java.received(name, 0, 0)) >= count

    wait_until(has_all, timeout_s=_AGAIN_S, what=f"{count} messages")
    return java.received(name, 0, 0)


def test_java_pops_each_message_once(
    cluster: BrokerCluster, java: Messaging, members: dict[str, Popping]
) -> None:
    name, topic, group = members["once"]
    sent = bodies(java.send("sender", "hash", topic, _COUNT, keys=_COUNT, label=topic))
    assert sorted(bodies(received(java, name, _COUNT))) == sorted(sent)
    offsets = [committed(cluster, group, topic, queue_id) for queue_id in range(4)]
    assert sum(offsets) == _COUNT, "the group's offset is behind what was popped"


def test_what_fails_comes_again_with_its_properties(
    cluster: BrokerCluster, java: Messaging, members: dict[str, Popping]
) -> None:
    name, topic, group = members["failing"]
    sent = java.send("sender", "hash", topic, 3, keys=3, label=topic)
    calls = received(java, name, 4)
    assert sorted(bodies(calls)) == sorted([*bodies(sent), sent[1]["body"]])
    first, again = (call for call in calls if call["body"] == sent[1]["body"])
    assert [first["reconsumeTimes"], again["reconsumeTimes"]] == [0, 1]
    assert (again["topic"], again["msgId"], again["keys"]) == (topic, sent[1]["msgId"], first["keys"])
    retry = pop_retry_topic(topic, group, is_v2=False)
    wait_until(
        lambda: committed(cluster, group, retry, 0) == 1, timeout_s=_AGAIN_S, what="the retry topic is popped"
    )


def test_a_pull_consumer_reads_all_beside_members_that_pop(
    cluster: BrokerCluster, java: Messaging, members: dict[str, Popping]
) -> None:
    """Its reads take nothing from them."""
    name, topic, group = members["beside"]
    java.start_consumer("beside, too", topic, group=group, assigned=True)
    java.ask("start-pull", name="puller", group=cluster.new_name("pullers"), namesrv=cluster.namesrv)
    sent = bodies(java.send("sender", "hash", topic, _COUNT, keys=_COUNT, label=topic))

    def popped() -> list[str]:
        return bodies(java.received(name, 0, 0) + java.received("beside, too", 0, 0))

    pulled: list[Fields] = []
    for queue_id in range(4):
        where = {"consumer": "puller", "topic": topic, "broker": BROKER_NAME, "queue": queue_id}
        status, offset = "FOUND", 0
        while status == "FOUND":
            answer = java.ask("pull", offset=offset, **where)
            status, offset = answer["status"], answer["next"]
            pulled += answer["messages"]
    assert sorted(bodies(pulled)) == sorted(sent)
    wait_until(lambda: len(popped()) >= _COUNT, timeout_s=_AGAIN_S, what="all messages popped")
    assert sorted(popped()) == sorted(sent)
    java.stop("beside, too", "puller")
    assert sum(committed(cluster, group, topic, queue_id) for queue_id in range(4)) == _COUNT


def test_apaches_tools_move_and_delete_what_is_popped(
    cluster: BrokerCluster,
    java: Messaging,
    admins: dict[str, AdminSession],
    members: dict[str, Popping],
) -> None:
    """consumerProgress shows no backlog, after resetOffsetByTime all messages come again, and deleteTopic
    takes the retry topic with it."""
    name, topic, group = members["moved"]
    admin = admins[VERSION]
    namesrv = ("-n", cluster.namesrv)
    sent = bodies(java.send("sender", "hash", topic, 3, keys=3, label=topic))
    received(java, name, 4)
    lines = admin.run("consumerProgress", *namesrv, "-g", group).stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(topic)]
    assert [row[2:5] for row in rows] == [["0", "3", "3"]], lines
    reset = ("resetOffsetByTime", *namesrv, "-g", group, "-t", topic, "-s", "0")
    assert admin.run(*reset).exit_status == 0
    again = bodies(received(java, name, 7))[4:]
    assert sorted(again) == sorted(sent)
    retry = pop_retry_topic(topic, group, is_v2=False)
    assert [topic_code(cluster, name) for name in (topic, retry)] == [0, 0]
    assert "success" in admin.run("deleteTopic", *namesrv, "-c", "DefaultCluster", "-t", topic).stdout
    assert [topic_code(cluster, name) for name in (topic, retry)] == [ResponseCode.TOPIC_NOT_EXIST] * 2


def topic_code(cluster: BrokerCluster, topic: str) -> int:
    """What the broker answers to the question for a topic."""
    command = RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic))
    return wire.call(cluster.broker.address, command).code


def committed(cluster: BrokerCluster, group: str, topic: str, queue_id: int) -> int:
    """The offset of a group."""
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id)
    answer = wire.call(
        cluster.broker.address, RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
    )
    return int(answer.ext_fields["offset"]) if answer.ext_fields else 0
