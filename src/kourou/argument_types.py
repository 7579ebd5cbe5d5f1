"""Types of the arguments of public functions: a wrong one is refused by the argument's name.

    send_timeout_ms must be an int, not str ('3000')

An int is anything with `__index__` (numpy's integers, members of an IntEnum) except a bool; a path is a
str or any PathLike. Not here: ranges and choices, which are checked where the argument is used.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

_NOUNS: Final[dict[Any, str]] = {
    int: "an int",
    bool: "a bool",
    str: "a str",
    Path: "a Path",
    Sequence[str]: "a list of str",
    NoneType: "None",
}


def wrong_type(name: str, wanted: str, value: object) -> TypeError:
    """The error for an argument that is not `wanted`.

    >>> str(wrong_type("send_timeout_ms", "an int", "3000"))
    "send_timeout_ms must be an int, not str ('3000')"
    """
    given = "None" if value is None else f"{type(value).__name__} ({value!r:.100})"
    return TypeError(f"{name} must be {wanted}, not {given}")


def is_int(value: object) -> bool:
    """Whether `value` can be used as an int; True and False are not meant as numbers."""
    return type(value) is int or (hasattr(type(value), "__index__") and not isinstance(value, bool))


def check_int(name: str, value: object, *, at_least: int | None = None) -> None:
    """TypeError unless `value` is an int, ValueError if it is below `at_least`."""
    if not is_int(value):
        raise wrong_type(name, "an int", value)
    if at_least is not None and value < at_least:  # type: ignore[operator]
        raise ValueError(f"{name} is {value}; it must be at least {at_least}")


def check_str(name: str, value: object) -> None:
    """TypeError unless `value` is text."""
    if not isinstance(value, str):
        raise wrong_type(name, "a str", value)


class _FieldType(NamedTuple):
    name: str
    members: tuple[Any, ...]
    wanted: str


def check_field_types(settings: object) -> None:
    """TypeError for the first field of a dataclass whose value is not of the annotated type.

    Protocols, literals and collections of objects are left to the checks of the dataclass itself.
    """
    for name, members, wanted in _field_types(type(settings)):  # type: ignore[arg-type]
        value = getattr(settings, name)
        if type(value) not in members and not any(_fits(value, member) for member in members):
            raise wrong_type(name, wanted, value)


@lru_cache(maxsize=64)
def _field_types(owner: type[object]) -> tuple[_FieldType, ...]:
    hints = get_type_hints(owner)
    found = []
    for field in fields(owner):  # type: ignore[arg-type]
        hint = hints[field.name]
        members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if all(_is_checkable(member) for member in members):
            found.append(_FieldType(field.name, members, _joined([_noun(member) for member in members])))
    return tuple(found)


def _is_checkable(member: Any) -> bool:
    return member in _NOUNS or (isinstance(member, type) and not getattr(member, "_is_protocol", False))


def _noun(member: Any) -> str:
    return _NOUNS.get(member) or f"a {member.__name__}"


def _joined(nouns: list[str]) -> str:
    return " or ".join([", ".join(nouns[:-1]), nouns[-1]]) if len(nouns) > 1 else nouns[0]


def _fits(value: object, member: Any) -> bool:
    if member is int:
        return is_int(value)
    if member is Path:
        return isinstance(value, os.PathLike)
    if member == Sequence[str]:
        return isinstance(value, Collection) and all(isinstance(each, str) for each in value)
    return isinstance(value, member)
