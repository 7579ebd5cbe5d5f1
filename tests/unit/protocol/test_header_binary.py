"""The binary header, byte by byte."""

from __future__ import annotations

import struct

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.header_binary import decode_binary_head, encode_binary_head

FIXED = ">hBhiii"
MINIMAL = struct.pack(FIXED + "i", 105, 0, 407, 7, 0, 0, 0)


def entry(key: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value


def header(remark: bytes = b"", *entries: bytes, code: int = 1, flag: int = 0) -> bytes:
    fields = b"".join(entries)
    fixed = struct.pack(FIXED, code, 3, 479, -2, flag, len(remark))
    return fixed + remark + struct.pack(">i", len(fields)) + fields


def test_layout_of_a_header() -> None:
    assert len(MINIMAL) == 21
    assert encode_binary_head(105, 0, 407, 7, 0, None, None) == MINIMAL
    written = encode_binary_head(1, 3, 479, -2, 0, "früh", {"a": "1", "bé": "2"})
    assert written == header("früh".encode(), entry(b"a", b"1"), entry("bé".encode(), b"2"))


def test_a_header_comes_back() -> None:
    head = decode_binary_head(header(b"why", entry(b"topic", b"T"), entry(b"k", "ü".encode()), flag=3))
    assert (head.code, head.language, head.version, head.opaque, head.flag) == (1, 3, 479, -2, 3)
    assert head.remark == "why"
    assert head.ext_fields == {"topic": "T", "k": "ü"}
    assert head.is_response and head.is_oneway


def test_no_remark_and_no_fields_are_none() -> None:
    head = decode_binary_head(MINIMAL)
    assert head.remark is None
    assert head.ext_fields is None
    assert encode_binary_head(105, 0, 407, 7, 0, "", {}) == MINIMAL


def test_empty_keys_and_values_are_left_out() -> None:
    head = decode_binary_head(header(b"", entry(b"", b"x"), entry(b"a", b""), entry(b"b", b"c")))
    assert head.ext_fields == {"b": "c"}


def test_empty_values_are_written() -> None:
    # 4.9 reads them as empty texts, and Java of both versions writes them.
    assert encode_binary_head(1, 3, 479, -2, 0, None, {"a": ""}) == header(b"", entry(b"a", b""))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (3442, RequestCode.POP_MESSAGE),
        (3443, RequestCode.ACK_MESSAGE),
        (3444, RequestCode.PEEK_MESSAGE),
        (3445, RequestCode.CHANGE_MESSAGE_INVISIBLETIME),
        (3446, RequestCode.NOTIFICATION),
        (3447, RequestCode.POLLING_INFO),
        (3448, RequestCode.POP_ROLLBACK),
        (3543, RequestCode.BATCH_ACK_MESSAGE),
    ],
)
def test_request_codes_too_wide_for_16_bits_are_mapped_back(sent: int, code: RequestCode) -> None:
    written = encode_binary_head(code, 0, 479, 1, 0, None, None)
    assert struct.unpack_from(">h", written) == (sent,)
    assert decode_binary_head(written).code == code
    assert decode_binary_head(header(code=sent, flag=1)).code == sent


def test_no_truncated_request_code_is_another_code() -> None:
    wide = {code & 0xFFFF for code in RequestCode if code > 0xFFFF}
    assert not wide & {int(code) for code in RequestCode}


def test_negative_response_codes_survive() -> None:
    written = encode_binary_head(ResponseCode.RPC_TIME_OUT, 0, 479, 1, 1, None, None)
    assert decode_binary_head(written).code == ResponseCode.RPC_TIME_OUT


@pytest.mark.parametrize("size", range(21))
def test_every_cut_of_the_fixed_part(size: int) -> None:
    with pytest.raises(ProtocolError):
        decode_binary_head(MINIMAL[:size])


def test_every_cut_of_the_fields() -> None:
    whole = header(b"remark", entry(b"key", b"value"))
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode_binary_head(whole[:size])


def fields_of(raw: bytes) -> bytes:
    return struct.pack(FIXED, 1, 0, 0, 0, 0, 0) + struct.pack(">i", len(raw)) + raw


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(FIXED, 1, 0, 0, 0, 0, -1) + bytes(4),
        struct.pack(FIXED, 1, 0, 0, 0, 0, 2**31 - 1) + bytes(4),
        struct.pack(FIXED, 1, 0, 0, 0, 0, 1) + b"\xff" + bytes(4),
        struct.pack(FIXED + "i", 1, 0, 0, 0, 0, 0, -1),
        struct.pack(FIXED + "i", 1, 0, 0, 0, 0, 0, 5),
        MINIMAL + b"more",
        fields_of(b"\x00"),
        fields_of(b"\x00\x01a"),
        fields_of(b"\x00\x01a\x00\x00\x00\x02b"),
        fields_of(b"\x00\x01a\xff\xff\xff\xffb"),
        fields_of(b"\x80\x00" + bytes(0x8000 + 4)),
        fields_of(b"\xff\xffa\x00\x00\x00\x01b"),
        fields_of(entry(b"a", b"b") + b"\x00\x01"),
        fields_of(entry(b"\xc3", b"b")),
        fields_of(entry(b"a", b"\xff")),
    ],
    ids=lambda bad: bad[13:40].hex(),
)
def test_wrong_lengths_and_wrong_text_are_protocol_errors(bad: bytes) -> None:
    with pytest.raises(ProtocolError, match="binary header"):
        decode_binary_head(bad)


def test_what_we_write_must_fit_too() -> None:
    with pytest.raises(ProtocolError, match="16-bit length"):
        encode_binary_head(1, 0, 0, 0, 0, None, {"k" * 0x8000: "v"})
    with pytest.raises(ProtocolError, match="too wide"):
        encode_binary_head(1, 0, 0, 2**31, 0, None, None)
