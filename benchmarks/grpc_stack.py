"""HTTP/2 stacks for gRPC compared: processor time of a unary call that does nothing.

Each stack serves one method in a process of its own. The load comes from the stubs of Apache's Go client
(grpc_load): 1 KiB of body, the client's seven metadata items, one call and 64 calls in flight. Needs
Go, grpcio, grpclib and h2.

    python -m benchmarks.grpc_stack
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
from tests.interop.kit import go_programs

from benchmarks._cpu_time import own_s
from kourou.proxy.http2 import connection as own_connection
from kourou.proxy.http2.call import Call
from kourou.proxy.http2.server import GrpcServer
from kourou.proxy.http2.settings import GrpcServerConfig

PATH = "/apache.rocketmq.v2.MessagingService/SendMessage"
ANSWER = b"\x0a\x04\x08\xa0\x9c\x01"  # status{code: OK}


async def serve_own() -> int:
    def reply(call: Call) -> None:
        call.reply(ANSWER)

    server = GrpcServer({PATH: reply}, frozenset(), GrpcServerConfig())
    await server.start()
    return server.port


async def serve_hpack() -> int:
    """Our framing with the package hpack."""
    import hpack

    class Decoder:
        def __init__(self) -> None:
            self._decoder = hpack.Decoder()

        def decode(self, block: bytes) -> list[tuple[str, str]]:
            return [(str(name), str(value)) for name, value in self._decoder.decode(block)]

    setattr(own_connection, "HeaderDecoder", Decoder)  # noqa: B010
    return await serve_own()


async def serve_grpcio() -> int:
    import grpc.aio

    import grpc

    async def reply(request: bytes, context: object) -> bytes:
        return ANSWER

    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(reply)
    service, name = PATH.strip("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    KEPT.append(server)
    return port


async def serve_grpcio_split() -> int:
    """grpcio behind a relay that tells TLS from plaintext."""
    port = await serve_grpcio()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        assert first[0] != 0x16
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        other_writer.write(first)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()

        await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    KEPT.append(server)
    return int(server.sockets[0].getsockname()[1])


async def serve_grpclib() -> int:
    import grpclib.const
    import grpclib.server

    class Bytes:
        __content_subtype__ = "proto"

        def encode(self, message: bytes, message_type: object) -> bytes:
            return message

        def decode(self, data: bytes, message_type: object) -> bytes:
            return data

    class Service:
        async def reply(self, stream: Any) -> None:
            await stream.recv_message()
            await stream.send_message(ANSWER)

        def __mapping__(self) -> dict[str, Any]:
            return {
                PATH: grpclib.const.Handler(self.reply, grpclib.const.Cardinality.UNARY_UNARY, bytes, bytes)
            }

    server = grpclib.server.Server([Service()], codec=Bytes())  # type: ignore[arg-type]
    await server.start("127.0.0.1", 0)
    KEPT.append(server)
    assert server._server is not None
    return int(server._server.sockets[0].getsockname()[1])  # type: ignore[attr-defined]


async def serve_h2() -> int:
    """The package h2 with a minimum of gRPC around it."""
    import h2.config
    import h2.connection
    import h2.events

    class H2(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.h2 = h2.connection.H2Connection(
                h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
            )
            self.h2.initiate_connection()
            self.bodies: dict[int, bytearray] = {}
            self.metadata: dict[int, dict[str, str]] = {}
            transport.write(self.h2.data_to_send())

        def data_received(self, data: bytes) -> None:
            for event in self.h2.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.bodies[event.stream_id] = bytearray()
                    self.metadata[event.stream_id] = dict(event.headers)  # type: ignore[arg-type]
                elif isinstance(event, h2.events.DataReceived):
                    self.bodies[event.stream_id] += event.data or b""
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    stream_id = event.stream_id
                    del self.bodies[stream_id], self.metadata[stream_id]
                    self.h2.send_headers(
                        stream_id, [(":status", "200"), ("content-type", "application/grpc")]
                    )
                    self.h2.send_data(stream_id, b"\0" + len(ANSWER).to_bytes(4, "big") + ANSWER)
                    self.h2.send_headers(stream_id, [("grpc-status", "0")], end_stream=True)
            self.transport.write(self.h2.data_to_send())

    server = await asyncio.get_running_loop().create_server(H2, "127.0.0.1", 0)
    KEPT.append(server)
    return int(server.sockets[0].getsockname()[1])


KEPT: list[object] = []
STACKS: dict[str, Callable[[], Any]] = {
    "own framing, own HPACK": serve_own,
    "own framing, package hpack": serve_hpack,
    "package h2": serve_h2,
    "grpclib": serve_grpclib,
    "grpcio (grpc.aio)": serve_grpcio,
    "grpcio behind a splitter": serve_grpcio_split,
}


async def serve(stack: str) -> None:
    print(await STACKS[stack](), flush=True)
    await asyncio.Event().wait()


def measure(stack: str, load: Path, in_flight: int, seconds: float) -> dict[str, float]:
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.grpc_stack", "--serve", stack], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        client = subprocess.Popen(
            [load, "-bare", f"-address=127.0.0.1:{port}", f"-in-flight={in_flight}", f"-seconds={seconds}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        client.stdout.readline()
        before = own_s(server.pid)
        result: dict[str, float] = json.loads(client.stdout.readline())
        result["cpu_us"] = (own_s(server.pid) - before) / result["count"] * 1e6
        client.wait()
        return result
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--serve", choices=STACKS)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.serve))
        return
    load = go_programs.program(Path(__file__).parent / "grpc_load")
    print("| stack | in flight | calls/s | processor time of the server, µs per call | p50 ms | p99 ms |")
    print("|---|---|---|---|---|---|")
    for stack in STACKS:
        for in_flight in (1, 64):
            row = measure(stack, load, in_flight, options.seconds)
            print(
                f"| {stack} | {in_flight} | {row['per_s']:,.0f} | {row['cpu_us']:.0f} "
                f"| {row['p50_ms']:.2f} | {row['p99_ms']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
