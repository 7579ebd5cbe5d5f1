"""A broker that is registered, whatever listens at its address."""

from __future__ import annotations

from kourou.protocol.bodies import RegisterBrokerBody, TopicConfig
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import RegisterBrokerRequestHeader
from kourou.testing.cluster import Cluster


async def register(running: Cluster, name: str, address: str) -> None:
    """Register it, as long as the cluster's own client is connected."""
    # With a single topic a name server takes it for half a registration.
    topics = {f"{name}-t{number}": TopicConfig(topic_name=f"{name}-t{number}") for number in range(2)}
    body = RegisterBrokerBody()
    body.topic_config_serialize_wrapper.topic_config_table.update(topics)
    header = RegisterBrokerRequestHeader(
        broker_name=name, broker_addr=address, cluster_name="DefaultCluster", ha_server_addr="", broker_id=0
    )
    command = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body.encode())
    assert (await running.client.call(running.namesrv_addr, command, 5_000)).code == 0
