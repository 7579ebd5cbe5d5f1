"""Clients for gRPC beside Apache's remoting client of Java, at our proxy: each reads what the other sends."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.interop.kit.grpc.fixtures import GrpcClients
from tests.interop.kit.grpc.scenarios import Scene
from tests.interop.kit.grpc.sides import KOUROU, GrpcSide
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.messaging_session import Messaging

pytestmark = pytest.mark.interop

_REMOTING = "5.5.0"
_LANGUAGES = {"java": "JAVA", "go": "GO", "python": "PYTHON", "node": "NODE_JS"}


@pytest.fixture
def remoting(java_messaging_clients: dict[str, Messaging], grpc_sides: dict[str, GrpcSide]) -> Messaging:
    """Java's remoting client at our broker."""
    client = java_messaging_clients[_REMOTING]
    client.namesrv = grpc_sides[KOUROU].namesrv
    return client


@pytest.fixture
def scene(grpc_sides: dict[str, GrpcSide], grpc_clients: GrpcClients) -> Iterator[Scene]:
    """Java's client for gRPC at our proxy."""
    scene = Scene(grpc_clients["java"], grpc_sides[KOUROU])
    yield scene
    scene.close()


def test_a_remoting_client_receives_what_a_client_for_grpc_sends(scene: Scene, remoting: Messaging) -> None:
    topic, group = scene.side.new_topic("mixed"), scene.side.new_name("remoting")
    remoting.start_consumer(group, topic)
    sent = scene.send(
        scene.producer(topic), topic, "one", "größe", tag="TagA", keys="k1,k2", properties="price=12"
    )
    came = sorted(remoting.received(group, 2), key=lambda message: str(message["body"]))
    remoting.stop(group)
    assert [message["body"] for message in came] == ["größe", "one"]
    assert {message["msgId"] for message in came} == {message["messageId"] for message in sent}
    for message in came:
        assert (message["tags"], message["keys"]) == ("TagA", "k1 k2")
        assert message["properties"]["price"] == "12"


def test_a_client_for_grpc_receives_what_a_remoting_client_sends(scene: Scene, remoting: Messaging) -> None:
    topic, producer = scene.side.new_topic("mixed"), scene.side.new_name("remoting")
    consumer = scene.start("push", topic=topic, group=scene.side.new_group())
    remoting.start_producer(producer)
    sent = remoting.send(producer, "sync", topic, 6, keys=2, size=10_000)
    remoting.stop(producer)
    came = scene.received(consumer, 6)
    assert {one["messageId"]: (one["body"], one["size"], one["crc"]) for one in came} == {
        one["msgId"]: (one["body"], one["size"], one["crc"]) for one in sent
    }


def test_members_of_both_protocols_share_a_topic_without_loss(scene: Scene, remoting: Messaging) -> None:
    """Each group has all messages, whichever protocol its members speak."""
    topic, group = scene.side.new_topic("mixed"), scene.side.new_name("remoting")
    remoting.start_consumer(group, topic)
    consumer = scene.start("push", topic=topic, group=scene.side.new_group())
    names = [f"m-{number}" for number in range(20)]
    scene.send(scene.producer(topic), topic, *names)
    assert {one["body"] for one in scene.received(consumer, 20)} == {*names}
    assert {one["body"] for one in remoting.received(group, 20)} == {*names}
    remoting.stop(group)


@pytest.mark.parametrize("language", ["java", "go", "python", "node"])
def test_apaches_mqadmin_lists_consumers_and_asks_them(
    grpc_sides: dict[str, GrpcSide],
    grpc_clients: GrpcClients,
    admins: dict[str, AdminSession],
    language: str,
) -> None:
    scene = Scene(grpc_clients[language], grpc_sides[KOUROU])
    topic, group = scene.side.new_topic("listed"), scene.side.new_group()
    consumer = scene.start("push", topic=topic, group=group)
    sent = scene.send(scene.producer(topic), topic, "one")
    assert len(scene.received(consumer, 1)) == 1
    namesrv, admin = scene.side.namesrv, admins[_REMOTING]
    listed = admin.run("consumerConnection", "-n", namesrv, "-g", group).stdout
    client_id = re.search(r"(\S+)\s+127\.0\.0\.1:\d+\s+(\w+)", listed)
    assert client_id is not None and client_id[2] == _LANGUAGES[language], listed
    assert topic in listed and "CONSUME_PASSIVELY" in listed, listed
    if language == "java":  # the others do not know these commands, or the client has no such stack
        direct = admin.run(
            *("queryMsgByUniqueKey", "-n", namesrv, "-i", sent[0]["messageId"], "-t", topic),
            *("-g", group, "-d", client_id[1]),
        ).stdout
        assert "consumeResult=CR_SUCCESS" in direct
        assert len(scene.received(consumer, 2, calls=True)) == 2
        stacks = admin.run("consumerStatus", "-n", namesrv, "-g", group, "-i", client_id[1], "-s").stdout
        assert "RocketmqMessageConsumption" in stacks
    scene.close()
