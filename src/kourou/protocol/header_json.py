"""The JSON form of a command's header, serialize type 0: the default of every client.

Written as RocketMQ writes it: compact, keys in alphabetical order, nulls left out, non-ASCII text as
UTF-8. Read leniently: keys in any order, numbers as strings, fields missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kourou.errors import ProtocolError
from kourou.protocol.codes import LanguageCode
from kourou.protocol.command_head import CommandHead


class _WrittenHead(msgspec.Struct, gc=False):
    """The order of these fields is the order of the keys."""

    code: int
    ext_fields: Mapping[str, str] | msgspec.UnsetType = msgspec.field(name="extFields")
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    # Says nothing that the frame's mark does not say; Java writes it.
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


_decode: Final = msgspec.json.Decoder(CommandHead, strict=False).decode
_encode: Final = msgspec.json.Encoder().encode
_LANGUAGE_NAMES: Final = {int(language): language.name for language in LanguageCode}


def decode_json_head(header: bytes) -> CommandHead:
    """Read the fixed fields; extFields stay undecoded."""
    try:
        return _decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as failure:
        raise ProtocolError(f"JSON header of {len(header)} bytes cannot be read: {failure}") from failure


def encode_json_head(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: Mapping[str, str] | None,
) -> bytes:
    """Write a header. Empty extFields are written as `{}`, none at all are left out."""
    unset = msgspec.UNSET
    return _encode(
        _WrittenHead(
            code,
            unset if ext_fields is None else ext_fields,
            flag,
            _LANGUAGE_NAMES.get(language, "OTHER"),
            opaque,
            unset if remark is None else remark,
            "JSON",
            version,
        )
    )
