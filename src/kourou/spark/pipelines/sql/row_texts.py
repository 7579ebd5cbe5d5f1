"""Rows of any query as texts, made by Spark: for tables, CSV and JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kourou.spark.pipelines.sql.sql_names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

JSON_COLUMN: Final = "row"
_NESTED: Final = ("array", "map", "struct")
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def unique_names(names: Sequence[str]) -> list[str]:
    """The names of columns; duplicates get a number."""
    taken: set[str] = set()
    found = []
    for name in names:
        number, unique = 1, name
        while unique.lower() in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique.lower())
        found.append(unique)
    return found


def number_columns(frame: DataFrame) -> list[bool]:
    """Whether each column is numeric, and so right-aligned."""
    return [field.dataType.simpleString().partition("(")[0] in _NUMBERS for field in frame.schema]


def as_texts(frame: DataFrame) -> DataFrame:
    """Every column as text; null stays null."""
    named = frame.toDF(*unique_names(frame.columns))
    return named.select(*(_text(named, field).alias(field.name) for field in named.schema))


def as_json(frame: DataFrame) -> DataFrame:
    """One column with a JSON object for each row, including nulls."""
    from pyspark.sql.functions import struct, to_json

    named = frame.toDF(*unique_names(frame.columns))
    columns = [
        _text(named, field).alias(field.name) if _is_bytes(field) else named[quoted(field.name)]
        for field in named.schema
    ]
    return named.select(to_json(struct(*columns), {"ignoreNullFields": "false"}).alias(JSON_COLUMN))


def text_rows(frame: DataFrame, limit: int | None) -> Iterator[tuple[str | None, ...]]:
    """The rows of a DataFrame of texts: collected up to a limit, otherwise partition by partition."""
    if limit is not None:
        yield from map(tuple, frame.limit(limit).collect())
        return
    yield from map(tuple, frame.toLocalIterator(prefetchPartitions=True))


def _text(frame: DataFrame, field: Any) -> Column:
    from pyspark.sql.functions import col, expr, to_json

    name = quoted(field.name)
    kind = field.dataType.simpleString()
    if _is_bytes(field):
        # Bodies are usually text.
        return expr(
            f"if(is_valid_utf8(cast({name} as string)), cast({name} as string), concat('0x', hex({name})))"
        )
    if kind == "variant" or kind.startswith(_NESTED):
        return to_json(col(name))
    return col(name).cast("string")


def _is_bytes(field: Any) -> bool:
    return bool(field.dataType.simpleString() == "binary")
