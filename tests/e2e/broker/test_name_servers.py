"""A running broker and its name servers: one comes, one goes, one hangs; and the address it tells clients."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kourou.broker.registration.advertised_address import reach_warning
from kourou.broker.registration.out_api import BrokerOuterApi, RegisterBrokerResult
from kourou.broker.registration.registration import PAUSE_PER_TOPIC_S
from kourou.embed import Broker, NameServer, NamesrvConfig
from kourou.protocol.bodies import TopicConfigSerializeWrapper
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.testing.cluster import broker_config, cluster
from kourou.transport.client import RemotingClient
from tests.e2e.broker.test_cluster import TOPIC, send_command

pytestmark = pytest.mark.e2e


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def knows(server: NameServer, name: str) -> bool:
    return server.state.views.route(name) is not None


async def test_mqadmin_moves_a_broker_to_another_name_server(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as running,
        NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as other,
    ):
        assert knows(running.namesrv, "broker-a")
        both = f"namesrvAddr={running.namesrv.address};{other.address}\n"
        await update(running.client.call, running.broker.address, both)
        await until(lambda: knows(other, "broker-a"))
        await update(running.client.call, running.broker.address, f"namesrvAddr={other.address}\n")
        await until(lambda: not knows(running.namesrv, "broker-a"))
        assert knows(other, "broker-a")


async def test_topics_created_in_quick_succession_are_all_registered(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        topics = running.broker.services.topics
        for number in range(500):
            topics.create_in_send_back(f"T{number}", 1, 6)
            if number % 50 == 0:
                await asyncio.sleep(0)
        await until(lambda: knows(running.namesrv, "T499"))
        assert all(knows(running.namesrv, f"T{number}") for number in range(500))


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[TopicConfigSerializeWrapper]:
    """The topics of each registration."""
    reported: list[TopicConfigSerializeWrapper] = []
    register_all = BrokerOuterApi.register_all

    async def noted(
        api: BrokerOuterApi, topics: TopicConfigSerializeWrapper, *, only: frozenset[str] | None = None
    ) -> list[RegisterBrokerResult]:
        reported.append(topics)
        return await register_all(api, topics, only=only)

    monkeypatch.setattr(BrokerOuterApi, "register_all", noted)
    return reported


async def test_many_topics_are_registered_less_often(
    tmp_path: Path, reported: list[TopicConfigSerializeWrapper]
) -> None:
    async with cluster(tmp_path) as running:
        topics = running.broker.services.topics
        for number in range(2_000):
            topics.create_in_send_back(f"T{number}", 1, 6)
        reported.clear()
        began_s = time.monotonic()
        for number in range(20):
            topics.create_in_send_back(f"U{number}", 1, 6)
            await asyncio.sleep(0.002)
        elapsed_s = time.monotonic() - began_s
        assert len(reported) <= elapsed_s / (2_000 * PAUSE_PER_TOPIC_S) + 2
        await until(lambda: knows(running.namesrv, "U19"))


async def test_without_a_name_server_nothing_is_encoded_for_one(
    tmp_path: Path, reported: list[TopicConfigSerializeWrapper]
) -> None:
    async with (
        NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv,
        Broker(broker_config(tmp_path, 0, "")) as broker,
        remoting_client() as client,
    ):
        await client.call(broker.address, send_command(b"x"))
        await asyncio.sleep(0.05)
        assert reported == []
        await update(client.call, broker.address, f"namesrvAddr={namesrv.address}\n")
        await until(lambda: knows(namesrv, TOPIC))
        assert TOPIC in reported[0].topic_config_table


async def update(call: Callable[..., object], address: str, text: str) -> None:
    command = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    answer = await call(address, command)  # type: ignore[misc]
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@contextlib.asynccontextmanager
async def remoting_client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    try:
        yield client
    finally:
        await client.stop()


@contextlib.asynccontextmanager
async def hanging_server() -> AsyncIterator[str]:
    """Takes connections and says nothing."""
    writers = []

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    try:
        yield "127.0.0.1:" + str(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def test_a_broker_finds_its_name_servers_through_an_address_service(tmp_path: Path) -> None:
    async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.0 200 OK\r\n\r\n{namesrv.address}\n".encode())
            writer.close()
            await writer.wait_closed()

        web = await asyncio.start_server(serve, "127.0.0.1", 0)
        domain = "127.0.0.1:" + str(web.sockets[0].getsockname()[1])
        config = broker_config(tmp_path, 0, "", rmq_address_server_domain=domain)
        async with web, Broker(config):
            await until(lambda: knows(namesrv, "broker-a"))


@pytest.mark.slow
async def test_a_name_server_that_hangs_does_not_hold_up_a_start(tmp_path: Path) -> None:
    async with (
        NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv,
        hanging_server() as hanging,
        remoting_client() as client,
    ):
        config = broker_config(
            tmp_path, 0, f"{hanging};{namesrv.address}", register_broker_timeout_mills=10_000
        )
        started = time.monotonic()
        async with Broker(config) as broker:
            assert knows(namesrv, "broker-a")
            # Nor a change: the other is notified of a new topic at once, while the first still hangs.
            await client.call(broker.address, send_command(b"x"))
            await until(lambda: knows(namesrv, TOPIC))
        assert time.monotonic() - started < 8, (
            "a start, a change and a stop took as long as the one that hangs"
        )


async def test_the_advertised_address(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        port = running.broker.port
        assert await reach_warning("127.0.0.1", "127.0.0.1", port) is None
        warning = await reach_warning("0.0.0.0", "127.0.0.1", port) or ""
        assert warning.startswith(
            f"the advertised address 127.0.0.1:{port} is reachable from this machine only; set"
        )
    refused = await reach_warning("127.0.0.1", "127.0.0.1", 1)
    assert refused is not None and "cannot be reached from here: " in refused
