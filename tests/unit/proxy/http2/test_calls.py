"""Calls over a connection in memory: what handlers get, and what clients get."""

from __future__ import annotations

import asyncio
import gzip
import logging

import pytest

from kourou.proxy.http2 import frames
from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.http2.frames import ErrorCode, FrameType, Setting
from kourou.proxy.http2.settings import ByteBudget, GrpcServerConfig
from tests.unit.proxy.http2.peer_kit import (
    CLIENT_STREAM,
    OK,
    OPENED,
    SERVER_STREAM,
    SMALL_TABLE,
    UNARY,
    Peer,
    block,
    call,
    data,
    headers,
    message,
)


def echo(call: Call) -> None:
    call.reply(b"re:" + call.request)


@pytest.mark.parametrize("settings", [{}, SMALL_TABLE], ids=["table", "no table"])
async def test_each_unary_call_gets_headers_message_and_trailers(settings: dict[int, int]) -> None:
    peer = Peer({UNARY: echo}, settings=settings)
    for stream_id in (1, 3, 5):
        peer.send(call(stream_id, b"%d" % stream_id))
        assert peer.responses() == {stream_id: [OPENED, message(b"re:%d" % stream_id), OK]}
    assert peer.connection.calls == 0 and peer.budget.used == 0


async def test_a_table_that_shrinks_between_responses_is_not_referred_to() -> None:
    peer = Peer({UNARY: echo})
    peer.send(call(1))
    peer.responses()
    peer.send(frames.encode_settings(SMALL_TABLE), call(3))
    peer.headers = type(peer.headers)()  # entries are gone: a reference to one would fail
    assert peer.responses()[3] == [OPENED, message(b"re:ping"), OK]


async def test_responses_that_interleave_keep_their_headers() -> None:
    held: list[Call] = []
    peer = Peer({SERVER_STREAM: held.append})
    peer.send(call(1, path=SERVER_STREAM), call(3, path=SERVER_STREAM))
    first, second = held
    first.send(b"a")
    second.send(b"b")
    second.finish()
    first.finish()
    assert peer.responses() == {1: [OPENED, message(b"a"), OK], 3: [OPENED, message(b"b"), OK]}


async def test_what_a_handler_sees_of_a_call() -> None:
    held: list[Call] = []
    peer = Peer({UNARY: held.append})
    extra = {"x-mq-client-id": "me", "grpc-timeout": "1500m"}
    begin = asyncio.get_running_loop().time()
    peer.send(headers(1, block(extra=extra)), data(1, message(b"")))
    got = held[0]
    assert (got.path, got.peer, got.is_tls, got.authority) == (UNARY, "127.0.0.1:50000", False, "broker:8081")
    assert got.metadata["x-mq-client-id"] == "me"
    assert not [name for name in got.metadata if name.startswith(":")]
    assert got.deadline_s is not None and 1.4 < got.deadline_s - begin < 3
    assert got.request == b"" and not got.is_over
    got.reply(b"")
    assert got.is_over
    got.reply(b"")
    got.fail(GrpcCode.INTERNAL, "late")
    assert peer.responses() == {1: [OPENED, message(b""), OK]}


async def test_a_message_arrives_in_any_pieces() -> None:
    peer = Peer({UNARY: echo})
    whole = call(1, b"x" * 300)
    for byte in whole:
        peer.connection.data_received(bytes([byte]))
    assert peer.responses()[1][1] == message(b"re:" + b"x" * 300)
    pieces = message(b"y" * 40_000)
    peer.send(headers(3), data(3, pieces[:3], is_last=False), data(3, pieces[3:16_000], is_last=False))
    peer.send(data(3, pieces[16_000:32_000], is_last=False), data(3, pieces[32_000:], is_last=False))
    assert peer.responses() == {}
    peer.send(data(3, b""))
    assert peer.responses()[3][1] == message(b"re:" + b"y" * 40_000)
    assert peer.budget.used == 0


async def test_padding_and_priorities_are_taken_off() -> None:
    peer = Peer({UNARY: echo})
    padded = bytes([4]) + b"\0\0\0\0\x10" + block() + bytes(4)
    flags = frames.END_HEADERS | frames.PADDED | frames.PRIORITY_FLAG
    body = bytes([2]) + message(b"hi") + bytes(2)
    peer.send(
        headers(1, padded, flags),
        frames.encode_frame(FrameType.PRIORITY, 0, 1, bytes(5)),
        frames.encode_frame(FrameType.DATA, frames.END_STREAM | frames.PADDED, 1, body),
    )
    assert peer.responses()[1][1] == message(b"re:hi")


