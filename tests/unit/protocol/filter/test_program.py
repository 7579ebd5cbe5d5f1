"""What programs make of messages: every rule of the language, one line each."""

from __future__ import annotations

from kourou.protocol.filter import FilterProgram, compile_filter
from kourou.protocol.properties import encode_properties

ERROR = ValueError


def passes(program: FilterProgram, properties: str) -> bool:
    """By the bytes of a property string, amid others."""
    raw = properties.encode()
    return program.matches_bytes(b"\x02n\x01" + raw + b"\x02n\x019\x02", 3, 3 + len(raw))


RULES = [
    # a = b, a <> b
    ("a = b", {}, True),
    ("a = b", {"b": "1"}, None),
    ("a = b", {"a": "1"}, False),
    ("a = b", {"a": "1", "b": "1"}, True),
    ("a = b", {"a": "1", "b": "1.0"}, False),
    ("a <> 'x'", {}, None),
    ("'x' <> a", {}, True),
    ("a <> b", {}, False),
    # > >= < <=
    ("a > 1", {}, None),
    ("1 > a", {}, None),
    ("a > b", {"a": "1"}, None),
    ("a > b", {"a": "10", "b": "9"}, True),
    ("a >= b", {"a": "1", "b": "1.0"}, True),
    ("a < b", {"a": "x", "b": "1"}, ERROR),
    ("1 < 2", {}, True),
    ("1.5 >= 2", {}, False),
    # different types
    ("a > 5", {"a": "7"}, True),
    ("a > 5", {"a": "7.5"}, ERROR),
    ("a > 5", {"a": "3000000000"}, ERROR),
    ("a > 3000000000", {"a": "3000000001"}, True),
    ("a > 5.0", {"a": "7.5"}, True),
    ("a = 5.0", {"a": "5"}, True),
    ("5 = a", {"a": "5"}, True),
    ("5 = a", {}, False),
    ("5 = a", {"a": "x"}, ERROR),
    ("a = TRUE", {"a": "True"}, True),
    ("a = FALSE", {"a": "anything"}, True),
    ("TRUE = a", {"a": "true"}, ERROR),
    ("TRUE = a", {}, False),
    ("5 = TRUE", {}, False),
    ("(a > 1) = 5", {"a": "2"}, False),
    ("5 = 5.0", {}, True),
    ("'5' = 5", {}, True),
    # BETWEEN
    ("a BETWEEN 1 AND 5", {"a": "1"}, True),
    ("a BETWEEN 1 AND 5", {"a": "5"}, True),
    ("a BETWEEN 1 AND 5", {"a": "6"}, False),
    ("a BETWEEN 1 AND 5", {}, None),
    ("a NOT BETWEEN 1 AND 5", {"a": "6"}, True),
    ("a NOT BETWEEN 1 AND 5", {"a": "3"}, False),
    ("a NOT BETWEEN 1 AND 5", {}, None),
    ("a BETWEEN b AND 5", {"a": "6"}, False),
    ("a BETWEEN b AND 5", {"a": "4"}, None),
    # IN
    ("a IN ('x', 'y')", {"a": "y"}, True),
    ("a IN ('x', 'y')", {"a": "Y"}, False),
    ("a IN ('x')", {}, None),
    ("a NOT IN ('x')", {"a": "y"}, True),
    ("a NOT IN ('x')", {}, None),
    # IS NULL
    ("a IS NULL", {}, True),
    ("a IS NULL", {"a": "1"}, False),
    ("a IS NOT NULL", {}, False),
    ("(a > 1) IS NULL", {}, True),
    # CONTAINS and its like
    ("a CONTAINS 'b'", {"a": "abc"}, True),
    ("a STARTSWITH 'b'", {"a": "abc"}, False),
    ("a ENDSWITH 'bc'", {"a": "abc"}, True),
    ("a CONTAINS 'b'", {}, False),
    ("a NOT CONTAINS 'b'", {}, False),
    ("a NOT CONTAINS 'b'", {"a": "x"}, True),
    ("a CONTAINS ''", {"a": "x"}, False),
    ("a NOT CONTAINS ''", {"a": "x"}, False),
    ("5 NOT CONTAINS '7'", {}, False),
    ("(a > 1) CONTAINS ''", {"a": "x"}, False),
    ("(a > 1) CONTAINS 'x'", {"a": "x"}, ERROR),
    # a bare property
    ("a", {}, None),
    ("a", {"a": "true"}, False),
    ("NOT a", {"a": "true"}, True),
    # minus
    ("a = -5", {"a": "-5"}, True),
    ("a = - - 5", {"a": "5"}, True),
    ("a > -b", {"a": "5", "b": "1"}, None),
    ("a = -b", {"a": "5", "b": "5"}, False),
    ("-'x' IS NULL", {}, True),
    ("-TRUE IS NULL", {}, True),
    ("-(a > 1) IS NULL", {"a": "x"}, ERROR),
    # AND, OR, NOT
    ("FALSE AND NULL", {}, False),
    ("NULL AND FALSE", {}, False),
    ("NULL AND TRUE", {}, None),
    ("TRUE AND TRUE AND TRUE", {}, True),
    ("NULL OR TRUE", {}, True),
    ("NULL OR FALSE", {}, None),
    ("FALSE OR FALSE OR FALSE", {}, False),
    ("NOT NULL", {}, None),
    ("NOT FALSE", {}, True),
    ("FALSE AND a > 1", {"a": "x"}, False),
    ("a > 1 AND FALSE", {"a": "x"}, ERROR),
    ("NULL AND a > 1", {"a": "x"}, ERROR),
    ("TRUE OR a > 1", {"a": "x"}, True),
    ("a > 1 OR TRUE", {"a": "x"}, ERROR),
]


