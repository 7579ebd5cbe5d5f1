"""Official clients consume from our broker: groups, order, rebalance, offsets, filters, pulls."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pytest

from tests.interop.kit import apache
from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import CLIENT_SETS
from tests.interop.kit.kourou_broker import BROKER_NAME
from tests.interop.kit.messaging_session import CLIENTS, GO, Fields, Messaging, bodies

pytestmark = pytest.mark.interop

_COUNT: Final = 40
_SETTLE_S: Final = 0.5
# A rebalance takes place at once when the broker tells of a change, and once a second.
_REBALANCE_S: Final = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with running_broker(tmp_path_factory.mktemp("broker-consuming")) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def client(
    request: pytest.FixtureRequest, cluster: BrokerCluster, messaging: Callable[[str], Messaging]
) -> Iterator[Messaging]:
    yield from _with_sender(messaging(request.param), cluster)


@pytest.fixture(params=CLIENT_SETS)
def java(
    request: pytest.FixtureRequest, cluster: BrokerCluster, messaging: Callable[[str], Messaging]
) -> Iterator[Messaging]:
    yield from _with_sender(messaging(request.param), cluster)


def _with_sender(client: Messaging, cluster: BrokerCluster) -> Iterator[Messaging]:
    """A client with a producer of the name `sender`."""
    client.namesrv = cluster.namesrv
    client.start_producer("sender", group=cluster.new_name("sender"), selector="hash")
    yield client
    client.stop("sender")


def send(client: Messaging, topic: str, count: int, **options: object) -> list[Fields]:
    """Spread messages over all queues, by turns."""
    return client.send("sender", "hash", topic, count, **{"keys": count, **options})


def assert_each_once(sent: list[Fields], *inboxes: list[Fields]) -> None:
    received = [name for inbox in inboxes for name in bodies(inbox)]
    assert sorted(received) == sorted(bodies(sent))


# -- groups --------------------------------------------------------------------------------------------------


def test_members_of_a_group_share_the_messages(cluster: BrokerCluster, java: Messaging) -> None:
    topic, group = cluster.new_topic("shared"), cluster.new_name("group")
    java.start_consumer("first", topic, group=group)
    # Before the second joins: a member takes its queues one by one, and half of all may be a first half.
    wait_shared(java, topic, {"first": 4})
    java.start_consumer("second", topic, group=group)
    wait_shared(java, topic, {"first": 2, "second": 2})
    sent = send(java, topic, _COUNT)
    inboxes = wait_all(java, ["first", "second"], set(bodies(sent)))
    assert_each_once(sent, *inboxes)
    assert all(inboxes)
    java.stop("first", "second")


def test_every_broadcasting_consumer_gets_everything(cluster: BrokerCluster, java: Messaging) -> None:
    topic, group = cluster.new_topic("broadcast"), cluster.new_name("group")
    for member in ("first", "second"):
        java.start_consumer(member, topic, group=group, model="BROADCASTING")
    sent = send(java, topic, _COUNT)
    for member in ("first", "second"):
        assert_each_once(sent, java.received(member, _COUNT))
        assert java.owned(member, topic) == {0, 1, 2, 3}
    java.stop("first", "second")


def test_two_groups_each_get_everything(cluster: BrokerCluster, client: Messaging) -> None:
    topic = cluster.new_topic("two-groups")
    groups = [cluster.new_name("group") for _ in range(2)]
    for group in groups:
        client.start_consumer(group, topic)
    sent = send(client, topic, _COUNT)
    for group in groups:
        assert_each_once(sent, client.received(group, _COUNT))
    client.stop(*groups)


def test_orderly_consumers_get_each_queue_in_order(cluster: BrokerCluster, client: Messaging) -> None:
    topic, group = cluster.new_topic("orderly"), cluster.new_name("group")
    client.start_consumer(group, topic, listener="orderly")
    sent = send(client, topic, _COUNT, keys=7)
    received = client.received(group, _COUNT)
    assert_each_once(sent, received)
    assert in_order(received)
    client.stop(group)


@pytest.mark.parametrize("listener", ["concurrently", "orderly"])
def test_members_come_and_go_and_nothing_is_lost(
    cluster: BrokerCluster, java: Messaging, listener: str
) -> None:
    topic, group = cluster.new_topic(f"rebalanced-{listener}", queues=6), cluster.new_name("group")
    options = {"group": group, "listener": listener}
    sent: list[Fields] = []
    seen: list[Fields] = []

    def send_and_receive(*members: str) -> None:
        """Every queue has one owner, and each message gets to a member."""
        wait_shared(java, topic, {member: 6 // len(members) for member in members})
        sent.extend(send(java, topic, 30, label=f"round-{len(sent)}"))
        inboxes = wait_all(java, members, set(bodies(sent)) - set(bodies(seen)))
        seen.extend(message for inbox in inboxes for message in inbox)

    java.start_consumer("first", topic, **options)
    send_and_receive("first")
    java.start_consumer("second", topic, **options)
    send_and_receive("first", "second")
    java.start_consumer("third", topic, **options)
    send_and_receive("first", "second", "third")
    java.stop("second")
    send_and_receive("first", "third")
    java.stop("first")
    send_and_receive("third")
    java.stop("third")
    # What a member had when it lost a queue may come to the next owner again; nothing goes missing.
    assert set(bodies(seen)) == set(bodies(sent))


def test_a_group_goes_on_where_it_stopped(cluster: BrokerCluster, client: Messaging) -> None:
    topic, group = cluster.new_topic("resumed"), cluster.new_name("group")
    client.start_consumer("before", topic, group=group)
    first = send(client, topic, _COUNT, label="first")
    assert_each_once(first, client.received("before", _COUNT))
    client.stop("before")
    second = send(client, topic, _COUNT, label="second")
    client.start_consumer("after", topic, group=group)
    assert_each_once(second, client.received("after", _COUNT))
    client.stop("after")


def wait_shared(client: Messaging, topic: str, shares: dict[str, int]) -> None:
    """Wait until each member owns its number of queues, no two the same one, and all together every queue."""

    def is_shared() -> bool:
        owned = {member: client.owned(member, topic) for member in shares}
        counts = {member: len(queues) for member, queues in owned.items()}
        return counts == shares and len(set.union(*owned.values())) == sum(shares.values())

    wait_until(is_shared, timeout_s=_REBALANCE_S, what=f"shares {shares} of {topic}")


def wait_all(client: Messaging, members: Iterable[str], expected: set[str]) -> list[list[Fields]]:
    """Wait until the members together have received all that is expected; what each has."""
    inboxes: list[list[Fields]] = []

    def has_all() -> bool:
        inboxes[:] = [client.received(member, 0) for member in members]
        return expected <= {name for inbox in inboxes for name in bodies(inbox)}

    wait_until(has_all, timeout_s=30, what=f"{len(expected)} messages at {members}")
    return inboxes


def in_order(received: list[Fields]) -> bool:
    """Whether the messages of each queue came in the order of their offsets."""
    queues: dict[int, list[int]] = defaultdict(list)
    for message in received:
        queues[message["queueId"]].append(message["queueOffset"])
    return len(queues) > 1 and all(offsets == sorted(offsets) for offsets in queues.values())


# -- where to begin ------------------------------------------------------------------------------------------


def test_a_new_group_begins_with_the_first_message(cluster: BrokerCluster, client: Messaging) -> None:
    topic, group = cluster.new_topic("from-first"), cluster.new_name("group")
    sent = send(client, topic, _COUNT)
    client.start_consumer(group, topic, **{"from": "FIRST_OFFSET"})
    assert_each_once(sent, client.received(group, _COUNT))
    client.stop(group)


def test_a_young_queue_is_read_from_its_beginning_whatever_the_group_asks(
    cluster: BrokerCluster, java: Messaging
) -> None:
    """So that nothing is lost that is sent while the first consumer starts."""
    topic, group = cluster.new_topic("young"), cluster.new_name("group")
    sent = send(java, topic, _COUNT)
    java.start_consumer(group, topic, **{"from": "LAST_OFFSET"})
    assert_each_once(sent, java.received(group, _COUNT))
    java.stop(group)


# -- filters -------------------------------------------------------------------------------------------------


def test_a_group_gets_the_tags_that_it_asks_for(cluster: BrokerCluster, client: Messaging) -> None:
    topic, group = cluster.new_topic("tags"), cluster.new_name("group")
    # The Go client takes other hashes than the Java client of tags that are not ASCII.
    other = "TagD" if client.name == GO else "Других"
    sent = send(client, topic, _COUNT, tags=f"TagA,TagB,TagC,{other}")
    client.start_consumer(group, topic, expression=f"TagA || {other}")
    wanted = [message for message in sent if message["tags"] in ("TagA", other)]
    assert len(wanted) == _COUNT // 2
    assert_each_once(wanted, client.received(group, len(wanted)))
    # Messages of other tags count as read: the group does not hang on them.
    more = send(client, topic, 8, tags="TagB,TagA", label="more")
    wanted += [message for message in more if message["tags"] == "TagA"]
    assert_each_once(wanted, client.received(group, len(wanted)))
    client.stop(group)


# -- pulls ---------------------------------------------------------------------------------------------------


def test_a_pull_consumer_reads_what_it_asks_for(cluster: BrokerCluster, java: Messaging) -> None:
    topic, group = cluster.new_topic("pulled"), cluster.new_name("group")
    sent = java.send("sender", "queue", topic, 50, queue=1, tags="TagA,TagB")
    java.ask("start-pull", name=group, group=group, namesrv=cluster.namesrv)
    assert java.ask("queues", consumer=group, topic=topic) == [0, 1, 2, 3]

    def pull(**options: object) -> Fields:
        queue = {"consumer": group, "topic": topic, "broker": BROKER_NAME, "queue": 1}
        pulled: Fields = java.ask("pull", **{**queue, **options})
        return pulled

    # As Apache's brokers: 32 at most (maxTransferCountOnMessageInMemory), whatever the client asks for.
    first = pull(offset=0, max=50)
    assert bodies(first["messages"]) == bodies(sent[:32])
    assert [first[name] for name in ("status", "next", "min", "max")] == ["FOUND", 32, 0, 50]
    assert bodies(pull(offset=32)["messages"]) == bodies(sent[32:])
    assert bodies(pull(offset=0, expression="TagB")["messages"]) == bodies(sent[1::2])
    assert [pull(offset=50)[name] for name in ("status", "next")] == ["NO_NEW_MSG", 50]
    beyond = pull(offset=1_000)
    assert [beyond[name] for name in ("status", "next", "max")] == ["OFFSET_ILLEGAL", 50, 50]
    nothing = pull(offset=0, expression="NoSuchTag")
    assert nothing["status"] == "NO_MATCHED_MSG"
    java.stop(group)


def test_a_pull_waits_for_the_next_message(
    cluster: BrokerCluster, java_messaging_clients: dict[str, Messaging], java: Messaging
) -> None:
    topic, group = cluster.new_topic("awaited"), cluster.new_name("group")
    java.ask("start-pull", name=group, group=group, namesrv=cluster.namesrv)
    java.ask("queues", consumer=group, topic=topic)
    other = next(client for client in java_messaging_clients.values() if client is not java)
    other.namesrv = cluster.namesrv
    other.start_producer("other")
    queue = {"topic": topic, "broker": BROKER_NAME, "queue": 2}
    java.begin("pull", consumer=group, **queue, offset=0, wait=True)
    time.sleep(_SETTLE_S)
    sent = other.send("other", "queue", topic, 1, queue=2)
    pulled = java.finish()
    assert (pulled["status"], bodies(pulled["messages"])) == ("FOUND", bodies(sent))
    assert _SETTLE_S * 900 < pulled["tookMs"] < 5_000
    other.stop("other")
    java.stop(group)


def test_a_new_group_begins_at_the_first_offset_of_an_empty_queue(
    cluster: BrokerCluster, java: Messaging
) -> None:
    """Not found, which the client shows as -1, has a push consumer begin at the end a moment later."""
    topic, group = cluster.new_topic("empty"), cluster.new_name("group")
    java.ask("start-pull", name=group, group=group, namesrv=cluster.namesrv)
    java.ask("queues", consumer=group, topic=topic)
    assert java.ask("committed", consumer=group, topic=topic, broker=BROKER_NAME, queue=2) == 0
    java.stop(group)


def test_offsets_of_a_pull_consumer_are_kept(cluster: BrokerCluster, java: Messaging) -> None:
    topic, group = cluster.new_topic("kept"), cluster.new_name("group")
    send(java, topic, _COUNT)
    java.ask("start-pull", name=group, group=group, namesrv=cluster.namesrv)
    queue = {"consumer": group, "topic": topic, "broker": BROKER_NAME, "queue": 3}
    java.ask("queues", consumer=group, topic=topic)
    # Told to the broker one-way, which drops it before the first heartbeat of the group.
    wait_until(lambda: java.ask("keep", **queue, offset=7) == 7, timeout_s=10, what="the offset to be kept")
    assert java.ask("committed", **queue) == 7
    java.stop(group)


def test_a_lite_pull_consumer_reads_seeks_and_commits(cluster: BrokerCluster, java: Messaging) -> None:
    topic, group = cluster.new_topic("lite"), cluster.new_name("group")
    sent = send(java, topic, _COUNT)
    options = {"name": group, "group": group, "namesrv": cluster.namesrv, "topic": topic}
    java.ask("start-lite", **options, autoCommit=False)
    assert_each_once(sent, java.ask("poll", consumer=group, count=_COUNT))
    of_queue = [message for message in sent if message["queueId"] == 1]
    queue = {"consumer": group, "topic": topic, "broker": BROKER_NAME, "queue": 1}
    assert java.ask("commit-lite", **queue) == len(of_queue)
    java.ask("seek", **queue, offset=len(of_queue) - 3)
    assert_each_once(of_queue[-3:], java.ask("poll", consumer=group, count=3))
    java.ask("seek", **queue, time=0)
    assert_each_once(of_queue, java.ask("poll", consumer=group, count=len(of_queue)))
    java.stop(group)


def test_a_lite_pull_consumer_reads_the_queues_that_it_is_assigned(
    cluster: BrokerCluster, java: Messaging
) -> None:
    topic, group = cluster.new_topic("assigned"), cluster.new_name("group")
    sent = send(java, topic, _COUNT)
    options = {"name": group, "group": group, "namesrv": cluster.namesrv, "topic": topic}
    java.ask("start-lite", **options, assign=True)
    assert_each_once(sent, java.ask("poll", consumer=group, count=_COUNT))
    java.stop(group)


def test_the_go_pull_consumer_polls_and_pulls(cluster: BrokerCluster, go_messaging_client: Messaging) -> None:
    client, topic, group = go_messaging_client, cluster.new_topic("go-pull"), cluster.new_name("group")
    client.namesrv = cluster.namesrv
    client.start_producer("sender", selector="hash")
    sent = send(client, topic, _COUNT, tags="TagA,TagB")
    options = {"name": group, "group": group, "namesrv": cluster.namesrv, "topic": topic}
    client.ask("start-lite", **options)
    assert_each_once(sent, client.ask("poll", consumer=group, count=_COUNT))
    of_queue = [message for message in sent if message["queueId"] == 1]
    pulled = client.ask("pull", consumer=group, topic=topic, broker=BROKER_NAME, queue=1, offset=2)
    assert bodies(pulled["messages"]) == bodies(of_queue[2:])
    assert [pulled[name] for name in ("status", "next", "min", "max")] == [
        "FOUND",
        len(of_queue),
        0,
        len(of_queue),
    ]
    client.stop(group, "sender")


# -- another name server -------------------------------------------------------------------------------------


@pytest.mark.parametrize("namesrv_version", apache.VERSIONS)
def test_clients_find_our_broker_through_apaches_name_server(
    tmp_path_factory: pytest.TempPathFactory,
    java_messaging_clients: dict[str, Messaging],
    namesrv_version: str,
) -> None:
    work_dir = tmp_path_factory.mktemp("apache-namesrv")
    client = java_messaging_clients["4.9.8" if namesrv_version.startswith("4") else "5.5.0"]
    with (
        apache.start_namesrv(namesrv_version, work_dir) as theirs,
        running_broker(work_dir, more_namesrvs=[theirs]) as cluster,
    ):
        topic, group = cluster.new_topic("theirs"), cluster.new_name("group")
        client.namesrv = theirs.address
        client.start_producer("sender")
        client.start_consumer(group, topic)
        sent = send(client, topic, _COUNT)
        assert_each_once(sent, client.received(group, _COUNT))
        client.stop(group, "sender")
