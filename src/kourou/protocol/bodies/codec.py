"""decode_body and encode_body: bytes of a body to its shape and back.

Decoding first tries msgspec, which reads our own and most Java bodies; anything else goes through the
tolerant parser. Encoding writes as fastjson does: names in
alphabetical order, nulls left out, no spaces, MessageQueue keys in place.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect as mi

from kourou.errors import ProtocolError
from kourou.protocol import fastjson
from kourou.protocol.bodies.fitting import fit, has_alternates, type_info

T = TypeVar("T")

_STRICT_JSON_FAILED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SORTED: Final = msgspec.json.Encoder(order="sorted")


def decode_body(raw: bytes, shape: type[T]) -> T:
    """Read `raw` as a `shape`: a Struct, or a list or dict of them.

    Raises ProtocolError, naming the shape, the place and what was expected there.
    """
    decoder = _decoder(cast(Hashable, shape))
    # A $ref would look to msgspec like an object with every field left out. One byte is found forty
    # times faster than six, and hardly any body has it.
    if decoder is not None and (b"$" not in raw or b'"$ref"' not in raw):
        try:
            decoded: T = decoder.decode(raw)
            return decoded
        except _STRICT_JSON_FAILED:
            pass
    try:
        fitted: T = fit(_tree(raw), shape)
    except ProtocolError as error:
        raise ProtocolError(f"{getattr(shape, '__name__', shape)}: {error}") from None
    return fitted


def encode_body(body: object, *, v4: bool = False, bare_int_keys: bool = False) -> bytes:
    """Write `body` as fastjson would.

    `v4` leaves out the fields that RocketMQ 4.x does not have. `bare_int_keys` writes integer map
    keys without quotes, as Apache does unless standard JSON is requested.
    """
    return fastjson.write(_to_tree(body, v4), bare_int_keys=bare_int_keys)


def convert_body(tree: Any, shape: type[T]) -> T:
    """`tree`, which does not come from JSON text, as a `shape`."""
    try:
        return msgspec.convert(tree, shape, strict=False)
    except msgspec.ValidationError:
        fitted: T = fit(tree, shape)
        return fitted


@lru_cache(maxsize=512)
def _decoder(shape: Hashable) -> msgspec.json.Decoder[Any] | None:
    if has_alternates(type_info(shape)):
        return None
    return msgspec.json.Decoder(shape, strict=False)


def _tree(raw: bytes) -> Any:
    """Strict JSON at msgspec's speed; only what is not strict costs the Python parser."""
    for strict in (raw, fastjson.with_text_keys(raw)):
        if strict is not None:
            with suppress(*_STRICT_JSON_FAILED):
                return msgspec.json.decode(strict)
    return fastjson.parse(raw)


def _to_tree(value: object, v4: bool) -> Any:
    """`value` as a plain tree, fields in alphabetical order of their wire names."""
    if isinstance(value, msgspec.Struct):
        return _struct_tree(value, v4)
    if isinstance(value, dict):
        return {_key(key): _to_tree(each, v4) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_tree(each, v4) for each in value]
    return value


def _struct_tree(value: msgspec.Struct, v4: bool) -> Any:
    shape = type(value)
    maps = _sortable_maps(shape)
    # Not where it would sort the keys of maps too, which keep their order.
    if maps is not None and not v4 and all(len(getattr(value, name)) < 2 for name in maps):
        return msgspec.Raw(_SORTED.encode(value))
    found = {
        name: getattr(value, attribute)
        for name, attribute, since_v5 in _fields(shape)
        if not (v4 and since_v5)
    }
    if _is_flat(shape):
        return msgspec.Raw(msgspec.json.encode(found))
    return {name: _to_tree(each, v4) for name, each in found.items()}


def _key(key: object) -> Any:
    if not isinstance(key, msgspec.Struct):
        return key
    if _sortable_maps(type(key)) == ():
        return fastjson.KeyText(_SORTED.encode(key).decode())
    return fastjson.ObjectKey.of({name: getattr(key, attribute) for name, attribute, _ in _fields(type(key))})


@lru_cache(maxsize=512)
def _fields(shape: type[msgspec.Struct]) -> list[tuple[str, str, bool]]:
    """Wire name, attribute, and whether only 5.x has it; in the order fastjson writes them."""
    return sorted((each.encode_name, each.name, _is_v5(each.type)) for each in _struct_fields(shape))


@lru_cache(maxsize=512)
def _is_flat(shape: type[msgspec.Struct]) -> bool:
    """Whether msgspec writes the fields of `shape` just as fastjson would, for tables of thousands.

    True when no field can be null, holds another shape, or has keys other than text.
    """
    return not any(_has_structure(each.type) for each in _struct_fields(shape))


@lru_cache(maxsize=512)
def _sortable_maps(shape: type[msgspec.Struct]) -> tuple[str, ...] | None:
    """The attributes of a flat `shape` that are maps; None for another one, and where a map is within a list
    or a map."""
    fields = [(each.name, _bare(each.type)) for each in _struct_fields(shape)]
    if not _is_flat(shape) or any(_has_inner_map(kind) for _, kind in fields):
        return None
    return tuple(name for name, kind in fields if isinstance(kind, mi.DictType))


def _has_inner_map(kind: mi.Type) -> bool:
    if isinstance(kind, mi.DictType):
        inner = _bare(kind.value_type)
    elif isinstance(kind, mi.CollectionType):
        inner = _bare(kind.item_type)
    else:
        return False
    return isinstance(inner, mi.DictType) or _has_inner_map(inner)


def _bare(kind: mi.Type) -> mi.Type:
    return _bare(kind.type) if isinstance(kind, mi.Metadata) else kind


def _has_structure(kind: mi.Type) -> bool:
    kind = _bare(kind)
    if isinstance(kind, mi.ListType):
        return _has_structure(kind.item_type)
    if isinstance(kind, mi.DictType):
        return not isinstance(kind.key_type, mi.StrType) or _has_structure(kind.value_type)
    return isinstance(kind, mi.StructType | mi.UnionType | mi.AnyType)


def _struct_fields(shape: type[msgspec.Struct]) -> tuple[mi.Field, ...]:
    info = type_info(shape)
    assert isinstance(info, mi.StructType)
    return info.fields


def _is_v5(kind: mi.Type) -> bool:
    return isinstance(kind, mi.Metadata) and bool(kind.extra and "since" in kind.extra)
