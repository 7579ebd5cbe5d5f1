"""Clients that break HTTP/2 or strain the server: each has a defined end, and costs other clients nothing."""

from __future__ import annotations

import asyncio

import pytest

from kourou.proxy.http2 import frames
from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.http2.frames import ErrorCode, FrameType, Setting
from kourou.proxy.http2.settings import ByteBudget, GrpcServerConfig
from tests.unit.proxy.http2.peer_kit import (
    CLIENT_STREAM,
    OK,
    SERVER_STREAM,
    UNARY,
    Peer,
    block,
    call,
    data,
    headers,
    message,
)

encode = frames.encode_frame
CALM = GrpcServerConfig(control_burst=100, control_per_s=10, max_concurrent_calls=10)


def echo(call: Call) -> None:
    call.reply(call.request)


def hold(call: Call) -> None:
    call.on_message = lambda message: None


def assert_still_serves(peer: Peer, stream_id: int = 101) -> None:
    peer.send(call(stream_id))
    assert peer.responses()[stream_id][-1] == OK


BROKEN = {
    "a frame that is too large": (
        frames.FRAME_HEAD.pack(16_385 << 8, 0, 1),
        ErrorCode.FRAME_SIZE_ERROR,
        "a frame of 16385 bytes",
    ),
    "DATA of no stream": (data(0, b""), ErrorCode.PROTOCOL_ERROR, "DATA of stream 0"),
    "DATA before HEADERS": (data(9, b"x"), ErrorCode.PROTOCOL_ERROR, "DATA of stream 9, which is not open"),
    "HEADERS of no stream": (headers(0), ErrorCode.PROTOCOL_ERROR, "HEADERS without a stream"),
    "HEADERS of an even stream": (headers(2), ErrorCode.PROTOCOL_ERROR, "HEADERS of stream 2"),
    "HEADERS of a closed stream": (
        call(1) + headers(1),
        ErrorCode.STREAM_CLOSED,
        "HEADERS of stream 1, which is closed",
    ),
    "padding longer than DATA": (
        headers(1) + encode(FrameType.DATA, frames.PADDED, 1, b"\x05abc"),
        ErrorCode.PROTOCOL_ERROR,
        "padding",
    ),
    "padding of nothing": (
        encode(FrameType.HEADERS, frames.PADDED | frames.END_HEADERS, 1),
        ErrorCode.PROTOCOL_ERROR,
        "padding",
    ),
    "HEADERS with half a priority": (
        encode(FrameType.HEADERS, frames.PRIORITY_FLAG | frames.END_HEADERS, 1, b"abc"),
        ErrorCode.FRAME_SIZE_ERROR,
        "priority",
    ),
    "PRIORITY of no stream": (encode(2, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR, "PRIORITY"),
    "PRIORITY of 4 bytes": (encode(2, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR, "PRIORITY"),
    "RST_STREAM of no stream": (encode(3, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR, "RST_STREAM"),
    "RST_STREAM of an idle stream": (encode(3, 0, 9, bytes(4)), ErrorCode.PROTOCOL_ERROR, "stream 9"),
    "RST_STREAM of 3 bytes": (encode(3, 0, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM"),
    "SETTINGS of a stream": (encode(4, 0, 1), ErrorCode.PROTOCOL_ERROR, "SETTINGS"),
    "SETTINGS of 5 bytes": (encode(4, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR, "SETTINGS"),
    "an acknowledgement with content": (
        encode(4, frames.ACK, 0, bytes(6)),
        ErrorCode.FRAME_SIZE_ERROR,
        "acknowledgement",
    ),
    "ENABLE_PUSH 2": (
        frames.encode_settings({Setting.ENABLE_PUSH: 2}),
        ErrorCode.PROTOCOL_ERROR,
        "ENABLE_PUSH is 2",
    ),
    "an initial window of 2 GiB": (
        frames.encode_settings({Setting.INITIAL_WINDOW_SIZE: 2**31}),
        ErrorCode.FLOW_CONTROL_ERROR,
        "initial window",
    ),
    "a small largest frame": (
        frames.encode_settings({Setting.MAX_FRAME_SIZE: 16_383}),
        ErrorCode.PROTOCOL_ERROR,
        "largest frame",
    ),
    "a huge largest frame": (
        frames.encode_settings({Setting.MAX_FRAME_SIZE: 2**24}),
        ErrorCode.PROTOCOL_ERROR,
        "largest frame",
    ),
    "PUSH_PROMISE": (encode(5, 4, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE"),
    "PING of a stream": (encode(6, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR, "PING of a stream"),
    "PING of 7 bytes": (encode(6, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR, "PING of 7 bytes"),
    "GOAWAY of a stream": (encode(7, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR, "GOAWAY"),
    "GOAWAY of 7 bytes": (encode(7, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR, "GOAWAY"),
    "WINDOW_UPDATE of 0": (
        frames.encode_window_update(0, 0),
        ErrorCode.PROTOCOL_ERROR,
        "a WINDOW_UPDATE of 0 bytes",
    ),
    "WINDOW_UPDATE of an idle stream": (
        frames.encode_window_update(9, 1),
        ErrorCode.PROTOCOL_ERROR,
        "WINDOW_UPDATE of stream 9",
    ),
    "WINDOW_UPDATE of 3 bytes": (encode(8, 0, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE"),
    "a window that overflows": (
        frames.encode_window_update(0, frames.MAX_WINDOW),
        ErrorCode.FLOW_CONTROL_ERROR,
        "the window of the connection overflows",
    ),
    "a window of a stream that overflows by SETTINGS": (
        call(1, path=CLIENT_STREAM)
        + frames.encode_window_update(1, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
        + frames.encode_settings({Setting.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW + 1}),
        ErrorCode.FLOW_CONTROL_ERROR,
        "the window of a stream overflows",
    ),
    "CONTINUATION without HEADERS": (encode(9, 4, 1, b""), ErrorCode.PROTOCOL_ERROR, "without HEADERS"),
    "CONTINUATION of another stream": (
        headers(1, block(), 0) + encode(9, 4, 3),
        ErrorCode.PROTOCOL_ERROR,
        "CONTINUATION of another stream",
    ),
    "another frame inside a header block": (
        headers(1, block(), 0) + encode(6, 0, 0, bytes(8)),
        ErrorCode.PROTOCOL_ERROR,
        "where CONTINUATION must come",
    ),
    "a header block that is broken": (headers(1, b"\x80"), ErrorCode.COMPRESSION_ERROR, "entry 0"),
    "a header block of references": (
        headers(1, b"\x82" * 16_000),
        ErrorCode.ENHANCE_YOUR_CALM,
        "more than 256 fields",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_frame_ends_its_connection_with_a_reason(name: str) -> None:
    sent, code, words = BROKEN[name]
    ended: list[str] = []

    def wait(call: Call) -> None:
        call.on_message = lambda message: None
        call.on_end = lambda: ended.append("told")

    budget = ByteBudget(10**9)
    peer, other = (
        Peer({UNARY: echo, SERVER_STREAM: wait, CLIENT_STREAM: wait}, budget=budget) for _ in range(2)
    )
    if b"\0\0\0\1" not in sent:  # it needs no stream 1 of its own
        peer.send(call(1, path=SERVER_STREAM))
    waiting = peer.connection.calls
    peer.send(sent)
    goaway = peer.goaway()
    assert goaway is not None and goaway[0] == code and words in goaway[1]
    assert peer.transport.is_closed and peer.connection.calls == 0 and len(ended) >= waiting
    peer.send(call(103))  # nothing more is read
    assert peer.received() == [] and budget.used == 0
    assert_still_serves(other)


@pytest.mark.parametrize(
    ("first", "code", "words"),
    [
        (b"PRI * HTTP/1.1\r\n", ErrorCode.PROTOCOL_ERROR, "not the preface"),
        (b"\0" * 30, ErrorCode.PROTOCOL_ERROR, "not the preface"),
        (frames.PREFACE + encode(6, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR, "where SETTINGS must come"),
        (frames.PREFACE + encode(4, frames.ACK, 0), ErrorCode.PROTOCOL_ERROR, "where SETTINGS must come"),
    ],
)
async def test_a_wrong_start_ends_the_connection(first: bytes, code: ErrorCode, words: str) -> None:
    peer = Peer({}, begin=False)
    peer.send(first)
    goaway = peer.goaway()
    assert goaway is not None and goaway[0] == code and words in goaway[1] and peer.transport.is_closed


async def test_http_1_is_answered_in_its_own_words() -> None:
    peer = Peer({}, begin=False)
    peer.send(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert peer.transport.written.startswith(b"HTTP/1.1 400 Bad Request\r\n") and peer.transport.is_closed
    assert b"gRPC" in peer.transport.written


@pytest.mark.parametrize("sent", [b"", frames.PREFACE[:20], frames.PREFACE])
async def test_a_start_that_does_not_come_in_time_is_not_waited_for(sent: bytes) -> None:
    peer = Peer({}, GrpcServerConfig(preface_timeout_ms=1_000), begin=False)
    now = asyncio.get_running_loop().time()
    if sent:
        peer.send(sent)
    peer.connection.sweep(now + 0.5)
    assert not peer.transport.is_closed
    peer.connection.sweep(now + 2)
    assert peer.transport.is_closed


async def test_rapid_reset_ends_the_connection_and_its_calls() -> None:
    begun: list[Call] = []
    peer = Peer({UNARY: begun.append}, CALM)
    for stream_id in range(1, 2_001, 2):
        peer.send(call(stream_id), frames.encode_reset(stream_id, ErrorCode.CANCEL))
        if peer.transport.is_closed:
            break
    assert peer.goaway() == (ErrorCode.ENHANCE_YOUR_CALM, "too many RST_STREAMs")
    assert len(begun) <= 101 and all(call.is_over for call in begun) and peer.budget.used == 0


async def test_cancelled_calls_among_answered_ones_are_no_attack() -> None:
    peer = Peer({UNARY: echo, SERVER_STREAM: hold}, CALM)
    for stream_id in range(1, 2_001, 4):
        peer.send(call(stream_id), call(stream_id + 2, path=SERVER_STREAM))
        peer.send(frames.encode_reset(stream_id + 2, ErrorCode.CANCEL), encode(6, 0, 0, bytes(8)))
    assert peer.goaway() is None and not peer.transport.is_closed


FLOODS = {
    "PINGs": encode(6, 0, 0, bytes(8)) * 120,
    "SETTINGS": frames.encode_settings({}) * 120,
    "PRIORITY frames": encode(2, 0, 1, bytes(5)) * 120,
    "WINDOW_UPDATEs": frames.encode_window_update(0, 1) * 120,
    "frames of unknown types": encode(99, 0, 0, b"x") * 120,
    "GOAWAYs": frames.encode_goaway(0, ErrorCode.NO_ERROR) * 120,
    "empty DATA frames": data(1, b"", is_last=False) * 120,
    "malformed requests": b"".join(headers(3 + 2 * i, block(method=None)) for i in range(120)),
    "refused calls": b"".join(headers(3 + 2 * i, block(CLIENT_STREAM)) for i in range(120)),
    "DATA frames of closed streams": b"".join(data(3 + 2 * i, b"x") for i in range(700)),
}


@pytest.mark.parametrize("what", FLOODS)
async def test_a_flood_ends_the_connection(what: str) -> None:
    peer = Peer({CLIENT_STREAM: hold, UNARY: echo}, CALM)
    peer.send(headers(1, block(CLIENT_STREAM)))
    if what == "DATA frames of closed streams":
        peer.send(b"".join(call(3 + 2 * i) for i in range(150)))
    peer.send(FLOODS[what])
    assert peer.goaway() == (ErrorCode.ENHANCE_YOUR_CALM, f"too many {what}")
    assert peer.transport.is_closed and peer.connection.calls == 0


async def test_a_flood_of_continuations_ends_the_connection_before_they_fill_the_memory() -> None:
    peer = Peer({}, CALM)
    peer.send(headers(1, block(), 0))
    for _ in range(5):
        peer.send(encode(9, 0, 1, field_bytes()))
    assert peer.goaway() == (ErrorCode.ENHANCE_YOUR_CALM, "a header block of more than 65536 bytes")
    empty = Peer({}, CALM)
    empty.send(headers(1, block(), 0), encode(9, 0, 1) * 120)
    assert empty.goaway() == (ErrorCode.ENHANCE_YOUR_CALM, "too many empty CONTINUATIONs")


def field_bytes() -> bytes:
    return b"\x00\x01x\x7e" + b"v" * 126 + b"\x82" * 16_000


async def test_headers_that_are_too_long_end_their_call_only() -> None:
    peer = Peer({UNARY: echo}, GrpcServerConfig(max_header_list_bytes=2_000))
    peer.send(headers(1, block(extra={f"x-{i}": "v" * 100 for i in range(20)})), data(1, message(b"")))
    code, text = peer.status(1)
    assert code == GrpcCode.RESOURCE_EXHAUSTED and "at most 2000 are allowed" in text
    assert_still_serves(peer)


async def test_faults_of_one_stream_reset_that_stream() -> None:
    peer = Peer({UNARY: echo, CLIENT_STREAM: hold})
    peer.send(
        headers(1, block(CLIENT_STREAM)),
        headers(3, block(CLIENT_STREAM)),
        headers(5, block(CLIENT_STREAM)),
        headers(7, block(extra={"connection": "close"})),
        headers(9, block(CLIENT_STREAM)),
        headers(11, block(CLIENT_STREAM)),
    )
    peer.responses()
    peer.send(
        frames.encode_window_update(1, 0),
        frames.encode_window_update(3, frames.MAX_WINDOW),
        headers(5, block(CLIENT_STREAM)),  # trailers that do not end the stream
        data(9, b""),
        data(9, b"more"),  # after its end
        data(11, b"\x02\0\0\0\0", is_last=False),
    )
    answers = peer.responses()
    assert answers[1] == [ErrorCode.PROTOCOL_ERROR]
    assert answers[3] == [ErrorCode.FLOW_CONTROL_ERROR]
    assert answers[5] == [ErrorCode.PROTOCOL_ERROR]
    assert answers[9] == [ErrorCode.STREAM_CLOSED]
    assert answers[11][-1] == ErrorCode.NO_ERROR and answers[11][0]["grpc-status"] == "13"  # type: ignore[index]
    assert peer.connection.calls == 0
    assert_still_serves(peer)
    peer.send(data(101, b"x"))
    assert peer.responses()[101] == [ErrorCode.STREAM_CLOSED]
    peer.send(headers(101))
    assert peer.responses() == {}  # it has been told
    assert_still_serves(peer, 103)


async def test_calls_beyond_the_limit_are_refused_and_can_be_tried_again() -> None:
    peer = Peer({CLIENT_STREAM: hold, UNARY: echo}, CALM)
    for stream_id in range(1, 25, 2):
        peer.send(headers(stream_id, block(CLIENT_STREAM)))
    answers = peer.responses()
    assert [stream_id for stream_id in answers if answers[stream_id] == [ErrorCode.REFUSED_STREAM]] == [
        21,
        23,
    ]
    peer.send(frames.encode_reset(1, ErrorCode.CANCEL))
    assert_still_serves(peer)


async def test_a_response_that_is_never_read_ends_its_call_and_no_other() -> None:
    ended: list[str] = []

    def stream(call: Call) -> None:
        call.on_end = lambda: ended.append("stream")
        call.send(bytes(100_000))

    config = GrpcServerConfig(stall_timeout_ms=10_000)
    peer = Peer({SERVER_STREAM: stream, UNARY: echo}, config, settings={int(Setting.INITIAL_WINDOW_SIZE): 10})
    peer.send(call(1, path=SERVER_STREAM))
    now = asyncio.get_running_loop().time()
    peer.connection.sweep(now + 5)
    peer.send(frames.encode_window_update(1, 10))
    peer.responses()
    assert ended == []
    peer.connection.sweep(now + 30)
    assert peer.responses() == {1: [ErrorCode.CANCEL]} and ended == ["stream"]
    peer.send(call(3, b"12345"))
    assert peer.responses()[3][-1] == OK


async def test_responses_that_are_not_read_end_the_connection_before_they_fill_the_memory() -> None:
    held: list[Call] = []
    config = GrpcServerConfig(max_unsent_bytes=1_000_000)
    peer = Peer({SERVER_STREAM: held.append}, config, settings={int(Setting.INITIAL_WINDOW_SIZE): 0})
    peer.send(call(1, path=SERVER_STREAM), call(3, path=SERVER_STREAM))
    for _ in range(4):
        held[0].send(bytes(200_000))
    assert held[0].unsent_bytes == 800_020 and not peer.transport.is_closed
    held[1].send(bytes(200_000))
    assert peer.transport.is_closed and all(call.is_over for call in held)


async def test_unread_responses_of_all_connections_together_have_a_limit() -> None:
    held: list[Call] = []
    unsent = ByteBudget(1_000_000)
    none = {int(Setting.INITIAL_WINDOW_SIZE): 0}
    peers = [Peer({SERVER_STREAM: held.append}, unsent=unsent, settings=none) for _ in range(3)]
    for peer in peers:
        peer.send(call(1, path=SERVER_STREAM))
    for held_call in held:
        held_call.send(bytes(400_000))
    assert [peer.transport.is_closed for peer in peers] == [False, False, True]
    assert unsent.used == 800_010
    peers[0].send(
        frames.encode_settings({Setting.INITIAL_WINDOW_SIZE: 2**20}), frames.encode_window_update(0, 2**20)
    )
    assert unsent.used == 400_005
    peers[1].send(frames.encode_reset(1, ErrorCode.CANCEL))
    assert unsent.used == 0


async def test_a_peer_that_does_not_read_its_socket_is_not_read_from_and_then_disconnected() -> None:
    held: list[Call] = []
    peer = Peer({SERVER_STREAM: held.append}, GrpcServerConfig(stall_timeout_ms=10_000))
    peer.send(call(1, path=SERVER_STREAM))
    now = asyncio.get_running_loop().time()
    peer.connection.pause_writing()
    assert not peer.transport.is_reading
    held[0].send(b"waits")
    assert peer.received(FrameType.DATA) == [] and held[0].unsent_bytes == 10
    peer.connection.resume_writing()
    assert peer.transport.is_reading and len(peer.received(FrameType.DATA)) == 1
    peer.connection.pause_writing()
    peer.connection.sweep(now + 5)
    assert not peer.transport.is_closed
    peer.connection.sweep(now + 30)
    assert peer.transport.is_closed and held[0].is_over


async def test_a_peer_that_is_gone_without_a_word_is_noticed() -> None:
    ended: list[str] = []

    def wait(call: Call) -> None:
        call.on_end = lambda: ended.append("told")

    peer = Peer({SERVER_STREAM: wait}, GrpcServerConfig(ping_after_ms=1_000, ping_timeout_ms=1_000))
    peer.send(call(1, path=SERVER_STREAM))
    now = asyncio.get_running_loop().time()
    peer.connection.sweep(now + 2)
    assert [frame.flags for frame in peer.received(FrameType.PING)] == [0]
    peer.send(encode(6, frames.ACK, 0, bytes(8)))
    peer.connection.sweep(now + 4)
    assert not peer.transport.is_closed and len(peer.received(FrameType.PING)) == 1
    peer.connection.sweep(now + 6)
    assert peer.transport.is_closed and ended == ["told"]


async def test_a_connection_without_calls_is_closed_when_idle() -> None:
    peer = Peer({UNARY: echo}, GrpcServerConfig(idle_timeout_ms=1_000))
    peer.send(call(1))
    now = asyncio.get_running_loop().time()
    peer.connection.sweep(now + 0.5)
    assert peer.goaway() is None
    peer.connection.sweep(now + 3)
    assert peer.goaway() == (ErrorCode.NO_ERROR, "idle")
    await asyncio.sleep(0)
    assert peer.transport.is_closed


async def test_calls_that_never_send_their_requests_have_a_budget_and_an_end() -> None:
    begun: list[Call] = []
    config = GrpcServerConfig(max_inbound_bytes=100_000, stall_timeout_ms=1_000)
    peer = Peer({UNARY: begun.append, CLIENT_STREAM: hold}, config)
    filler = {f"x-{number}": "y" * 100 for number in range(40)}
    for stream_id in range(1, 201, 2):
        peer.send(headers(stream_id, block(extra=filler)))
    assert 0 < peer.connection.calls < 20 and peer.budget.used <= 100_000
    assert peer.status(199)[0] == GrpcCode.RESOURCE_EXHAUSTED
    peer.connection.sweep(asyncio.get_running_loop().time() + 2)
    peer.send(headers(203, block(CLIENT_STREAM)))
    assert peer.connection.calls == 1 and begun == []
    peer.send(call(301))
    begun[0].reply(b"")
    assert peer.responses()[301][-1] == OK


async def test_stalled_calls_end_whatever_else_their_peer_has_sent() -> None:
    config = GrpcServerConfig(control_burst=10, control_per_s=1, stall_timeout_ms=1_000)
    peer = Peer({UNARY: echo}, config, settings={int(Setting.INITIAL_WINDOW_SIZE): 0})
    for stream_id in range(1, 41, 2):
        peer.send(call(stream_id))
    assert peer.connection.calls == 20
    peer.connection.sweep(asyncio.get_running_loop().time() + 2)
    assert peer.connection.calls == 0 and not peer.transport.is_closed
