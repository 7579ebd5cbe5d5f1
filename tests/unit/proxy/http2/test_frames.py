"""Frames from any split of the stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.proxy.http2 import frames
from kourou.proxy.http2.frames import ErrorCode, Frame, FrameDecoder

FRAMES = st.builds(
    Frame,
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, frames.STREAM_ID),
    st.binary(max_size=40),
)


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_any_split_yields_the_same_frames(sent: list[Frame], sizes: list[int]) -> None:
    stream = b"".join(frames.encode_frame(*frame) for frame in sent)
    decoder, got, position, turn = FrameDecoder(), [], 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        got += decoder.feed(stream[position : position + size])
        position += size
        turn += 1
    assert got == sent and decoder.pending_bytes == 0 and decoder.failure is None


def test_a_frame_that_is_too_large_ends_the_stream_after_those_before_it() -> None:
    decoder = FrameDecoder()
    good = frames.encode_frame(6, 0, 0, bytes(8))
    got = decoder.feed(good + frames.FRAME_HEAD.pack((frames.MAX_FRAME_BYTES + 1) << 8, 0, 1))
    assert got == [Frame(6, 0, 0, bytes(8))]
    assert decoder.failure is not None and decoder.failure.error_code == ErrorCode.FRAME_SIZE_ERROR
