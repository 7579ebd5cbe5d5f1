"""The head of a request as a server reads it: head and fields in one go, where that pays.

Sends, pulls and acks come by the million, and to decode a head and then its fields costs half as much again
as both together. Clients write the code first, so the first bytes tell. What such a head does not keep
(fields that its type does not know) is found by decoding the header again, the general way.
Not here: binary heads of that kind (binary_request.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from kourou.protocol.binary_request import decode_hot_head
from kourou.protocol.codes import SerializeType
from kourou.protocol.command import decode_head, ext_dict
from kourou.protocol.command_head import CommandHead
from kourou.protocol.header_json import decode_json_head
from kourou.protocol.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.headers.send import SendMessageRequestHeaderV2

_JSON: Final = SerializeType.JSON.value
_BINARY: Final = SerializeType.ROCKETMQ.value
_START_BYTES: Final = 12


class _SendHead(CommandHead, gc=False, kw_only=True):
    ext_fields: SendMessageRequestHeaderV2 = msgspec.field(name="extFields")


class _PullHead(CommandHead, gc=False, kw_only=True):
    ext_fields: PullMessageRequestHeader = msgspec.field(name="extFields")


class _PopHead(CommandHead, gc=False, kw_only=True):
    ext_fields: PopMessageRequestHeader = msgspec.field(name="extFields")


class _AckHead(CommandHead, gc=False, kw_only=True):
    ext_fields: AckMessageRequestHeader = msgspec.field(name="extFields")


_typed_pops: Final[dict[bytes, Callable[[bytes], CommandHead]]] = {
    b"50,": msgspec.json.Decoder(_PopHead, strict=False).decode,
    b"51,": msgspec.json.Decoder(_AckHead, strict=False).decode,
}


def _decode_pop_head(header: bytes) -> CommandHead:
    """The codes of POP begin alike."""
    return _typed_pops.get(header[_START_BYTES : _START_BYTES + 3], decode_json_head)(header)


_typed: Final[dict[bytes, Callable[[bytes], CommandHead]]] = {
    b'{"code":310,': msgspec.json.Decoder(_SendHead, strict=False).decode,
    b'{"code":11,"': msgspec.json.Decoder(_PullHead, strict=False).decode,
    b'{"code":2000': _decode_pop_head,
}


class _Texts(msgspec.Struct, gc=False):
    ext_fields: dict[str, str] = msgspec.field(name="extFields")


_decode_texts: Final = msgspec.json.Decoder(_Texts).decode


def decode_fields(serialize_type: int, header: bytes) -> dict[str, str]:
    """The text of every field of a header that is not null, unknown ones included."""
    if serialize_type == _JSON:
        try:
            return _decode_texts(header).ext_fields
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # Numbers and nulls are read the general way.
    return ext_dict(decode_head(serialize_type, header))


def decode_request_head(serialize_type: int, header: bytes) -> CommandHead:
    """As `decode_head`; `ext_fields` may already be the typed header that `decode_ext` would make."""
    if serialize_type == _JSON:
        decode = _typed.get(header[:_START_BYTES])
        if decode is not None:
            try:
                return decode(header)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass  # The general way says what is wrong, or takes what this one does not.
    elif serialize_type == _BINARY and (head := decode_hot_head(header)) is not None:
        return head
    return decode_head(serialize_type, header)
