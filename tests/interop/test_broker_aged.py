"""New groups on queues whose first messages are gone: the group's own choice of a beginning rules.

On a young queue the broker answers offset 0 to any new group (test_broker_consuming.py). Here the first file
of the CommitLog is taken away while the broker is stopped, as retention does in days.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.interop.kit import wire
from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.java_session import CLIENT_SETS
from tests.interop.kit.messaging_session import CLIENTS, Fields, Messaging, bodies

pytestmark = pytest.mark.interop

_QUEUES = 4
_FILE_BYTES = 16 * 1024 * 1024
_BODY_BYTES = 3_000_000


@dataclass(frozen=True, slots=True)
class Aged:
    """A topic whose messages were sent in three times; the first of them are gone."""

    cluster: BrokerCluster
    topic: str
    kept: list[str]
    late: list[str]
    late_since: str

    def new_group(self) -> str:
        return self.cluster.new_name("group")


@pytest.fixture(scope="module")
def aged(
    tmp_path_factory: pytest.TempPathFactory, java_messaging_clients: dict[str, Messaging]
) -> Iterator[Aged]:
    client = java_messaging_clients["4.9.8"]
    with running_broker(tmp_path_factory.mktemp("broker-aged")) as cluster:
        topic = cluster.new_topic("aged", _QUEUES)
        client.namesrv = cluster.namesrv
        client.start_producer("ager")
        _send(client, topic, "gone")
        for _ in range(_FILE_BYTES // _BODY_BYTES + 2):
            wire.send(cluster.broker.address, "Filler", b"x" * _BODY_BYTES)
        kept = _send(client, topic, "kept")
        cluster.broker.stop(timeout_s=30)
        first, *_, _last = sorted((cluster.store_dir / "commitlog").iterdir())
        first.unlink()
        cluster.start_again()
        # A time is given in whole seconds, and the broker takes the message that is nearest to it.
        time.sleep(2.1)
        late_since = time.strftime("%Y%m%d%H%M%S")
        late = _send(client, topic, "late")
        client.stop("ager")
        yield Aged(cluster, topic, kept, late, late_since)


def _send(client: Messaging, topic: str, label: str) -> list[str]:
    """Two messages to each queue."""
    sent: list[Fields] = []
    for queue_id in range(_QUEUES):
        sent += client.send("ager", "queue", topic, 2, queue=queue_id, label=f"{label}-{queue_id}")
    return bodies(sent)


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, aged: Aged, messaging: Callable[[str], Messaging]) -> Messaging:
    found = messaging(request.param)
    found.namesrv = aged.cluster.namesrv
    return found


@pytest.mark.parametrize("client", CLIENT_SETS, indirect=True)
def test_from_first_is_from_the_first_message_that_is_left(aged: Aged, client: Messaging) -> None:
    """The broker tells of the next offset that there is; a client of 4.9 goes on there after ten seconds."""
    group = aged.new_group()
    client.start_consumer(group, aged.topic, **{"from": "FIRST_OFFSET"})
    expected = aged.kept + aged.late
    assert sorted(bodies(client.received(group, len(expected), timeout_s=45))) == sorted(expected)
    client.stop(group)


def test_from_a_time_is_from_the_message_nearest_to_it(aged: Aged, client: Messaging) -> None:
    group = aged.new_group()
    client.start_consumer(group, aged.topic, **{"from": "TIMESTAMP", "time": aged.late_since})
    assert sorted(bodies(client.received(group, len(aged.late)))) == sorted(aged.late)
    client.stop(group)


@pytest.mark.parametrize("client", CLIENT_SETS, indirect=True)
def test_from_last_is_after_all_that_is_there(aged: Aged, client: Messaging) -> None:
    group = aged.new_group()
    client.start_consumer(group, aged.topic, **{"from": "LAST_OFFSET"})
    # Until each queue's first pull is out, its start is not fixed.
    deadline = time.monotonic() + 20
    while len(client.owned(group, aged.topic)) < _QUEUES and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    client.start_producer("ager")
    newest = _send(client, aged.topic, f"newest-{client.label}")
    received = bodies(client.received(group, len(newest)))
    client.stop(group, "ager")
    aged.late.extend(newest)
    assert sorted(received) == sorted(newest)
