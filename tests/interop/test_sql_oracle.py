"""SQL92 filters beside Apache's own evaluator: what ours says of an expression is what rocketmq-filter says.

The table is that of tests/unit/protocol/filter: here its results are taken from Apache anew. Beyond it every
expression meets the same fixed sets of properties, and expressions made at random meet random ones
(KOUROU_NIGHTLY=1: very many). Where we differ on purpose is listed, and stands in docs/compatibility.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interop.kit import apache
from tests.interop.kit.sql_oracle import SqlOracle
from tests.interop.kit.sql_texts import PROPERTIES, conditions, expressions, garbage
from tests.unit.protocol.filter.test_apache_results import STRICTER, TABLE, result

pytestmark = pytest.mark.interop

_EXAMPLES: Final = 50_000 if os.environ.get("KOUROU_NIGHTLY") == "1" else 1_500
_SEARCHES: Final = re.compile("CONTAINS|STARTSWITH|ENDSWITH", re.IGNORECASE)
_COMPATIBILITY: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
# One below and one above each of our limits, which docs/compatibility.md names: Apache has none.
_LONG: Final = f"a = '{'x' * (65_536 - 6)}'"
_DEEP: Final = "(" * 148 + "a = '5'" + ")" * 148

FIXED_SETS: Final[Sequence[Mapping[str, str]]] = (
    {},
    {"a": "5"},
    {"a": "7.5"},
    {"a": "x"},
    {"a": "true"},
    {"a": "5", "b": "5"},
    {"a": "5", "b": "6", "c": "x"},
    {"a": "-5", "b": "1e3", "c": "true"},
    {"a": "3000000000", "b": "9223372036854775808"},
    {"b": "x"},
    {"a": "it's", "b": "", "c": "xyz"},
    {"a": "NaN", "b": "-0.0", "c": "0.0"},
)


@pytest.fixture(scope="module")
def oracles(session_dir: Path) -> Iterator[dict[str, SqlOracle]]:
    """The evaluator by version."""
    sessions = {version: SqlOracle(version, session_dir / f"sql-{version}") for version in apache.VERSIONS}
    yield sessions
    for session in sessions.values():
        session.close()


@pytest.fixture(scope="module")
def oracle(oracles: dict[str, SqlOracle]) -> SqlOracle:
    """The newer evaluator."""
    return oracles["5.5.0"]


def ours(expression: str, property_sets: Sequence[Mapping[str, str]]) -> list[str]:
    """What ours says, in the words of the oracle."""
    return [result(expression, dict(properties)) for properties in property_sets]


# -- the table -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", apache.VERSIONS)
def test_the_table_holds_what_apache_says(oracles: dict[str, SqlOracle], version: str) -> None:
    """4.9 has no CONTAINS, STARTSWITH, ENDSWITH; all else is the same in both versions."""
    table = [line for line in TABLE if version != "4.9.7" or not _SEARCHES.search(line[0])]
    assert len({expression for expression, _, _ in table}) > 300
    found = [oracles[version].ask(expression, [properties]) for expression, properties, _ in table]
    assert found == [[kind] for _, _, kind in table]


def test_every_expression_of_the_table_has_apaches_results_over_fixed_properties(oracle: SqlOracle) -> None:
    asked = {expression for expression, _, _ in TABLE} - STRICTER
    differences = {
        expression: (said, theirs)
        for expression in sorted(asked)
        if (said := ours(expression, FIXED_SETS)) != (theirs := oracle.ask(expression, FIXED_SETS))
    }
    assert differences == {}


# -- at random -----------------------------------------------------------------------------------------------

_RANDOM_SETS: Final = st.lists(PROPERTIES, min_size=1, max_size=4)


@settings(max_examples=_EXAMPLES)
@given(expression=conditions(), property_sets=_RANDOM_SETS)
def test_conditions_made_at_random_have_apaches_results(
    oracle: SqlOracle, expression: str, property_sets: list[dict[str, str]]
) -> None:
    assert_same(oracle, expression, property_sets)


@settings(max_examples=_EXAMPLES // 2)
@given(expression=st.one_of(expressions(), garbage()), property_sets=_RANDOM_SETS)
def test_whatever_is_asked_has_apaches_results(
    oracle: SqlOracle, expression: str, property_sets: list[dict[str, str]]
) -> None:
    assert_same(oracle, expression, property_sets)


def assert_same(oracle: SqlOracle, expression: str, property_sets: list[dict[str, str]]) -> None:
    """Ours says the same, or refuses what Apache reads the beginning of only."""
    said, theirs = ours(expression, property_sets), oracle.ask(expression, property_sets)
    if said != theirs:
        assert set(said) == {"syntax"}, (expression, said, theirs)
        assert theirs in beginnings(expression, property_sets), (expression, theirs)


def beginnings(expression: str, property_sets: list[dict[str, str]]) -> list[list[str]]:
    """What ours says of all that the text begins with."""
    return [ours(expression[:end], property_sets) for end in range(len(expression))]


# -- on purpose ----------------------------------------------------------------------------------------------


def test_apache_takes_what_we_refuse_on_purpose(oracle: SqlOracle) -> None:
    for expression in sorted(STRICTER):
        assert "syntax" not in oracle.ask(expression, FIXED_SETS), expression
        assert set(ours(expression, FIXED_SETS)) == {"syntax"}, expression
        assert oracle.ask(expression, FIXED_SETS) in beginnings(expression, list(map(dict, FIXED_SETS)))


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [(_LONG, _LONG.replace("x'", "xx'")), (_DEEP, f"({_DEEP})")],
    ids=["long", "deep"],
)
def test_apache_has_no_limits(oracle: SqlOracle, allowed: str, refused: str) -> None:
    assert ours(allowed, FIXED_SETS) == oracle.ask(allowed, FIXED_SETS)
    assert "syntax" not in oracle.ask(refused, FIXED_SETS)
    assert set(ours(refused, FIXED_SETS)) == {"syntax"}


def test_the_documents_name_what_differs() -> None:
    rows = [line for line in _COMPATIBILITY.read_text().splitlines() if line.startswith("|")]
    (stricter,) = [row for row in rows if "text behind a complete expression" in row]
    examples = re.findall("`([^`]+)`", stricter)
    assert examples
    assert set(examples) <= STRICTER
    assert any("65,536 characters" in row and "nesting of 150" in row for row in rows)
