"""What an expression says, and what is said about one that says nothing."""

from __future__ import annotations

import pytest

from kourou.errors import FilterSyntaxError, ProtocolError
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
from kourou.protocol.filter.parser import MAX_EXPRESSION_CHARS, parse

A, B, C = Property("a"), Property("b"), Property("c")
ONE = Number(1, NumberType.INTEGER)


def refused(expression: str) -> FilterSyntaxError:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(expression)
    return caught.value


@pytest.mark.parametrize(
    ("expression", "meaning"),
    [
        ("a", A),
        ("(((a)))", A),
        ("TRUE", Truth(True)),
        ("null", Truth(None)),
        ("a = 1", Equal(A, ONE)),
        ("a <> 1", Not(Equal(A, ONE))),
        ("a = 'it''s'", Equal(A, Text("it's"))),
        ("a = ''", Equal(A, Text(""))),
        ("a = 1l", Equal(A, ONE)),
        ("a = 2147483647", Equal(A, Number(2**31 - 1, NumberType.INTEGER))),
        ("a = 2147483648", Equal(A, Number(2**31, NumberType.LONG))),
        ("a = 1.", Equal(A, Number(1.0, NumberType.DOUBLE))),
        ("a = .5", Equal(A, Number(0.5, NumberType.DOUBLE))),
        ("a = 1e1", Equal(A, Number(10.0, NumberType.DOUBLE))),
        ("a = -1", Equal(A, Negative(ONE))),
        ("a = +1", Equal(A, ONE)),
        ("a = --1", Equal(A, Negative(Negative(ONE)))),
        ("a >= 1", Compare(Comparison.GREATER_OR_EQUAL, A, ONE)),
        ("1 < a", Compare(Comparison.LESS, ONE, A)),
        ("a IS NULL", IsNull(A)),
        ("a is not null", Not(IsNull(A))),
        ("a IN ('x', 'y', 'x')", In("a", frozenset({"x", "y"}))),
        ("a NOT IN ('x')", Not(In("a", frozenset({"x"})))),
        ("a CONTAINS 'x'", Find(Search.CONTAINS, A, "x", False)),
        ("a NOT STARTSWITH 'x'", Find(Search.STARTS_WITH, A, "x", True)),
        ("a endswith 'x'", Find(Search.ENDS_WITH, A, "x", False)),
        ("a AND b AND c", And((A, B, C))),
        ("a OR b AND c", Or((A, And((B, C))))),
        ("(a OR b) AND c", And((Or((A, B)), C))),
        ("NOT a AND b", And((Not(A), B))),
        ("NOT a = b", Equal(Not(A), B)),
        ("a = b = c", Equal(Equal(A, B), C)),
        ("a = b IS NULL", IsNull(Equal(A, B))),
        ("a = 1 > b", Equal(A, Compare(Comparison.GREATER, ONE, B))),
        (
            "a BETWEEN 1 AND b AND c",
            And(
                (
                    And(
                        (
                            Compare(Comparison.GREATER_OR_EQUAL, A, ONE),
                            Compare(Comparison.LESS_OR_EQUAL, A, B),
                        )
                    ),
                    C,
                )
            ),
        ),
        (
            "a NOT BETWEEN 1 AND b",
            Or((Compare(Comparison.LESS, A, ONE), Compare(Comparison.GREATER, A, B))),
        ),
    ],
)
def test_meanings(expression: str, meaning: Expression) -> None:
    assert parse(expression) == meaning


@pytest.mark.parametrize(
    "expression",
    [
        " a\t=\n1\r\f",
        "a=1",
        "/**/a/* = 2 */=/* ' */1",
        "-- first\na = -- then\r1 -- last\n",
        "a = 1 -- a line that doesn't end",
        "/*/ a */a = 1/***/",
    ],
)
def test_blanks_and_comments_say_nothing(expression: str) -> None:
    assert parse(expression) == Equal(A, ONE)


def test_names_keep_their_case_and_may_have_dollars() -> None:
    assert parse("A = $_1") == Equal(Property("A"), Property("$_1"))
    assert parse("ANDY") == Property("ANDY")


