"""Java's push consumers let our broker assign their queues (`setClientRebalance(false)`). Apache's mqadmin
sets whether they pull or pop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import CLIENT_SETS, AdminSession
from tests.interop.kit.messaging_session import Messaging, bodies

pytestmark = pytest.mark.interop

_COUNT: Final = 40
_REBALANCE_S: Final = 40
VERSION: Final = "5.5.0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with running_broker(tmp_path_factory.mktemp("broker-assignment")) as running:
        yield running


@pytest.fixture
def java(cluster: BrokerCluster, messaging: Callable[[str], Messaging]) -> Iterator[Messaging]:
    client = messaging(VERSION)
    client.namesrv = cluster.namesrv
    client.start_producer("sender", group=cluster.new_name("sender"), selector="hash")
    yield client
    client.stop("sender")


def shared(members: dict[str, Messaging], topic: str) -> list[int]:
    """How many queues each member owns; empty while some have two owners or none."""
    owned = [client.owned(name, topic) for name, client in members.items()]
    return [len(queues) for queues in owned] if sorted(sum(map(list, owned), [])) == list(range(4)) else []


def wait_shared(members: dict[str, Messaging], topic: str, counts: list[int]) -> None:
    wait_until(
        lambda: shared(members, topic) == counts, timeout_s=_REBALANCE_S, what=f"{list(members)} own {counts}"
    )


def assert_each_once(
    java: Messaging, topic: str, members: dict[str, Messaging], how: str = "", *, shares: bool = True
) -> None:
    """Send to all queues; each message has one receiver, and if it `shares`, every member gets some."""
    label = f"{topic}-{how}-to-{len(members)}"
    sent = bodies(java.send("sender", "hash", topic, _COUNT, keys=_COUNT, label=label))
    received: dict[str, list[str]] = {}

    def all_received() -> bool:
        for name, client in members.items():
            inbox = bodies(client.received(name, 0, 0))
            received[name] = [body for body in inbox if body in set(sent)]
        return sum(map(len, received.values())) >= _COUNT

    wait_until(all_received, timeout_s=_REBALANCE_S, what="all messages")
    assert sorted(sum(received.values(), [])) == sorted(sent)
    assert all(received.values()) or not shares


def test_members_have_the_queues_that_the_broker_assigns(cluster: BrokerCluster, java: Messaging) -> None:
    topic, group = cluster.new_topic("assigned"), cluster.new_name("group")
    java.start_consumer("first", topic, group=group, assigned=True)
    wait_shared({"first": java}, topic, [4])
    java.start_consumer("second", topic, group=group, assigned=True)
    both = {"first": java, "second": java}
    wait_shared(both, topic, [2, 2])
    assert_each_once(java, topic, both)
    java.stop("first")
    wait_shared({"second": java}, topic, [4])
    assert_each_once(java, topic, {"second": java})
    java.stop("second")


@pytest.mark.parametrize("version", CLIENT_SETS)
def test_they_share_with_members_that_divide_by_themselves(
    cluster: BrokerCluster, java: Messaging, messaging: Callable[[str], Messaging], version: str
) -> None:
    topic, group = cluster.new_topic("mixed"), cluster.new_name("group")
    other = messaging(version)
    other.namesrv = cluster.namesrv
    java.start_consumer("assigned", topic, group=group, assigned=True)
    other.start_consumer("dividing", topic, group=group)
    both = {"assigned": java, "dividing": other}
    wait_shared(both, topic, [2, 2])
    assert_each_once(java, topic, both)
    java.stop("assigned")
    other.stop("dividing")


def test_apaches_tool_sets_the_mode(
    cluster: BrokerCluster, java: Messaging, admins: dict[str, AdminSession]
) -> None:
    """To POP and back, while messages are consumed: each of them once."""
    topic, group = cluster.new_topic("mode"), cluster.new_name("group")
    members = {"first": java, "second": java}
    for name in members:
        java.start_consumer(name, topic, group=group, assigned=True)
    wait_shared(members, topic, [2, 2])
    assert_each_once(java, topic, members, "pulled")

    def set_mode(mode: str) -> str:
        where = ("-n", cluster.namesrv, "-c", "DefaultCluster", "-t", topic, "-g", group, "-q", "0")
        return admins[VERSION].run("setConsumeMode", *where, "-m", mode).stdout

    assert set_mode("POP").splitlines() == [
        f"set consume mode to {cluster.broker.address} success.",
        f"topic[{topic}] group[{group}] consume mode[POP] popShareQueueNum[0]",
    ]
    wait_until(
        lambda: all(java.popped(name, topic) == {-1} for name in members),
        timeout_s=_REBALANCE_S,
        what="both members pop",
    )
    assert not any(java.owned(name, topic) for name in members)
    assert_each_once(java, topic, members, "popped", shares=False)
    set_mode("PULL")
    wait_shared(members, topic, [2, 2])
    assert not any(java.popped(name, topic) for name in members)
    assert_each_once(java, topic, members, "pulled-again")
    java.stop(*members)


def test_a_message_whose_handler_failed_is_popped_again(
    cluster: BrokerCluster, java: Messaging, admins: dict[str, AdminSession]
) -> None:
    topic, group = cluster.new_topic("failing"), cluster.new_name("group")
    java.start_consumer("member", topic, group=group, assigned=True)
    wait_shared({"member": java}, topic, [4])
    java.stop("member")
    where = ("-n", cluster.namesrv, "-c", "DefaultCluster", "-t", topic, "-g", group, "-q", "0")
    admins[VERSION].run("setConsumeMode", *where, "-m", "POP")
    java.start_consumer("failing", topic, group=group, assigned=True, fails=1)
    wait_until(lambda: java.popped("failing", topic) == {-1}, timeout_s=_REBALANCE_S, what="the member pops")
    sent = bodies(java.send("sender", "hash", topic, 4, keys=4, label=topic))
    # The client waits 10 s after a first failure.
    received = bodies(
        java.ask("received", consumer="failing", count=8, calls=True, timeoutMs=_REBALANCE_S * 1_000)
    )
    assert sorted(received) == sorted(sent * 2)
    java.stop("failing")