def evaluated(expression: str, properties: dict[str, str]) -> bool | None | type[Exception]:
    try:
        return compile_filter(expression).evaluate(properties.get)
    except ValueError:
        return ERROR


def test_rules() -> None:
    different = [
        (expression, properties, found)
        for expression, properties, expected in RULES
        if (found := evaluated(expression, properties)) is not expected
    ]
    assert different == []


def test_only_true_lets_a_message_pass() -> None:
    wrong = []
    for expression, properties, expected in RULES:
        program = compile_filter(expression)
        found = {program.matches(properties.get), passes(program, encode_properties(properties))}
        if found != {expected is True}:
            wrong.append((expression, properties, found))
    assert wrong == []


def test_the_property_string_of_either_version_is_read() -> None:
    program = compile_filter("TAGS = 'x' AND n BETWEEN 1 AND 3")
    assert program.names == ("TAGS", "n")
    assert passes(program, "n\x012\x02TAGS\x01x\x02")
    assert passes(program, "n\x012\x02TAGS\x01x")
    assert not passes(program, "n\x014\x02TAGS\x01x")
    assert not passes(program, "")


def test_a_program_with_many_properties_reads_them_all() -> None:
    names = [f"p{number}" for number in range(50)]
    program = compile_filter(" AND ".join(f"{name} = '{name}'" for name in names))
    properties = {name: name for name in names}
    assert program.names == tuple(names)
    assert passes(program, encode_properties(properties))
    assert not passes(program, encode_properties({**properties, "p49": "x"}))


def test_the_work_of_a_program_is_its_terms() -> None:
    assert compile_filter("a = 1").terms == 3
    assert compile_filter("a IN ('x', 'y', 'z')").terms == 1
    assert compile_filter(" OR ".join(["a = 1"] * 1_000)).terms == 3_001


def test_a_program_as_high_as_may_be_can_be_run() -> None:
    expression = "(" * 140 + "a = 'x'" + " OR a = 'y')" * 140
    program = compile_filter(expression)
    assert program.matches({"a": "y"}.get) and not program.matches({"a": "z"}.get)


def test_a_program_shows_what_it_is() -> None:
    assert repr(FilterProgram("a = 1")) == "<FilterProgram 'a = 1'>"
