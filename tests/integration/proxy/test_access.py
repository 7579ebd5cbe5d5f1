"""Access control of gRPC clients: by the broker of the process, and by users that a proxy follows."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.access.model import RefusalKind
from kourou.admin.acls import create_acl
from kourou.admin.session import Admin
from kourou.admin.topics import create_topic
from kourou.admin.users import create_user, update_user
from kourou.client.core.credentials import Credentials
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.signature import SigningKeys
from kourou.proxy.assembly import Proxy
from kourou.proxy.http2.settings import GrpcServerConfig
from kourou.proxy.settings import ProxySettings
from kourou.proxy.wire.rocketmq_v2 import Code, QueryRouteRequest, Resource, SendMessageRequest
from kourou.testing.cluster import Cluster, cluster
from tests.integration.proxy.grpc_consumer import GrpcConsumer
from tests.integration.proxy.proxy_kit import endpoints, message, producer_settings
from tests.integration.proxy.wire_client import WireClient, connected

ROOT = Credentials("root", "root-secret")
DATE = "20261119T041500Z"


@pytest.fixture(params=["in memory", "followed"])
async def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Cluster, Proxy]]:
    """A broker with users, and a proxy whose calls are checked by its gate, or by a copy of its users."""
    inner = {"accessKey": "inner", "secretKey": "inner-secret"}
    settings: dict[str, Any] = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": json.dumps({"username": "root", "password": "root-secret"}),
        "inner_client_authentication_credentials": json.dumps(inner),
    }
    is_near = request.param == "in memory"
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(cluster(tmp_path, **settings))
        async with Admin(namesrv=running.namesrv_addr, credentials=ROOT) as admin:
            await make_accounts(admin, running.broker.address)
        proxy = Proxy(
            ProxySettings(
                grpc=GrpcServerConfig(),
                namesrv=running.namesrv_addr,
                own_keys=None if is_near else SigningKeys("inner", "inner-secret"),
                follows_users=not is_near,
            ),
            broker=running.broker if is_near else None,
        )
        yield running, await stack.enter_async_context(proxy)


async def make_accounts(admin: Admin, address: str) -> None:
    for topic in ("orders", "other"):
        await create_topic(
            admin, address, TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=2)
        )
    await create_user(admin, [address], "seller", "seller-secret")
    policy = PolicyInfo(entries=[PolicyEntryInfo("Topic:orders", ["Pub"], None, "Allow")])
    await create_acl(admin, [address], "User:seller", AclInfo(policies=[policy]))


@asynccontextmanager
async def signed(proxy: Proxy, name: str, secret: str) -> AsyncIterator[WireClient]:
    made = hmac.digest(secret.encode(), DATE.encode(), "sha1").hex()
    header = f"MQv2-HMAC-SHA1 Credential={name}//RocketMQ, SignedHeaders=x-mq-date-time, Signature={made}"
    async with connected(proxy.port, x_mq_date_time=DATE, authorization=header) as client:
        yield client


async def send(client: WireClient, topic: str) -> int:
    response = await client.unary("SendMessage", SendMessageRequest(messages=[message(topic)]))
    code: int = response.status.code
    return code


async def route(client: WireClient, proxy: Proxy, topic: str) -> int:
    request = QueryRouteRequest(topic=Resource(name=topic), endpoints=endpoints(proxy.port))
    code: int = (await client.unary("QueryRoute", request)).status.code
    return code


async def test_a_user_may_do_over_grpc_what_policies_allow(guarded: tuple[Cluster, Proxy]) -> None:
    _, proxy = guarded
    async with signed(proxy, "seller", "seller-secret") as client:
        # Without a request to a broker: the proxy's own decision.
        assert await route(client, proxy, "orders") == Code.OK
        assert await route(client, proxy, "other") == Code.UNAUTHORIZED
        stream = await client.telemetry(producer_settings("orders"))
        # With one: the broker's, by the signature of the link.
        assert await send(client, "orders") == Code.OK
        assert await send(client, "other") == Code.UNAUTHORIZED
        assert stream.trailers.get("grpc-status") is None
        with pytest.raises(AssertionError):  # the stream ends with a status
            await GrpcConsumer(client, "orders").start()
    async with signed(proxy, "root", "root-secret") as client:
        assert await send(client, "other") == Code.OK


async def test_wrong_signatures_and_missing_ones_are_refused(guarded: tuple[Cluster, Proxy]) -> None:
    running, proxy = guarded
    for name, secret in (("seller", "guess"), ("nobody", "x"), ("", "")):
        async with signed(proxy, name, secret) as client:
            assert await send(client, "orders") == Code.UNAUTHORIZED
    async with connected(proxy.port) as client:
        assert await send(client, "orders") == Code.UNAUTHORIZED
    gate = running.broker.access_gate
    assert gate is not None
    if proxy._followed is None:
        assert gate.refusals[RefusalKind.WRONG_SIGNATURE] == 1
        assert gate.refusals[RefusalKind.NO_CREDENTIALS] == 2


async def test_a_new_secret_counts_at_once(guarded: tuple[Cluster, Proxy]) -> None:
    running, proxy = guarded
    async with signed(proxy, "seller", "seller-secret") as client:
        assert await send(client, "orders") == Code.OK
        async with Admin(namesrv=running.namesrv_addr, credentials=ROOT) as admin:
            await update_user(admin, [running.broker.address], "seller", password="changed")
        # A followed copy is older for a while; the broker refuses what its links sign.
        assert await send(client, "orders") == Code.UNAUTHORIZED
    if proxy._followed is not None:
        await proxy._followed._look()
    async with signed(proxy, "seller", "changed") as client:
        assert await send(client, "orders") == Code.OK


async def test_a_proxy_that_signs_nothing_says_what_to_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = {"username": "root", "password": "root-secret"}
    access = {"authentication_enabled": True, "init_authentication_user": json.dumps(users)}
    async with cluster(tmp_path, **access) as running:
        settings = ProxySettings(grpc=GrpcServerConfig(), namesrv=running.namesrv_addr)
        async with Proxy(settings) as proxy:
            assert "set authenticationEnabled and innerClientAuthenticationCredentials" in proxy.problem
            assert proxy.problem.startswith("gRPC clients cannot be served: username cannot be null. (")
            assert proxy.problem in caplog.text
            async with Admin(namesrv=running.namesrv_addr, credentials=ROOT) as admin:
                await create_topic(admin, running.broker.address, TopicConfig(topic_name="orders"))
            async with signed(proxy, "root", "root-secret") as client:
                response = await client.unary("SendMessage", SendMessageRequest(messages=[message("orders")]))
    assert response.status.code == Code.UNAUTHORIZED
    assert response.status.message.startswith("username cannot be null. (the proxy did not sign its request")


async def test_a_proxy_without_its_name_server_says_so(caplog: pytest.LogCaptureFixture) -> None:
    settings = ProxySettings(grpc=GrpcServerConfig(), namesrv="127.0.0.1:1")
    async with Proxy(settings) as proxy:
        assert proxy.problem.startswith("gRPC clients cannot be served: no name server answers")
        assert proxy.problem in caplog.text
