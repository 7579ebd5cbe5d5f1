"""Fitting: converts a plain tree to a shape, as leniently as fastjson.

Numbers may come as text, booleans as 0 and 1, enums as ordinals or names in any case; a null or an
unknown enum name keeps the default, unknown fields are ignored, a `$ref` is followed.
Raises ProtocolError naming the path and what was expected there.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec
from msgspec import inspect as mi

from kourou.errors import ProtocolError
from kourou.protocol import fastjson
from kourou.protocol.bodies.shape import ReshapedBody

_ORDINAL: Final = mi.IntType(ge=0, le=2**31 - 1)
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}


def fit(tree: object, shape: Any) -> Any:
    """`tree` as an instance of `shape`, a Struct or any type made of them."""
    fitted = _Fitter(tree).fit(tree, type_info(shape))
    if fitted is None:
        raise ProtocolError("expected a value, got null")
    return fitted


@lru_cache(maxsize=512)
def type_info(shape: Any) -> mi.Type:
    """What msgspec knows of `shape`; looked up once."""
    return mi.type_info(shape)


def has_alternates(kind: mi.Type) -> bool:
    """Whether any shape within `kind` is a ReshapedBody: a plain typed decode would lose its other forms."""
    if isinstance(kind, mi.StructType):
        return issubclass(kind.cls, ReshapedBody) or any(has_alternates(field.type) for field in kind.fields)
    if isinstance(kind, mi.DictType):
        return has_alternates(kind.key_type) or has_alternates(kind.value_type)
    if isinstance(kind, mi.ListType):
        return has_alternates(kind.item_type)
    if isinstance(kind, mi.UnionType):
        return any(has_alternates(each) for each in kind.types)
    return isinstance(kind, mi.Metadata) and has_alternates(kind.type)


@lru_cache(maxsize=512)
def _is_flat(shape: type[msgspec.Struct]) -> bool:
    """Whether a shape has one form, and only text and numbers in it."""
    info = type_info(shape)
    assert isinstance(info, mi.StructType)
    kinds = (field.type.type if isinstance(field.type, mi.Metadata) else field.type for field in info.fields)
    is_plain = all(isinstance(kind, mi.StrType | mi.IntType | mi.FloatType | mi.BoolType) for kind in kinds)
    return is_plain and not issubclass(shape, ReshapedBody)


class _Fitter:
    """One fitting. `None` stands for "keep the default" throughout."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._path: list[object] = []
        # What each $ref led to. Shared as in Java, and so that refs to refs cannot multiply the work.
        self._shared: dict[tuple[int, int], Any] = {}
        self._fits: dict[type[mi.Type], Callable[[Any, Any], Any]] = {
            mi.AnyType: self._any,
            mi.StructType: self._struct,
            mi.DictType: self._dict,
            mi.ListType: self._list,
            mi.StrType: self._str,
            mi.IntType: self._int,
            mi.FloatType: self._float,
            mi.BoolType: self._bool,
            mi.EnumType: self._enum,
            mi.UnionType: self._optional,
            mi.Metadata: self._annotated,
        }

    def fit(self, value: Any, kind: mi.Type) -> Any:
        if value is None:
            return None
        path = fastjson.reference(value)
        if path is not None:
            return self._referred(path, kind)
        return self._fits[type(kind)](value, kind)

    def _fail(self, expected: str, value: object) -> NoReturn:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self._path)
        raise ProtocolError(f"{where.lstrip('.')[:200] or 'body'}: expected {expected}, got {_shown(value)}")

    def _within(self, step: object, value: object, kind: mi.Type) -> Any:
        if len(self._path) >= fastjson.MAX_NESTING:
            self._fail(f"at most {fastjson.MAX_NESTING} levels of nesting", value)
        self._path.append(step)
        fitted = self.fit(value, kind)
        self._path.pop()
        return fitted

    def _referred(self, path: str, kind: mi.Type) -> Any:
        target = fastjson.resolve(self._root, path)
        known = (id(target), id(kind))
        if known not in self._shared:
            self._shared[known] = self  # a mark: still at work
            self._shared[known] = self._within("$ref", target, kind)
        if self._shared[known] is self:
            self._fail("a $ref to something finished", path)
        return self._shared[known]

    def _any(self, value: object, kind: mi.AnyType) -> Any:
        if isinstance(value, dict):
            return {key: self._within(key, each, kind) for key, each in value.items()}
        if isinstance(value, list):
            return [self._within(index, each, kind) for index, each in enumerate(value)]
        return value

    def _annotated(self, value: object, kind: mi.Metadata) -> Any:
        return self.fit(value, kind.type)

    def _optional(self, value: object, kind: mi.UnionType) -> Any:
        inner = next(each for each in kind.types if not isinstance(each, mi.NoneType))
        return self.fit(value, inner)

    def _struct(self, value: object, kind: mi.StructType) -> Any:
        if not isinstance(value, dict):
            self._fail("an object", value)
        if _is_flat(kind.cls):
            # Tables have tens of thousands of these. What does not convert is fitted below.
            with suppress(msgspec.ValidationError):
                return msgspec.convert(value, kind.cls, strict=False)
        tree = kind.cls.reshape(value) if issubclass(kind.cls, ReshapedBody) else value
        found: dict[str, Any] = {}
        for field in kind.fields:
            fitted = self._within(field.encode_name, tree.get(field.encode_name), field.type)
            if fitted is not None:
                found[field.name] = fitted
        return kind.cls(**found)

    def _dict(self, value: object, kind: mi.DictType) -> dict[Any, Any]:
        if not isinstance(value, dict):
            self._fail("a map", value)
        found = {}
        for key, each in value.items():
            fitted = self._within(key, each, kind.value_type)
            if fitted is not None:
                found[self._key(key, kind.key_type)] = fitted
        return found

    def _key(self, key: str | fastjson.ObjectKey, kind: mi.Type) -> Any:
        if not isinstance(kind, mi.StructType):
            return self.fit(key, kind)
        if isinstance(key, fastjson.ObjectKey):
            return self._struct(dict(key), kind)
        # fastjson 1 also reads a key that is text holding the JSON of the object.
        if _is_flat(kind.cls):
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(key, type=kind.cls, strict=False)
        return self._struct(fastjson.parse(key), kind)

    def _list(self, value: object, kind: mi.ListType) -> list[Any]:
        if not isinstance(value, list):
            self._fail("a list", value)
        fitted = [self._within(index, each, kind.item_type) for index, each in enumerate(value)]
        return [each for each in fitted if each is not None]

    def _str(self, value: object, kind: mi.StrType) -> str:
        if isinstance(value, str):
            return value
        try:
            return fastjson.write(value).decode()
        except (TypeError, RecursionError):
            self._fail("text", value)

    def _int(self, value: object, kind: mi.IntType) -> int:
        try:
            number = int(value) if isinstance(value, str | int) else _whole(value)
        except (ValueError, OverflowError):
            self._fail("an integer", value)
        if (kind.ge is not None and number < kind.ge) or (kind.le is not None and number > kind.le):
            self._fail(f"an integer from {kind.ge} to {kind.le}", value)
        return number

    def _float(self, value: object, kind: mi.FloatType) -> float:
        try:
            return float(value)  # type: ignore[arg-type]  # whatever it is, it fits or it does not
        except (ValueError, TypeError, OverflowError):
            self._fail("a number", value)

    def _bool(self, value: object, kind: mi.BoolType) -> bool:
        found = _BOOLEANS.get(str(value).lower()) if isinstance(value, str | int) else None
        if found is None:
            self._fail("a boolean", value)
        return found

    def _enum(self, value: object, kind: mi.EnumType) -> enum.Enum | None:
        if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
            ordinal = self._int(value, _ORDINAL)
            members = list(kind.cls)
            return members[ordinal] if ordinal < len(members) else None
        if isinstance(value, str):
            return kind.cls.__members__.get(value.upper())
        self._fail("the name or ordinal of an enum", value)


def _whole(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueError(value)


def _shown(value: object) -> str:
    """A little of `value`; never a walk through all of it, which may be large and deep."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return repr(value[:60]) if isinstance(value, str) else str(value)[:60]
