"""Commands about topics. Not here: those that change topics (topic_changes.py)."""

from __future__ import annotations

import json
from typing import Any, Final

from kourou.admin.topics import (
    TopicGroups,
    TopicStatus,
    allocate_queues,
    topic_clusters,
    topic_names,
    topic_status,
    topics_with_groups,
)
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import cut, human_time
from kourou.cli.admin.java_json import pretty_json
from kourou.cli.admin.options import flag, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.topic_changes import TOPIC_CHANGE_COMMANDS
from kourou.cli.problems import UsageError
from kourou.protocol.bodies import MessageQueue, TopicRouteData, encode_body

_TOPIC: Final = required("t", "topic", "name of the topic")


# -- topicList ---------------------------------------------------------------------------------------


async def _topic_list(call: Call) -> list[str] | list[TopicGroups]:
    if call.args.flag("clusterModel"):
        return await topics_with_groups(call.admin)
    return await topic_names(call.admin)


def _show_topic_list(topics: list[str] | list[TopicGroups], screen: Screen) -> None:
    if screen.args.flag("clusterModel"):
        screen.head("{:<20}  {:<48}  {:<48}".format("#Cluster Name", "#Topic", "#Consumer Group"))
    for topic in topics:
        if isinstance(topic, str):
            screen.line(topic)
            continue
        for group in topic.groups or [""]:
            screen.line(f"{cut(topic.cluster, 20):<20}  {cut(topic.topic, 64):<64}  {cut(group, 64):<64}")
        if topic.problem:
            screen.trouble(topic.problem)


# -- topicRoute --------------------------------------------------------------------------------------


async def _topic_route(call: Call) -> TopicRouteData:
    return await call.admin.route(call.args.text("topic"))


def _show_topic_route(route: TopicRouteData, screen: Screen) -> None:
    if screen.args.flag("list"):
        _show_route_table(route, screen)
        return
    tree: dict[str, Any] = json.loads(encode_body(route, v4=screen.is_v4))
    screen.line(pretty_json(tree, is_v4=screen.is_v4))


def _show_route_table(route: TopicRouteData, screen: Screen) -> None:
    layout = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}"
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    queues = sorted(
        (data for data in route.queue_datas if data.broker_name in brokers), key=lambda data: data.broker_name
    )
    screen.table(
        layout,
        ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"),
        (
            (
                brokers[data.broker_name].cluster,
                data.broker_name,
                _addresses(brokers[data.broker_name].broker_addrs),
                data.read_queue_nums,
                data.write_queue_nums,
                data.perm,
            )
            for data in queues
        ),
    )
    screen.line("-" * 158)
    reads, writes = (
        sum(data.read_queue_nums for data in queues),
        sum(data.write_queue_nums for data in queues),
    )
    screen.line(layout.format("Total:", len(queues), "", reads, writes, ""))


def _addresses(addresses: dict[int, str]) -> str:
    return "{" + ", ".join(f"{number}={addresses[number]}" for number in sorted(addresses)) + "}"


# -- topicStatus, topicClusterList, allocateMQ -------------------------------------------------------


async def _topic_status(call: Call) -> TopicStatus:
    return await topic_status(call.admin, call.args.text("topic"), route_of=call.args.get("cluster"))


def _show_topic_status(status: TopicStatus, screen: Screen) -> None:
    screen.table(
        "{:<32}  {:<4}  {:<20}  {:<20}    {}",
        ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"),
        (
            (
                cut(queue.broker_name, 32),
                queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                human_time(queue.last_update_timestamp) if queue.last_update_timestamp > 0 else "",
            )
            for queue in status.queues
        ),
    )
    if not screen.is_v4:
        screen.line()
        screen.line(f"Topic Put TPS: {status.put_tps}")
    for broker in status.silent:
        screen.trouble(broker.problem)


async def _topic_clusters(call: Call) -> list[str]:
    return await topic_clusters(call.admin, call.args.text("topic"))


def _show_names(names: list[str], screen: Screen) -> None:
    for name in names:
        screen.line(name)


async def _allocate(call: Call) -> dict[str, list[MessageQueue]]:
    clients = [client.strip() for client in call.args.text("ipList").split(",") if client.strip()]
    if not clients:
        raise UsageError("-i: give the addresses of consumers, separated by commas")
    return await allocate_queues(call.admin, call.args.text("topic"), clients)


def _show_allocation(shares: dict[str, list[MessageQueue]], screen: Screen) -> None:
    screen.line(encode_body({"result": shares}).decode("utf-8"))


TOPIC_COMMANDS: Final = (
    *TOPIC_CHANGE_COMMANDS,
    AdminCommand(
        name="topicRoute",
        about="Show the brokers and queues of a topic.",
        example="topicRoute -n 127.0.0.1:9876 -t Orders -l",
        options=(_TOPIC, flag("l", "list", "print a table")),
        ask=_topic_route,
        show=_show_topic_route,
    ),
    AdminCommand(
        name="topicStatus",
        about="Show the offsets and last write time of each queue of a topic.",
        example="topicStatus -n 127.0.0.1:9876 -t Orders",
        options=(
            _TOPIC,
            value("c", "cluster", "cluster or topic whose brokers are queried instead of the topic's"),
        ),
        ask=_topic_status,
        show=_show_topic_status,
        aliases=("topicStauts", "topicStats"),
    ),
    AdminCommand(
        name="topicClusterList",
        about="List the clusters that have a topic.",
        example="topicClusterList -n 127.0.0.1:9876 -t Orders",
        options=(_TOPIC,),
        ask=_topic_clusters,
        show=_show_names,
    ),
    AdminCommand(
        name="topicList",
        about="List all topics registered with the name server.",
        example="topicList -n 127.0.0.1:9876",
        options=(flag("c", "clusterModel", "include cluster and consumer groups of each topic"),),
        ask=_topic_list,
        show=_show_topic_list,
    ),
    AdminCommand(
        name="allocateMQ",
        about="Show which queues of a topic each of the given consumers would be assigned.",
        example="allocateMQ -n 127.0.0.1:9876 -t Orders -i 10.0.0.1,10.0.0.2",
        options=(_TOPIC, required("i", "ipList", "consumers, separated by commas")),
        ask=_allocate,
        show=_show_allocation,
    ),
)
