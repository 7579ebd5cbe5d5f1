"""grpcio, the library under most official clients of scripting languages, against the gRPC port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.http2.server import GrpcServer
from kourou.proxy.http2.settings import GrpcServerConfig
from tests.needed import need_module

grpc = need_module("grpc")
need_module("grpc.aio")

pytestmark = pytest.mark.integration

STREAM = "/test.Service/Talk"


def echo(call: Call) -> None:
    call.reply(call.request)


def count(call: Call) -> None:
    for number in range(int(call.request)):
        call.send(b"%d" % number * 1_000)
    call.finish()


def talk(call: Call) -> None:
    call.on_message = lambda message: call.send(b"re:" + message)
    call.on_half_close = call.finish


HANDLERS = {
    "/test.Service/Echo": echo,
    "/test.Service/Count": count,
    "/test.Service/Metadata": lambda call: call.reply(call.metadata["x-mq-client-id"].encode()),
    "/test.Service/Fail": lambda call: call.fail(GrpcCode.NOT_FOUND, "nichts: 100 % ü\n"),
    "/test.Service/Hang": lambda call: None,
    STREAM: talk,
}
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture
async def channel() -> AsyncIterator[Any]:
    server = GrpcServer(HANDLERS, frozenset({STREAM}), GrpcServerConfig(max_message_bytes=20_000_000))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=OPTIONS) as channel:
        yield channel
    await server.stop(1_000)


async def test_unary_calls_one_by_one_and_side_by_side(channel: Any) -> None:
    method = channel.unary_unary("/test.Service/Echo")
    for size in (0, 1, 1_000, 16_379, 16_380, 100_000, 15_000_000):
        assert await method(b"x" * size, timeout=60) == b"x" * size
    # More than a table of headers holds: entries are evicted on the way.
    metadata = [[("x-mq-request-id", f"{i:032}"), ("x-mq-date-time", f"{i}")] for i in range(300)]
    calls = [method(b"%d" % i, metadata=metadata[i], timeout=60) for i in range(300)]
    assert await asyncio.gather(*calls) == [b"%d" % i for i in range(300)]


async def test_metadata_compression_and_streams(channel: Any) -> None:
    metadata = channel.unary_unary("/test.Service/Metadata")
    assert await metadata(b"", metadata=[("x-mq-client-id", "me@1#2")]) == b"me@1#2"
    method = channel.unary_unary("/test.Service/Echo")
    assert await method(b"z" * 9_999, compression=grpc.Compression.Gzip) == b"z" * 9_999
    parts = [part async for part in channel.unary_stream("/test.Service/Count")(b"200")]
    assert parts == [b"%d" % number * 1_000 for number in range(200)]
    stream = channel.stream_stream(STREAM)()
    for number in range(5):
        await stream.write(b"%d" % number)
        assert await stream.read() == b"re:%d" % number
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF and await stream.code() is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("path", "arguments", "code", "words"),
    [
        ("Fail", {}, "NOT_FOUND", "nichts: 100 % ü\n"),
        ("Hang", {"timeout": 0.2}, "DEADLINE_EXCEEDED", ""),
        ("Missing", {}, "UNIMPLEMENTED", "is not a method of this server"),
        ("Echo", {"compression": 1}, "UNIMPLEMENTED", "grpc-encoding 'deflate' is not supported"),
        ("Echo", {"request": bytes(20_000_001)}, "RESOURCE_EXHAUSTED", "grpcMaxInboundMessageSize"),
        ("Echo", {"metadata": [("x", "v" * 6_000) for _ in range(6)]}, "RESOURCE_EXHAUSTED", ""),
    ],
)
async def test_statuses(channel: Any, path: str, arguments: dict[str, Any], code: str, words: str) -> None:
    if "compression" in arguments:
        arguments = {"compression": grpc.Compression.Deflate}
    request = arguments.pop("request", b"request")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await channel.unary_unary(f"/test.Service/{path}")(request, **arguments)
    assert error.value.code().name == code and words in error.value.details()
    assert await channel.unary_unary("/test.Service/Echo")(b"ok") == b"ok"
