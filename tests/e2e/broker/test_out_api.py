"""A broker's registration with real name servers, some of which are away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kourou.broker.registration.out_api import BrokerIdentity, BrokerOuterApi
from kourou.config import BrokerConfig, NamesrvConfig
from kourou.errors import KourouError
from kourou.namesrv import NameServer
from kourou.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import PutKVConfigRequestHeader
from kourou.transport.client import RemotingClient

pytestmark = pytest.mark.e2e

IDENTITY = BrokerIdentity("C", "broker-a", 0, "127.0.0.1:10911", "127.0.0.1:10912")
SLAVE = BrokerIdentity("C", "broker-a", 1, "127.0.0.1:10921", "127.0.0.1:10922")


def topics(*names: str, counter: int = 1) -> TopicConfigSerializeWrapper:
    table = {name: TopicConfig(name, 4, 4) for name in names}
    return TopicConfigSerializeWrapper(
        topic_config_table=table, data_version=DataVersion(timestamp=1, counter=counter)
    )


class Broker:
    """The part of a broker that talks to name servers."""

    def __init__(self, identity: BrokerIdentity, **settings: Any) -> None:
        self.client = RemotingClient()
        self.config = BrokerConfig(bind_address="127.0.0.1", **settings)
        self.added = 0
        self.api = BrokerOuterApi(self.client, identity, lambda: self.config, self._count)

    def _count(self) -> None:
        self.added += 1


@contextlib.asynccontextmanager
async def broker(identity: BrokerIdentity = IDENTITY, **settings: Any) -> AsyncIterator[Broker]:
    made = Broker(identity, **settings)
    try:
        await made.api.namesrvs.refresh()
        yield made
    finally:
        await made.client.stop()


@contextlib.asynccontextmanager
async def name_servers(count: int) -> AsyncIterator[list[NameServer]]:
    servers = [NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) for _ in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server)
        yield servers


@contextlib.asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Takes connections and never answers."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    async with server:
        yield "127.0.0.1:" + str(server.sockets[0].getsockname()[1])
        for writer in writers:
            writer.close()


def known_topics(server: NameServer) -> set[str]:
    return {topic for topic in ("T", "U") if server.state.views.route(topic) is not None}


def addresses(servers: list[NameServer], *more: str) -> str:
    return ";".join([server.address for server in servers] + list(more))


@pytest.mark.parametrize("compressed", [False, True])
async def test_every_name_server_is_notified(compressed: bool) -> None:
    async with (
        name_servers(2) as servers,
        broker(namesrv_addr=addresses(servers), compressed_register=compressed) as a,
    ):
        results = await a.api.register_all(topics("T", "U"))
        assert [result.namesrv for result in results] == [server.address for server in servers]
        assert [known_topics(server) for server in servers] == [{"T", "U"}] * 2
        await a.api.unregister_all()
        assert [known_topics(server) for server in servers] == [set()] * 2


async def test_one_that_is_away_does_not_keep_the_news_from_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with name_servers(1) as servers, broker(namesrv_addr=addresses(servers, "127.0.0.1:1")) as a:
        for counter in (1, 2):
            (result,) = await a.api.register_all(topics("T", "U", counter=counter))
            assert result.namesrv == servers[0].address
        assert known_topics(servers[0]) == {"T", "U"}
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert warnings[0].startswith("not registered with name server 127.0.0.1:1, retrying: cannot connect")
        await a.api.unregister_all()


async def test_a_slave_learns_its_master_and_order_topics_come_along() -> None:
    async with name_servers(1) as servers:
        namesrv = addresses(servers)
        async with broker(namesrv_addr=namesrv) as master, broker(SLAVE, namesrv_addr=namesrv) as slave:
            header = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
            put = RemotingCommand.request(RequestCode.PUT_KV_CONFIG, header)
            await master.client.call(namesrv, put)
            (reported,) = await master.api.register_all(topics("T", "U"))
            assert (reported.master_addr, reported.order_topics) == (None, {"T": "broker-a:4"})
            (reported,) = await slave.api.register_all(topics("T", "U"))
            assert (reported.master_addr, reported.ha_server_addr) == (
                IDENTITY.broker_addr,
                IDENTITY.ha_server_addr,
            )


async def test_without_force_only_changes_are_registered() -> None:
    async with name_servers(1) as servers, broker(namesrv_addr=addresses(servers), force_register=False) as a:
        assert len(await a.api.register_all(topics("T", "U"))) == 1
        assert await a.api.register_all(topics("T", "U")) == []
        # One that was away for a moment, and knows all of it, is not retried any more.
        a.api._failed(servers[0].address, KourouError("away"))
        assert a.api.failing == {servers[0].address}
        assert await a.api.register_all(topics("T", "U"), only=a.api.failing) == []
        assert a.api.failing == frozenset()
        assert len(await a.api.register_all(topics("T", "U", counter=2))) == 1


async def test_name_servers_come_and_go_while_the_broker_runs() -> None:
    async with name_servers(2) as (first, second), broker(namesrv_addr=first.address) as a:
        assert a.added == 1
        await a.api.register_all(topics("T", "U"))
        a.config = a.config.updated({"namesrvAddr": second.address})
        await a.api.namesrvs.refresh()
        assert (a.added, a.api.namesrvs.current) == (2, (second.address,))
        await a.api.register_all(topics("T", "U"))
        # The first one sees the end of the connection in its turn.
        async with asyncio.timeout(5):
            while known_topics(first):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert known_topics(second) == {"T", "U"}


async def test_a_name_server_that_is_removed_during_registration_does_no_harm() -> None:
    async with silent_server() as silent, broker(namesrv_addr=silent) as made:
        reporting = asyncio.ensure_future(made.api.register_all(topics("T")))
        await asyncio.sleep(0.05)
        made.api.namesrvs.update([])
        assert await reporting == []
        assert await made.api.register_all(topics("T")) == []
