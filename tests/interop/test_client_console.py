"""The console at Apache's clusters, of both lines: everything that can be read is answered, also where it
needs requests that Apache's brokers do not know, or only those of RocketMQ 5.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from kourou import Message, MessageExt, Producer, PushConsumer
from kourou.console.app import ENDPOINTS
from kourou.console.endpoints import Read, Role
from tests.integration.console.kit import Console, console_of
from tests.interop.kit import apache
from tests.interop.kit.broker_cluster import BrokerCluster
from tests.interop.kit.lanes import Lanes

pytestmark = pytest.mark.interop

_TIMEOUT_S: Final = 60


@pytest.fixture(params=apache.VERSIONS)
def cluster(shared_lanes: Lanes, request: pytest.FixtureRequest) -> BrokerCluster:
    return shared_lanes.cluster(request.param)


async def test_every_page_that_reads(cluster: BrokerCluster, tmp_path: Path) -> None:
    namesrv, broker = cluster.namesrvs[-1].address, cluster.broker_name
    topic, group = cluster.new_name("console"), cluster.new_name("readers")
    async with console_of(namesrv, tmp_path) as console:
        body = {"topic": topic, "brokers": [broker], "read_queues": 1, "write_queues": 1}
        preview = await console.preview("POST", "/topics", body)
        await console.change("POST", "/topics", body, plan=preview["plan"])
        seen = threading.Event()

        def handle(message: MessageExt) -> None:
            seen.set()

        consumer = PushConsumer(group, namesrv=namesrv, consume_from="first")
        consumer.subscribe(topic, handle)
        with consumer, Producer("console-shop", namesrv=namesrv) as producer:
            msg_id = producer.send(Message(topic, b'{"amount": 5}', keys=["k-1"])).msg_id
            assert seen.wait(_TIMEOUT_S)
            values = {
                "topic": topic,
                "group": group,
                "name": broker,
                "id": msg_id,
                "client": consumer.client_id,
            }
            failed = await _failures(console, values)
    assert failed == []


async def _failures(console: Console, values: dict[str, str]) -> list[tuple[str, int, str]]:
    """The reads that do not return data."""
    queries = {
        "/messages": {"topic": values["topic"]},
        "/messages/by-key": {"topic": values["topic"], "key": "k-1"},
        "/producers/{group}": {"topic": values["topic"]},
        "/traces": {"id": values["id"]},
        "/namesrvs/kv": {"namespace": "ORDER_TOPIC_CONFIG", "key": values["topic"]},
    }
    failed = []
    for endpoint in ENDPOINTS:
        if not isinstance(endpoint, Read) or endpoint.method != "GET" or endpoint.role is Role.NONE:
            continue
        if endpoint.path.startswith("/message-searches"):
            continue
        given = dict(values)
        if endpoint.path.startswith("/brokers/"):
            given["id"] = "0"
        if endpoint.path.startswith("/producers/"):
            given["group"] = "console-shop"
        template = endpoint.path.replace(":path}", "}")  # ids of clients may contain slashes
        path = "/api" + template.format(**{name: quote(value) for name, value in given.items()})
        answer = await console.http.get(path, params=queries.get(endpoint.path, {}))
        if answer.status_code != 200:
            failed.append((endpoint.path, answer.status_code, answer.text[:300]))
    return failed
