"""Conditions on message bodies: they contain a text, or a JSON value at a path.

Paths are written `order.items[0].sku`, also with `$.` before; `[*]` stands for every element of an array.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kourou.admin.messages.message_view import body_or_stored
from kourou.errors import ConfigError
from kourou.protocol.message import MessageExt

_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9}|\*)\]")
_ANY: Final = None
_MAX_STEPS: Final = 32


def body_contains(text: str) -> Callable[[MessageExt], bool]:
    """A condition: the body contains a text in UTF-8, letter for letter."""
    wanted = text.encode()
    return lambda message: wanted in body_or_stored(message)


def body_has_json(path: str, value: str | None = None) -> Callable[[MessageExt], bool]:
    """A condition: the body is JSON and has this value at a path, or any value. `value` is compared as text
    and as JSON, so that `5` finds the number and the string. ConfigError for an invalid path."""
    steps = parse_path(path)
    wanted = _wanted(value)

    def matches(message: MessageExt) -> bool:
        try:
            document = msgspec.json.decode(body_or_stored(message))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        return any(wanted is None or _is_one_of(found, wanted) for found in values_at(document, steps))

    return matches


def parse_path(path: str) -> list[str | int | None]:
    """The steps of a path: keys, indexes, and None for every element. ConfigError if it is invalid."""
    rest = path.removeprefix("$")
    steps: list[str | int | None] = []
    while rest:
        step = _STEP.match(rest)
        if step is None or len(steps) == _MAX_STEPS:
            raise ConfigError(f"{path!r} is not a path in JSON; write it like order.items[0].sku")
        key, index = step.groups()
        steps.append(key if key is not None else _ANY if index == "*" else int(index))
        rest = rest[step.end() :]
    if not steps:
        raise ConfigError("the path in JSON is empty; write it like order.items[0].sku")
    return steps


def values_at(document: Any, steps: list[str | int | None]) -> list[Any]:
    """The values at a path; empty if there is none."""
    found = [document]
    for step in steps:
        if step is _ANY:
            found = [element for one in found if isinstance(one, list) for element in one]
        elif isinstance(step, int):
            found = [one[step] for one in found if isinstance(one, list) and step < len(one)]
        else:
            found = [one[step] for one in found if isinstance(one, dict) and step in one]
    return found


def _wanted(value: str | None) -> list[Any] | None:
    if value is None:
        return None
    try:
        return [value, msgspec.json.decode(value)]
    except (msgspec.DecodeError, RecursionError):
        return [value]


def _is_one_of(found: Any, wanted: list[Any]) -> bool:
    # In Python True == 1; in JSON it is not.
    return any(isinstance(one, bool) is isinstance(found, bool) and one == found for one in wanted)
