"""Any sequence of frames: the connection stays or ends in order, and nothing of it is left behind."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.proxy.http2 import frames
from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.http2.frames import FrameType, Setting
from kourou.proxy.http2.settings import GrpcServerConfig
from tests.unit.proxy.http2.peer_kit import (
    CLIENT_STREAM,
    SERVER_STREAM,
    UNARY,
    Peer,
    block,
    call,
    data,
    headers,
    message,
)

IDS = st.sampled_from([0, 1, 2, 3, 5, 7, 9, 11])
PATHS = st.sampled_from([UNARY, SERVER_STREAM, CLIENT_STREAM, "/unknown"])
WINDOWS = st.sampled_from([0, 1, 100, 70_000, frames.MAX_WINDOW])
RIGHT = st.one_of(
    st.builds(call, IDS, st.binary(max_size=30), PATHS),
    st.builds(lambda stream_id, path: headers(stream_id, block(path)), IDS, PATHS),
    st.builds(
        lambda stream_id, is_last: data(stream_id, message(b"ab"), is_last=is_last), IDS, st.booleans()
    ),
    st.builds(
        lambda stream_id, cut: data(stream_id, message(bytes(900))[:cut], is_last=False),
        IDS,
        st.integers(0, 905),
    ),
    st.builds(lambda stream_id: data(stream_id, b""), IDS),
    st.builds(frames.encode_window_update, IDS, WINDOWS),
    st.builds(frames.encode_reset, IDS, st.just(frames.ErrorCode.CANCEL)),
    st.builds(lambda size: frames.encode_settings({Setting.INITIAL_WINDOW_SIZE: size}), WINDOWS),
    st.just(frames.encode_frame(FrameType.PING, 0, 0, bytes(8))),
)
WRONG = st.builds(frames.encode_frame, st.integers(0, 11), st.integers(0, 255), IDS, st.binary(max_size=40))
# Mostly right, so that calls are open when a wrong one comes.
STEPS = st.lists(st.one_of(RIGHT, RIGHT, RIGHT, RIGHT, RIGHT, RIGHT, WRONG), max_size=40)


async def play(steps: list[bytes], size: int, *, answers_at_once: bool) -> None:
    begun: list[Call] = []
    ended: list[Call] = []

    def begin(call: Call) -> None:
        begun.append(call)
        call.on_end = lambda: ended.append(call)
        call.on_message = lambda got: call.send(got * 50)
        call.on_half_close = call.finish
        if answers_at_once and call.path == UNARY:
            call.reply(bytes(200))
        elif call.path == SERVER_STREAM:
            call.send(bytes(100_000))
            if answers_at_once:
                call.fail(GrpcCode.ABORTED, "after messages")

    config = GrpcServerConfig(
        max_message_bytes=1_000, max_unsent_bytes=500_000, control_burst=20, max_concurrent_calls=4
    )
    peer = Peer(dict.fromkeys((UNARY, SERVER_STREAM, CLIENT_STREAM), begin), config)
    stream = b"".join(steps)
    for position in range(0, len(stream), size):
        if not peer.transport.is_closed:
            peer.send(stream[position : position + size])
            peer.connection.sweep(asyncio.get_running_loop().time())
    is_open = not peer.transport.is_closed
    assert is_open or peer.connection.calls == 0
    peer.lose()
    assert all(call.is_over for call in begun) and len(set(map(id, ended))) == len(ended)
    assert (peer.budget.used, peer.unsent.used, peer.connection.calls) == (0, 0, 0)


@settings(deadline=None)
@given(STEPS, st.sampled_from([7, 100, 10_000]), st.booleans())
def test_any_sequence_of_frames_ends_in_order(steps: list[bytes], size: int, answers_at_once: bool) -> None:
    asyncio.run(play(steps, size, answers_at_once=answers_at_once))
