"""The filter `json`: conditions on what is at some paths of JSON bodies."""

from __future__ import annotations

import pytest

from kourou.filters.json_path import JsonFilter
from tests.unit.filters.records import record

ORDER = (
    b'{"order":{"total":120.5,"region":"north","paid":true,"note":null},"items":[{"sku":"A-7"},{"sku":"B"}],'
    b'"first name":"Ann"}'
)


def matches(condition: str, *bodies: bytes) -> list[bool]:
    return list(JsonFilter(condition).matches([record(body) for body in bodies or (ORDER,)]))


@pytest.mark.parametrize(
    "condition",
    [
        "$.order.total > 100",
        "$.order.total > 1.2e2 AND $.order.total < 120.6 AND $.order.total <> 120",
        "$.order.total BETWEEN 120 AND 121 AND $.order.region = 'north'",
        "$.items[1].sku = 'B'",
        "$.items[0].sku IN ('A-7', '7')",
        "$['first name'] = 'Ann'",
        "$.order.note IS NULL",
        "$.missing.deeper IS NULL AND $.items[9] IS NULL AND $.order[0] IS NULL",
        "$.order.paid = TRUE",
        "$.items CONTAINS 'A-7'",
        "$.order.region <> '$.order.region'",
    ],
)
def test_conditions_that_are_true(condition: str) -> None:
    assert matches(condition) == [True]
    assert matches(f"NOT ({condition})") == [False]


def test_bodies_that_are_not_json_have_nothing_at_any_path() -> None:
    bodies = (b"", b"order 7", b'{"order"', b"\xff\xfe", b"[" * 100_000)
    assert matches("$.order.total > 100", *bodies) == [False] * 5
    assert matches("$.order.total IS NULL", *bodies) == [True] * 5


def test_the_whole_body_is_a_path_too() -> None:
    assert matches("$ > 5", b"7", b"3", b'"x"') == [True, False, False]


def test_compressed_bodies_are_inflated() -> None:
    body = b'{"n":1,"pad":"' + b"x" * 5000 + b'"}'
    assert list(JsonFilter("$.n = 1").matches([record(body, is_compressed=True)])) == [True]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("", "no path in the condition"),
        ("total > 5", "no path in the condition"),
        ("$.total > 5 AND region = 'x'", r"region: a path begins with \$, such as \$.region"),
        ("$.total >", "unexpected end"),
        (" OR ".join(f"$.a{number} = 1" for number in range(101)), "has 101 paths; write 100 at most"),
    ],
)
def test_what_is_no_condition_is_refused(condition: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        JsonFilter(condition)
