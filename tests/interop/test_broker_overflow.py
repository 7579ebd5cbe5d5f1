"""Apache's push consumer at a topic whose policy drops what it has not got yet: it goes on behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.messaging_session import Messaging, bodies
from tests.unit.admin.command_line import run_now

pytestmark = pytest.mark.interop

_VERSION = "5.5.0"
_LIMIT, _KEPT = 50, 45
# What one pull brings; with its threshold the consumer takes no other one before it has consumed them.
_IN_HAND = 32


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with running_broker(tmp_path_factory.mktemp("broker-overflow")) as running:
        yield running


def test_a_push_consumer_is_moved_behind_what_was_dropped(
    cluster: BrokerCluster, messaging: Callable[[str], Messaging]
) -> None:
    """Of the Java client, DefaultMQPushConsumerImpl: OFFSET_ILLEGAL drops the queue, and goes on at the next
    offset of the answer."""
    java = messaging(_VERSION)
    java.namesrv = cluster.namesrv
    topic, group = cluster.new_topic("overflow", queues=1), cluster.new_name("group")
    sender = cluster.new_name("sender")
    java.start_producer(sender)
    java.start_consumer("quick", topic, group=group, **{"from": "FIRST_OFFSET"})
    first = java.send(sender, "queue", topic, 1, queue=0)
    assert bodies(java.received("quick", 1)) == bodies(first)
    java.stop("quick")  # the group has an offset from now on
    waiting = java.send(sender, "queue", topic, _IN_HAND, queue=0, label="waiting")
    java.start_consumer("slow", topic, group=group, slowMs=1_000, threshold=10)
    java.received("slow", 1)
    changes = f"+overflow.policy=drop-oldest,+overflow.messages={_LIMIT}"
    words = ["-n", cluster.namesrv, "-c", "DefaultCluster", "-t", topic, "-r", "1", "-w", "1", "-a", changes]
    assert run_now(["updateTopic", *words]).exit_code == 0
    later = java.send(sender, "queue", topic, 300, queue=0, label="later")
    names = bodies(later)

    def got() -> list[str]:
        return bodies(java.received("slow", 1))

    def has_newest() -> bool:
        kept = set(names) & set(got())
        return len(kept) >= _KEPT and kept == set(names[-len(kept) :])

    wait_until(has_newest, timeout_s=40, what="the consumer has the newest messages")
    received = got()
    kept = [name for name in received if name in names]
    assert len(kept) == len(set(kept)) <= _LIMIT, "the newest, each once"
    assert {*received} - {*names} <= {*bodies(first), *bodies(waiting)}, (
        "what it had in hand before, and nothing between"
    )
    shown = run_now(["topicOverflow", "-n", cluster.namesrv, "-t", topic]).stdout
    count = int(shown.partition(f"{group}: ")[2].split()[0])
    begin = len(names) - len(kept)
    assert begin <= count <= begin + _IN_HAND + 1, "all between, and what was in hand and not committed"
    java.stop("slow", sender)
