"""LocalCluster(grpc=True): a proxy by TCP in front of brokers that stop and come back."""

from __future__ import annotations

import asyncio

import pytest

from kourou.proxy.wire.rocketmq_v2 import Code, SendMessageRequest
from kourou.testing.errors import ClusterStateError
from kourou.testing.local_cluster import LocalCluster
from tests.integration.proxy.proxy_kit import message, producer_settings
from tests.integration.proxy.wire_client import WireClient, connected


async def send(client: WireClient, body: bytes) -> int:
    request = SendMessageRequest(messages=[message("Orders", body)])
    code: int = (await client.unary("SendMessage", request)).status.code
    return code


async def test_a_broker_restarts_under_its_grpc_clients() -> None:
    async with LocalCluster(grpc=True) as mq:
        await mq.create_topic("Orders")
        port = int(mq.grpc_address.rpartition(":")[2])
        async with connected(port) as client:
            stream = await client.telemetry(producer_settings("Orders"))
            assert await send(client, b"before") == Code.OK
            await mq.stop_broker(0)
            assert await send(client, b"meanwhile") != Code.OK
            await mq.start_broker(0)
            async with asyncio.timeout(30):
                while await send(client, b"after") != Code.OK:  # noqa: ASYNC110 (as clients do)
                    await asyncio.sleep(0.05)
            assert "grpc-status" not in stream.trailers  # the client need not begin anew
        assert [each.body for each in await mq.messages("Orders")] == [b"before", b"after"]


def test_a_cluster_without_grpc_says_so() -> None:
    with LocalCluster() as mq, pytest.raises(ClusterStateError, match=r"LocalCluster\(grpc=True\)"):
        _ = mq.grpc_address
