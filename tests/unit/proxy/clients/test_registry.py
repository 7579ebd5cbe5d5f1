"""Which calls are of one client, and when a client is gone."""

from __future__ import annotations

import asyncio

import pytest

from kourou.access.model import Account
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.registry import ClientRegistry
from kourou.proxy.clients.telemetry_stream import TelemetryStream
from kourou.proxy.http2.call import GrpcCode
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code
from tests.unit.proxy.recorded import ProxyKit, RecordedCall, settle


def call(client_id: str = "c1", peer: str = "10.0.0.7:4711") -> RecordedCall:
    return RecordedCall("QueryRoute", client_id=client_id, peer=peer)


async def test_calls_over_several_connections_are_of_one_client(kit: ProxyKit) -> None:
    client = kit.clients.of(call())
    assert kit.clients.of(call(peer="10.0.0.7:4712")) is client
    assert client.peer == "10.0.0.7:4711"


@pytest.mark.parametrize("other", ["id", "host", "account"])
async def test_another_id_host_or_account_is_another_client(kit: ProxyKit, other: str) -> None:
    client = kit.clients.of(call())
    if other == "account":
        kit.access.account = Account(name="alice", secret_key="s")
    made = {"id": call("c2"), "host": call(peer="10.0.0.8:4711"), "account": call()}[other]
    assert kit.clients.of(made) is not client


@pytest.mark.parametrize("client_id", ["", "x" * 513])
async def test_a_call_needs_a_client_id(kit: ProxyKit, client_id: str) -> None:
    with pytest.raises(StatusError) as caught:
        kit.clients.of(call(client_id))
    assert caught.value.code == Code.CLIENT_ID_REQUIRED


async def test_a_client_is_gone_after_two_minutes_without_a_call(kit: ProxyKit) -> None:
    client = kit.clients.of(call())
    kit.clients.scan(client.last_call_s + 120)
    assert len(kit.clients) == 1
    kit.clients.scan(client.last_call_s + 121)
    assert len(kit.clients) == 0
    await settle()
    assert kit.brokers.closed == ["c1"]


async def test_a_client_with_a_telemetry_stream_stays(kit: ProxyKit) -> None:
    client = kit.clients.of(call())
    client.streams.append(TelemetryStream(RecordedCall("Telemetry"), client))
    kit.clients.scan(client.last_call_s + 10_000)
    assert len(kit.clients) == 1
    client.streams[0].ended()
    kit.clients.scan(client.last_call_s + 10_000)
    assert len(kit.clients) == 0


async def test_links_close_after_the_last_requests(kit: ProxyKit) -> None:
    last_requests = asyncio.Event()

    async def wait(_: ProxyClient) -> None:
        await last_requests.wait()

    kit.clients.on_leave.append(wait)
    client = kit.clients.of(call())
    kit.clients.leave(client, "it has terminated")
    kit.clients.leave(client, "twice")
    await settle()
    assert kit.brokers.closed == []
    last_requests.set()
    await settle()
    assert kit.brokers.closed == ["c1"]
    assert kit.clients.of(call()) is not client


async def test_a_stop_makes_the_last_requests_of_all_clients(kit: ProxyKit) -> None:
    asked: list[str] = []

    async def ask(client: ProxyClient) -> None:
        assert client.client_id not in kit.brokers.closed
        asked.append(client.client_id)

    kit.clients.on_stop.append(ask)
    kit.clients.of(call("c1"))
    kit.clients.of(call("c2"))
    await kit.clients.stop()
    assert (sorted(asked), sorted(kit.brokers.closed)) == (["c1", "c2"], ["c1", "c2"])


async def test_a_new_secret_key_means_new_links(kit: ProxyKit) -> None:
    kit.access.account = old = Account(name="alice", secret_key="old")
    client = kit.clients.of(call())
    kit.access.account = new = Account(name="alice", secret_key="new")
    assert kit.clients.of(call()) is client
    await settle()
    assert (kit.brokers.accounts, kit.brokers.closed) == ([old, new], ["c1"])


async def test_streams_end_with_the_secret_key_that_opened_them(kit: ProxyKit) -> None:
    kit.access.account = Account(name="alice", secret_key="old")
    client = kit.clients.of(call())
    stream = RecordedCall("Telemetry")
    client.streams.append(TelemetryStream(stream, client))
    kit.access.account = Account(name="alice", secret_key="old", is_admin=True)
    kit.clients.of(call())
    assert not stream.is_over
    kit.access.account = Account(name="alice", secret_key="new")
    kit.clients.of(call())
    assert (stream.status, client.streams) == (GrpcCode.UNAVAILABLE, [])


async def test_streams_of_a_deleted_account_end(kit: ProxyKit) -> None:
    client = kit.clients.of(call())
    stream = RecordedCall("Telemetry")
    client.streams.append(TelemetryStream(stream, client))
    kit.clients.scan(client.last_call_s + 121)
    assert not stream.is_over
    kit.access.refused = True
    kit.clients.scan(client.last_call_s + 100)
    assert not stream.is_over
    kit.clients.scan(client.last_call_s + 121)
    assert (stream.status, len(kit.clients)) == (GrpcCode.UNAUTHENTICATED, 0)


async def test_more_clients_than_the_limit_are_refused(kit: ProxyKit) -> None:
    clients = ClientRegistry(kit.brokers, kit.access, kit.tasks, max_clients=2)
    for number in range(2):
        clients.of(call(f"c{number}"))
    with pytest.raises(StatusError) as caught:
        clients.of(call("one more"))
    assert caught.value.code == Code.TOO_MANY_REQUESTS
    assert clients.of(call("c1")) is not None
    await clients.stop()
