"""The name in a client's certificate as user of a broker: no signature, the user's permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kourou import AsyncProducer, AsyncPullConsumer, Credentials, Message, MessageQueue
from kourou.admin.acls import create_acl, entries_of
from kourou.admin.session import Admin
from kourou.admin.users import create_user, update_user
from kourou.config import NamesrvConfig
from kourou.config.host import LOOPBACK
from kourou.embed import Broker, NameServer
from kourou.errors import AccessDeniedError, SendFailedError
from kourou.testing.cluster import broker_config
from kourou.transport.settings import ClientTlsConfig
from tests.e2e.transport.certificate_kit import Issuer

pytestmark = pytest.mark.e2e

ROOT = Credentials("root", "root-secret")
QUEUE = MessageQueue("Orders", "broker-a", 0)


@dataclass(frozen=True)
class Served:
    """A broker that takes the common name as user, and clients of it."""

    namesrv: str
    broker: str
    issuer: Issuer

    def client(self, name: str, **more: Any) -> dict[str, Any]:
        """The options of a client with a certificate of that name."""
        cert, key = self.issuer.issue(f"client-{name}", name)
        tls = ClientTlsConfig(enable=True, cert_path=cert, key_path=key)
        return {"namesrv": self.namesrv, "tls": tls, **more}

    @asynccontextmanager
    async def root(self) -> AsyncIterator[Admin]:
        """The administrator, by a signature as ever."""
        async with Admin(namesrv=self.namesrv, tls=True, credentials=ROOT) as admin:
            yield admin


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    issuer = Issuer(folder, "clients")
    cert, key = issuer.issue("server", "server")
    files = {"tls_server_cert_path": str(cert), "tls_server_key_path": str(key)}
    settings: dict[str, Any] = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": '{"username":"root","password":"root-secret"}',
        "tls_server_need_client_auth": "optional",
        "tls_server_trust_cert_path": str(issuer.cert_path),
        "tls_server_client_certificate_user": "commonName",
    }
    async with NameServer(NamesrvConfig(bind_address=LOOPBACK, listen_port=0, **files)) as namesrv:
        config = broker_config(folder, 0, namesrv.address, **files, **settings)
        async with Broker(config) as broker:
            served = Served(namesrv.address, broker.address, issuer)
            async with served.root() as admin:
                await create_user(admin, [broker.address], "shop", "shop-secret")
                acl = entries_of(["Topic:Orders"], ["Pub", "Sub", "Get"], [], "Allow")
                await create_acl(admin, [broker.address], "User:shop", acl)
            yield served


async def send(options: dict[str, Any], topic: str = "Orders") -> bool:
    async with AsyncProducer("g", retry_times=0, **options) as producer:
        return (await producer.send(Message(topic, b"x"))).is_ok


async def test_the_holder_has_the_permissions_of_the_user(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        shop = served.client("shop")
        assert await send(shop)
        with pytest.raises(SendFailedError, match="User:shop has no permission to access Topic:Bills"):
            await send(shop, "Bills")
        async with AsyncPullConsumer("readers", **shop) as consumer:
            with pytest.raises(AccessDeniedError, match="User:shop has no permission .* Group:readers"):
                await consumer.pull(QUEUE, queue_offset=0)
        with pytest.raises(SendFailedError, match="User:nobody is not found"):
            await send(served.client("nobody"))


async def test_a_certificate_of_another_name_or_issuer_or_none_is_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for options in ({"namesrv": served.namesrv}, {"namesrv": served.namesrv, "tls": True}):
            with pytest.raises(SendFailedError, match="username cannot be null"):
                await send(options)
        (tmp_path / "other").mkdir()
        stranger = Served(served.namesrv, served.broker, Issuer(tmp_path / "other", "strangers"))
        with pytest.raises(SendFailedError, match="(?i)certificate|connection"):
            await send(stranger.client("shop", connect_timeout_ms=1_000))


async def test_a_signature_of_another_user_is_refused_and_the_own_one_accepted(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert await send(served.client("shop", credentials=Credentials("shop", "shop-secret")))
        with pytest.raises(SendFailedError, match="User:root is not the user of the client's certificate"):
            await send(served.client("shop", credentials=ROOT))


async def test_disabling_the_user_ends_what_an_open_connection_may(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        async with AsyncProducer("g", retry_times=0, **served.client("shop")) as producer:
            assert (await producer.send(Message("Orders", b"x"))).is_ok
            async with served.root() as admin:
                await update_user(admin, [served.broker], "shop", user_status="disable")
            with pytest.raises(SendFailedError, match="User:shop is disabled"):
                await producer.send(Message("Orders", b"x"))
