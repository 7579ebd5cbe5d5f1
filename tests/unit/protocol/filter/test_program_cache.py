"""Programs are compiled once, and not kept without bounds."""

from __future__ import annotations

import pytest

from kourou.errors import FilterSyntaxError
from kourou.protocol.filter import compile_filter
from kourou.protocol.filter.parser import MAX_EXPRESSION_CHARS
from kourou.protocol.filter.program_cache import ProgramCache


def test_a_text_is_compiled_once() -> None:
    assert compile_filter("a = 1") is compile_filter("a = " + "1")


def test_a_text_that_does_not_compile_is_refused_the_same_way_each_time() -> None:
    cache = ProgramCache()
    errors = []
    for _ in range(2):
        with pytest.raises(FilterSyntaxError) as caught:
            cache.compile("a >")
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1]) and errors[0] is not errors[1]
    assert len(cache) == 1


def test_the_texts_used_last_are_kept() -> None:
    cache = ProgramCache(max_chars=3 * 300)
    first = cache.compile("a = 1")
    cache.compile("a = 2")
    cache.compile("a = 3")
    assert cache.compile("a = 1") is first
    cache.compile("a = 4")
    assert len(cache) == 3
    assert cache.compile("a = 1") is first


def test_long_texts_take_the_room_of_many_and_too_long_ones_none() -> None:
    cache = ProgramCache(max_chars=70_000)
    for number in range(100):
        cache.compile(f"a = {number}")
    cache.compile("a = 1".ljust(60_000))
    kept = len(cache)
    assert 1 < kept < 100
    with pytest.raises(FilterSyntaxError):
        cache.compile("a" * 2 * MAX_EXPRESSION_CHARS)
    assert len(cache) == kept
