"""Java's push consumers in POP mode at our broker. Apache's mqadmin sets the mode, the broker assigns the
queues, and what fails comes again by the retry topic of POP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.offsets import QueryConsumerOffsetRequestHeader
from kourou.protocol.pop.retry_topics import pop_retry_topic
from tests.interop.kit import wire
from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import AdminSession
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


@pytest.fixture
def java(cluster: BrokerCluster, messaging: Callable[[str], Messaging]) -> Iterator[Messaging]:
    client = messaging(VERSION)
    client.namesrv = cluster.namesrv
    client.start_producer("sender", group=cluster.new_name("sender"), selector="hash")
    yield client
    client.stop("sender")


def start_popping(
    cluster: BrokerCluster, java: Messaging, admin: AdminSession, name: str, topic: str, **options: object
) -> str:
    """Start a consumer, and have its group pop; the name of the group."""
    group = cluster.new_name("group")
    java.start_consumer(name, topic, group=group, assigned=True, **options)
    where = ("-n", cluster.namesrv, "-c", "DefaultCluster", "-t", topic, "-g", group, "-q", "0")
    assert "success" in admin.run("setConsumeMode", *where, "-m", "POP").stdout
    wait_until(lambda: java.popped(name, topic) == {-1}, timeout_s=_REBALANCE_S, what=f"{name} pops")
    return group


def received(java: Messaging, name: str, count: int) -> list[Fields]:
    def has_all() -> bool:
        return len(java.received(name, 0, 0)) >= count

    wait_until(has_all, timeout_s=_AGAIN_S, what=f"{count} messages")
    return java.received(name, 0, 0)


def test_java_pops_each_message_once(
    cluster: BrokerCluster, java: Messaging, admins: dict[str, AdminSession]
) -> None:
    topic = cluster.new_topic("popped")
    group = start_popping(cluster, java, admins[VERSION], "member", topic)
    sent = bodies(java.send("sender", "hash", topic, _COUNT, keys=_COUNT, label=topic))
    assert sorted(bodies(received(java, "member", _COUNT))) == sorted(sent)
    java.stop("member")
    queues = range(4)
    offsets = [committed(cluster, group, topic, queue_id) for queue_id in queues]
    assert sum(offsets) == _COUNT, "the group's offset is behind what was popped"


def test_what_fails_comes_again_with_its_properties(
    cluster: BrokerCluster, java: Messaging, admins: dict[str, AdminSession]
) -> None:
    topic = cluster.new_topic("failing", queues=1)
    group = start_popping(cluster, java, admins[VERSION], "failing", topic, fails=1, failing="-1")
    sent = java.send("sender", "hash", topic, 3, keys=3, label=topic)
    calls = received(java, "failing", 4)
    assert sorted(bodies(calls)) == sorted([*bodies(sent), sent[1]["body"]])
    first, again = (call for call in calls if call["body"] == sent[1]["body"])
    assert [first["reconsumeTimes"], again["reconsumeTimes"]] == [0, 1]
    assert (again["topic"], again["msgId"], again["keys"]) == (topic, sent[1]["msgId"], first["keys"])
    retry = pop_retry_topic(topic, group, is_v2=False)
    wait_until(
        lambda: committed(cluster, group, retry, 0) == 1, timeout_s=_AGAIN_S, what="the retry topic is popped"
    )
    java.stop("failing")


def committed(cluster: BrokerCluster, group: str, topic: str, queue_id: int) -> int:
    """The offset of a group."""
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id)
    answer = wire.call(
        cluster.broker.address, RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
    )
    return int(answer.ext_fields["offset"]) if answer.ext_fields else 0
