"""Priorities with Apache's clients and tools of 5.5.0: mqadmin makes the topic, Java sends and pops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.interop.kit.broker_cluster import BrokerCluster, running_broker
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.messaging_session import Messaging, bodies

pytestmark = pytest.mark.interop

VERSION: Final = "5.5.0"
_LOW: Final = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with running_broker(tmp_path_factory.mktemp("broker-priority")) as running:
        yield running


def test_what_java_sends_with_a_priority_is_popped_by_java_in_its_order(
    cluster: BrokerCluster, messaging: Callable[[str], Messaging], admins: dict[str, AdminSession]
) -> None:
    admin, java = admins[VERSION], messaging(VERSION)
    java.namesrv = cluster.namesrv
    topic, group, place = (
        cluster.new_topic("priority", queues=8),
        cluster.new_name("group"),
        ("-n", cluster.namesrv, "-c", "DefaultCluster"),
    )
    attributes = "+message.type=PRIORITY"
    answer = admin.run("updateTopic", *place, "-t", topic, "-r", "8", "-w", "8", "-a", attributes)
    assert "success" in answer.stdout
    assert "success" in admin.run("setConsumeMode", *place, "-t", topic, "-g", group, "-m", "POP").stdout

    java.start_producer("sender", group=cluster.new_name("sender"), selector="hash")
    low = java.send("sender", "sync", topic, _LOW, label=f"{topic}-low", priorities="0")
    high = java.send("sender", "sync", topic, 3, label=f"{topic}-high", priorities="5,9,7")
    java.stop("sender")
    assert {message["queueId"] for message in low} == {0}
    assert [message["queueId"] for message in high] == [5, 7, 7], "9 is beyond the last queue"

    java.start_consumer("popping", topic, group=group, assigned=True, threads=1)
    received = java.received("popping", _LOW + 3)
    java.stop("popping")
    assert bodies(received) == [*bodies(high[1:]), *bodies(high[:1]), *bodies(low)]
    priorities = [message["properties"]["_SYS_MSG_PRIORITY_"] for message in received]
    assert priorities == ["9", "7", "5", *["0"] * _LOW]
