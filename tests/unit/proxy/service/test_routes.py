"""QueryRoute and QueryAssignment: numbering and permissions of queues, addresses, rights."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.access.model import Action
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicRouteData
from kourou.protocol.bodies.route import BrokerData, QueueData
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.service.routes import Routes, assigned_queues, endpoints_of, route_queues
from kourou.proxy.wire.rocketmq_v2 import (
    Address,
    Code,
    Endpoints,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryRouteRequest,
    Resource,
)
from tests.unit.proxy.recorded import ProxyKit, RecordedCall

TOPIC = Resource(name="T")
HERE = Endpoints(scheme=1, addresses=[Address(host="10.0.0.1", port=8081)])


def route(*queues: QueueData, brokers: list[BrokerData] | None = None) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=list(queues),
        broker_datas=brokers or [BrokerData("c", "a", {0: "a:10911"})],
    )


@pytest.mark.parametrize(
    ("perm", "readable", "writable", "expected"),
    [
        (6, 2, 2, ["READ_WRITE", "READ_WRITE"]),
        (6, 3, 1, ["READ", "READ", "READ_WRITE"]),
        (6, 1, 3, ["WRITE", "WRITE", "READ_WRITE"]),
        (4, 2, 3, ["READ", "READ"]),
        (2, 3, 2, ["WRITE", "WRITE"]),
        (0, 1, 2, ["NONE", "NONE"]),
        (0, 0, 0, ["NONE"]),
        (6, 0, 0, []),
        (6, -1, -5, []),
    ],
)
def test_numbering_and_permissions(perm: int, readable: int, writable: int, expected: list[str]) -> None:
    found = list(route_queues(TOPIC, route(QueueData("a", readable, writable, perm)), HERE, []))
    assert [Permission(queue.permission).name for queue in found] == expected
    assert [queue.id for queue in found] == list(range(len(expected)))


def test_each_replica_has_the_queues() -> None:
    replicas = [BrokerData("c", "a", {0: "a:1", 2: "a:2"}), BrokerData("c", "b", {1: "b:1"})]
    found = route_queues(
        TOPIC,
        route(QueueData("b", 1, 1, 6), QueueData("a", 1, 1, 6), QueueData("gone", 1, 1, 6), brokers=replicas),
        HERE,
        [MessageType.FIFO],
    )
    assert [(queue.broker.name, queue.broker.id, list(queue.accept_message_types)) for queue in found] == [
        ("a", 0, [2]),
        ("a", 2, [2]),
        ("b", 1, [2]),
    ]


@pytest.mark.parametrize(
    ("broker", "is_fifo", "expected"),
    [
        (BrokerData("c", "a", {0: "a:1"}), False, [-1]),
        (BrokerData("c", "a", {0: "a:1"}), True, [0, 1, 2]),
        (BrokerData("c", "a", {1: "a:1"}), False, []),
        (BrokerData("c", "a", {1: "a:1"}, enable_acting_master=True), False, [-1]),
        (BrokerData("c", "another", {0: "a:1"}), False, []),
    ],
)
def test_assignments(broker: BrokerData, is_fifo: bool, expected: list[int]) -> None:
    of = route(QueueData("a", 3, 3, 6), brokers=[broker])
    found = list(assigned_queues(TOPIC, of, HERE, is_fifo=is_fifo))
    assert [queue.id for queue in found] == expected
    assert all(queue.broker.id == 0 for queue in found)


@pytest.mark.parametrize(
    ("hosts", "scheme", "shown"),
    [
        (["10.0.0.1"], 1, 1),
        (["10.0.0.1", "10.0.0.2"], 1, 2),
        (["fe80::1"], 2, 1),
        (["[fe80::1]"], 2, 1),
        (["proxy.test"], 3, 1),
        # Clients accept one domain name only.
        (["proxy.test", "10.0.0.1"], 3, 1),
    ],
)
def test_endpoints_are_sent_back(hosts: list[str], scheme: int, shown: int) -> None:
    # Whatever scheme the client names.
    sent = Endpoints(scheme=0, addresses=[Address(host=host, port=8081) for host in hosts])
    found = endpoints_of(sent, "ignored:1")
    assert (found.scheme, list(found.addresses)) == (scheme, list(sent.addresses)[:shown])


def test_the_address_of_the_call_serves_where_the_request_has_none() -> None:
    found = endpoints_of(Endpoints(), "[::1]:8081")
    assert (found.scheme, found.addresses[0].host, found.addresses[0].port) == (2, "::1", 8081)


@pytest.mark.parametrize(
    ("addresses", "authority"),
    [
        ([], ""),
        ([], "proxy"),
        ([Address(host="", port=1)], ""),
        ([Address(host="h", port=0)], ""),
        ([Address(host="h" * 256, port=1)], ""),
        ([Address(host="h", port=1)] * 65, ""),
    ],
)
def test_no_address(addresses: list[Address], authority: str) -> None:
    with pytest.raises(StatusError) as refused:
        endpoints_of(Endpoints(addresses=addresses), authority)
    assert refused.value.code == Code.ILLEGAL_ACCESS_POINT


async def ask(kit: ProxyKit, method: str, request: Any) -> Any:
    handlers = Routes(kit.brokers, kit.access).handlers(kit.make)
    return (await kit.call(handlers, RecordedCall(method, request))).response


async def test_rights(kit: ProxyKit) -> None:
    requests = {
        "QueryRoute": QueryRouteRequest(topic=TOPIC, endpoints=HERE),
        "QueryAssignment": QueryAssignmentRequest(topic=TOPIC, group=Resource(name="g"), endpoints=HERE),
    }
    for method, request in requests.items():
        assert (await ask(kit, method, request)).status.code == Code.OK
    of_route, of_assignment = kit.access.checked
    (need,) = of_route.auth
    assert (need.resource.name, need.actions) == ("T", {Action.PUB, Action.SUB})
    assert [(each.resource.name, each.actions) for each in of_assignment.auth] == [
        ("T", {Action.SUB}),
        ("g", {Action.SUB}),
    ]


async def test_groups_that_consume_in_order_get_each_queue(kit: ProxyKit) -> None:
    kit.brokers.groups["g"] = SubscriptionGroupConfig(consume_message_orderly=True)
    request = QueryAssignmentRequest(topic=TOPIC, group=Resource(name="g"), endpoints=HERE)
    response = await ask(kit, "QueryAssignment", request)
    assert [each.message_queue.id for each in response.assignments] == [0, 1, 2, 3]
    request.group.name = "CID_RMQ_SYS_TRANS"
    refused = await ask(kit, "QueryAssignment", request)
    assert refused.status.code == Code.ILLEGAL_CONSUMER_GROUP