async def test_a_header_block_in_continuations() -> None:
    peer = Peer({UNARY: echo})
    fields = block()
    peer.send(
        headers(1, fields[:20], 0),
        frames.encode_frame(FrameType.CONTINUATION, 0, 1, fields[20:50]),
        frames.encode_frame(FrameType.CONTINUATION, frames.END_HEADERS, 1, fields[50:]),
        data(1, message(b"hi")),
    )
    assert peer.responses()[1][1] == message(b"re:hi")


async def test_gzip_is_decompressed_and_other_encodings_are_named() -> None:
    peer = Peer({UNARY: echo})
    peer.send(
        headers(1, block(extra={"grpc-encoding": "gzip"})), data(1, message(gzip.compress(b"z" * 99), 1))
    )
    assert peer.responses()[1][1] == message(b"re:" + b"z" * 99)
    peer.send(headers(3, block(extra={"grpc-encoding": "snappy"})))
    answer = peer.responses()[3]
    assert answer[0]["grpc-status"] == "12"  # type: ignore[index]
    assert answer[0]["grpc-accept-encoding"] == "identity,gzip"  # type: ignore[index]


async def test_a_client_stream_is_answered_before_its_first_message() -> None:
    got: list[bytes] = []
    calls: list[Call] = []

    def stream(call: Call) -> None:
        calls.append(call)
        call.on_message = got.append
        call.on_half_close = lambda: (call.send(b"bye"), call.finish())  # type: ignore[assignment]

    peer = Peer({CLIENT_STREAM: stream})
    peer.send(headers(1, block(CLIENT_STREAM)))
    assert peer.responses() == {1: [OPENED]}
    peer.send(data(1, message(b"a") + message(b"b") + message(b"c")[:4], is_last=False))
    assert got == [b"a", b"b"]
    peer.send(data(1, message(b"c")[4:], is_last=False))
    assert got == [b"a", b"b", b"c"]
    calls[0].send(b"1")
    assert peer.responses() == {1: [message(b"1")]}
    peer.send(data(1, b""))
    assert peer.responses() == {1: [message(b"bye"), OK]}


async def test_a_call_that_ends_before_its_request_stops_the_request() -> None:
    peer = Peer({CLIENT_STREAM: lambda call: call.fail(GrpcCode.PERMISSION_DENIED, "100 %, ü")})
    peer.send(headers(1, block(CLIENT_STREAM)), data(1, message(b"a"), is_last=False))
    fields = {"grpc-status": "7", "grpc-message": "100 %25, %C3%BC"}
    assert peer.responses() == {1: [OPENED | fields, ErrorCode.NO_ERROR]}
    peer.send(headers(3, block("/unknown")), data(3, message(b"a")))
    answer = peer.responses()[3]
    assert answer[0]["grpc-status"] == "12" and answer[1] == ErrorCode.NO_ERROR  # type: ignore[index]
    assert peer.goaway() is None


async def test_a_handler_that_raises_ends_its_call_only(caplog: pytest.LogCaptureFixture) -> None:
    ends: list[str] = []

    def broken(call: Call) -> None:
        call.on_end = lambda: ends.append("broken")
        raise ValueError("a bug")

    peer = Peer({UNARY: broken, SERVER_STREAM: echo})
    with caplog.at_level(logging.ERROR):
        peer.send(call(1), call(3, path=SERVER_STREAM))
    answers = peer.responses()
    assert answers[1][0]["grpc-status"] == "13"  # type: ignore[index]
    assert answers[3][-1] == OK and ends == ["broken"]
    assert "a bug" in caplog.text


