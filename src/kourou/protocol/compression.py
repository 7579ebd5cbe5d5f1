"""Compressed message bodies: a producer compresses them, brokers store them so, consumers decompress.

The message's sysFlag says whether (0x1) and how (0x700; nothing there means zlib, from older
clients). Zlib is always there, LZ4 (frame format) and Zstandard need `kourou[compression]`.
Not here: which bodies are worth it (the producer: 4096 bytes and more, never in batches).
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from importlib import import_module
from types import ModuleType
from typing import Final

from kourou.errors import ProtocolError
from kourou.protocol.codes import MessageSysFlag

# Java's default, `rocketmq.message.compressLevel`.
DEFAULT_LEVEL: Final = 5
# 16 times RocketMQ's largest message: no legitimate body comes near, and a few kilobytes that
# inflate to gigabytes are rejected here.
MAX_BODY_BYTES: Final = 64 * 1024 * 1024

# Plain numbers: operations on IntFlag members cost a microsecond each.
_COMPRESSED: Final = MessageSysFlag.COMPRESSED.value
_TYPE_MASK: Final = MessageSysFlag.COMPRESSION_MASK.value
_TYPE_SHIFT: Final = 8


class CompressionType(IntEnum):
    """How a body is compressed, with RocketMQ's numbers."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits that a message with such a body carries."""
        return _COMPRESSED | self.value << _TYPE_SHIFT


def is_compressed(sys_flag: int) -> bool:
    """Whether the flag says that the body is compressed."""
    return bool(sys_flag & _COMPRESSED)


def compression_type(sys_flag: int) -> CompressionType:
    """The type that the flag names; ProtocolError for numbers that RocketMQ does not know."""
    number = (sys_flag & _TYPE_MASK) >> _TYPE_SHIFT
    if number > CompressionType.ZLIB:
        raise ProtocolError(f"sysFlag {sys_flag:#x} names compression type {number}, which is not known")
    return CompressionType(number or CompressionType.ZLIB)


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = DEFAULT_LEVEL) -> bytes:
    """`body` compressed; ImportError where the library for `kind` is missing."""
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if kind is CompressionType.LZ4:
        return bytes(_library(kind).compress(body, compression_level=level))
    return bytes(_library(kind).ZstdCompressor(level=level).compress(body))


def decompress(
    body: bytes, kind: CompressionType = CompressionType.ZLIB, max_body_bytes: int = MAX_BODY_BYTES
) -> bytes:
    """`body` as it was; ProtocolError where it is damaged, cut off, or larger than the limit.

    Bytes after the end of the compressed stream are ignored, like in Java.
    """
    try:
        inflated = _DECOMPRESSORS[kind](body, max_body_bytes)
    except ImportError as error:
        raise ProtocolError(str(error)) from error
    if len(inflated) > max_body_bytes:
        raise ProtocolError(
            f"a body of {len(body)} bytes inflates to more than the limit of {max_body_bytes} bytes"
        )
    return inflated


def inflate_body(body: bytes, sys_flag: int, max_body_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The body that the producer had: inflated where `sys_flag` says so, else as it is."""
    if not sys_flag & _COMPRESSED:
        return body
    return decompress(body, compression_type(sys_flag), max_body_bytes)


def inflate_reply_body(body: bytes, sys_flag: int, max_body_bytes: int = MAX_BODY_BYTES) -> bytes:
    """As `inflate_body`, for replies: a body that does not inflate is taken as it is.

    The Go client marks replies of 4096 bytes and more as compressed and sends them uncompressed.
    """
    try:
        return inflate_body(body, sys_flag, max_body_bytes)
    except ProtocolError:
        return body


def _unzlib(body: bytes, max_body_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # One byte over the limit is enough to know; 0 would mean no limit.
        inflated = inflater.decompress(body, max_body_bytes + 1)
    except zlib.error as error:
        raise ProtocolError(f"a body of {len(body)} bytes is not a zlib stream: {error}") from error
    if not inflater.eof and len(inflated) <= max_body_bytes:
        raise _cut_off(body, "zlib")
    return inflated


def _unlz4(body: bytes, max_body_bytes: int) -> bytes:
    inflater = _library(CompressionType.LZ4).LZ4FrameDecompressor()
    try:
        inflated: bytes = inflater.decompress(body, max_length=max_body_bytes + 1)
    except (RuntimeError, ValueError, MemoryError) as error:
        raise ProtocolError(f"a body of {len(body)} bytes is not an LZ4 frame: {error}") from error
    if not inflater.eof and len(inflated) <= max_body_bytes:
        raise _cut_off(body, "LZ4")
    return inflated


def _unzstd(body: bytes, max_body_bytes: int) -> bytes:
    library = _library(CompressionType.ZSTD)
    inflater = library.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    left_bytes = max_body_bytes
    # This library bounds no single call's output, so it gets little input at a time: 256
    # bytes never become more than about 10 MiB.
    for start in range(0, len(body), 256):
        try:
            part = inflater.decompress(body[start : start + 256])
        except library.ZstdError as error:
            raise ProtocolError(f"a body of {len(body)} bytes is not a Zstandard frame: {error}") from error
        parts.append(part)
        left_bytes -= len(part)
        if inflater.eof or left_bytes < 0:
            return b"".join(parts)
    raise _cut_off(body, "Zstandard")


_DECOMPRESSORS: Final = {
    CompressionType.ZLIB: _unzlib,
    CompressionType.LZ4: _unlz4,
    CompressionType.ZSTD: _unzstd,
}


def _cut_off(body: bytes, name: str) -> ProtocolError:
    return ProtocolError(f"a body of {len(body)} bytes ends in the middle of its {name} stream")


def _library(kind: CompressionType) -> ModuleType:
    """The optional library for `kind`, imported on first use."""
    try:
        return import_module("lz4.frame" if kind is CompressionType.LZ4 else "zstandard")
    except ImportError as error:
        raise ImportError(
            f"bodies compressed with {kind.name} need a library: pip install 'kourou[compression]'"
        ) from error
