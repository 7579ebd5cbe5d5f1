"""A name server on a real port: its life, and what needs sockets, files and time to show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.config import NamesrvConfig
from kourou.errors import ConfigError
from kourou.namesrv import NameServer
from kourou.protocol.bodies import TopicRouteData, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    GetKVConfigRequestHeader,
    GetRouteInfoRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
)
from kourou.transport.client import RemotingClient
from kourou.transport.request import Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import RemotingServerConfig
from tests.unit.namesrv.memory_namesrv import topics_body

CONFIG = {"bind_address": "127.0.0.1", "listen_port": 0}


def config(**settings: Any) -> NamesrvConfig:
    return NamesrvConfig(**{**CONFIG, **settings})


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.stop()


@pytest.fixture
async def broker() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.stop()


async def register(broker: RemotingClient, address: str, **fields: Any) -> RemotingCommand:
    known = {"cluster_name": "C", "broker_name": "broker-a", "broker_addr": "127.0.0.1:10911"}
    header = RegisterBrokerRequestHeader(**{**known, "ha_server_addr": "", "broker_id": 0, **fields})
    body = topics_body("T", "U").encode()
    return await broker.call(address, RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body))


async def route(client: RemotingClient, address: str) -> RemotingCommand:
    header = GetRouteInfoRequestHeader(topic="T")
    return await client.call(address, RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))


async def until_gone(client: RemotingClient, address: str) -> None:
    for _ in range(1_000):
        if (await route(client, address)).code == ResponseCode.TOPIC_NOT_EXIST:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the broker is still shown")


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


async def test_a_broker_registers_a_client_asks_the_broker_goes(
    client: RemotingClient, broker: RemotingClient
) -> None:
    async with NameServer(config()) as namesrv:
        assert (await register(broker, namesrv.address)).code == 0
        answer = await route(client, namesrv.address)
        data = decode_body(answer.body, TopicRouteData)
        assert data.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
        broker.close_connection(namesrv.address, "the broker goes")
        await until_gone(client, namesrv.address)


async def test_a_silent_broker_is_found_by_the_scan_and_its_connection_closed(
    client: RemotingClient, broker: RemotingClient
) -> None:
    async with NameServer(config(scan_not_active_broker_interval=20)) as namesrv:
        await register(broker, namesrv.address, heartbeat_timeout_millis=100)
        connection = await broker.connection(namesrv.address)
        await until_gone(client, namesrv.address)
        await until(lambda: connection.closed)


async def test_a_connection_that_other_brokers_use_stays_open(
    client: RemotingClient, broker: RemotingClient
) -> None:
    now_ms = 0
    async with NameServer(config(), clock=lambda: now_ms) as namesrv:
        await register(broker, namesrv.address, heartbeat_timeout_millis=100)
        await register(broker, namesrv.address, broker_name="broker-b")
        now_ms = 101
        namesrv.scan_dead_brokers()
        data = decode_body((await route(client, namesrv.address)).body, TopicRouteData)
        assert [each.broker_name for each in data.broker_datas] == ["broker-b"]
        assert not (await broker.connection(namesrv.address)).closed


async def test_brokers_are_notified_of_a_new_lowest_id(broker: RemotingClient) -> None:
    reported: asyncio.Queue[Request] = asyncio.Queue()
    slave = RemotingServer(
        {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: reported.put_nowait}, RemotingServerConfig()
    )
    await slave.start()
    async with NameServer(config(notify_min_broker_id_changed=True)) as namesrv:
        acting: dict[str, Any] = {"enable_acting_master": True}
        await register(broker, namesrv.address, broker_id=1, broker_addr=slave.address, **acting)
        await register(broker, namesrv.address, **acting)
        request = await asyncio.wait_for(reported.get(), 10)
        header = request.header(NotifyMinBrokerIdChangeRequestHeader)
        assert request.is_oneway
        assert (header.min_broker_id, header.min_broker_addr) == (0, "127.0.0.1:10911")
    # Our own stop closes the brokers' connections; that must not be taken for their failure.
    assert reported.empty()
    await slave.stop()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no address", "a..b:1", "host-that-is-not.invalid:1"])
async def test_an_address_that_cannot_be_determined_does_no_harm(
    client: RemotingClient, broker: RemotingClient, address: str
) -> None:
    async with NameServer(config(notify_min_broker_id_changed=True)) as namesrv:
        acting: dict[str, Any] = {"enable_acting_master": True}
        await register(broker, namesrv.address, broker_id=1, broker_addr=address, **acting)
        await register(broker, namesrv.address, **acting)
        failed = asyncio.create_task(namesrv.wait_failed())
        await asyncio.wait([failed], timeout=0.2)
        assert not failed.done()
        assert (await route(client, namesrv.address)).code == 0
    await failed


async def test_kv_configuration_survives_a_restart(client: RemotingClient, tmp_path: Path) -> None:
    settings = config(kv_config_path=str(tmp_path / "kvConfig.json"))
    async with NameServer(settings) as namesrv:
        put = PutKVConfigRequestHeader(namespace="ns", key="k", value="v")
        answer = await client.call(namesrv.address, RemotingCommand.request(RequestCode.PUT_KV_CONFIG, put))
        assert answer.code == 0
    async with NameServer(settings) as namesrv:
        get = GetKVConfigRequestHeader(namespace="ns", key="k")
        answer = await client.call(namesrv.address, RemotingCommand.request(RequestCode.GET_KV_CONFIG, get))
        assert answer.ext_fields == {"value": "v"}


async def test_a_change_under_way_is_answered_before_the_stop(client: RemotingClient, tmp_path: Path) -> None:
    namesrv = NameServer(config(kv_config_path=str(tmp_path / "kvConfig.json")))
    await namesrv.start()
    connection = await client.connection(namesrv.address)
    puts = [PutKVConfigRequestHeader(namespace="ns", key=str(number), value="v") for number in range(20)]
    answers = [
        connection.call_nowait(RemotingCommand.request(RequestCode.PUT_KV_CONFIG, put), 5_000) for put in puts
    ]
    await until(lambda: namesrv.state.kv_config.get("ns", "19") is not None)
    await namesrv.stop()
    assert {(await answer).code for answer in answers} == {0}


async def test_a_taken_port_is_said_in_one_line() -> None:
    async with NameServer(config()) as first:
        second = NameServer(config(listen_port=first.port))
        with pytest.raises(ConfigError, match=str(first.port)):
            await second.start()


async def test_a_damaged_kv_file_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        await NameServer(config(kv_config_path=str(path))).start()


async def test_the_failure_of_the_scan_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with NameServer(config(scan_not_active_broker_interval=10)) as namesrv:

        def die() -> None:
            raise RuntimeError("scan died")

        monkeypatch.setattr(namesrv, "scan_dead_brokers", die)
        with pytest.raises(RuntimeError, match="scan died"):
            await asyncio.wait_for(namesrv.wait_failed(), 10)


async def test_stop_ends_the_wait_and_may_be_repeated() -> None:
    namesrv = NameServer(config())
    await namesrv.start()
    waiting = asyncio.create_task(namesrv.wait_failed())
    await asyncio.sleep(0)
    await namesrv.stop()
    await asyncio.wait_for(waiting, 10)
    await namesrv.stop()
