"""Official clients send to our broker in every way they have, and read back what they sent.

Every message is looked at whole: body, tag, keys, properties, queue and offset as the broker answered them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import CLIENT_SETS
from tests.interop.kit.messaging_session import (
    CLIENTS,
    CommandFailed,
    Fields,
    Messaging,
    bodies,
    java_messaging,
)

pytestmark = pytest.mark.interop

# The flag, which 5.5.0 clears when it has decompressed, and the way in which a body is compressed.
_COMPRESSED: Final = 0x701
_COUNT: Final = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with running_broker(tmp_path_factory.mktemp("broker-sending")) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def client(
    request: pytest.FixtureRequest, cluster: BrokerCluster, messaging: Callable[[str], Messaging]
) -> Messaging:
    found = messaging(request.param)
    found.namesrv = cluster.namesrv
    return found


@pytest.fixture(params=CLIENT_SETS)
def java(
    request: pytest.FixtureRequest, cluster: BrokerCluster, messaging: Callable[[str], Messaging]
) -> Messaging:
    found = messaging(request.param)
    found.namesrv = cluster.namesrv
    return found


class Exchange:
    """A producer and a topic of their own; what is sent is compared with what a consumer gets."""

    def __init__(self, cluster: BrokerCluster, client: Messaging, purpose: str, **options: object) -> None:
        self.cluster = cluster
        self.client = client
        self.topic = cluster.new_topic(f"{purpose}-{client.name}")
        self.producer = cluster.new_name(f"producer-{client.name}")
        client.start_producer(self.producer, **options)

    def send(self, mode: str, count: int = _COUNT, **options: object) -> list[Fields]:
        return self.client.send(
            self.producer, mode, self.topic, count, **{"broker": self.cluster.broker_name, **options}
        )

    def receive(self, count: int) -> list[Fields]:
        consumer = self.cluster.new_name(f"group-{self.client.name}")
        self.client.start_consumer(consumer, self.topic)
        received = self.client.received(consumer, count)
        self.client.stop(consumer, self.producer)
        return received


def assert_same(sent: list[Fields], received: list[Fields]) -> None:
    """Assert that every message came once, with every field that the sender knows of it."""
    by_body = {message["body"]: message for message in received}
    assert sorted(by_body) == sorted(bodies(received)) == sorted(bodies(sent))
    for message in sent:
        known = message.keys() - {"status", "broker"}
        got = by_body[message["body"]]
        assert {name: got[name] for name in known} == {name: message[name] for name in known}
        assert got["properties"]["number"] == message["body"].rpartition("-")[2]
        assert got["properties"]["words"] == 'für 东京 = "x"'


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch"])
def test_what_is_sent_is_received(cluster: BrokerCluster, client: Messaging, mode: str) -> None:
    exchange = Exchange(cluster, client, mode)
    sent = exchange.send(mode, tags="TagA,TagB")
    received = exchange.receive(_COUNT)
    assert_same(sent, received)
    if mode != "oneway":
        assert len({(message["queueId"], message["queueOffset"]) for message in sent}) == _COUNT
    if mode == "batch":
        assert len({message["queueId"] for message in sent}) == 1


def test_messages_go_to_the_chosen_queue(cluster: BrokerCluster, client: Messaging) -> None:
    exchange = Exchange(cluster, client, "queue", selector="queue")
    sent = exchange.send("queue", queue=2)
    assert [message["queueOffset"] for message in sent] == list(range(_COUNT))
    assert {message["queueId"] for message in sent} == {2}
    assert_same(sent, exchange.receive(_COUNT))


def test_messages_of_one_key_go_to_one_queue(cluster: BrokerCluster, client: Messaging) -> None:
    exchange = Exchange(cluster, client, "hash", selector="hash")
    sent = exchange.send("hash", keys=5)
    queues = {(number % 5, message["queueId"]) for number, message in enumerate(sent)}
    assert len(queues) == 5
    assert_same(sent, exchange.receive(_COUNT))


def test_compressed_bodies_come_back_as_they_were(cluster: BrokerCluster, client: Messaging) -> None:
    """Above 4 KiB a client compresses; the broker keeps that as it came, as the reader sees in the flags."""
    exchange = Exchange(cluster, client, "compressed")
    sent = [
        *exchange.send("sync", 3, size=5_000, label="small"),
        *exchange.send("sync", 2, size=3_000_000, label="large"),
        *exchange.send("sync", 2, size=4_000, label="plain"),
    ]
    received = exchange.receive(len(sent))
    assert_same(sent, received)
    for message in received:
        is_compressed = not message["body"].startswith("plain")
        assert bool(message["sysFlag"] & _COMPRESSED) == is_compressed


def test_large_bodies_come_back_as_they_were(cluster: BrokerCluster, client: Messaging) -> None:
    exchange = Exchange(cluster, client, "large", compressOver=8_000_000)
    sent = [
        *exchange.send("sync", 3, size=1_100_000, padding="random", label="one"),
        *exchange.send("async", 2, size=2_500_000, padding="random", label="two"),
    ]
    received = exchange.receive(len(sent))
    assert_same(sent, received)
    assert not any(message["sysFlag"] & _COMPRESSED for message in received)


def test_a_new_topic_is_created_by_sending_to_it(cluster: BrokerCluster, client: Messaging) -> None:
    exchange = Exchange(cluster, client, "unused")
    exchange.topic = cluster.new_name(f"unheard-of-{client.name}")
    sent = exchange.send("sync")
    assert {message["queueId"] for message in sent} == {0, 1, 2, 3}
    assert_same(sent, exchange.receive(_COUNT))


def test_a_message_that_is_too_large_is_refused(cluster: BrokerCluster, java: Messaging) -> None:
    """The client's own limit is that of the broker, 4 MiB; properties count too, for the broker alone."""
    exchange = Exchange(cluster, java, "oversize", compressOver=8_000_000, retries=0)
    with pytest.raises(CommandFailed, match="CODE: 13 "):
        exchange.send("sync", 1, size=4 * 1024 * 1024 + 1, padding="random")
    sent = exchange.send("sync", 1, size=4 * 1024 * 1024 - 1_000, padding="random")
    assert_same(sent, exchange.receive(1))


