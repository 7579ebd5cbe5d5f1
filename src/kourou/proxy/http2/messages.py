"""Messages of gRPC inside a stream: flag u8 (1: compressed), length u32 big-endian, message.

Not here: DATA frames and their windows (connection.py).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from kourou.errors import ProtocolError
from kourou.proxy.http2.call import GrpcCode

PREFIX: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = PREFIX.size

IDENTITY: Final = "identity"
GZIP: Final = "gzip"
ENCODINGS: Final = frozenset({IDENTITY, GZIP})

_GZIP_WINDOW: Final = 31


class CallError(ProtocolError):
    """A request that ends its call with this status."""

    def __init__(self, code: GrpcCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class MessageReader:
    """Collects the messages of one stream, for any split of the input; raises CallError."""

    __slots__ = ("_buffer", "_encoding", "_max_bytes")

    def __init__(self, max_bytes: int, encoding: str = IDENTITY) -> None:
        self._buffer = bytearray()
        self._max_bytes = max_bytes
        self._encoding = encoding

    @property
    def pending_bytes(self) -> int:
        """Bytes of the incomplete message at the end."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete with `data`."""
        buffer = self._buffer
        buffer += data
        messages: list[bytes] = []
        position = 0
        while len(buffer) - position >= PREFIX_BYTES:
            flag, size = PREFIX.unpack_from(buffer, position)
            if flag > 1:
                raise CallError(GrpcCode.INTERNAL, f"the flag of a message is {flag}; it is 0 or 1")
            self._check_size(size)
            begin = position + PREFIX_BYTES
            if len(buffer) < begin + size:
                break
            with memoryview(buffer) as view:
                message = bytes(view[begin : begin + size])
            messages.append(self._decompress(message) if flag else message)
            position = begin + size
        del buffer[:position]
        return messages

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise CallError(
                GrpcCode.RESOURCE_EXHAUSTED,
                f"a message of {size} bytes exceeds grpcMaxInboundMessageSize, {self._max_bytes} bytes",
            )

    def _decompress(self, message: bytes) -> bytes:
        if self._encoding != GZIP:
            raise CallError(
                GrpcCode.INTERNAL, "a message is compressed, but grpc-encoding names no compression"
            )
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        try:
            plain = inflater.decompress(message, self._max_bytes + 1)
        except zlib.error as error:
            raise CallError(GrpcCode.INTERNAL, f"a message cannot be decompressed: {error}") from error
        self._check_size(len(plain))
        if not inflater.eof or inflater.unused_data:
            raise CallError(GrpcCode.INTERNAL, "a message is not one complete gzip stream")
        return plain
