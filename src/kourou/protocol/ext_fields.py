"""extFields: from what was sent to typed headers and back.

On the wire every value is text. C++ clients send some as JSON numbers, so a typed header is decoded
straight from JSON where that works, and otherwise through the text of each value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, TypeVar

import msgspec

from kourou.errors import HeaderFieldError, ProtocolError
from kourou.protocol.command_head import CommandHead

T = TypeVar("T", bound=msgspec.Struct)

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode_texts: Final = msgspec.json.Decoder(dict[str, str]).decode
_decode_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text: Final = msgspec.json.Decoder(str).decode
_typed_decoders: dict[type[msgspec.Struct], Callable[[msgspec.Raw], Any]] = {}


def decode_ext(head: CommandHead, header_type: type[T]) -> T:
    """Decode extFields into a typed header; HeaderFieldError says which field is wrong and how."""
    sent = head.ext_fields
    if type(sent) is header_type:
        return sent
    if isinstance(sent, msgspec.Raw):
        decode = _typed_decoders.get(header_type) or _typed_decoder(header_type)
        try:
            header: T = decode(sent)
            return header
        except _UNREADABLE:
            pass  # The slow way also accepts numbers where text is expected, and nulls.
    return convert_ext(ext_dict(head), header_type)


def convert_ext(fields: dict[str, str], header_type: type[T]) -> T:
    """Turn the texts of extFields into a typed header."""
    try:
        return msgspec.convert(fields, header_type, strict=False)
    except msgspec.ValidationError as failure:
        raise HeaderFieldError(header_type.__name__, _reason(str(failure), fields)) from failure


def ext_dict(head: CommandHead) -> dict[str, str]:
    """The text of every field that is not null, unknown ones included."""
    sent = head.ext_fields
    if sent is None:
        return {}
    if isinstance(sent, dict):
        return sent
    if isinstance(sent, msgspec.Struct):
        return ext_fields_of(sent)
    try:
        return _decode_texts(sent)
    except _UNREADABLE:
        return _texts_of_any(sent)


def ext_fields_of(header: msgspec.Struct) -> dict[str, str]:
    """The wire form of a typed header: numbers in decimal, `true` and `false`, None left out."""
    fields = {}
    for attribute, name in zip(header.__struct_fields__, header.__struct_encode_fields__, strict=True):
        value = getattr(header, attribute)
        if value is not None:
            fields[name] = value if type(value) is str else _text_of(value)
    return fields


def _typed_decoder(header_type: type[T]) -> Callable[[msgspec.Raw], T]:
    decode = msgspec.json.Decoder(header_type, strict=False).decode
    _typed_decoders[header_type] = decode
    return decode


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, IntEnum) else str(value)


def _texts_of_any(sent: msgspec.Raw) -> dict[str, str]:
    """The slow way: numbers, booleans and nested values become their JSON text, as fastjson has it."""
    try:
        fields = msgspec.json.decode(sent, type=dict[str, msgspec.Raw] | None) or {}
        texts = {key: _text_of_raw(bytes(value)) for key, value in fields.items()}
    except _UNREADABLE as failure:
        raise ProtocolError(f"extFields of {len(bytes(sent))} bytes cannot be read: {failure}") from failure
    return {key: text for key, text in texts.items() if text is not None}


def _text_of_raw(value: bytes) -> str | None:
    if value.startswith(b'"'):
        return _decode_text(value)
    return None if value == b"null" else value.decode()


_AT_FIELD: Final = re.compile(r"(?P<what>.*) - at `\$\.(?P<field>.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>.*)`")


def _reason(message: str, fields: dict[str, str]) -> str:
    if missing := _MISSING.fullmatch(message):
        return f"required field {missing['field']} is missing"
    if wrong := _AT_FIELD.fullmatch(message):
        return f"field {wrong['field']} is {fields.get(wrong['field'], '')!r:.80}: {wrong['what'].lower()}"
    return message
