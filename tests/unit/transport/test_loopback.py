"""Loopback: two protocols connected in memory, with the flow control and the ends of a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kourou.errors import ConnectionLostError
from kourou.protocol.command import RemotingCommand
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.loopback import LoopbackTransport, connect_pair
from kourou.transport.request import Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import ConnectionLimits, RemotingServerConfig

CLIENT, SERVER = ("10.0.0.7", 4711), ("127.0.0.1", 10911)
ECHO, HOLD, BIG = 1, 2, 3


class Recorder(asyncio.Protocol):
    """Keeps what happens to it."""

    transport: LoopbackTransport

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, LoopbackTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self.events.append("data")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {exc}")


@pytest.fixture
async def pair() -> tuple[Recorder, Recorder]:
    client, server = Recorder(), Recorder()
    connect_pair(client, server, client_name=CLIENT, server_name=SERVER)
    return client, server


async def iterations(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_each_end_has_the_address_of_the_other(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    assert client.transport.get_extra_info("peername") == SERVER
    assert server.transport.get_extra_info("peername") == CLIENT
    assert server.transport.get_extra_info("sockname") == SERVER
    assert server.transport.get_extra_info("ssl_object") is None


async def test_writes_of_one_iteration_arrive_together_in_the_next(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    view = bytearray(b"two")
    client.transport.write(b"one ")
    client.transport.writelines([memoryview(view), b" three"])
    assert not server.pieces
    view[:] = b"xxx"  # a buffer is the writer's again as soon as it was written
    await iterations(1)
    assert server.pieces == [b"one two three"]


async def test_a_single_write_is_not_copied(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    data = bytes(1000)
    client.transport.write(data)
    await iterations(1)
    assert server.pieces[0] is data


async def test_a_large_backlog_is_delivered_in_pieces(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    for number in range(8):
        client.transport.write(bytes([number]) * 100_000)
    await iterations(1)
    assert sum(map(len, server.pieces)) <= 256 * 1024
    await iterations(8)
    assert b"".join(server.pieces) == b"".join(bytes([number]) * 100_000 for number in range(8))


async def test_write_limits_hold_while_the_peer_does_not_read(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    client.transport.set_write_buffer_limits(high=1000)
    assert client.transport.get_write_buffer_limits() == (250, 1000)
    server.transport.pause_reading()
    client.transport.write(bytes(1000))
    assert client.events == []
    client.transport.write(b"x")
    await iterations()
    assert client.events == ["pause"] and not server.pieces
    assert client.transport.get_write_buffer_size() == 1001
    server.transport.resume_reading()
    await iterations()
    assert client.events == ["pause", "resume"] and len(server.pieces[0]) == 1001


async def test_close_delivers_what_was_written_and_reads_no_more(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    client.transport.write(b"last words")
    client.transport.close()
    client.transport.write(b"too late")
    server.transport.write(b"not read any more")
    await iterations()
    assert server.pieces == [b"last words"] and server.events == ["data", "eof", "lost None"]
    assert client.events == ["lost None"]


async def test_close_waits_for_a_peer_that_does_not_read(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    server.transport.pause_reading()
    client.transport.write(b"data")
    client.transport.close()
    await iterations()
    assert client.events == [] and server.events == []
    server.transport.resume_reading()
    await iterations()
    assert server.pieces == [b"data"]
    assert client.events == ["lost None"] and server.events[-1] == "lost None"


async def test_abort_loses_what_was_written(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    server.transport.pause_reading()
    client.transport.write(b"data")
    client.transport.close()
    client.transport.abort()
    await iterations()
    assert client.events == ["lost None"] and server.events == ["lost None"]


@pytest.mark.parametrize("is_client_first", [True, False])
async def test_both_may_close_at_once(pair: tuple[Recorder, Recorder], is_client_first: bool) -> None:
    ends = pair if is_client_first else pair[::-1]
    for end in ends:
        end.transport.write(b"data")
    for end in ends:
        end.transport.pause_reading()
        end.transport.close()
        end.transport.close()
    await iterations(6)
    assert all(end.events[-1] == "lost None" and end.events.count("lost None") == 1 for end in ends)


async def test_a_protocol_that_fails_ends_the_connection(pair: tuple[Recorder, Recorder]) -> None:
    client, server = pair
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    server.data_received = lambda data: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    client.transport.write(b"data")
    await iterations()
    assert isinstance(reported[0]["exception"], ZeroDivisionError)
    assert client.events == ["lost None"] and server.events == ["lost division by zero"]


# -- connections on it ---------------------------------------------------------------------------


def command(code: int, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(code, body=body)


def connection(dispatch: Dispatcher | None = None, **limits: int) -> Connection:
    return Connection(
        Cycles(), dispatch or Dispatcher({}), ConnectionLimits(**limits), InboundBudget(1 << 30)
    )


@pytest.fixture
async def held() -> list[Request]:
    return []


@pytest.fixture
async def server(held: list[Request]) -> RemotingServer:
    return RemotingServer(
        {
            ECHO: lambda request: request.reply(body=request.body),
            HOLD: held.append,
            BIG: lambda request: request.reply(body=bytes(4 << 20)),
        },
        RemotingServerConfig(max_connections=2),
    )


async def test_calls_both_ways(server: RemotingServer, held: list[Request]) -> None:
    client = connection(Dispatcher({ECHO: lambda request: request.reply(body=request.body[::-1])}))
    server.connect_local(client, CLIENT)
    (accepted,) = server.connections
    assert accepted.remote_address == "10.0.0.7:4711"
    assert (await client.call(command(ECHO, b"abc"), 1_000)).body == b"abc"
    assert (await accepted.call(command(ECHO, b"abc"), 1_000)).body == b"cba"
    assert len((await client.call(command(BIG), 1_000)).body) == 4 << 20
    client.close("done")
    await server.stop(100)
    assert not server.connections


async def test_a_server_that_stops_ends_local_connections(
    server: RemotingServer, held: list[Request]
) -> None:
    client = connection()
    server.connect_local(client, CLIENT)
    answer = client.call_nowait(command(HOLD), 10_000)
    await iterations()
    assert len(held) == 1
    await server.stop(100)
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        await answer
    late = connection()
    server.connect_local(late, CLIENT)
    await iterations()
    assert late.closed and not server.connections


async def test_the_limit_of_connections_counts_local_ones(server: RemotingServer) -> None:
    clients = [connection() for _ in range(3)]
    for client in clients:
        server.connect_local(client, CLIENT)
    await iterations()
    assert [client.closed for client in clients] == [False, False, True]
    assert len(server.connections) == 2
    await server.stop(100)


async def test_a_client_that_does_not_read_its_responses_is_not_read_from(
    server: RemotingServer, held: list[Request]
) -> None:
    client = connection(write_high_bytes=64 * 1024)
    server.connect_local(client, CLIENT)
    client.stop_reading()
    answers = [client.call_nowait(command(BIG), 10_000) for _ in range(20)]
    await iterations(10)
    (accepted,) = server.connections
    assert accepted.is_write_paused and not any(answer.done() for answer in answers)
    client.abort("done")
    await asyncio.gather(*answers, return_exceptions=True)
    await server.stop(100)