@pytest.mark.parametrize("version", CLIENT_SETS)
def test_headers_in_the_binary_form(cluster: BrokerCluster, tmp_path: Path, version: str) -> None:
    """As Apache's own benchmark programs send them."""
    options = ["-Drocketmq.serialize.type=ROCKETMQ"]
    with java_messaging(version, tmp_path, jvm_options=options) as client:
        client.namesrv = cluster.namesrv
        exchange = Exchange(cluster, client, "binary")
        sent = [
            message
            for mode in ("sync", "async", "batch", "oneway")
            for message in exchange.send(mode, tags="TagA,TagB")
        ]
        assert_same(sent, exchange.receive(len(sent)))


# -- looking messages up -------------------------------------------------------------------------------------


def test_messages_are_found_by_key_and_by_both_ids(cluster: BrokerCluster, java: Messaging) -> None:
    exchange = Exchange(cluster, java, "query")
    began_ms = int(time.time() * 1000)
    sent = exchange.send("sync", 5)
    topic, producer = exchange.topic, exchange.producer
    window = {"begin": began_ms - 1000, "end": began_ms + 600_000}

    def found(key: str, **options: object) -> list[Fields]:
        result: list[Fields] = java.ask("query", producer=producer, topic=topic, key=key, **options)
        return result

    # The index is made in the background.
    wait_until(
        lambda: found(sent[-1]["keys"], **window) != [], timeout_s=10, what="the index of the last key"
    )
    for message in sent:
        assert_same([message], found(message["keys"], **window))
        for id_name in ("msgId", "offsetMsgId"):
            viewed = java.ask("view", producer=producer, topic=topic, id=message[id_name])
            assert viewed["offsetMsgId"] == message["offsetMsgId"]
            assert (viewed["body"], viewed["crc"]) == (message["body"], message["crc"])
    assert found("no such key", **window) == []
    assert found(sent[0]["keys"], begin=0, end=began_ms - 60_000) == []
    java.stop(producer)


def test_an_unknown_offset_id_is_an_error(cluster: BrokerCluster, java: Messaging) -> None:
    exchange = Exchange(cluster, java, "no-such-id")
    message = exchange.send("sync", 1)[0]
    beyond = f"{message['offsetMsgId'][:-16]}{1 << 40:016X}"
    with pytest.raises(CommandFailed):
        java.ask("view", producer=exchange.producer, topic=exchange.topic, id=beyond)
    java.stop(exchange.producer)


def test_offsets_by_time_lie_between_the_messages(cluster: BrokerCluster, java: Messaging) -> None:
    exchange = Exchange(cluster, java, "times", selector="queue")
    exchange.send("queue", 3, queue=0, label="before")
    # The broker takes the message that is nearest to the time.
    time.sleep(0.5)
    between_ms = int(time.time() * 1000)
    exchange.send("queue", 4, queue=0, label="after")

    def offsets(time_ms: int) -> dict[str, dict[str, int]]:
        asked: dict[str, dict[str, int]] = java.ask(
            "offsets", producer=exchange.producer, topic=exchange.topic, time=time_ms
        )
        return asked

    first = offsets(between_ms)["0"]
    assert (first["min"], first["max"], first["at"]) == (0, 7, 3)
    assert between_ms - 60_000 < first["earliest"] <= between_ms
    assert offsets(between_ms - 3_600_000)["0"]["at"] == 0
    assert offsets(between_ms + 3_600_000)["0"]["at"] in (6, 7)
    untouched = offsets(between_ms)["1"]
    assert (untouched["min"], untouched["max"], untouched["at"]) == (0, 0, 0)
    java.stop(exchange.producer)
