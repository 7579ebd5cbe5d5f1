"""`kourou demo`: what there is, shown at work in one process, over real connections.

A name server on a free loopback port, a made-up broker that registers two topics as a real one
does, and the route that a client would get.
"""

from __future__ import annotations

import asyncio
import time

from rich.console import Console
from rich.table import Table

from kourou.config import NamesrvConfig
from kourou.errors import ResponseError
from kourou.namesrv.server import NameServer
from kourou.protocol.bodies import (
    BrokerData,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    decode_body,
)
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from kourou.transport.client import RemotingClient

CLUSTER = "DemoCluster"
BROKER = "broker-a"
MEMBERS = {0: "192.0.2.10:10911", 1: "192.0.2.11:10911"}  # addresses reserved for examples
TOPICS = {"orders": TopicConfig("orders", 4, 4), "audit": TopicConfig("audit", 8, 8, perm=PermName.READ)}


def run_demo() -> None:
    """Show a name server, a registration and a route."""
    asyncio.run(_demo(Console(highlight=False)))


async def _demo(console: Console) -> None:
    # Without a path the KV configuration stays in memory: a demo leaves nothing behind.
    server = NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
    await server.start()
    client = RemotingClient()
    try:
        console.print(f"1. A name server listens on [bold]{server.address}[/].")
        await _register_members(client, server.address)
        console.print(f"2. A made-up broker, [bold]{BROKER}[/], registers master, slave and two topics.")
        console.print("3. A client asks where the topics are and is told:")
        for topic in TOPICS:
            console.print()
            console.print(route_table(topic, await _route(client, server.address, topic)))
    finally:
        await client.stop()
        await server.stop()
    console.print("\nNext: start one that stays, [bold]kourou namesrv[/], and point any RocketMQ broker")
    console.print("or client at it: [bold]namesrvAddr=127.0.0.1:9876[/].")


async def _register_members(client: RemotingClient, namesrv: str) -> None:
    version = DataVersion(timestamp=int(time.time() * 1000), counter=1)
    wrapper = TopicConfigSerializeWrapper(topic_config_table=TOPICS, data_version=version)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    for broker_id, address in MEMBERS.items():
        header = RegisterBrokerRequestHeader(
            broker_name=BROKER,
            broker_addr=address,
            cluster_name=CLUSTER,
            ha_server_addr=address.replace("10911", "10912"),
            broker_id=broker_id,
        )
        await _call(client, namesrv, RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body))


async def _route(client: RemotingClient, namesrv: str, topic: str) -> TopicRouteData:
    header = GetRouteInfoRequestHeader(topic=topic)
    command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    return decode_body((await _call(client, namesrv, command)).body, TopicRouteData)


async def _call(client: RemotingClient, address: str, command: RemotingCommand) -> RemotingCommand:
    answer = await client.call(address, command)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark or "", address)
    return answer


def route_table(topic: str, route: TopicRouteData) -> Table:
    """A route as a table: one row for each address that serves the topic."""
    table = Table(title=f"Topic {topic}", title_justify="left")
    for column in ("Broker", "Role", "Address", "Read queues", "Write queues", "Perm"):
        table.add_column(column)
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    for queues in route.queue_datas:
        for row in _rows(brokers[queues.broker_name], queues):
            table.add_row(*row)
    return table


def _rows(broker: BrokerData, queues: QueueData) -> list[tuple[str, ...]]:
    counts = (str(queues.read_queue_nums), str(queues.write_queue_nums), _permission(queues.perm))
    return [
        (broker.broker_name, "slave" if broker_id else "master", address, *counts)
        for broker_id, address in sorted(broker.broker_addrs.items())
    ]


def _permission(perm: int) -> str:
    return "".join(letter for bit, letter in ((PermName.READ, "R"), (PermName.WRITE, "W")) if perm & bit)
