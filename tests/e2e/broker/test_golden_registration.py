"""What Apache's brokers tell a name server, as recorded, and what ours do: the same fields."""

from __future__ import annotations

import pytest

from kourou.broker.registration.out_api import BrokerIdentity, BrokerOuterApi
from kourou.config import BrokerConfig
from kourou.protocol.bodies import TopicConfigSerializeWrapper
from kourou.protocol.codes import RequestCode
from kourou.transport.client import RemotingClient
from kourou.transport.request import Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import RemotingServerConfig
from tests.golden.frames import recorded_frames

pytestmark = pytest.mark.e2e

IDENTITY = BrokerIdentity("DefaultCluster", "broker-a", 0, "127.0.0.1:10911", "127.0.0.1:10912")


@pytest.mark.parametrize("code", [RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER])
async def test_the_fields_are_those_of_apaches_broker(code: RequestCode) -> None:
    received: list[dict[str, str]] = []

    def hear(request: Request) -> None:
        received.append(dict(request.ext_fields))
        request.reply()

    server = RemotingServer({code: hear}, RemotingServerConfig())
    await server.start()
    client = RemotingClient()
    config = BrokerConfig(namesrv_addr=server.address, broker_ip1="127.0.0.1")
    api = BrokerOuterApi(client, IDENTITY, lambda: config, lambda: None)
    await api.namesrvs.refresh()
    if code == RequestCode.REGISTER_BROKER:
        await api.register_all(TopicConfigSerializeWrapper())
    else:
        await api.unregister_all()
    await client.stop()
    await server.stop()
    recorded = next(
        frame.header["extFields"]
        for frame in recorded_frames("5.5.0")
        if frame.code == code and frame.type == "request"
    )
    assert set(received[0]) == set(recorded)
    for field in ("brokerName", "clusterName", "brokerId"):
        assert received[0][field] == recorded[field]
