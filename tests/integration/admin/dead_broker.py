"""A broker that the name server still knows although it is gone, as after `kill -9`."""

from __future__ import annotations

from typing import Final

from kourou.protocol.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.namesrv import RegisterBrokerRequestHeader
from kourou.testing.cluster import Cluster

DEAD: Final = "127.0.0.1:1"
"""The address of it."""


async def register_dead_broker(
    running: Cluster,
    *topics: str,
    name: str = "broker-dead",
    cluster: str = "DefaultCluster",
    broker_id: int = 0,
) -> None:
    """Have the name server believe in a broker with one queue of each of these topics."""
    header = RegisterBrokerRequestHeader(
        broker_name=name, broker_addr=DEAD, cluster_name=cluster, ha_server_addr="", broker_id=broker_id
    )
    configs = {
        topic: TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1) for topic in topics
    }
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(topic_config_table=configs)).encode()
    request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
    answer = await running.client.call(running.namesrv_addr, request)
    assert answer.code == 0, answer
