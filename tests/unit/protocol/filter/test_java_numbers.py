"""Numbers as Java reads and orders them."""

from __future__ import annotations

import math

import pytest

from kourou.protocol.filter.java_numbers import (
    compare_doubles,
    compare_numbers,
    read_double,
    read_integer,
    read_long,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("007", 7),
        ("0000000000007", 7),
        ("\uff15", 5),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
    ],
)
def test_whole_numbers(text: str, value: int) -> None:
    assert read_integer(text) == read_long(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "+", "-", " 5", "5 ", "5.0", "1e3", "1_0", "0x1", "--5", "x", "²", "\U0001d7d3", "5l", "9" * 5_000],
)
def test_what_is_no_whole_number(text: str) -> None:
    for read in (read_integer, read_long):
        with pytest.raises(ValueError):
            read(text)


def test_whole_numbers_have_a_range() -> None:
    for text in ("2147483648", "-2147483649"):
        assert read_long(text) == int(text)
        with pytest.raises(ValueError, match="out of range"):
            read_integer(text)
    for text in ("9223372036854775808", "-9223372036854775809"):
        with pytest.raises(ValueError, match="out of range"):
            read_long(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("-1.5e-3", -0.0015),
        ("1E5", 100_000.0),
        (" 5.5\t", 5.5),
        ("5.5f", 5.5),
        ("5D", 5.0),
        ("1e400", math.inf),
        ("-Infinity", -math.inf),
        ("0x1.1p3", 8.5),
        ("-0X.8P1d", -1.0),
        ("0x1p99999", math.inf),
        ("-0x1p99999", -math.inf),
    ],
)
def test_doubles(text: str, value: float) -> None:
    assert read_double(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "+", "e5", "5e", "nan", "inf", "infinity", "1_0.0", "0x1", "5ff", "\uff15.0", "\u00a05"],
)
def test_what_is_no_double(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        read_double(text)


def test_nan_is_above_all_and_minus_zero_below_zero() -> None:
    order = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, read_double("NaN")]
    for place, left in enumerate(order):
        for other, right in enumerate(order):
            assert compare_doubles(left, right) == (place > other) - (place < other), (left, right)


def test_a_whole_number_beside_a_double_loses_what_a_double_cannot_hold() -> None:
    assert compare_numbers(2**53 + 1, float(2**53)) == 0
    assert compare_numbers(2**53 + 1, 2**53) == 1
    assert compare_numbers(1, 1.5) == -1