@pytest.mark.parametrize(
    ("expression", "position", "piece", "says"),
    [
        ("", 0, "", "unexpected end at position 1"),
        ("  ", 2, "", "expected a property, a text"),
        ("a =", 3, "", "expected a property, a text"),
        ("a = 1 b", 6, "b", "unexpected 'b' at position 7; expected "),
        ("a BETWEN 1 AND 2", 2, "BETWEN", "did you mean BETWEEN?"),
        ("a CONTAIN 'x'", 2, "CONTAIN", "did you mean CONTAINS?"),
        ("a BETWEEN 1 OR 2", 12, "OR", "expected AND and the upper bound"),
        ("a LIKE 'x%'", 2, "LIKE", "there is no LIKE; write CONTAINS"),
        ("a + 1 = 2", 2, "+", "there is no arithmetic"),
        ("a * 2 = 2", 2, "* 2 = 2", "there is no arithmetic"),
        ("upper(a) = 'X'", 5, "(", "there are no functions"),
        ("a == 1", 3, "=", "write a single ="),
        ("a != 1", 2, "!= 1", "write <>"),
        ("a && b", 2, "&& b", "write AND"),
        ("a || b", 2, "|| b", "write OR"),
        ('a = "x"', 4, '"x"', "text is in single quotes"),
        ("größe > 1", 2, "öße > 1", "names have the letters A to Z"),
        ("a = 'x", 4, "'x", "unterminated string literal at position 5, near "),
        ("a = 1 /* x", 6, "/* x", "unterminated comment at position 7, near "),
        ("a IS 1", 5, "1", "expected NULL or NOT NULL"),
        ("a IN 'x'", 5, "'x'", "expected ( and texts"),
        ("a IN ()", 6, ")", "expected a text in single quotes"),
        ("a IN (1)", 6, "1", "expected a text in single quotes"),
        ("a IN ('x' 'y')", 10, "'y'", "expected a comma or )"),
        ("a IN ('x'", 9, "", "expected a comma or )"),
        ("(a = 1", 6, "", "expected an operator or )"),
        ("a NOT b", 6, "b", "expected BETWEEN, IN, CONTAINS"),
        ("AND a", 0, "AND", "expected a property, a text"),
        ("a IS NULL > 1", 10, ">", "expected AND, OR"),
        ("a = NULL", 4, "NULL", "write IS NULL or IS NOT NULL"),
        ("(NULL) <> a", 0, "(NULL)", "nothing is equal to NULL"),
        ("TRUE = 1", 7, "1", "a truth value cannot be compared with this"),
        ("a > 'x'", 4, "'x'", "write numbers without quotes"),
        ("a > TRUE", 4, "TRUE", "> compares numbers and properties only"),
        ("a < 1 < 2", 0, "a < 1", "< compares numbers and properties only"),
        ("NOT a > 1", 0, "NOT a", "> compares numbers and properties only"),
        ("a BETWEEN 'x' AND 2", 10, "'x'", "BETWEEN compares numbers"),
        ("a BETWEEN 2 AND 1.5", 10, "2", "the lower bound is above the upper one"),
        ("'x' IN ('x')", 0, "'x'", "IN needs a property on its left"),
        ("5", 0, "5", "this is neither true nor false"),
        ("a = 1 AND 'x'", 10, "'x'", "this is neither true nor false"),
        ("NOT 5", 4, "5", "this is neither true nor false"),
        ("-a", 0, "-a", "this is neither true nor false"),
        ("a = 0.0", 4, "0.0", "the number is too small"),
        ("a = 1e400", 4, "1e400", "the number is too large"),
        ("a = 9223372036854775808", 4, "9223372036854775808", "9223372036854775807 is the largest"),
    ],
)
def test_errors_have_a_place_and_a_hint(expression: str, position: int, piece: str, says: str) -> None:
    error = refused(expression)
    assert (error.position, error.piece) == (position, piece)
    assert says in str(error)
    assert f" at position {position + 1}" in str(error)
    assert isinstance(error, ProtocolError) and error.response_code == 23


def test_equal_bounds_and_bounds_that_are_not_known_are_taken() -> None:
    parse("a BETWEEN 1 AND 1.0")
    parse("a BETWEEN b AND 1")
    parse("a BETWEEN -1 AND -2")
    parse("a NOT BETWEEN 2 AND 1")
    parse("a BETWEEN 9007199254740993 AND 9007199254740992.0")  # equal as doubles


# -- much of it ----------------------------------------------------------------------------------


def test_thousands_of_terms_are_one_chain() -> None:
    terms = " OR ".join(f"a = {number}" for number in range(4_000))
    chain = parse(terms)
    assert isinstance(chain, Or) and len(chain.operands) == 4_000
    assert parse(f"a IN ({','.join(repr(str(number)) for number in range(6_000))})") == In(
        "a", frozenset(map(str, range(6_000)))
    )


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "a" + ")" * 10_000,
        "NOT " * 10_000 + "a",
        "- " * 10_000 + "a = 1",
        "+" * 10_000 + "a",
        "a" + " = b" * 10_000,
        "a" + " IS NULL" * 5_000,
        "a" + " CONTAINS 'x'" * 4_000,
        "a = (" * 10_000,
        "a AND b = (NOT " * 1_000,
        "".join("(" * 12 + "a" + " = b)" * 12 for _ in range(1)) * 1 + " = c" * 200,
    ],
)
def test_deep_nesting_is_refused_in_words(expression: str) -> None:
    assert "nested deeper than" in str(refused(expression))


def test_nesting_of_people_and_query_builders_is_taken() -> None:
    parse("(" * 140 + "a" + ")" * 140)
    parse("(" * 100 + "a = 'x'" + " OR a = 'y')" * 100)


def test_a_text_beyond_all_measure_is_refused() -> None:
    parse("a = 1".ljust(MAX_EXPRESSION_CHARS))
    error = refused("a = 1".ljust(MAX_EXPRESSION_CHARS + 1))
    assert str(error).startswith(f"SQL92 expression: expression of {MAX_EXPRESSION_CHARS + 1} characters at ")
    assert len(str(error)) < 200
