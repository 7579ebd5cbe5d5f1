"""HPACK: the examples of RFC 7541, and blocks that are broken or meant to hurt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.proxy.http2.frames import ErrorCode, Http2Error
from kourou.proxy.http2.hpack import MAX_FIELDS, HeaderDecoder
from kourou.proxy.http2.huffman import decode_huffman
from tests.unit.proxy.http2.peer_kit import field

# RFC 7541, C.3 and C.4: three requests, without and with Huffman; C.5 and C.6 have eviction, and need a
# smaller table, which the first block sets.
REQUESTS = [
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
]
PLAIN = [
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
]
HUFFMAN = [
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
]
DATE = "Mon, 21 Oct 2013 20:13:21 GMT"
RESPONSES = [
    [
        (":status", "302"),
        ("cache-control", "private"),
        ("date", DATE),
        ("location", "https://www.example.com"),
    ],
    [
        (":status", "307"),
        ("cache-control", "private"),
        ("date", DATE),
        ("location", "https://www.example.com"),
    ],
]
EVICTING = [
    "3fe101"  # the table has 256 bytes from now on
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    "4883640effc1c0bf",
]


@pytest.mark.parametrize("blocks", [PLAIN, HUFFMAN], ids=["plain", "huffman"])
def test_requests_of_the_rfc(blocks: list[str]) -> None:
    decoder = HeaderDecoder()
    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == REQUESTS


def test_responses_of_the_rfc_evict_entries() -> None:
    decoder = HeaderDecoder()
    assert [decoder.decode(bytes.fromhex(block)) for block in EVICTING] == RESPONSES


def code_of(block: bytes, decoder: HeaderDecoder | None = None) -> ErrorCode:
    with pytest.raises(Http2Error) as error:
        (decoder or HeaderDecoder()).decode(block)
    return error.value.error_code


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # the first entry of an empty table
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x0f",  # an integer without end
        b"\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",  # one that is only padding
        b"\x7f",  # ends inside an integer
        b"\x00",  # ends before the name
        b"\x00\x05abc",  # ends inside the name
        b"\x41",  # ends before the value
        b"\x41\x8a\xff",  # ends inside a Huffman text
        b"\x82\x20",  # the table is resized after a field
        b"\x3f\xe2\x1f",  # to more than we allow
        b"\x41\x84\xff\xff\xff\xff",  # EOS
        b"\x41\x81\x00",  # padding that is not ones
        b"\x41\x82\x1f\xff",  # padding of more than seven bits
    ],
)
def test_a_broken_block_is_a_compression_error(block: bytes) -> None:
    assert code_of(block) == ErrorCode.COMPRESSION_ERROR


@pytest.mark.parametrize("name", ["X-Upper", "with space", "", ":", "ü", "a\r\nb"])
def test_a_name_that_is_none_breaks_the_protocol(name: str) -> None:
    raw = name.encode("latin-1")
    assert code_of(bytes([0, len(raw)]) + raw + b"\x01v") == ErrorCode.PROTOCOL_ERROR


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\0b"])
def test_a_value_that_would_break_lines_of_a_log_breaks_the_protocol(value: str) -> None:
    assert code_of(field("x", value)) == ErrorCode.PROTOCOL_ERROR


def test_other_octets_are_one_character_each() -> None:
    assert HeaderDecoder().decode(field("x", "ü\t~")) == [("x", "ü\t~")]


def test_a_bomb_of_references_ends_early() -> None:
    decoder = HeaderDecoder()
    value = b"v" * 4_000
    decoder.decode(b"\x40\x01x" + b"\x7f" + bytes([0xA1, 0x1E]) + value)
    assert decoder.decode(b"\xbe" * MAX_FIELDS) == [("x", value.decode())] * MAX_FIELDS
    assert code_of(b"\xbe" * 60_000, decoder) == ErrorCode.ENHANCE_YOUR_CALM


def test_an_entry_larger_than_the_table_empties_it() -> None:
    decoder = HeaderDecoder()
    decoder.decode(b"\x40\x01a\x01b")
    value = b"v" * 5_000
    decoder.decode(b"\x40\x01x" + b"\x7f" + bytes([0x89, 0x26]) + value)
    assert code_of(b"\xbe", decoder) == ErrorCode.COMPRESSION_ERROR


@given(st.binary(max_size=200))
def test_garbage_raises_only_http2_errors(block: bytes) -> None:
    try:
        HeaderDecoder().decode(block)
    except Http2Error:
        pass


@given(st.binary(max_size=60))
def test_garbage_is_no_huffman_text_or_text(coded: bytes) -> None:
    try:
        text = decode_huffman(coded)
    except Http2Error:
        return
    assert len(text) <= len(coded) * 8 // 5
