"""HPACK (RFC 7541): decoding the header blocks of one connection.

Fields of HPACK are octets; they become text with one character for each, and are checked once, when they
come as a literal. Blocks that we send are made of constants (response_headers.py) and need no encoder.
"""

from __future__ import annotations

import re
from typing import Final

from kourou.proxy.http2.frames import DEFAULT_TABLE_BYTES, ErrorCode, Http2Error
from kourou.proxy.http2.huffman import decode_huffman

Field = tuple[str, str]

MAX_FIELDS: Final = 256
"""More fields in a block end the connection: one byte is enough for a field that refers to a long one."""

_ENTRY_OVERHEAD: Final = 32
_INDEXED: Final = 0x80
_WITH_INDEXING: Final = 0x40
_SIZE_UPDATE: Final = 0x20
_HUFFMAN: Final = 0x80
_MAX_INTEGER: Final = 2**28
_NAME: Final = re.compile(r":?[a-z0-9!#$%&'*+.^_`|~-]+")
_FORBIDDEN: Final = re.compile(r"[\0\r\n]")

_STATIC: Final[tuple[Field, ...]] = (
    ("", ""),  # indexes begin with 1
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
)
_STATIC_SIZE: Final = len(_STATIC) - 1


class HeaderDecoder:
    """Decodes the blocks of one connection, in order: each may change the table for those after it."""

    __slots__ = ("_max_bytes", "_size", "_table")

    def __init__(self) -> None:
        self._table: list[Field] = []  # the newest entry is the last
        self._size = 0
        self._max_bytes = DEFAULT_TABLE_BYTES

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a block; Http2Error ends the connection, since the table is unknown then."""
        fields: list[Field] = []
        add = fields.append
        table, position, end = self._table, 0, len(block)
        may_be_many = end > MAX_FIELDS  # a field has at least one byte
        try:
            while position < end:
                byte = block[position]
                if byte & _INDEXED:
                    index = byte & 0x7F
                    position += 1
                    if index == 0x7F:
                        index, position = _integer(block, position, 0x7F)
                    add(table[_STATIC_SIZE - index] if index > _STATIC_SIZE else self._entry(index))
                elif byte & _WITH_INDEXING:
                    field, position = self._literal(block, position, 0x3F)
                    add(field)
                    self._add(field)
                elif byte & _SIZE_UPDATE:
                    position = self._resize(block, position, is_first=not fields)
                else:
                    field, position = self._literal(block, position, 0x0F)
                    add(field)
                if may_be_many and len(fields) > MAX_FIELDS:
                    raise Http2Error(
                        ErrorCode.ENHANCE_YOUR_CALM, f"a header block of more than {MAX_FIELDS} fields"
                    )
        except IndexError:
            raise Http2Error(
                ErrorCode.COMPRESSION_ERROR,
                "a header block ends inside a field, or refers to an entry that is not there",
            ) from None
        return fields

    def _entry(self, index: int) -> Field:
        if 0 < index <= _STATIC_SIZE:
            return _STATIC[index]
        if _STATIC_SIZE < index <= _STATIC_SIZE + len(self._table):
            return self._table[_STATIC_SIZE - index]
        raise Http2Error(
            ErrorCode.COMPRESSION_ERROR, f"a header block refers to entry {index}, which is not there"
        )

    def _literal(self, block: bytes, position: int, mask: int) -> tuple[Field, int]:
        index = block[position] & mask
        position += 1
        if index == mask:
            index, position = _integer(block, position, mask)
        if index:
            name = self._entry(index)[0]
        else:
            name, position = _string(block, position)
            if not _NAME.fullmatch(name):
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"{name[:64]!r} is not the name of a header")
        value, position = _string(block, position)
        if not value.isprintable() and _FORBIDDEN.search(value):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"the header {name[:64]} contains a line break or NUL")
        return (name, value), position

    def _add(self, field: Field) -> None:
        size = _ENTRY_OVERHEAD + len(field[0]) + len(field[1])
        if self._size + size > self._max_bytes:
            self._evict(self._max_bytes - size)
        if size <= self._max_bytes:  # a larger one empties the table
            self._table.append(field)
            self._size += size

    def _evict(self, keep_bytes: int) -> None:
        size, count = self._size, 0
        if size <= keep_bytes:
            return
        for name, value in self._table:
            if size <= keep_bytes:
                break
            size -= _ENTRY_OVERHEAD + len(name) + len(value)
            count += 1
        del self._table[:count]
        self._size = size

    def _resize(self, block: bytes, position: int, *, is_first: bool) -> int:
        size = block[position] & 0x1F
        position += 1
        if size == 0x1F:
            size, position = _integer(block, position, 0x1F)
        if not is_first:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, "the header table is resized inside a block")
        if size > DEFAULT_TABLE_BYTES:
            raise Http2Error(
                ErrorCode.COMPRESSION_ERROR,
                f"a header table of {size} bytes; {DEFAULT_TABLE_BYTES} are allowed",
            )
        self._max_bytes = size
        self._evict(size)
        return position


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """An integer that exceeds its prefix, and where it ends."""
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if value > _MAX_INTEGER or shift > 28:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, "an integer in a header block is too large")
        if not byte & 0x80:
            return value, position
        shift += 7


def _string(block: bytes, position: int) -> tuple[str, int]:
    first = block[position]
    position += 1
    size = first & 0x7F
    if size == 0x7F:
        size, position = _integer(block, position, 0x7F)
    end = position + size
    if end > len(block):
        raise Http2Error(ErrorCode.COMPRESSION_ERROR, "a header block ends inside a string")
    coded = block[position:end]
    return (decode_huffman(coded) if first & _HUFFMAN else coded.decode("latin-1")), end
