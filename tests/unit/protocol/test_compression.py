"""Compressed bodies: the flag bits, three formats, damage, limits, and replies of the Go client."""

from __future__ import annotations

import sys
import zlib

import lz4.frame
import pytest
import zstandard

from kourou.errors import ProtocolError
from kourou.protocol.compression import (
    CompressionType,
    compress,
    compression_type,
    decompress,
    inflate_body,
    inflate_reply_body,
    is_compressed,
)

BODY = b"a body worth compressing " * 400
KINDS = list(CompressionType)


def zstd_stream(body: bytes) -> bytes:
    """As Java's output stream writes it: without the content size in the frame."""
    writer = zstandard.ZstdCompressor().compressobj()
    return writer.compress(body) + writer.flush()


def test_flag_bits() -> None:
    assert [kind.sys_flag for kind in KINDS] == [0x101, 0x201, 0x301]
    assert [compression_type(flag) for flag in (0x1, 0x101, 0x201, 0x301)] == [
        CompressionType.ZLIB,
        CompressionType.LZ4,
        CompressionType.ZSTD,
        CompressionType.ZLIB,
    ]
    assert is_compressed(0x301) and not is_compressed(0x300)
    with pytest.raises(ProtocolError, match="sysFlag 0x401 names compression type 4"):
        compression_type(0x401)


@pytest.mark.parametrize(
    ("stored", "sys_flag"),
    [
        (zlib.compress(BODY), 0x1),
        (zlib.compress(BODY, 5), 0x301),
        (lz4.frame.compress(BODY), 0x101),
        (zstandard.compress(BODY), 0x201),
        (zstd_stream(BODY), 0x201),
        (BODY, 0),
        (BODY, 0x300),  # a type alone does not say that the body is compressed
    ],
)
def test_bodies_as_other_clients_write_them(stored: bytes, sys_flag: int) -> None:
    assert inflate_body(stored, sys_flag) == BODY


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(300_000)])
def test_round_trip(kind: CompressionType, body: bytes) -> None:
    assert decompress(compress(body, kind), kind) == body
    assert decompress(compress(body, kind) + b"after the end", kind) == body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [0, 1, 3, 7, -1])
def test_a_stream_that_is_cut_off_is_an_error(kind: CompressionType, cut: int) -> None:
    with pytest.raises(ProtocolError):
        decompress(compress(BODY, kind)[:cut], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_stream_are_an_error(kind: CompressionType) -> None:
    with pytest.raises(ProtocolError, match="a body of 3000 bytes is no"):
        decompress(b"not compressed at all, just text"[:30] * 100, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_stops_at_the_limit(kind: CompressionType) -> None:
    bomb = compress(bytes(20_000_000), kind)
    with pytest.raises(ProtocolError, match="more than the limit of 1000000 bytes"):
        decompress(bomb, kind, max_body_bytes=1_000_000)
    assert len(decompress(compress(bytes(1_000_000), kind), kind, max_body_bytes=1_000_000)) == 1_000_000


@pytest.mark.parametrize(
    ("kind", "module"), [(CompressionType.LZ4, "lz4.frame"), (CompressionType.ZSTD, "zstandard")]
)
def test_a_missing_library_names_the_install_command(
    kind: CompressionType, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = compress(BODY, kind)
    monkeypatch.setitem(sys.modules, module, None)
    command = r"pip install 'kourou\[compression\]'"
    with pytest.raises(ImportError, match=f"{kind.name} need a library: {command}"):
        compress(BODY, kind)
    with pytest.raises(ProtocolError, match=command):
        decompress(stored, kind)


def test_a_reply_that_the_go_client_marked_but_did_not_compress() -> None:
    assert inflate_reply_body(BODY, 0x1) == BODY
    assert inflate_reply_body(zlib.compress(BODY), 0x1) == BODY
    assert inflate_reply_body(BODY, 0) == BODY
    with pytest.raises(ProtocolError):
        inflate_body(BODY, 0x1)
