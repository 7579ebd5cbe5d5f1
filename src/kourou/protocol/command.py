"""RemotingCommand: one request or response, as an object and as a frame.

A server's hot path uses `decode_head` and `decode_ext` instead, which skip unused
fields. Not here: cutting the stream into frames (`frame`), the typed headers (`headers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self, TypeVar

import msgspec

from kourou.errors import ProtocolError
from kourou.protocol.codes import CommandFlag, LanguageCode, SerializeType
from kourou.protocol.command_head import CommandHead
from kourou.protocol.ext_fields import convert_ext, decode_ext, ext_dict, ext_fields_of
from kourou.protocol.frame import RawFrame, encode_frame
from kourou.protocol.header_binary import decode_binary_head, encode_binary_head
from kourou.protocol.header_json import decode_json_head, encode_json_head
from kourou.protocol.versions import CURRENT_VERSION

__all__ = [
    "CommandHead",
    "RemotingCommand",
    "command_of",
    "decode_command",
    "decode_ext",
    "decode_head",
    "encode_response",
    "ext_dict",
    "ext_fields_of",
]

T = TypeVar("T", bound=msgspec.Struct)

_RESPONSE = int(CommandFlag.RESPONSE)
_ONEWAY = int(CommandFlag.ONEWAY)
_PYTHON = int(LanguageCode.PYTHON)
_JSON = int(SerializeType.JSON)
_BINARY = int(SerializeType.ROCKETMQ)


@dataclass(slots=True)
class RemotingCommand:
    """A command with everything in it. Fields that no header type knows survive in `ext_fields`."""

    code: int
    language: int = _PYTHON
    version: int = CURRENT_VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    serialize_type: int = _JSON

    @classmethod
    def request(cls, code: int, header: msgspec.Struct | None = None, body: bytes = b"") -> Self:
        """A request. Without a header it still carries empty extFields: some Apache handlers need them."""
        return cls(int(code), ext_fields={} if header is None else ext_fields_of(header), body=body)

    @property
    def is_response(self) -> bool:
        """Whether this is the response to a request."""
        return self.flag & _RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no response."""
        return self.flag & _ONEWAY != 0

    def header(self, header_type: type[T]) -> T:
        """extFields as a typed header; HeaderFieldError says which field is wrong and how."""
        return convert_ext(self.ext_fields or {}, header_type)

    def encode(self) -> bytes:
        """The frame of this command, with its length prefix."""
        encode = encode_binary_head if self.serialize_type == _BINARY else encode_json_head
        header = encode(
            self.code, self.language, self.version, self.opaque, self.flag, self.remark, self.ext_fields
        )
        return encode_frame(self.serialize_type, header, self.body)


def decode_head(serialize_type: int, header: bytes) -> CommandHead:
    """Read a header's fixed fields, its extFields only as far as the form demands."""
    if serialize_type == _JSON:
        return decode_json_head(header)
    if serialize_type == _BINARY:
        return decode_binary_head(header)
    raise ProtocolError(f"unknown serialize type {serialize_type}")


def decode_command(raw_frame: RawFrame) -> RemotingCommand:
    """Decode a frame; ProtocolError if it is malformed."""
    serialize_type, header, body = raw_frame
    return command_of(serialize_type, decode_head(serialize_type, header), body)


def command_of(serialize_type: int, head: CommandHead, body: bytes) -> RemotingCommand:
    """The command of a decoded head."""
    return RemotingCommand(
        code=head.code,
        language=head.language_code,
        version=head.version,
        opaque=head.opaque,
        flag=head.flag,
        remark=head.remark,
        ext_fields=None if head.ext_fields is None else ext_dict(head),
        body=body,
        serialize_type=serialize_type,
    )


def encode_response(
    serialize_type: int,
    opaque: int,
    code: int = 0,
    remark: str | None = None,
    ext_fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    version: int = CURRENT_VERSION,
) -> bytes:
    """The whole frame of a response, in the serialization of its request."""
    if serialize_type == _JSON and not code and remark is None and ext_fields is None:
        before, after = _done_head(version)
        return encode_frame(serialize_type, b"%b%d%b" % (before, opaque, after), body)
    encode = encode_binary_head if serialize_type == _BINARY else encode_json_head
    header = encode(code, _PYTHON, version, opaque, _RESPONSE, remark, ext_fields)
    return encode_frame(serialize_type, header, body)


@lru_cache(maxsize=8)
def _done_head(version: int) -> tuple[bytes, bytes]:
    """The header of a response that says no more than that a request succeeded, around its opaque."""
    header = encode_json_head(0, _PYTHON, version, 0, _RESPONSE, None, None)
    before, name, after = header.partition(b'"opaque":')
    return before + name, after[1:]
