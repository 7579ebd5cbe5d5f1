"""Frames out of a byte stream, and streams that are none."""

from __future__ import annotations

import itertools
import struct
import tracemalloc

import pytest

from kourou.errors import FrameTooLargeError, ProtocolError
from kourou.protocol.frame import DEFAULT_MAX_FRAME_BYTES, FrameDecoder, encode_frame

FRAME = encode_frame(0, b'{"code":1}', b"body")


def test_a_frame_is_length_mark_header_body() -> None:
    assert encode_frame(1, b"head", b"body") == b"\x00\x00\x00\x0c\x01\x00\x00\x04headbody"


def test_a_frame_comes_back() -> None:
    assert FrameDecoder().feed(FRAME) == [(0, b'{"code":1}', b"body")]


def test_a_frame_may_have_no_body_and_no_header() -> None:
    assert FrameDecoder().feed(encode_frame(1, b"")) == [(1, b"", b"")]


def test_many_frames_in_one_read_and_the_start_of_another() -> None:
    decoder = FrameDecoder()
    assert len(decoder.feed(FRAME * 3 + FRAME[:9])) == 3
    assert decoder.pending_bytes == 9
    assert len(decoder.feed(FRAME[9:] + FRAME)) == 2
    assert decoder.pending_bytes == 0


def test_byte_by_byte() -> None:
    decoder = FrameDecoder()
    frames = [frame for at in range(2 * len(FRAME)) for frame in decoder.feed((FRAME * 2)[at : at + 1])]
    assert frames == FrameDecoder().feed(FRAME * 2)


@pytest.mark.parametrize("header_bytes", [0, 10, 40_000])
@pytest.mark.parametrize(
    "sizes", [[1], [3], [5, 20_000], [20_000], [16_384, 1, 1, 16_383], [40_007, 2], [100_000], [1, 200_000]]
)
def test_large_frames_in_large_and_small_pieces(header_bytes: int, sizes: list[int]) -> None:
    header, body = b"h" * header_bytes, bytes(range(256)) * 300
    stream = encode_frame(0, header, body) + FRAME + encode_frame(1, header, body)
    decoder = FrameDecoder()
    frames, at = [], 0
    for size in itertools.cycle(sizes):
        frames += decoder.feed(stream[at : at + size])
        at += size
        if at >= len(stream):
            break
    assert frames == [(0, header, body), (0, b'{"code":1}', b"body"), (1, header, body)]
    assert all(type(part) is bytes for frame in frames for part in frame[1:])
    assert decoder.pending_bytes == 0


@pytest.mark.parametrize("start", range(1, len(FRAME)))
def test_a_pending_frame_is_completed_as_a_whole(start: int) -> None:
    decoder = FrameDecoder()
    assert decoder.feed(FRAME[:start]) == []
    rest = len(FRAME) - start
    assert decoder.complete(FRAME[start:] + FRAME[:7]) == (FRAME, rest)
    assert decoder.pending_bytes == 0
    assert decoder.feed(FRAME) == FrameDecoder().feed(FRAME)


def test_a_pending_frame_is_completed_in_parts() -> None:
    decoder = FrameDecoder()
    decoder.feed(FRAME[:1])
    for at in range(1, len(FRAME) - 1):
        assert decoder.complete(FRAME[at : at + 1]) == (b"", 1)
    assert decoder.complete(FRAME[-1:] * 2) == (FRAME, 1)


def test_a_bad_frame_is_not_completed() -> None:
    decoder = FrameDecoder(max_frame_bytes=100)
    decoder.feed(b"\0")
    for _ in range(2):
        with pytest.raises(FrameTooLargeError):
            decoder.complete(b"\xff" * 10)
    assert decoder.failure is not None and decoder.pending_bytes == 0


def test_no_bytes_are_no_frames() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"") == []
    decoder.feed(FRAME[:2])
    assert decoder.feed(b"") == []
    assert len(decoder.feed(FRAME[2:])) == 1


