"""Binary headers of the most frequent requests, decoded in one step: head and fields.

A client always writes the fields of a request in the same order. So one pattern finds them all, instead of a
loop over the entries. It matches the usual values, non-empty ASCII text without a zero byte, and compares
them with the lengths written before them. Anything else (another order, other fields, a wrong length) is left
to header_binary.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from struct import Struct, error
from typing import Final

import msgspec

from kourou.protocol.codes import CommandFlag, RequestCode
from kourou.protocol.command_head import CommandHead
from kourou.protocol.header_binary import HEAD_WITHOUT_REMARK
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.headers.transactions import EndTransactionRequestHeader

_HEAD_BYTES: Final = HEAD_WITHOUT_REMARK.size
_CODE_BYTES: Final = 2
_RESPONSE: Final = CommandFlag.RESPONSE.value

_unpack_head: Final = HEAD_WITHOUT_REMARK.unpack_from


class _Fields:
    """The fields of one kind of request, as one kind of client writes them."""

    def __init__(self, header_type: type[msgspec.Struct], names: Sequence[str]) -> None:
        entries = [rf"\x00{re.escape(chr(len(name)))}{name}\x00\x00(..)([\x01-\x7f]++)" for name in names]
        self._header_type = header_type
        self._names = tuple(names)
        self._match = re.compile("".join(entries), re.DOTALL).fullmatch
        self._pack_lengths = Struct(f">{len(names)}H").pack

    def read(self, text: str) -> msgspec.Struct | None:
        """The typed header; None if it takes the slow path. `text` has a character for each byte."""
        found = self._match(text, _HEAD_BYTES)
        if found is None:
            return None
        groups = found.groups()
        values = groups[1::2]
        if self._pack_lengths(*map(len, values)).decode("latin-1") != "".join(groups[::2]):
            return None
        fields = dict(zip(self._names, values, strict=True))
        return msgspec.convert(fields, self._header_type, strict=False)


def _of_code(code: int, *fields: _Fields) -> tuple[bytes, tuple[_Fields, ...]]:
    return code.to_bytes(_CODE_BYTES, "big"), fields


# Java writes both in the order of a hash table, so that a field which is left out moves no other.
_END: Final = (
    "producerGroup bname commitLogOffset topic msgId tranStateTableOffset commitOrRollback transactionId "
    "fromTransactionCheck"
).split()
_SENDS: Final = (
    _Fields(SendMessageRequestHeaderV2, "abcdefghijkmn"),
    _Fields(SendMessageRequestHeaderV2, "abcdefghijkm"),  # 4.9
)
_ENDS: Final = (
    _Fields(EndTransactionRequestHeader, _END),
    _Fields(EndTransactionRequestHeader, [name for name in _END if name not in ("bname", "topic")]),  # 4.9
)
_by_code: Final = dict(
    (
        _of_code(RequestCode.SEND_MESSAGE_V2, *_SENDS),
        _of_code(RequestCode.SEND_BATCH_MESSAGE, *_SENDS),
        _of_code(RequestCode.END_TRANSACTION, *_ENDS),
    )
)


def decode_hot_head(header: bytes) -> CommandHead | None:
    """The head with a typed header in it; None if it takes the slow path."""
    kinds = _by_code.get(header[:_CODE_BYTES])
    if kinds is None or len(header) <= _HEAD_BYTES:
        return None
    code, language, version, opaque, flag, remark_bytes, fields_bytes = _unpack_head(header)
    if flag & _RESPONSE or remark_bytes or fields_bytes != len(header) - _HEAD_BYTES:
        return None
    text = header.decode("latin-1")
    try:
        for fields in kinds:
            typed = fields.read(text)
            if typed is not None:
                return CommandHead(code, language, version, opaque, flag, None, typed)
    except (error, msgspec.ValidationError):
        pass  # A text longer than its length can say, or a number that is none.
    return None
