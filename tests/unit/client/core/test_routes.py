"""Routes: queues by Java's rules, addresses, and topics that a first send creates."""

from __future__ import annotations

import asyncio
import gc
from typing import cast

import pytest

from kourou.client.core.api import ClientApi
from kourou.client.core.routes import BrokerAddress, Routes, topic_route
from kourou.errors import ConnectError, NoNameServerError, NoRouteError, TooManyRequestsError
from kourou.protocol.bodies import BrokerData, ClusterInfo, MessageQueue, QueueData, TopicRouteData


def route_data(*queues: QueueData, order: str | None = None, masterless: str = "") -> TopicRouteData:
    brokers = [
        BrokerData(
            "c", queue.broker_name, {1: "s:1"} if queue.broker_name == masterless else {0: "m:1", 1: "s:1"}
        )
        for queue in queues
    ]
    return TopicRouteData(order_topic_conf=order, queue_datas=list(queues), broker_datas=brokers)


def ids(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_queues_to_write_need_a_master_and_permission_those_to_read_permission() -> None:
    data = route_data(
        QueueData("b", 2, 3, 6), QueueData("a", 1, 1, 4), QueueData("c", 2, 2, 6), masterless="c"
    )
    route = topic_route("T", data)
    assert ids(route.publish_queues) == ["b0", "b1", "b2"]
    assert ids(route.subscribe_queues) == ["a0", "b0", "b1", "c0", "c1"]


def test_an_order_topic_has_the_queues_its_configuration_names() -> None:
    route = topic_route("T", route_data(QueueData("a", 4, 4, 6), order="b:2;a:1"))
    assert ids(route.publish_queues) == ["b0", "b1", "a0"]
    assert route.is_order_topic


class NamesrvDouble:
    """Answers routes from a table and counts the questions."""

    def __init__(self, **routes: TopicRouteData) -> None:
        self.routes = routes
        self.asked: list[str] = []
        self.lists = 0
        self.namesrv = "n:9876"

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(broker_addr_table={"a": BrokerData("c", "a", {0: "m:1"})})

    async def topic_names(self) -> list[str]:
        self.lists += 1
        await asyncio.sleep(0)
        return list(self.routes)

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        self.asked.append(topic)
        await asyncio.sleep(0)
        return self.routes.get(topic)


def routes_of(namesrv: NamesrvDouble) -> Routes:
    return Routes(cast(ClientApi, namesrv))


async def test_a_route_is_asked_for_once_even_by_many_at_the_same_time() -> None:
    namesrv = NamesrvDouble(T=route_data(QueueData("a", 1, 1, 6)))
    routes = routes_of(namesrv)
    found = await asyncio.gather(*(routes.get("T") for _ in range(5)))
    assert await routes.get("T") is found[0]
    assert namesrv.asked == ["T"]


async def test_one_who_gives_up_does_not_take_the_answer_from_others() -> None:
    routes = routes_of(NamesrvDouble(T=route_data(QueueData("a", 1, 1, 6))))
    first = asyncio.ensure_future(routes.get("T"))
    second = asyncio.ensure_future(routes.get("T"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).topic == "T"


async def test_a_producer_that_asks_beside_a_consumer_gets_the_queues_of_a_new_topic() -> None:
    namesrv = NamesrvDouble(TBW102=route_data(QueueData("a", 8, 8, 7)))
    routes = routes_of(namesrv)
    consumer = asyncio.ensure_future(routes.refresh("New"))
    await asyncio.sleep(0)
    route = await routes.get("New", to_publish=True)
    assert len(route.publish_queues) == 4
    await consumer


async def test_a_failure_without_a_waiter_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    routes = routes_of(cast(NamesrvDouble, FailingNamesrv()))
    asking = asyncio.ensure_future(routes.get("T"))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    assert caplog.text == ""


class FailingNamesrv:
    """Fails, a turn of the loop later."""

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        await asyncio.sleep(0)
        raise NoNameServerError("none answers")


async def test_a_topic_that_is_not_there_gets_the_queues_it_would_be_created_with() -> None:
    namesrv = NamesrvDouble(TBW102=route_data(QueueData("a", 8, 8, 7)))
    routes = routes_of(namesrv)
    route = await routes.get("New", to_publish=True)
    assert (len(route.publish_queues), route.is_provisional) == (4, True)
    with pytest.raises(NoRouteError, match="kourou topic create"):
        await routes.get("Other")


async def test_without_automatic_creation_the_error_says_so() -> None:
    with pytest.raises(NoRouteError, match="autoCreateTopicEnable"):
        await routes_of(NamesrvDouble()).get("New", to_publish=True)


async def test_a_program_that_tries_again_and_again_does_not_ask_for_all_topics_each_time() -> None:
    namesrv = NamesrvDouble(Orders=route_data(QueueData("a", 1, 1, 6)))
    routes = routes_of(namesrv)
    at_once = await asyncio.gather(*(routes.get("Ordres") for _ in range(5)), return_exceptions=True)
    assert [type(error) for error in at_once] == [NoRouteError] * 5
    for _ in range(3):
        with pytest.raises(NoRouteError, match=r"\(did you mean Orders\?\)"):
            await routes.get("Ordres")
    assert namesrv.lists == 1


async def test_a_topic_without_write_permission_has_no_route_for_a_producer() -> None:
    routes = routes_of(NamesrvDouble(T=route_data(QueueData("a", 1, 1, 4))))
    assert ids((await routes.get("T")).subscribe_queues) == ["a0"]
    with pytest.raises(NoRouteError, match="write permission"):
        await routes.get("T", to_publish=True)


async def test_addresses_by_broker_and_id() -> None:
    routes = routes_of(NamesrvDouble(T=route_data(QueueData("a", 1, 1, 6))))
    await routes.get("T")
    assert (routes.master("a"), routes.master("x")) == ("m:1", None)
    assert (routes.read_from("a", 1), routes.read_from("a", 5)) == ((1, "s:1"), (0, "m:1"))
    assert routes.read_from("x") is None
    assert (routes.any_of_topic("T"), routes.any_of_topic("U")) == ("m:1", None)


async def test_brokers_that_no_route_names_are_forgotten() -> None:
    namesrv = NamesrvDouble(T=route_data(QueueData("a", 1, 1, 6)))
    routes = routes_of(namesrv)
    await routes.get("T")
    namesrv.routes["T"] = route_data(QueueData("b", 1, 1, 6))
    await routes.refresh("T")
    routes.forget_missing_brokers()
    assert list(routes.brokers) == ["b"]
    del namesrv.routes["T"]
    assert await routes.refresh("T") is None
    assert routes.known("T") is None


# -- brokers that do not respond -----------------------------------------------------------------------------


def pair_routes(*ids: int) -> tuple[Routes, list[str]]:
    """Routes to broker `a`, with a master (0) and slaves, and what is to be probed."""
    probed: list[str] = []
    routes = Routes(cast(ClientApi, NamesrvDouble()), probe=probed.append)
    routes.brokers["a"] = {each: f"h:{each}" for each in ids}
    return routes, probed


def refused(address: str) -> ConnectError:
    return ConnectError(address, "connection refused")


def test_a_master_that_does_not_respond_is_avoided_until_it_is_reached() -> None:
    routes, probed = pair_routes(0, 1, 2)
    assert routes.fail_over("a", "h:0", refused("h:0")) == (1, "h:1")
    assert routes.read_from("a") == (1, "h:1")
    assert routes.master("a") == "h:0", "the only one to send to"
    assert routes.fail_over("a", "h:1", refused("h:1")) == (2, "h:2")
    routes.fail_over("a", "h:0", refused("h:0"))
    assert probed == ["h:0", "h:1"]
    routes.reached("h:0")
    assert routes.read_from("a") == (0, "h:0")
    assert routes.read_from("a", 1) == (2, "h:2"), "instead of the suggested one"


def test_the_last_broker_that_may_respond_is_not_avoided() -> None:
    routes, probed = pair_routes(0, 1)
    routes.fail_over("a", "h:1", refused("h:1"))
    assert routes.fail_over("a", "h:0", refused("h:0")) is None
    assert (routes.read_from("a"), probed) == ((0, "h:0"), ["h:1"])
    alone, _ = pair_routes(0)
    assert alone.fail_over("a", "h:0", refused("h:0")) is None


def test_a_broker_that_left_the_route_is_no_longer_probed_nor_avoided_when_it_is_back() -> None:
    routes, _ = pair_routes(0, 1)
    routes.fail_over("a", "h:0", refused("h:0"))
    assert routes.is_avoided("h:0")
    master = routes.brokers["a"].pop(0)
    assert not routes.is_avoided("h:0")
    routes.brokers["a"][0] = master
    assert routes.read_from("a") == (0, "h:0")


async def test_a_request_goes_to_the_slave_when_the_master_does_not_respond_and_only_then() -> None:
    routes, _ = pair_routes(0, 1)
    queue = MessageQueue("T", "a", 0)
    tried: list[int] = []

    async def only_slave(place: BrokerAddress) -> str:
        tried.append(place.broker_id)
        if place.broker_id == 0:
            raise refused(place.address)
        return "served"

    assert [await routes.call_broker(queue, only_slave) for _ in range(2)] == ["served"] * 2
    assert tried == [0, 1, 1]

    async def busy(place: BrokerAddress) -> str:
        raise TooManyRequestsError(place.address, "requests", 1)

    routes.reached("h:0")
    with pytest.raises(TooManyRequestsError):
        await routes.call_broker(queue, busy)
    assert routes.read_from("a") == (0, "h:0"), "its own limit says nothing about the broker"
    with pytest.raises(NoRouteError):
        await routes.call_broker(MessageQueue("T", "x", 0), only_slave)
