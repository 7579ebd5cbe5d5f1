"""Schemas in Spark's DDL, read without Spark."""

from __future__ import annotations

import pytest

from kourou.spark.pipelines.check.ddl import Field, parse_ddl


def test_fields_with_types() -> None:
    text = "id string NOT NULL, amount: decimal(10, 2), `odd name` bigint COMMENT 'a, b', at timestamp"
    assert parse_ddl(text) == [
        Field("id", "string", True),
        Field("amount", "decimal(10,2)", False),
        Field("odd name", "bigint", False),
        Field("at", "timestamp", False),
    ]


def test_nested_types() -> None:
    fields = parse_ddl(
        "a array<struct<x: int, y: map<string, double>>>, b STRUCT<c: varchar(3)>, i interval day"
    )
    assert [field.type for field in fields] == [
        "array<struct<x:int,y:map<string,double>>>",
        "struct<c:varchar(3)>",
        "interval day",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id strng", "field id: unknown type 'strng'; did you mean string?"),
        ("id", "field id: its type is missing"),
        ("id string amount double", "a comma is missing before 'amount'"),
        ("id string,", "a field's name is missing at the end"),
        ("", "a field's name is missing at the end"),
        ("a map<string>", "field a: map takes 2 types, not 1"),
        ("a array<int", "expected > at the end"),
        ("a decimal(x)", r"field a: expected a number in ( ), not 'x'"),
        ("a int, A string", "duplicate field a"),
        ("a-b int", "quote special names in ` `"),
        ("a int NOT", "NOT must be followed by NULL"),
    ],
)
def test_mistakes_are_reported(text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_ddl(text)
    assert words in str(caught.value)
