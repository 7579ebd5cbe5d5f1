"""Server and client over loopback sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from kourou.errors import CallTimeoutError, ConfigError, ConnectError, ConnectionLostError
from kourou.protocol.command import RemotingCommand
from kourou.protocol.signature import SigningKeys, signature_of
from kourou.transport.client import RemotingClient
from kourou.transport.connection import Connection
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import ConnectionLimits, RemotingClientConfig, RemotingServerConfig

from .conftest import Run

ECHO, NEVER, SLOW = 1, 2, 3


def echo(request: Request) -> None:
    request.reply({"seen": str(request.opaque)}, request.body)


def never(_: Request) -> None:
    return None


@asynccontextmanager
async def serving(
    processors: Mapping[int, Processor] | None = None,
    config: RemotingServerConfig | None = None,
    **hooks: object,
) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(
        {ECHO: echo, NEVER: never, **(processors or {})},
        config or RemotingServerConfig(),
        **hooks,  # type: ignore[arg-type]
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def calling(
    processors: Mapping[int, Processor] | None = None, config: RemotingClientConfig | None = None
) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(config, processors)
    try:
        yield client
    finally:
        await client.stop()


def command(code: int, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(code, body=body)


def test_many_calls_share_one_connection(run: Run) -> None:
    async def work() -> None:
        async with serving() as server, calling() as client:
            bodies = [b"%d" % n * 100 for n in range(500)]
            answers = await asyncio.gather(
                *(client.call(server.address, command(ECHO, body)) for body in bodies)
            )
            assert [answer.body for answer in answers] == bodies
            assert len(server.connections) == 1

    run(work())


def test_large_frames_pass_whole(run: Run) -> None:
    async def work() -> None:
        async with serving() as server, calling() as client:
            body = bytes(range(256)) * 60_000
            assert (await client.call(server.address, command(ECHO, body), 10_000)).body == body

    run(work())


def test_binary_serialization_is_answered_in_kind(run: Run) -> None:
    async def work() -> None:
        async with serving() as server, calling() as client:
            asked = command(ECHO, b"x")
            asked.serialize_type = 1
            answer = await client.call(server.address, asked)
            assert answer.serialize_type == 1
            assert answer.ext_fields == {"seen": "0"}

    run(work())


def test_every_request_of_a_client_with_keys_is_signed_last_of_all(run: Run) -> None:
    async def work() -> None:
        seen: list[dict[str, str]] = []

        def see(request: Request) -> None:
            seen.append(request.ext_fields)
            echo(request)

        async with serving({ECHO: see}) as server:
            client = RemotingClient(keys=SigningKeys("inner", "a secret"))
            try:
                asked = RemotingCommand(ECHO, ext_fields={"topic": "T"}, body=b"body")
                await client.call(server.address, asked)
                await client.call(server.address, asked)
                await client.send_oneway(server.address, RemotingCommand(ECHO))
                await client.call(server.address, command(ECHO))
            finally:
                await client.stop()
        bodies = [b"body", b"body", b"", b""]
        assert [each["AccessKey"] for each in seen] == ["inner"] * 4
        for fields, body in zip(seen, bodies, strict=True):
            assert fields["Signature"] == signature_of(fields, body, "a secret")

    run(work())


def test_server_calls_client_over_the_same_connection(run: Run) -> None:
    async def work() -> None:
        opened: list[Connection] = []
        async with serving(on_connect=opened.append) as server:
            async with calling({40: lambda request: request.reply(body=b"from client")}) as client:
                await client.call(server.address, command(ECHO))
                answer = await opened[0].call(command(40), 1_000)
                assert answer.body == b"from client"

    run(work())


def test_call_without_answer_times_out_and_the_connection_goes_on(run: Run) -> None:
    async def work() -> None:
        async with serving() as server, calling() as client:
            with pytest.raises(CallTimeoutError, match="request 2 within 50 ms"):
                await client.call(server.address, command(NEVER), 50)
            assert (await client.call(server.address, command(ECHO, b"x"))).body == b"x"
            assert len(server.connections) == 1

    run(work())


def test_refused_connection_and_unknown_name_say_so(run: Run) -> None:
    async def work() -> None:
        async with calling() as client:
            with pytest.raises(ConnectError, match="connection refused; is the server running there"):
                await client.call(f"127.0.0.1:{free_port()}", command(ECHO))
            with pytest.raises(ConnectError, match="the name cannot be resolved"):
                await client.call("no-such-host.invalid:1", command(ECHO), 20_000)

    run(work())


def test_client_reconnects_after_the_server_came_back(run: Run) -> None:
    async def work() -> None:
        async with calling() as client:
            async with serving() as server:
                port, address = server.port, server.address
                await client.call(address, command(ECHO))
                waiting = asyncio.create_task(client.call(address, command(NEVER), 20_000))
                await asyncio.sleep(0.05)
            with pytest.raises(ConnectionLostError):
                await waiting
            with pytest.raises(ConnectError):
                await client.call(address, command(ECHO))
            async with serving(config=RemotingServerConfig(port=port)):
                assert (await client.call(address, command(ECHO, b"again"))).body == b"again"

    run(work())


def test_closed_connection_is_reported_at_once(run: Run) -> None:
    async def work() -> None:
        closed = asyncio.Event()
        async with serving(on_close=lambda _: closed.set()) as server:
            async with calling() as client:
                await client.call(server.address, command(ECHO))
            await asyncio.wait_for(closed.wait(), 2)
            assert not server.connections

    run(work())


def test_idle_connections_are_closed_and_busy_ones_kept(run: Run) -> None:
    async def work() -> None:
        async with serving() as server, calling() as client:
            await client.call(server.address, command(ECHO))
            (connection,) = server.connections
            server.sweep(connection.last_active + 119)
            assert not connection.closed
            server.sweep(connection.last_active + 121)
            assert connection.closed

    run(work())


def test_client_closes_idle_connections_too(run: Run) -> None:
    async def work() -> None:
        async with serving() as server, calling() as client:
            await client.call(server.address, command(ECHO))
            connection = await client.connection(server.address)
            client.sweep(connection.last_active + 121)
            assert connection.closed
            assert (await client.call(server.address, command(ECHO, b"new"))).body == b"new"

    run(work())


def test_taken_port_gives_one_clear_line(run: Run) -> None:
    async def work() -> None:
        async with serving() as server:
            with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}: the port is taken"):
                await RemotingServer({}, RemotingServerConfig(port=server.port)).start()

    run(work())


def test_a_second_port_serves_like_the_first(run: Run) -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with serving() as server, calling() as client:
            await server.listen_also(port)
            with pytest.raises(ConfigError, match="the port is taken"):
                await server.listen_also(server.port)
            assert (await client.call(f"127.0.0.1:{port}", command(ECHO, b"x"))).body == b"x"
            assert len(server.connections) == 1
        socket.create_server(("127.0.0.1", port)).close()  # it is free again

    run(work())


def test_foreign_address_gives_one_clear_line(run: Run) -> None:
    async def work() -> None:
        with pytest.raises(ConfigError, match="this machine has no such address"):
            await RemotingServer({}, RemotingServerConfig(host="192.0.2.1")).start()

    run(work())


def test_connections_beyond_the_limit_are_closed(run: Run) -> None:
    async def work() -> None:
        async with serving(config=RemotingServerConfig(max_connections=2)) as server:
            async with calling() as first, calling() as second, calling() as third:
                await first.call(server.address, command(ECHO))
                await second.call(server.address, command(ECHO))
                with pytest.raises(ConnectionLostError):
                    await third.call(server.address, command(ECHO))
                assert (await first.call(server.address, command(ECHO, b"x"))).body == b"x"

    run(work())


def test_stop_lets_requests_under_way_answer(run: Run) -> None:
    async def work() -> None:
        started = asyncio.Event()

        async def slow(request: Request) -> None:
            started.set()
            await asyncio.sleep(0.1)
            request.reply(body=b"finished")

        server = RemotingServer(
            {SLOW: lambda request: run_request(server.tasks, request, slow(request))},
            RemotingServerConfig(),
        )
        await server.start()
        async with calling() as client:
            call = asyncio.create_task(client.call(server.address, command(SLOW)))
            await started.wait()
            await server.stop(timeout_ms=2_000)
            assert (await call).body == b"finished"

    run(work())


def test_stop_is_bounded_when_a_request_never_ends(run: Run) -> None:
    async def work() -> None:
        async def forever(_: Request) -> None:
            await asyncio.Event().wait()

        server = RemotingServer(
            {SLOW: lambda request: run_request(server.tasks, request, forever(request))},
            RemotingServerConfig(),
        )
        await server.start()
        async with calling() as client:
            call = asyncio.create_task(client.call(server.address, command(SLOW)))
            await asyncio.sleep(0.05)
            before = asyncio.get_running_loop().time()
            await server.stop(timeout_ms=200)
            assert asyncio.get_running_loop().time() - before < 20
            with pytest.raises(ConnectionLostError):
                await call

    run(work())


def test_a_failed_request_task_is_answered_and_the_server_lives(run: Run) -> None:
    async def work() -> None:
        async def breaks(_: Request) -> None:
            raise ValueError("boom")

        server = RemotingServer(
            {ECHO: echo, SLOW: lambda request: run_request(server.tasks, request, breaks(request))},
            RemotingServerConfig(),
        )
        await server.start()
        async with calling() as client:
            answer = await client.call(server.address, command(SLOW))
            assert (answer.code, answer.remark) == (1, "ValueError: boom")
            assert (await client.call(server.address, command(ECHO, b"x"))).body == b"x"
        await server.stop()

    run(work())


def test_a_service_task_that_dies_is_noticed(run: Run) -> None:
    async def work() -> None:
        async def dies() -> None:
            raise OSError("disk gone")

        async with serving() as server:
            server.tasks.start(dies(), "service")
            with pytest.raises(OSError, match="disk gone"):
                await asyncio.wait_for(server.wait_failed(), 2)

    run(work())


def test_a_reader_that_stops_is_held_back_and_others_are_served(run: Run) -> None:
    """The peer asks for far more than it reads: what it asks waits in its socket, not in memory."""

    async def work() -> None:
        handled = 0

        def big(request: Request) -> None:
            nonlocal handled
            handled += 1
            request.reply(body=b"x" * 100_000)

        async with serving({SLOW: big}) as server, calling() as client:
            with socket.create_connection(("127.0.0.1", server.port)) as rude:
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                rude.sendall(command(SLOW).encode() * 2_000)
                for _ in range(20):
                    answer = await client.call(server.address, command(ECHO, b"x"))
                    assert answer.body == b"x"
                    await asyncio.sleep(0.01)
                # 200 MB were asked for; the socket buffers take a few, then no request is handled.
                assert handled < 200

    run(work())


def test_a_pipelined_burst_with_slow_reading_is_answered_whole(run: Run) -> None:
    async def work() -> None:
        config = RemotingServerConfig(limits=ConnectionLimits(write_high_bytes=10_000))
        async with serving(config=config) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            body = b"x" * 5_000
            frames = [RemotingCommand.request(ECHO, body=body) for _ in range(2_000)]
            for opaque, frame in enumerate(frames):
                frame.opaque = opaque
            sending = asyncio.create_task(_send(writer, b"".join(frame.encode() for frame in frames)))
            seen = 0
            for _ in frames:
                length = int.from_bytes(await reader.readexactly(4), "big")
                await reader.readexactly(length)
                seen += 1
                if seen % 500 == 0:
                    await asyncio.sleep(0.02)
            await sending
            writer.close()
            assert seen == 2_000

    run(work())


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