async def test_ends_without_the_handlers_doing() -> None:
    ended: list[int] = []
    held: list[Call] = []

    def hold(call: Call) -> None:
        number = len(held)
        held.append(call)
        call.on_end = lambda: ended.append(number)

    peer = Peer({UNARY: hold})
    peer.send(call(1), call(3), headers(5, block(extra={"grpc-timeout": "10m"})), data(5, message(b"")))
    peer.send(frames.encode_reset(1, ErrorCode.CANCEL))
    assert ended == [0] and held[0].is_over
    peer.connection.sweep(asyncio.get_running_loop().time() + 1)
    assert ended == [0, 2] and peer.status(5)[0] == GrpcCode.DEADLINE_EXCEEDED
    held[0].reply(b"late")
    assert peer.responses() == {}
    peer.lose()
    assert ended == [0, 2, 1] and all(call.is_over for call in held)
    assert peer.budget.used == 0 and not peer.open


@pytest.mark.parametrize("end", ["reset", "lost", "sent"])
async def test_a_handler_hears_of_messages_that_cannot_be_sent(end: str) -> None:
    unsent: list[str] = []

    def answer(call: Call) -> None:
        call.on_unsent = lambda: unsent.append(call.path)
        call.send(bytes(100_000))
        call.finish()

    peer = Peer({UNARY: answer})
    peer.send(call(1))
    if end == "reset":
        peer.send(frames.encode_reset(1, ErrorCode.CANCEL))
    elif end == "sent":
        peer.send(frames.encode_window_update(1, 100_000), frames.encode_window_update(0, 100_000))
        assert peer.responses()[1][-1] == OK
    peer.lose()
    assert unsent == ([] if end == "sent" else [UNARY])
    assert (peer.unsent.used, peer.budget.used) == (0, 0)


async def test_an_end_that_raises_does_not_cost_other_calls_theirs() -> None:
    ended: list[str] = []

    def first(call: Call) -> None:
        call.on_end = lambda: 1 / 0  # type: ignore[assignment]

    def second(call: Call) -> None:
        call.on_end = lambda: ended.append("second")

    peer = Peer({UNARY: first, SERVER_STREAM: second})
    peer.send(call(1), call(3, path=SERVER_STREAM))
    peer.lose()
    assert ended == ["second"]


async def test_an_acknowledged_ping_leaves_with_a_response_or_soon() -> None:
    peer = Peer({UNARY: echo})
    peer.transport.writes = 0
    ping = frames.encode_frame(FrameType.PING, 0, 0, b"measured")
    peer.send(ping, call(1))
    types = [frame.type for frame in peer.received()]
    assert types == [FrameType.PING, FrameType.HEADERS, FrameType.DATA, FrameType.HEADERS]
    assert peer.transport.writes == 1
    peer.transport.has_written.clear()
    peer.send(ping)
    assert peer.received() == []
    async with asyncio.timeout(20):
        await peer.transport.has_written.wait()
    assert [(frame.flags, frame.payload) for frame in peer.received()] == [(frames.ACK, b"measured")]


async def test_large_responses_wait_for_windows_and_take_turns() -> None:
    held: list[Call] = []
    peer = Peer({SERVER_STREAM: held.append}, settings={int(Setting.INITIAL_WINDOW_SIZE): 100_000})
    peer.send(call(1, path=SERVER_STREAM), call(3, path=SERVER_STREAM))
    for held_call, letter in zip(held, (b"a", b"b"), strict=True):
        held_call.send(letter * 150_000)
        held_call.finish()
    sizes = {1: 0, 3: 0}

    def count() -> None:
        for frame in peer.received(FrameType.DATA):
            assert len(frame.payload) <= frames.MAX_FRAME_BYTES
            sizes[frame.stream_id] += len(frame.payload)

    count()
    assert sizes == {1: frames.DEFAULT_WINDOW, 3: 0}  # the window of the connection
    assert held[1].unsent_bytes == 150_005
    peer.send(frames.encode_window_update(0, 1_000_000))
    count()
    assert sizes == {1: 100_000, 3: 100_000}  # those of the streams
    peer.send(frames.encode_settings({Setting.INITIAL_WINDOW_SIZE: 120_000}))
    count()
    assert sizes == {1: 120_000, 3: 120_000}
    peer.send(frames.encode_window_update(3, 30_005))
    count()
    assert sizes == {1: 120_000, 3: 150_005} and peer.connection.calls == 1
    peer.send(frames.encode_window_update(1, 30_005))
    trailers = [frame for frame in peer.received() if frame.type == FrameType.HEADERS]
    assert [frame.flags & frames.END_STREAM for frame in trailers] == [1]
    assert peer.connection.calls == 0 and held[0].unsent_bytes == 0


