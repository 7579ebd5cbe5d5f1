"""Merges the columns of a lake table with those of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kourou.spark.pipelines.lake.lake import LakeTable


def merged_schema(old: StructType | None, new: StructType, table: LakeTable) -> StructType:
    """The table's columns, followed by new ones, if allowed. ConfigError lists all mismatches."""
    from pyspark.sql.types import StructField, StructType

    fields = {} if old is None else {field.name: field for field in old.fields}
    problems = [] if old is not None else _missing_partitions(new, table)
    for field in new.fields:
        known = fields.get(field.name)
        if known is None and (old is None or table.merge_schema):
            # A later batch may lack it.
            fields[field.name] = StructField(field.name, field.dataType, True)
        elif known is None:
            problems.append(f"column {field.name}: not in the table; set mergeSchema to add it")
        elif known.dataType.simpleString() != field.dataType.simpleString():
            problems.append(
                f"column {field.name}: its type is {field.dataType.simpleString()}, but "
                f"{known.dataType.simpleString()} in the table"
            )
    if problems:
        raise ConfigError(*[f"{table.path}: {problem}" for problem in problems])
    return StructType(list(fields.values()))


def _missing_partitions(schema: StructType, table: LakeTable) -> list[str]:
    names = {field.name for field in schema.fields}
    return [
        f"column {name}: a partition column is missing in the rows"
        for name in table.partition_by
        if name not in names
    ]
