"""A table of expressions with the results of Apache's own evaluator, rocketmq-filter 5.5.0.

Each line of apache-5.5.0.jsonl: expression, properties, and true, false, null, error or syntax. The first
half was written by hand, one line for each rule of the language; the rest is made at random.
"""

from __future__ import annotations

import json
from pathlib import Path

from kourou.errors import FilterSyntaxError
from kourou.protocol.filter import compile_filter

TABLE = [json.loads(line) for line in (Path(__file__).parent / "apache-5.5.0.jsonl").read_text().splitlines()]

# Apache stops where the expression could end, and does not look at what follows.
STRICTER = {
    "a = 5e",
    "a = 00",
    "a = 0L",
    "a = 5 garbage",
    "a = 5)",
    "a = 5 b",
    "TRUE garbage",
    "a LIKE 'x'",
    "a + 5 > 3",
}


def result(expression: str, properties: dict[str, str]) -> str:
    try:
        program = compile_filter(expression)
    except FilterSyntaxError:
        return "syntax"
    try:
        return json.dumps(program.evaluate(properties.get))
    except ValueError:
        return "error"


def test_the_table_has_all_kinds_of_results() -> None:
    kinds = [kind for _, _, kind in TABLE]
    assert len(TABLE) > 500
    assert all(kinds.count(kind) >= 60 for kind in ("true", "false", "null", "error", "syntax"))


def test_results_are_apache_s() -> None:
    different = []
    for expression, properties, kind in TABLE:
        ours = result(expression, properties)
        if ours != ("syntax" if expression in STRICTER else kind):
            different.append((expression, properties, kind, ours))
        elif ours != "syntax" and compile_filter(expression).matches(properties.get) is not (kind == "true"):
            different.append((expression, properties, kind, "matches"))
    assert different == []


def test_each_case_where_we_are_stricter_is_one() -> None:
    known = {expression: kind for expression, _, kind in TABLE}
    assert all(known[expression] != "syntax" for expression in STRICTER)
