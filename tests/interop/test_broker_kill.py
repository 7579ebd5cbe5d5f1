"""`kill -9` of a broker with synchronous flush, again and again, under the load of a Java producer.

Every message that was acknowledged is consumed, each queue keeps its order, and the consumers go on by
themselves. 5 rounds; KOUROU_NIGHTLY=1 makes 50 of them (tests/crash/rounds.py).
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from tests.crash.rounds import NIGHTLY, summaries, time_left
from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.messaging_session import Messaging

pytestmark = [pytest.mark.interop, pytest.mark.crash]

_ROUNDS: Final = 50 if NIGHTLY else 5
_TIME_S: Final = 40
_QUEUES: Final = 4
_TOPIC: Final = "killed"
# What must come through between two kills.
_ADVANCE: Final = 100
_BACK_S: Final = 30


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    properties = {"flushDiskType": "SYNC_FLUSH"}
    with running_broker(tmp_path_factory.mktemp("broker-kill"), properties=properties) as running:
        yield running


def test_nothing_acknowledged_is_lost_and_order_holds(
    cluster: BrokerCluster, java_messaging_clients: dict[str, Messaging]
) -> None:
    sender, reader = java_messaging_clients["5.5.0"], java_messaging_clients["4.9.8"]
    sender.namesrv = reader.namesrv = cluster.namesrv
    topic = cluster.new_topic(_TOPIC, _QUEUES)
    reader.start_consumer("orderly", topic, listener="orderly", lean=True)
    sender.start_consumer("concurrent", topic, lean=True)
    sender.start_producer("loader", retries=0)
    sender.ask("start-load", name="load", producer="loader", topic=topic, queues=_QUEUES)
    rounds = kill_and_restart(cluster, sender)
    acknowledged: list[int] = sender.ask("stop-load", name="load")
    expected = sum(acknowledged)
    summaries.append(f"kill -9 under a Java producer: {rounds} kills, {expected} messages acknowledged")
    orderly = names(reader, "orderly", acknowledged)
    concurrent = names(sender, "concurrent", acknowledged)
    assert missing(acknowledged, orderly) == set()
    assert missing(acknowledged, concurrent) == set()
    assert out_of_order(orderly) == []
    reader.stop("orderly")
    sender.stop("concurrent", "loader")


def kill_and_restart(cluster: BrokerCluster, sender: Messaging) -> int:
    """Kill the broker while messages come in, start it again; returns how often that was done."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    began = time.monotonic()
    rounds = 0
    while rounds < _ROUNDS and (not rounds or time_left(began, _TIME_S)):
        wait_advance(sender)
        time.sleep(moments.uniform(0, 0.5))
        cluster.broker.kill()
        cluster.broker = cluster.launch().wait_ready()
        rounds += 1
    wait_advance(sender)
    return rounds


def wait_advance(sender: Messaging) -> None:
    """Wait until the producer gets on by itself."""

    def total() -> int:
        return sum(sender.ask("acknowledged", name="load"))

    before = total()
    wait_until(lambda: total() >= before + _ADVANCE, timeout_s=_BACK_S, what="sends after a restart")


def names(client: Messaging, consumer: str, acknowledged: list[int]) -> list[str]:
    """All that a consumer has received, once that may be everything."""
    received: list[str] = client.ask(
        "received", consumer=consumer, count=sum(acknowledged), timeoutMs=_BACK_S * 1000
    )
    deadline = time.monotonic() + _BACK_S
    while missing(acknowledged, received) and time.monotonic() < deadline:
        time.sleep(0.2)
        received = client.ask("received", consumer=consumer, count=0)
    return received


def missing(acknowledged: list[int], received: Iterable[str]) -> set[str]:
    """The acknowledged messages that were not received."""
    sent = {f"{queue_id}-{number}" for queue_id, count in enumerate(acknowledged) for number in range(count)}
    return sent - set(received)


def out_of_order(received: Iterable[str]) -> list[str]:
    """The messages that came for the first time after one with a higher number.

    A message may come again: when its acknowledgement was lost, it was sent again, and when its offset was,
    it was consumed again.
    """
    highest: dict[str, int] = defaultdict(lambda: -1)
    seen: set[str] = set()
    late: list[str] = []
    for name in received:
        queue_id, _, number = name.partition("-")
        if name not in seen and int(number) < highest[queue_id]:
            late.append(name)
        seen.add(name)
        highest[queue_id] = max(highest[queue_id], int(number))
    return late
