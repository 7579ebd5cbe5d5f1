"""Numbers as Java reads them from a text, and the order it puts them in.

`Integer.valueOf`, `Long.valueOf` and `Double.valueOf` differ from Python's `int` and `float`: no blanks
around and no `_` inside a whole number, a range, `1.5f` and `0x1p3` are doubles, `nan` is none.
ValueError for a text that is no such number.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Final

MAX_INTEGER: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1

# What Java's `trim` takes off.
_BLANKS: Final = "".join(map(chr, range(0x21)))
_DECIMAL: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?))[fFdD]?"
)
_HEX: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED: Final = {
    f"{sign}{name}": float(f"{sign}{name}") for sign in ("", "+", "-") for name in ("NaN", "Infinity")
}
_BITS: Final = struct.Struct(">q")
_DOUBLE: Final = struct.Struct(">d")


def read_integer(text: str) -> int:
    """`Integer.valueOf`: 32 bits."""
    if len(text) < 10 and text.isdecimal() and text.isascii():
        return int(text)  # nearly all are such
    return _read_whole(text, MAX_INTEGER)


def read_long(text: str) -> int:
    """`Long.valueOf`: 64 bits."""
    return _read_whole(text, MAX_LONG)


def _read_whole(text: str, highest: int) -> int:
    digits = text[1:] if text.startswith(("+", "-")) else text
    # Digits of any script count, but not those that take two units of UTF-16.
    if not digits.isdecimal() or not (digits.isascii() or max(digits) <= "\uffff"):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    value = int(text)
    if not -highest - 1 <= value <= highest:
        raise ValueError(f"{text} is out of range")
    return value


def read_double(text: str) -> float:
    """`Double.valueOf`."""
    if text.isdecimal() and text.isascii():
        return float(text)
    text = text.strip(_BLANKS)
    if found := _DECIMAL.fullmatch(text):
        return float(found[1])
    if text in _NAMED:
        return _NAMED[text]
    if found := _HEX.fullmatch(text):
        return _from_hex(found[1])
    raise ValueError(f"{text[:40]!r} is not a number")


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def compare_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: below zero, zero, above zero. NaN is above all, -0.0 below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left:
        return 0
    left_bits, right_bits = _order_bits(left), _order_bits(right)
    return (left_bits > right_bits) - (left_bits < right_bits)


def compare_numbers(left: int | float, right: int | float) -> int:
    """As Java compares two numbers: if one is a double, the other becomes one, precise or not."""
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    return compare_doubles(float(left), float(right))


def _order_bits(value: float) -> int:
    bits: int = _BITS.unpack(_DOUBLE.pack(math.nan if value != value else value))[0]
    return bits
