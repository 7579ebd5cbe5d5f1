"""Configuration keys: name, type, default, range, documentation.

A key is declared once. One that is honoured is a field of its component's frozen dataclass, declared
with `setting()` (`broker_settings.py`, `store_settings.py`, `remoting.py`, `namesrv.py`); one that is
accepted without effect stands in a table with what happens instead (`broker_without_effect.py`,
`store_without_effect.py`, `other_keys.py`). Parser, checks and reference are derived from these.
Not here: reading a file against the keys (settings.py).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kourou.wording import nearest

Value = bool | int | float | str | None


class ValueType(Enum):
    """The types Apache's configuration classes use. INT and LONG are Java's, 32 and 64 bits."""

    BOOL = "true or false"
    INT = "a whole number"
    LONG = "a whole number of up to 64 bits"
    DOUBLE = "a number"
    STRING = "text"
    ENUM = "one of a list"


BOOL, INT, LONG, DOUBLE = ValueType.BOOL, ValueType.INT, ValueType.LONG, ValueType.DOUBLE
STRING, ENUM = ValueType.STRING, ValueType.ENUM

_RANGES: Final = {ValueType.INT: (-(2**31), 2**31 - 1), ValueType.LONG: (-(2**63), 2**63 - 1)}

_PYTHON_TYPES: Final[Mapping[ValueType, tuple[type, ...]]] = {
    ValueType.BOOL: (bool,),
    ValueType.INT: (int,),
    ValueType.LONG: (int,),
    ValueType.DOUBLE: (int, float),
    ValueType.STRING: (str,),
    ValueType.ENUM: (str,),
}

_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class BadValueError(ValueError):
    """A value that its key does not allow; the message states what is allowed."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a configuration file."""

    name: str
    type: ValueType
    default: Value = None
    # For a key without effect: what Kourou does instead, in one line.
    instead: str = ""
    # The section and the text of the key in docs/configuration.md.
    section: str = ""
    doc: str = ""
    # Whether a change by request takes effect at once; otherwise at the next start.
    live: bool = True
    # Never changed by request, whatever configBlackList contains.
    protected: bool = False
    # Spellings of older RocketMQ versions and documents that mean this key.
    old_names: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    # A number outside low..high is clamped with a note, not refused: Apache clamps silently, and its
    # files must start here.
    clamped: bool = False
    choices: tuple[str, ...] = ()
    # Kept in files, left out of responses and output.
    secret: bool = False
    # Shown by -m.
    important: bool = False
    # Printed even when it has its default; the others only when they were set.
    shown: bool = True
    # Why any value but the default is refused, or those of `refused_choices` if there are some: a
    # value that promises a missing feature must not be accepted with a note.
    refused: str = ""
    refused_choices: tuple[str, ...] = ()
    # For text with a syntax of its own: returns what a value must be, or None if it is valid.
    check: Callable[[str], str | None] | None = None

    def parse(self, text: str) -> Value:
        """Turn text into a value of the key's type; BadValueError states what is allowed."""
        value = self._parse(text.strip())
        if self.refused and value != self.default and value in (self.refused_choices or (value,)):
            raise BadValueError(self.refused)
        return value

    def check_value(self, value: object) -> None:
        """Raise BadValueError if a value set by a program is not one of the key's; None is allowed where
        it is the default. `refused` is not checked here, but where the configuration is used."""
        if value is None and self.default is None:
            return
        if not isinstance(value, _PYTHON_TYPES[self.type]) or isinstance(value, bool) is not self._is_bool:
            raise BadValueError(f"must be {'True or False' if self._is_bool else self.allowed}")
        if isinstance(value, str):
            self._check_text(value)
        elif self.type in _RANGES and isinstance(value, int):
            self._check_range(value)

    def _parse(self, stripped: str) -> Value:
        match self.type:
            case ValueType.BOOL:
                return self._parse_bool(stripped)
            case ValueType.INT | ValueType.LONG:
                return self._parse_int(stripped)
            case ValueType.DOUBLE:
                return self._parse_double(stripped)
            case ValueType.ENUM:
                return self._parse_enum(stripped)
            case ValueType.STRING:
                return self._parse_string(stripped)

    @property
    def allowed(self) -> str:
        """The allowed values, for an error message."""
        if self.type is ValueType.ENUM:
            return " or ".join(self.choices)
        if self.type in _RANGES:
            low, high = self._range()
            return f"a whole number from {low} to {high}"
        return str(self.type.value)

    @property
    def _is_bool(self) -> bool:
        return self.type is ValueType.BOOL

    def clamp(self, value: Value) -> Value:
        """The value, moved into the range if the key is clamped."""
        if not self.clamped or not isinstance(value, int):
            return value
        low, high = self._range()
        return min(max(value, low), high)

    def _range(self) -> tuple[int, int]:
        low, high = _RANGES.get(self.type, _RANGES[ValueType.LONG])
        return (low if self.low is None else self.low, high if self.high is None else self.high)

    def _parse_bool(self, text: str) -> bool:
        # Java takes everything but "true" for false; a typo must not switch something off silently.
        if text.lower() not in ("true", "false"):
            raise self._bad(text)
        return text.lower() == "true"

    def _parse_int(self, text: str) -> int:
        digits = text.removeprefix("-").removeprefix("+")
        if not (digits.isascii() and digits.isdigit() and len(text) - len(digits) <= 1 and len(digits) < 20):
            raise self._bad(text)
        value = int(text)
        self._check_range(value)
        return value

    def _check_range(self, value: int) -> None:
        low, high = _RANGES[self.type] if self.clamped else self._range()
        if not low <= value <= high:
            raise BadValueError(f"must be {self.allowed}")

    def _parse_double(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise self._bad(text) from None

    def _parse_enum(self, text: str) -> str:
        for choice in self.choices:
            if choice.lower() == text.lower():
                return choice
        raise self._bad(text)

    def _parse_string(self, text: str) -> str:
        self._check_text(text)
        return text

    def _check_text(self, text: str) -> None:
        if self.type is ValueType.ENUM and text not in self.choices:
            raise self._bad(text)
        wrong = self.check(text) if self.check is not None else None
        if wrong is not None:
            raise BadValueError(f"must be {wrong}")

    def _bad(self, text: str) -> BadValueError:
        hint = "; a comment needs a line of its own" if "#" in text else ""
        return BadValueError(f"must be {self.allowed}{hint}")


def format_value(value: Value) -> str:
    """The text of a value as Java prints it; None is the empty text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


class KeyTable:
    """Keys by their names, old names included. A later table does not replace an earlier key."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys: dict[str, Key] = {}
        for key in keys:
            for name in (key.name, *key.old_names):
                self._keys.setdefault(name, key)

    def find(self, name: str) -> Key | None:
        """The key of that exact name or old name."""
        return self._keys.get(name)

    def names(self) -> Iterator[str]:
        """Every name understood, old ones included."""
        return iter(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(dict.fromkeys(self._keys.values()))

    def __add__(self, other: KeyTable) -> KeyTable:
        return KeyTable([*self, *other])

    def nearest(self, name: str) -> str | None:
        """The known name most like this one, or None when none is close."""
        return nearest(name, self._keys, likeness=0.75)


def keys(value_type: ValueType, instead: str, /, **defaults: Value) -> tuple[Key, ...]:
    """Several keys of one type without effect, name to default, with what happens instead."""
    return tuple(Key(name, value_type, default, instead) for name, default in defaults.items())


def attribute_name(key_name: str) -> str:
    """The attribute of a key: RocketMQ's name in Python's spelling.

    >>> attribute_name("brokerIP1"), attribute_name("checkCRCOnRecover")
    ('broker_ip1', 'check_crc_on_recover')
    """
    return _WORD_START.sub("_", key_name).lower()


def setting(
    section: str, name: str, value_type: ValueType, default: Value, doc: str, /, **options: Any
) -> Any:
    """Declare a key that is honoured: a dataclass field for its value. `options` are fields of `Key`."""
    return key_field(Key(name, value_type, default, section=section, doc=doc, **options))


def key_field(key: Key) -> Any:
    """A dataclass field that holds the value of a key."""
    return dataclasses.field(default=key.default, repr=not key.secret, metadata={"key": key})


@functools.cache
def settings_of(config_type: type) -> Mapping[str, tuple[str, Key]]:
    """Key name to attribute and key, for every field of a dataclass that holds a key's value."""
    fields = [field for field in dataclasses.fields(config_type) if "key" in field.metadata]
    return {field.metadata["key"].name: (field.name, field.metadata["key"]) for field in fields}
