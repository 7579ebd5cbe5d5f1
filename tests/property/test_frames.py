"""Frames under every split of the stream, and streams of garbage."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.codes import SerializeType
from kourou.protocol.command import RemotingCommand, decode_command, decode_ext, decode_head
from kourou.protocol.frame import FrameDecoder, RawFrame, encode_frame
from kourou.protocol.headers import REQUEST_HEADERS, RESPONSE_HEADERS
from tests.golden.frames import VERSIONS, recorded_frames

FUZZ_SEED = 20_240_613
FUZZ_LIMIT_BYTES = 65_536

raw_frames = st.tuples(st.sampled_from((0, 1)), st.binary(max_size=40), st.binary(max_size=200))


def pieces(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return (stream[start:end] for start, end in zip(edges, edges[1:], strict=False))


def decode_all(decoder: FrameDecoder, chunks: Iterator[bytes]) -> tuple[list[RawFrame], str | None]:
    frames: list[RawFrame] = []
    try:
        for chunk in chunks:
            frames += decoder.feed(chunk)
    except ProtocolError:
        pass
    return frames, None if decoder.failure is None else str(decoder.failure)


@given(st.lists(raw_frames, max_size=8), st.lists(st.integers(min_value=0), max_size=30))
def test_any_split_of_the_stream_gives_the_same_frames(frames: list[RawFrame], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    decoder = FrameDecoder()
    assert decode_all(decoder, pieces(stream, cuts)) == (frames, None)
    assert decoder.pending_bytes == 0


@given(
    st.lists(raw_frames, max_size=3),
    st.binary(min_size=1, max_size=64),
    st.lists(st.integers(min_value=0), max_size=30),
)
def test_any_split_of_garbage_gives_the_same_frames_and_the_same_error(
    frames: list[RawFrame], garbage: bytes, cuts: list[int]
) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames) + garbage
    whole, split, single = FrameDecoder(512), FrameDecoder(512), FrameDecoder(512)
    expected = decode_all(whole, iter((stream,)))
    assert decode_all(split, pieces(stream, cuts)) == expected
    assert decode_all(single, (stream[at : at + 1] for at in range(len(stream)))) == expected
    assert whole.pending_bytes == split.pending_bytes == single.pending_bytes


@given(
    st.binary(max_size=2000), st.integers(min_value=8, max_value=64), st.integers(min_value=1, max_value=99)
)
def test_garbage_never_holds_more_than_the_limit(garbage: bytes, limit_bytes: int, chunk_bytes: int) -> None:
    decoder = FrameDecoder(limit_bytes)
    for start in range(0, len(garbage), chunk_bytes):
        try:
            decoder.feed(garbage[start : start + chunk_bytes])
        except ProtocolError:
            pass
        assert decoder.pending_bytes < limit_bytes


# What a mutated JSON header gets in place of a value: every JSON type, and what no JSON is.
ODD_VALUES = (
    b"null", b"true", b"-1", b"1e999", b"9" * 30, b'""', b'"\\ud800"', b'"\xff"', b"[]", b'{"a":{}}',
    b"[[[[[[[[", b'"x', b"}", b",", b"\x00", b'"2147483648"', b'"9223372036854775808"', b'"NaN"',
)  # fmt: skip


def seeds() -> list[bytes]:
    """One recorded frame of each kind, cut where it is long, and one made for each typed header."""
    kinds = {
        (recorded.link, recorded.who, recorded.type, recorded.code, recorded.frame[4]): recorded.frame[:2000]
        for version in VERSIONS
        for recorded in recorded_frames(version)
    }
    made = [
        # "1" is a text, a number and a boolean.
        RemotingCommand(
            code,
            ext_fields=dict.fromkeys(header_type.__struct_encode_fields__, "1"),
            serialize_type=serialize_type,
        ).encode()
        for code, header_type in REQUEST_HEADERS.items()
        for serialize_type in SerializeType
    ]
    return sorted(kinds.values()) + made


def mutated(source: random.Random, frames: list[bytes]) -> bytes:
    """A frame with one to three things wrong, its length often made right again to get further in."""
    frame = bytearray(source.choice(frames))
    for _ in range(source.randint(1, 3)):
        source.choice(MUTATIONS)(source, frame, frames)
    if source.random() < 0.7 and len(frame) >= 8:
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)


def flip(source: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    if frame:
        frame[source.randrange(len(frame))] ^= 1 << source.randrange(8)


def cut(source: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    start = source.randint(0, len(frame))
    del frame[start : start + source.randint(1, 20)]


def insert(source: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    at = source.randint(0, len(frame))
    frame[at:at] = source.randbytes(source.randint(1, 8))


def splice(source: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    other = source.choice(frames)
    at = source.randint(0, len(frame))
    frame[at:] = other[source.randint(0, len(other)) :]


def odd_value(source: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    colon = frame.find(b":", source.randint(0, len(frame)))
    end = frame.find(b",", colon)
    if 8 <= colon < end:
        value = source.choice(ODD_VALUES)
        frame[colon + 1 : end] = value
        header_bytes = int.from_bytes(frame[5:8], "big") + len(value) - (end - colon - 1)
        frame[5:8] = (header_bytes & 0xFF_FFFF).to_bytes(3, "big")


def odd_length(source: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    at = source.randint(0, max(0, len(frame) - 4))
    frame[at : at + 4] = source.choice((0, 1, 0x7FFF, 2**31 - 1, 2**31, 2**32 - 1)).to_bytes(4, "big")


MUTATIONS = (flip, cut, insert, splice, odd_value, odd_length)


def read(stream: bytes) -> bool:
    """Read a stream as a server does, typed headers included; False where the protocol was violated."""
    try:
        for serialize_type, header, body in FrameDecoder(FUZZ_LIMIT_BYTES).feed(stream):
            command = decode_command((serialize_type, header, body))
            for table in (REQUEST_HEADERS, RESPONSE_HEADERS):
                if header_type := table.get(command.code):
                    decode_ext(decode_head(serialize_type, header), header_type)
    except ProtocolError:
        return False
    return True


def fuzz(count: int) -> None:
    print(f"seed {FUZZ_SEED}")
    source = random.Random(FUZZ_SEED)
    frames = seeds()
    readable = sum(read(mutated(source, frames)) for _ in range(count))
    # Neither all nor none: else the mutations would not reach what they are meant to reach.
    assert 0.05 * count < readable < 0.95 * count


def test_fuzzed_frames_raise_only_protocol_errors() -> None:
    fuzz(20_000)


@pytest.mark.nightly
def test_200_000_fuzzed_frames_raise_only_protocol_errors() -> None:
    fuzz(200_000)
