"""Links of a client: they connect when needed, sign, follow the master, and end with the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kourou.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    ResponseError,
    TooManyRequestsError,
)
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKeys, signature_of
from kourou.proxy.links.broker_link import BrokerLink, ClientLinks
from kourou.proxy.links.client_links import OpenLinks
from kourou.transport.addresses import SocketName
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.request import Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import ConnectionLimits, RemotingServerConfig
from kourou.transport.tasks import TaskOwner

ECHO, HOLD, ASK = 1, 2, 3
PEER = ("10.0.0.7", 4711)


class Net:
    """A network of brokers in memory. Those of `far` are reached as if by TCP."""

    def __init__(self) -> None:
        self.tasks = TaskOwner("test")
        self.masters: dict[str, str] = {}
        self.near: dict[str, RemotingServer] = {}
        self.far: dict[str, RemotingServer] = {}
        self.lost_masters: list[tuple[str, str]] = []
        self.open_links: list[OpenLinks] = []
        self.held: list[Request] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def broker(self) -> RemotingServer:
        def echo(request: Request) -> None:
            request.reply({"peer": request.connection.remote_address, **request.ext_fields}, request.body)

        return RemotingServer({ECHO: echo, HOLD: self.held.append}, RemotingServerConfig())

    def master(self, broker_name: str) -> str | None:
        return self.masters.get(broker_name)

    async def find_master(self, broker_name: str) -> str:
        raise ConnectError(broker_name, "the name server does not know it")

    def connect_local(self, address: str, client: Connection, client_name: SocketName) -> bool:
        if address in self.near:
            self.near[address].connect_local(client, client_name)
        return address in self.near

    async def connect(self, address: str, factory: Callable[[], Connection]) -> Connection:
        await self.gate.wait()
        if address not in self.far:
            raise ConnectError(address, "connection refused")
        connection = factory()
        self.far[address].connect_local(connection, PEER)
        return connection

    def new_connection(
        self, dispatch: Callable[[Request], None], on_close: Callable[[Connection], None]
    ) -> Connection:
        return Connection(Cycles(), dispatch, ConnectionLimits(), InboundBudget(1 << 30), on_close=on_close)

    def lost(self, broker_name: str, address: str) -> None:
        self.lost_masters.append((broker_name, address))

    def reached(self, broker_name: str) -> None:
        pass

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.start(work, name)

    def closed(self, links: OpenLinks) -> None:
        self.open_links.remove(links)

    def links(
        self,
        keys: SigningKeys | None = None,
        on_request: Callable[[Request], None] = lambda request: request.reply(),
        on_connect: Callable[[BrokerLink], None] | None = None,
    ) -> OpenLinks:
        links = OpenLinks(
            self, client_id="c", keys=keys, client_name=PEER, on_request=on_request, on_connect=on_connect
        )
        self.open_links.append(links)
        return links


@pytest.fixture(params=["near", "far"])
async def net(request: pytest.FixtureRequest) -> Net:
    net = Net()
    getattr(net, request.param)["a:1"] = net.broker()
    net.masters["broker-a"] = "a:1"
    return net


def broker_of(net: Net) -> RemotingServer:
    return (net.near | net.far)["a:1"]


def command(code: int, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(code, ext_fields={"topic": "T"}, body=body)


class Sink:
    def __init__(self) -> None:
        self.results: list[bytes | Exception] = []

    def done(self) -> bool:
        return bool(self.results)

    def set_answer(self, head: CommandHead, body: bytes, /) -> None:
        self.results.append(body)

    def set_exception(self, error: Exception, /) -> None:
        self.results.append(error)


async def iterations(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_calls_of_one_iteration_use_one_connection(net: Net) -> None:
    links = net.links()
    typed: ClientLinks = links  # the contract of services
    link, sink = typed.link("broker-a"), Sink()
    assert links.link("broker-a") is link
    answers = [link.call_nowait(command(ECHO, bytes([n])), 1_000) for n in range(3)]
    link.call_into(command(ECHO, b"sink"), 1_000, sink)
    assert [(await answer).body for answer in answers] == [b"\0", b"\1", b"\2"]
    assert sink.results == [b"sink"]
    assert len(broker_of(net).connections) == 1
    await links.close()
    await links.close()
    assert not broker_of(net).connections and not net.open_links


async def test_a_broker_sees_the_address_of_the_client(net: Net) -> None:
    answer = await net.links().link("broker-a").call_nowait(command(ECHO), 1_000)
    assert answer.ext_fields is not None and answer.ext_fields["peer"] == "10.0.0.7:4711"


async def test_requests_are_signed_with_the_keys_of_the_client(net: Net) -> None:
    link = net.links(SigningKeys("alice", "secret")).link("broker-a")
    answer = await link.call_nowait(command(ECHO, b"body"), 1_000)
    fields = answer.ext_fields or {}
    signed = {"topic": "T", ACCESS_KEY: "alice"}
    assert fields[ACCESS_KEY] == "alice" and fields[SIGNATURE] == signature_of(signed, b"body", "secret")


async def test_requests_of_a_broker_reach_the_client(net: Net) -> None:
    def refuse(request: Request) -> None:
        raise ValueError("boom")

    asked: list[Request] = []
    links, refusing = net.links(on_request=asked.append), net.links(on_request=refuse)
    await links.link("broker-a").call_nowait(command(ECHO), 1_000)
    (connection,) = broker_of(net).connections
    answer = connection.call_nowait(command(ASK), 1_000)
    await iterations()
    asked[0].reply(body=b"answer")
    assert (await answer).body == b"answer"
    await links.close()
    await refusing.link("broker-a").call_nowait(command(ECHO), 1_000)
    (connection,) = broker_of(net).connections
    assert "boom" in ((await connection.call(command(ASK), 1_000)).remark or "")


async def test_on_connect_is_first_on_each_new_connection(net: Net) -> None:
    sent: list[asyncio.Future[RemotingCommand]] = []
    links = net.links(on_connect=lambda link: sent.append(link.call_nowait(command(HOLD, b"hello"), 1_000)))
    link = links.link("broker-a")
    link.call_nowait(command(HOLD, b"work"), 1_000)
    await iterations()
    assert [request.body for request in net.held] == [b"hello", b"work"]
    (connection,) = broker_of(net).connections
    connection.abort("restart")
    await iterations()
    assert net.lost_masters == [("broker-a", "a:1")]
    link.call_nowait(command(HOLD, b"again"), 1_000)
    await iterations()
    assert [request.body for request in net.held[2:]] == [b"hello", b"again"]
    await links.close()
    await asyncio.gather(*sent, return_exceptions=True)


async def test_calls_fail_with_their_connection(net: Net) -> None:
    links = net.links()
    answer = links.link("broker-a").call_nowait(command(HOLD), 10_000)
    await iterations()
    await links.close()
    with pytest.raises(ConnectionLostError, match="the client is gone"):
        await answer
    with pytest.raises(ConnectionLostError, match="the client is gone"):
        await links.link("broker-a").call_nowait(command(ECHO), 1_000)


async def test_a_link_follows_the_master(net: Net) -> None:
    links = net.links()
    link = links.link("broker-a")
    await link.call_nowait(command(ECHO), 1_000)
    (net.near or net.far)["b:1"] = other = net.broker()
    net.masters["broker-a"] = "b:1"
    await link.call_nowait(command(ECHO), 1_000)
    await iterations()
    assert len(other.connections) == 1 and not broker_of(net).connections
    assert not net.lost_masters  # this end has closed it


async def test_an_unknown_broker(net: Net) -> None:
    sink, link = Sink(), net.links().link("broker-x")
    link.send_oneway(command(ECHO))
    link.call_into(command(ECHO), 1_000, sink)
    with pytest.raises(ConnectError, match="the name server does not know it"):
        await link.call_nowait(command(ECHO), 1_000)
    assert isinstance(sink.results[0], ConnectError)


async def test_names_of_unknown_brokers_are_bounded(net: Net) -> None:
    links = net.links()
    await links.link("broker-a").call_nowait(command(ECHO), 1_000)
    known = links.link("broker-a")
    for number in range(5_000):
        links.link(f"broker-{number}")
    assert len(links._links) <= 1_000 and links.link("broker-a") is known


async def test_links_to_unknown_brokers_are_not_kept(net: Net) -> None:
    links = net.links()
    for name in "broker-x", "x" * 256:
        with pytest.raises(ConnectError):
            await links.link(name).call_nowait(command(ECHO), 1_000)
    assert not links._links


async def test_a_request_that_no_frame_can_hold_fails_alone(net: Net) -> None:
    links, sink = net.links(), Sink()
    link = links.link("broker-a")
    huge = RemotingCommand(ECHO, ext_fields={"topic": "T" * 2**24})
    link.call_into(huge, 50, sink)
    link.send_oneway(RemotingCommand(ECHO, ext_fields={"topic": "T" * 2**24}))
    assert (await link.call_nowait(command(ECHO, b"next"), 1_000)).body == b"next"
    (refused,) = sink.results
    assert isinstance(refused, ResponseError) and refused.code == ResponseCode.INVALID_PARAMETER
    assert link._connection is not None and not len(link._connection.calls)
    assert net.tasks.failure is None
    await links.close()


# -- by TCP --------------------------------------------------------------------------------------


@pytest.fixture
async def far() -> Net:
    net = Net()
    net.masters["broker-a"] = "a:1"
    net.far["a:1"] = net.broker()
    return net


async def test_requests_wait_for_the_connection_up_to_a_limit(far: Net) -> None:
    far.gate.clear()
    link = far.links().link("broker-a")
    answers = [link.call_nowait(command(ECHO), 5_000) for _ in range(1_001)]
    await iterations()
    assert isinstance(answers[-1].exception(), TooManyRequestsError)
    answers.pop()
    answers[0].cancel()
    far.gate.set()
    done = await asyncio.gather(*answers, return_exceptions=True)
    assert all(isinstance(answer, RemotingCommand) for answer in done[1:])


async def test_a_request_that_waited_too_long_times_out(far: Net) -> None:
    far.gate.clear()
    answer = far.links().link("broker-a").call_nowait(command(HOLD), 0)
    await iterations()
    far.gate.set()
    with pytest.raises(CallTimeoutError, match="within 0 ms"):
        await answer


async def test_a_master_that_refuses_connections_is_looked_for(far: Net) -> None:
    far.far.clear()
    with pytest.raises(ConnectError, match="connection refused"):
        await far.links().link("broker-a").call_nowait(command(ECHO), 1_000)
    assert far.lost_masters == [("broker-a", "a:1")]


async def test_a_client_that_goes_while_it_connects(far: Net) -> None:
    far.gate.clear()
    links = far.links()
    answer = links.link("broker-a").call_nowait(command(ECHO), 1_000)
    await links.close()
    with pytest.raises(ConnectionLostError, match="the client is gone"):
        await answer
    far.gate.set()
    await iterations()
    assert not far.far["a:1"].connections
