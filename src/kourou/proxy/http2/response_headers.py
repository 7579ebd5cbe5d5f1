"""Header blocks of responses: constants, most of them one or two bytes.

The first response of a connection puts `content-type` and `grpc-status: 0` into the peer's table; later ones
refer to them. A peer with a smaller table than the default gets literals. Not here: HPACK of requests.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from kourou.proxy.http2.call import GrpcCode

_STATUS_200: Final = b"\x88"  # entry 8 of the static table
_CONTENT_TYPE_INDEX: Final = 31
# Entries of the dynamic table, the newest first.
_NEWEST: Final = b"\xbe"
_SECOND: Final = b"\xbf"
_EMPTY_TABLE: Final = b"\x20"
_MAX_TEXT: Final = 1_024
# Printable ASCII but for "%".
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
ACCEPTED_ENCODINGS: Final = ("grpc-accept-encoding", "identity,gzip")


def _string(text: bytes) -> bytes:
    if len(text) < 0x7F:
        return bytes([len(text)]) + text
    rest, coded = len(text) - 0x7F, bytearray([0x7F])
    while rest >= 0x80:
        coded.append(rest & 0x7F | 0x80)
        rest >>= 7
    coded.append(rest)
    return bytes(coded) + text


def literal(name: str, value: str) -> bytes:
    """A field without indexing."""
    return b"\x00" + _string(name.encode()) + _string(value.encode("latin-1"))


_CONTENT_TYPE: Final = _string(b"application/grpc")
_INDEXING_CONTENT_TYPE: Final = bytes([0x40 | _CONTENT_TYPE_INDEX]) + _CONTENT_TYPE
_LITERAL_CONTENT_TYPE: Final = b"\x0f" + bytes([_CONTENT_TYPE_INDEX - 0x0F]) + _CONTENT_TYPE
_INDEXING_OK: Final = b"\x40" + _string(b"grpc-status") + _string(b"0")
_LITERAL_OK: Final = literal("grpc-status", "0")


def encode_status(code: GrpcCode, text: str) -> bytes:
    """`grpc-status` and `grpc-message`."""
    return literal("grpc-status", str(int(code))) + literal(
        "grpc-message", quote(text[:_MAX_TEXT], safe=_PLAIN)
    )


def http_status(status: int, text: str) -> bytes:
    """The block of a response that is not gRPC's."""
    return b"\x08" + _string(str(status).encode()) + literal("grpc-message", quote(text, safe=_PLAIN))


class ResponseHeaders:
    """The blocks for the next response, given what the peer's table contains."""

    __slots__ = ("_is_literal", "_update", "is_indexed", "opening", "trailers")

    def __init__(self) -> None:
        self._is_literal = False
        self._update = b""
        self.is_indexed = False
        """Whether the blocks are the short ones: `OPENING` and `TRAILERS`."""
        self.opening = _STATUS_200 + _INDEXING_CONTENT_TYPE
        self.trailers = _INDEXING_OK

    OPENING: Final = _STATUS_200 + _SECOND
    TRAILERS: Final = _NEWEST

    def take_opening(self) -> bytes:
        """The block that opens a response. It must be sent next."""
        block = self._update + self.opening
        self._update = b""
        if not self._is_literal and not self.is_indexed:
            self.opening = _STATUS_200 + _NEWEST
        return block

    def take_trailers(self) -> bytes:
        """The block that ends a response with status OK. It must be sent next."""
        block = self._update + self.trailers
        self._update = b""
        if not self._is_literal and not self.is_indexed:
            self.opening, self.trailers, self.is_indexed = self.OPENING, self.TRAILERS, True
        return block

    def take_failure(self, fields: bytes, *, is_open: bool) -> bytes:
        """The block that ends a response with the fields of `encode_status`. It must be sent next."""
        return self.take_other(fields if is_open else _STATUS_200 + _LITERAL_CONTENT_TYPE + fields)

    def take_other(self, fields: bytes) -> bytes:
        """A block of these fields only. It must be sent next."""
        block = self._update + fields
        self._update = b""
        return block

    def use_no_table(self) -> None:
        """The peer has a smaller table than the default."""
        self._is_literal, self.is_indexed = True, False
        self._update = _EMPTY_TABLE
        self.opening = _STATUS_200 + _LITERAL_CONTENT_TYPE
        self.trailers = _LITERAL_OK
