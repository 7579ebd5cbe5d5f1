"""What brokers offer is asked once for each connection, and never taken for granted."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from kourou.client.core.api import ClientApi
from kourou.client.core.instance import BrokerFeatures
from kourou.client.core.namesrv_list import NamesrvList
from kourou.client.core.refusals import RefusalLog
from kourou.client.core.routes import Routes
from kourou.client.core.settings import ClientSettings
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.errors import CallTimeoutError, ConnectError, ConnectionLostError
from kourou.protocol.bodies import HeartbeatData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.features import Feature, parse_features
from kourou.transport.client import RemotingClient
from kourou.transport.pending_calls import Answer
from kourou.transport.tasks import TaskOwner

ADDRESS = "127.0.0.1:10911"
LARGE = {"kourouFeatures": "largePull"}


class FakeConnection:
    """A connection whose requests the test answers."""

    def __init__(self) -> None:
        self.state: Any = None
        self.requests: list[tuple[RemotingCommand, Answer]] = []

    def call_nowait(self, command: RemotingCommand, timeout_ms: int) -> Answer:
        answer: Answer = asyncio.get_running_loop().create_future()
        self.requests.append((command, answer))
        return answer

    def answer(self, ext_fields: dict[str, str] | None, code: int = ResponseCode.SUCCESS) -> None:
        self.requests[-1][1].set_result(RemotingCommand(code=code, ext_fields=ext_fields))


class FakeRemoting:
    """Gives out the connection that is open now."""

    def __init__(self) -> None:
        self.now = FakeConnection()

    def open_connection(self, address: str) -> FakeConnection:
        return self.now

    async def connection(self, address: str) -> FakeConnection:
        return self.now


class Client:
    def __init__(self) -> None:
        self.remoting = FakeRemoting()
        settings = ClientSettings()
        api = ClientApi(cast(RemotingClient, self.remoting), NamesrvList(settings), settings)
        self.features = BrokerFeatures(api, "c1", request_timeout_ms=3_000)

    async def ask(self, timeout_ms: int | None = None) -> asyncio.Task[frozenset[Feature]]:
        """A question, as far as it goes without an answer."""
        asking = asyncio.create_task(self.features.of(ADDRESS, timeout_ms))
        await asyncio.sleep(0)
        return asking


async def test_users_of_a_connection_share_one_question() -> None:
    client = Client()
    first, second = await client.ask(), await client.ask()
    first.cancel()  # does not take the answer from the other
    await asyncio.sleep(0)
    ((command, _),) = client.remoting.now.requests
    assert command.code == RequestCode.HEART_BEAT
    assert b'"consumerDataSet":[]' in command.body and b'"producerDataSet":[]' in command.body
    client.remoting.now.answer(LARGE)
    assert await second == {Feature.LARGE_PULL}
    assert await (await client.ask()) == {Feature.LARGE_PULL}
    assert len(client.remoting.now.requests) == 1


@pytest.mark.parametrize(
    ("ext_fields", "code"),
    [
        ({"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}, ResponseCode.SUCCESS),
        (None, ResponseCode.SUCCESS),
        (LARGE, ResponseCode.SYSTEM_ERROR),
    ],
    ids=["5.x", "4.9", "refused"],
)
async def test_a_broker_that_announces_nothing_offers_nothing(
    ext_fields: dict[str, str] | None, code: int
) -> None:
    client = Client()
    asking = await client.ask()
    client.remoting.now.answer(ext_fields, code)
    assert await asking == frozenset()


async def test_a_user_that_comes_right_after_the_answer_does_not_hang() -> None:
    client = Client()
    asking = await client.ask()
    client.remoting.now.answer(LARGE)
    # Within the same turn of the loop, before any callback of the answer: no `await` here lets one run.
    assert await client.features.of(ADDRESS) == {Feature.LARGE_PULL}
    assert await asking == {Feature.LARGE_PULL}


async def test_behind_a_new_connection_the_broker_is_asked_again() -> None:
    client = Client()
    asking = await client.ask()
    client.remoting.now.answer(LARGE)
    assert await asking
    client.remoting.now = FakeConnection()
    asking = await client.ask()
    client.remoting.now.answer(None)
    assert await asking == frozenset()


async def test_a_connection_after_a_loss_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    with caplog.at_level("INFO", "kourou.client"):
        for _ in range(2):
            client.remoting.now = FakeConnection()
            askings = [await client.ask() for _ in range(2)]
            client.remoting.now.answer(LARGE)
            assert all(await asyncio.gather(*askings))
    assert caplog.messages == [f"c1: connected to {ADDRESS} again"]


async def test_a_question_without_answer_is_an_error_and_is_asked_again() -> None:
    client = Client()
    asking = await client.ask()
    with pytest.raises(CallTimeoutError):
        await (await client.ask(timeout_ms=1))
    assert not asking.done()
    client.remoting.now.requests[-1][1].set_exception(ConnectionLostError(ADDRESS, "gone"))
    with pytest.raises(ConnectionLostError):
        await asking
    asking = await client.ask()
    client.remoting.now.answer(LARGE)
    assert await asking == {Feature.LARGE_PULL}


def test_names_of_later_versions_are_passed_over() -> None:
    assert parse_features("largePull,somethingNew") == {Feature.LARGE_PULL}
    assert parse_features("") == parse_features(None) == frozenset()


class Restarting:
    """Stands for ClientApi: the master responds to the third heartbeat."""

    def __init__(self) -> None:
        self.heartbeats = 0
        self.refusals = RefusalLog()

    async def heartbeat(self, address: str, data: HeartbeatData) -> int:
        assert address == "m:1" and data.consumer_data_set
        self.heartbeats += 1
        if self.heartbeats < 3:
            raise ConnectError(address, "connection refused")
        return 479


async def test_a_master_that_does_not_respond_gets_heartbeats_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kourou.client.core.instance._PROBE_INTERVAL_S", 0)
    consumer = AsyncPullConsumer("CG")
    instance = consumer.instance
    monkeypatch.setattr(instance, "_pid", os.getpid())
    instance.tasks = TaskOwner("client")
    api = Restarting()
    instance.api = cast(ClientApi, api)
    instance.routes = Routes(instance.api, probe=instance._start_probe)
    instance.routes.brokers["a"] = {0: "m:1", 1: "s:1"}
    instance.routes.fail_over("a", "m:1", ConnectError("m:1", "connection refused"))
    assert instance.routes.read_from("a") == (1, "s:1")
    await instance.tasks.wait_idle(5)
    assert instance.routes.read_from("a") == (0, "m:1")
    assert (api.heartbeats, instance.broker_versions) == (3, {"m:1": 479})
    await instance.tasks.stop()