async def test_windows_of_requests_are_given_back_in_large_steps() -> None:
    peer = Peer({UNARY: echo}, settings={int(Setting.INITIAL_WINDOW_SIZE): 2**30})
    peer.send(frames.encode_window_update(0, 2**30))
    body = message(bytes(20_000_000))
    pieces = [body[i : i + frames.MAX_FRAME_BYTES] for i in range(0, len(body), frames.MAX_FRAME_BYTES)]
    peer.send(headers(1))
    for piece in pieces[:-1]:
        peer.send(data(1, piece, is_last=False))
    updates = [frame.stream_id for frame in peer.received(FrameType.WINDOW_UPDATE)]
    assert updates.count(0) == 1 and updates.count(1) == 8
    peer.send(data(1, pieces[-1]))
    assert len(peer.responses()[1][1]) == 20_000_008  # type: ignore[arg-type]


async def test_requests_over_all_connections_have_a_budget() -> None:
    held: list[Call] = []
    budget = ByteBudget(43_000)
    one, other = (Peer({UNARY: held.append}, budget=budget) for _ in range(2))
    one.send(call(1, bytes(15_000)))
    other.send(headers(1), data(1, message(bytes(30_000))[:16_000], is_last=False))
    head = (budget.used - 31_005) // 2
    assert head > 1_024 and budget.used == 31_005 + 2 * head
    other.send(data(1, bytes(14_005)))
    assert other.status(1)[0] == GrpcCode.RESOURCE_EXHAUSTED
    assert budget.used == 15_005 + head
    held[0].reply(b"")
    assert budget.used == 0


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", 13, "no request message"),
        (message(b"abc")[:-1], 13, "ends inside a message"),
        (message(b"a") + message(b"b"), 13, "has more"),
        (message(b"a", flag=2), 13, "flag of a message is 2"),
        (message(b"a", flag=1), 13, "names no compression"),
        (message(bytes(1_001)), 8, "exceeds grpcMaxInboundMessageSize, 1000 bytes"),
        (b"\0\xff\xff\xff\xff", 8, "a message of 4294967295 bytes"),
    ],
)
async def test_a_bad_message_ends_its_call(body: bytes, code: int, words: str) -> None:
    peer = Peer({UNARY: echo}, GrpcServerConfig(max_message_bytes=1_000))
    peer.send(headers(1), data(1, body), call(3))
    answers = peer.responses()
    assert int(answers[1][0]["grpc-status"]) == code  # type: ignore[index]
    assert words in answers[1][0]["grpc-message"]  # type: ignore[index]
    assert answers[3][-1] == OK and peer.budget.used == 0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"not gzip", "cannot be decompressed"),
        (gzip.compress(b"abc", mtime=0)[:-1], "not one complete gzip stream"),
    ],
)
async def test_a_message_that_is_not_gzip_ends_its_call(bad: bytes, words: str) -> None:
    peer = Peer({UNARY: echo})
    peer.send(headers(1, block(extra={"grpc-encoding": "gzip"})), data(1, message(bad, 1)))
    code, text = peer.status(1)
    assert code == GrpcCode.INTERNAL and words in text


async def test_a_gzip_bomb_is_not_unpacked() -> None:
    peer = Peer({UNARY: echo}, GrpcServerConfig(max_message_bytes=100_000))
    bomb = gzip.compress(bytes(10_000_000))
    peer.send(headers(1, block(extra={"grpc-encoding": "gzip"})), data(1, message(bomb, 1)))
    code, text = peer.status(1)
    assert code == GrpcCode.RESOURCE_EXHAUSTED and "100001 bytes" in text


async def test_stopping_lets_calls_finish_and_refuses_new_ones() -> None:
    held: list[Call] = []
    peer = Peer({UNARY: held.append})
    peer.send(call(1))
    peer.connection.shut_down("the server stops")
    assert peer.goaway() == (ErrorCode.NO_ERROR, "the server stops")
    peer.send(call(3))
    assert peer.responses() == {3: [ErrorCode.REFUSED_STREAM]}
    assert len(held) == 1 and not peer.transport.is_closed
    held[0].reply(b"done")
    assert peer.responses()[1][-1] == OK
    await asyncio.sleep(0)
    assert peer.transport.is_closed
