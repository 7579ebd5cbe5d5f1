r"""Java `.properties` text, as RocketMQ's configuration files and config requests use it.

Read: `key=value`, `key: value`, `key value`; `#` and `!` start a comment line; a backslash at
the end of a line continues it; `\t \n \r \f \uXXXX` and `\` before any other character.
Written: one `key=value` a line, escaped so that Java and we read back what was meant.

Not here: what the keys mean (keys.py), files (properties_file.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANK: Final = " \t\f"
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_KEY_END: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_PLAIN_KEY: Final = re.compile(r"[\w.\-]+", re.ASCII)
_PLAIN_VALUE: Final = re.compile(r"(?! )[ -\[\]-~]*")
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class Property(NamedTuple):
    """One entry: its key, its value, and the line it starts on, counted from 1."""

    key: str
    value: str
    line: int


class _LogicalLine(NamedTuple):
    """A line with its continuations joined; `end` is the first line after it."""

    text: str
    line: int
    end: int


def parse_properties(text: str) -> list[Property]:
    """Read every entry in order, repeated keys included. Any text is acceptable, as in Java."""
    return [_entry(logical) for logical in _logical_lines(_LINE_END.split(text))]


def properties_dict(entries: Iterable[Property]) -> dict[str, str]:
    """Key to value; of a repeated key the last entry counts, as in Java."""
    return {entry.key: entry.value for entry in entries}


def format_properties(values: Mapping[str, str]) -> str:
    """Write `key=value` lines sorted by key, the way RocketMQ answers a config request."""
    return "".join(_format_entry(key, values[key]) + "\n" for key in sorted(values))


def merge_properties(text: str, changes: Mapping[str, str]) -> str:
    """Put changed values into existing text: comments, order and other keys stay as they are."""
    lines = _LINE_END.split(text.rstrip("\r\n")) if text.strip() else []
    left = dict(changes)
    merged: list[str] = []
    copied = 0
    for logical in _logical_lines(lines):
        merged += lines[copied : logical.line - 1]
        key = _entry(logical).key
        if key in changes:
            merged.append(_format_entry(key, changes[key]))
            left.pop(key, None)
        else:
            merged += lines[logical.line - 1 : logical.end - 1]
        copied = logical.end - 1
    merged += lines[copied:]
    merged += [_format_entry(key, left[key]) for key in sorted(left)]
    return "".join(line + "\n" for line in merged)


def _logical_lines(lines: list[str]) -> Iterator[_LogicalLine]:
    number = 0
    while number < len(lines):
        first = number
        joined = lines[number].lstrip(_BLANK)
        number += 1
        if not joined or joined[0] in "#!":
            continue
        while _continues(joined) and number < len(lines):
            joined = joined[:-1] + lines[number].lstrip(_BLANK)
            number += 1
        yield _LogicalLine(joined.removesuffix("\\") if _continues(joined) else joined, first + 1, number + 1)


def _continues(line: str) -> bool:
    """An odd number of backslashes at the end: the last one is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(logical: _LogicalLine) -> Property:
    key = _KEY_END.match(logical.text)
    assert key is not None  # the pattern matches the empty string
    separator = _SEPARATOR.match(logical.text, key.end())
    assert separator is not None
    return Property(_unescape(key.group()), _unescape(logical.text[separator.end() :]), logical.line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescape_one, text)
    # \ud83d\ude80 is one character outside the first plane, written as Java writes it.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescape_one(match: re.Match[str]) -> str:
    code, letter = match.groups()
    return chr(int(code, 16)) if code else _CONTROL.get(letter, letter)


def _format_entry(key: str, value: str) -> str:
    if _PLAIN_KEY.fullmatch(key) and _PLAIN_VALUE.fullmatch(value):
        return f"{key}={value}"
    escaped_key = "".join("\\" + char if char in "=: #!" else _escape(char) for char in key)
    escaped = "".join(map(_escape, value))
    return f"{escaped_key}=" + ("\\" + escaped if escaped.startswith(" ") else escaped)


def _escape(char: str) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
