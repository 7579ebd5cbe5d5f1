"""SQL92 filters made at random: programs against plain evaluation, the parser against text, and garbage."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import FilterSyntaxError
from kourou.protocol.filter import FilterProgram
from kourou.protocol.filter.expressions import (
    And,
    Compare,
    Comparison,
    Equal,
    Expression,
    Find,
    In,
    IsNull,
    Negative,
    Not,
    Number,
    NumberType,
    Or,
    Property,
    Search,
    Text,
    Truth,
)
from kourou.protocol.filter.parser import parse
from kourou.protocol.filter.tokens import KEYWORDS
from tests.unit.protocol.filter.reference import Incomparable, evaluate, render

NAMES = ("a", "b", "c")
TEXTS = st.sampled_from(
    ["", "x", "xx", "it's", "5", "7", "-5", "+5", "7.5", "1e3", "true", "FALSE", "3000000000", "1_0", "."]
)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES), TEXTS.filter(bool), max_size=3)

properties = st.sampled_from(NAMES).map(Property)
numbers = st.one_of(
    st.sampled_from([0, 1, 5, 7, 1000, 2**31 - 1]).map(lambda value: Number(value, NumberType.INTEGER)),
    st.sampled_from([2**31, 3_000_000_000]).map(lambda value: Number(value, NumberType.LONG)),
    st.sampled_from([0.5, 5.0, 7.5, 1000.0]).map(lambda value: Number(value, NumberType.DOUBLE)),
)
truths = st.sampled_from([True, False]).map(Truth)
texts = TEXTS.map(Text)


def conditions(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Every node that the parser lets stand over conditions, properties and literals."""
    bare = st.one_of(properties, inner)
    countable = st.one_of(properties, numbers, numbers.map(Negative), properties.map(Negative))
    comparable = st.one_of(properties, texts, numbers, inner, numbers.map(Negative), inner.map(Negative))
    return st.one_of(
        st.lists(bare, min_size=2, max_size=4).map(tuple).map(And),
        st.lists(bare, min_size=2, max_size=4).map(tuple).map(Or),
        bare.map(Not),
        st.builds(Equal, comparable, comparable).filter(is_allowed),
        st.builds(Compare, st.sampled_from(Comparison), countable, countable),
        comparable.map(IsNull),
        st.builds(In, st.sampled_from(NAMES), st.frozensets(TEXTS, min_size=1, max_size=4)),
        st.builds(Find, st.sampled_from(Search), comparable, TEXTS, st.booleans()),
    )


def is_allowed(node: Equal) -> bool:
    is_truth = isinstance(node.left, Truth)
    return Truth(None) not in (node.left, node.right) and not (
        is_truth and isinstance(node.right, Text | Number)
    )


EXPRESSIONS = st.recursive(st.one_of(truths, st.just(Truth(None))), conditions, max_leaves=12)


@given(EXPRESSIONS)
def test_the_parser_reads_back_what_an_expression_says(expression: Expression) -> None:
    assert parse(render(expression)) == expression


@given(EXPRESSIONS, PROPERTIES)
def test_programs_say_what_plain_evaluation_says(expression: Expression, given: dict[str, str]) -> None:
    program = FilterProgram(render(expression))
    try:
        expected: bool | None | str = evaluate(expression, given)
    except Incomparable:
        expected = "error"
    try:
        found: bool | None | str = program.evaluate(given.get)
    except ValueError:
        found = "error"
    assert found is expected or found == expected == "error"
    assert program.matches(given.get) is (expected is True)


WORDS = st.one_of(
    st.sampled_from(sorted(KEYWORDS)),
    st.sampled_from(
        [
            "a",
            "b",
            "'x'",
            "''",
            "'",
            "1",
            "0",
            "1.5",
            ".5",
            "1e5",
            "(",
            ")",
            ",",
            "=",
            "<>",
            ">",
            ">=",
            "<",
            "<=",
        ]
    ),
    st.sampled_from(["+", "-", "--", "/*", "*/", "\n", "!", "%", "LIKE", '"', "9" * 30, "1e999", "中", "\0"]),
)


@given(st.one_of(st.text(), st.lists(WORDS).map(" ".join), st.lists(WORDS).map("".join)))
def test_any_text_is_a_program_or_a_syntax_error(text: str) -> None:
    try:
        program = FilterProgram(text)
    except FilterSyntaxError as error:
        assert 0 <= error.position <= len(text)
        assert text[error.position :].startswith(error.piece)
    else:
        assert program.matches({}.get) in (True, False)


@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(1, 5_000))
def test_repetition_neither_overflows_nor_takes_long(words: list[str], times: int) -> None:
    text = " ".join(words * times)[:20_000]
    begin = time.process_time()
    try:
        FilterProgram(text).matches({"a": "1"}.get)
    except FilterSyntaxError:
        pass
    assert time.process_time() - begin < 5
