"""The ROCKETMQ binary form of a command's header, serialize type 1.

    code       i16   truncated, see below
    language   u8
    version    i16
    opaque     i32
    flag       i32
    remark     i32 length (0 = none), UTF-8
    extFields  i32 length in bytes (0 = none), then until they are used up:
               i16 key length, key, i32 value length, value, both UTF-8; length 0 = null

Big-endian. Request codes above 65535 (POP and its family) lose their high bits on the way; none of
the remainders is a code of its own, so requests are mapped back.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error
from typing import Final

from kourou.errors import ProtocolError
from kourou.protocol.codes import CommandFlag, RequestCode
from kourou.protocol.command_head import CommandHead
from kourou.protocol.layout import BINARY_COMMAND, BINARY_NAME_LENGTH, BINARY_VALUE_LENGTH, I2, U2, U4

HEAD_WITHOUT_REMARK: Final = BINARY_COMMAND.struct()
"""All that is before the fields where there is no remark: code to flag, the length of the remark, which is 0,
and the length of the fields."""

_FIXED: Final = BINARY_COMMAND.part("code", "language", "version", "opaque", "flag", "remark_length")
# Codes and versions are written without their high bits, and without a sign.
_FIXED_WRITTEN: Final = Struct(_FIXED.format.replace(I2.code, U2.code))
_KEY_LENGTH: Final = Struct(f">{BINARY_NAME_LENGTH.code}")
_LENGTH: Final = Struct(f">{BINARY_VALUE_LENGTH.code}")
# Read as unsigned, a negative length exceeds any header.
_VALUE_LENGTH: Final = Struct(f">{U4.code}")
_RESPONSE: Final = int(CommandFlag.RESPONSE)
_MAX_KEY_BYTES: Final = BINARY_NAME_LENGTH.high

_TRUNCATED_REQUEST_CODES: Final = {code & 0xFFFF: int(code) for code in RequestCode if code > 0xFFFF}


def decode_binary_head(header: bytes) -> CommandHead:
    """Read a header. An entry of extFields with an empty key or value is left out, as 5.x does."""
    try:
        return _decode(header)
    except (error, IndexError, UnicodeDecodeError) as failure:
        raise ProtocolError(f"binary header of {len(header)} bytes cannot be read: {failure}") from failure


def _decode(header: bytes) -> CommandHead:
    code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
    if not flag & _RESPONSE:
        code = _TRUNCATED_REQUEST_CODES.get(code, code)
    fields_length_at = _FIXED.size + remark_bytes
    fields_at = fields_length_at + _LENGTH.size
    if remark_bytes < 0 or fields_at > len(header):
        raise ProtocolError(
            f"binary header of {len(header)} bytes has no room for a remark of {remark_bytes}"
        )
    remark = header[_FIXED.size : fields_length_at].decode() if remark_bytes else None
    fields_bytes: int = _LENGTH.unpack_from(header, fields_length_at)[0]
    if fields_at + fields_bytes != len(header):
        raise ProtocolError(
            f"binary header announces {fields_bytes} bytes of extFields, {len(header) - fields_at} are there"
        )
    fields = _fields(header, fields_at) if fields_bytes else None
    return CommandHead(code, language, version, opaque, flag, remark, fields)


def _fields(header: bytes, position: int) -> dict[str, str]:
    # Most requests of a binary client come through here, so one loop without a call per text.
    fields: dict[str, str] = {}
    end = len(header)
    while position < end:
        key_at = position + 2
        key_bytes = header[position] << 8 | header[position + 1]
        value_length_at = key_at + key_bytes
        value_at = value_length_at + 4
        # Unsigned: a negative length is a huge one and runs past the end.
        position = value_at + _VALUE_LENGTH.unpack_from(header, value_length_at)[0]
        if key_bytes > _MAX_KEY_BYTES or position > end:
            raise ProtocolError(f"binary header: entry {len(fields)} of extFields does not fit into them")
        key, value = header[key_at:value_length_at].decode(), header[value_at:position].decode()
        if key and value:
            fields[key] = value
    return fields


def encode_binary_head(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: Mapping[str, str] | None,
) -> bytes:
    """Write a header. Code and version are truncated to 16 bits, as RocketMQ does."""
    remark_utf8 = (remark or "").encode()
    fields = b"".join(_entry(key, value) for key, value in (ext_fields or {}).items())
    try:
        fixed = _FIXED_WRITTEN.pack(code & 0xFFFF, language, version & 0xFFFF, opaque, flag, len(remark_utf8))
    except error as failure:
        raise ProtocolError(
            f"opaque {opaque}, flag {flag} or language {language} is too wide: {failure}"
        ) from failure
    return b"".join((fixed, remark_utf8, _LENGTH.pack(len(fields)), fields))


def _entry(key: str, value: str) -> bytes:
    key_utf8, value_utf8 = key.encode(), value.encode()
    if len(key_utf8) > _MAX_KEY_BYTES:
        raise ProtocolError(f"field name of {len(key_utf8)} bytes does not fit its 16-bit length")
    return b"".join((_KEY_LENGTH.pack(len(key_utf8)), key_utf8, _LENGTH.pack(len(value_utf8)), value_utf8))