def test_the_limit_counts_the_length_field() -> None:
    assert FrameDecoder(max_frame_bytes=len(FRAME)).feed(FRAME)
    with pytest.raises(FrameTooLargeError) as raised:
        FrameDecoder(max_frame_bytes=len(FRAME) - 1).feed(FRAME)
    assert (raised.value.length, raised.value.limit) == (len(FRAME), len(FRAME) - 1)


def test_the_default_limit_is_that_of_java() -> None:
    assert FrameDecoder().feed(struct.pack(">I", DEFAULT_MAX_FRAME_BYTES - 4)) == []
    with pytest.raises(FrameTooLargeError, match="16777217 bytes is over the limit of 16777216 bytes"):
        FrameDecoder().feed(struct.pack(">I", DEFAULT_MAX_FRAME_BYTES - 3))


def test_the_limit_is_known_after_four_bytes() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"\x7f\xff\xff") == []
    with pytest.raises(FrameTooLargeError):
        decoder.feed(b"\xff")


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (b"\x16\x03\x01\x02\x00", "looks like TLS"),
        (b"GET / HTTP/1.1\r\n", "looks like HTTP"),
        (b"POST /topics HTTP/1.1\r\n", "looks like HTTP"),
        (b"PRI * HTTP/2.0\r\n", r"looks like HTTP/2 \(gRPC clients connect to the proxy, --grpc-port\)"),
        (b"PROXY TCP4 10.0.0.1", "looks like the PROXY protocol"),
        (b"\r\n\r\n\x00\r\nQUIT\n", "looks like the PROXY protocol"),
        (b"SSH-2.0-OpenSSH", "looks like SSH"),
    ],
)
def test_other_protocols_are_named(start: bytes, hint: str) -> None:
    with pytest.raises(FrameTooLargeError, match=hint):
        FrameDecoder().feed(start)


@pytest.mark.parametrize("length", range(4))
def test_a_frame_too_short_for_its_mark(length: int) -> None:
    with pytest.raises(ProtocolError, match="no room for its header length"):
        FrameDecoder().feed(struct.pack(">I", length))


@pytest.mark.parametrize("split", [8, 10])
def test_a_header_longer_than_its_frame(split: int) -> None:
    bad = struct.pack(">II", 6, 3) + b"{}"
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError, match="header of 3 bytes does not fit its frame of 10 bytes"):
        decoder.feed(bad[:split])
        decoder.feed(bad[split:])


def test_an_unknown_serialize_type() -> None:
    with pytest.raises(ProtocolError, match="unknown serialize type 2"):
        FrameDecoder().feed(struct.pack(">II", 4, 2 << 24))


def test_frames_in_front_of_a_bad_one_are_kept() -> None:
    decoder = FrameDecoder()
    assert len(decoder.feed(FRAME * 2 + b"GET / HTTP")) == 2
    assert isinstance(decoder.failure, FrameTooLargeError)


def test_after_an_error_nothing_more_is_taken() -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameTooLargeError) as first:
        decoder.feed(b"\xff" * 100)
    for _ in range(3):
        with pytest.raises(FrameTooLargeError) as again:
            decoder.feed(FRAME)
        assert again.value is first.value
    assert decoder.failure is first.value
    assert decoder.pending_bytes == 0


def test_a_frame_in_single_bytes_costs_no_more_memory_than_its_size() -> None:
    size = 50_000
    frame = encode_frame(0, b"{}", bytes(size))
    singles = [bytes((byte,)) for byte in frame]
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        for single in singles[:-1]:
            decoder.feed(single)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.pending_bytes == len(frame) - 1
    assert held < 1.5 * size
    assert decoder.feed(singles[-1]) == [(0, b"{}", bytes(size))]


def test_an_announced_frame_takes_memory_only_as_it_arrives() -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        decoder.feed(struct.pack(">II", DEFAULT_MAX_FRAME_BYTES - 4, 2))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10_000


def test_what_we_write_must_fit_too() -> None:
    with pytest.raises(ProtocolError, match="24-bit length"):
        encode_frame(0, bytes(2**24))
    with pytest.raises(ProtocolError, match="unknown serialize type 7"):
        encode_frame(7, b"")
