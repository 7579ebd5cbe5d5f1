"""What the columns of a lake table become when a batch brings others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kourou.spark.pipelines.lake.lake import LakeTable


def merged_schema(old: StructType | None, new: StructType, table: LakeTable) -> StructType:
    """The table's columns, then those that are new, if they may be. ConfigError names all that do not fit."""
    from pyspark.sql.types import StructField, StructType

    fields = {} if old is None else {field.name: field for field in old.fields}
    problems = [] if old is not None else _missing_partitions(new, table)
    for field in new.fields:
        known = fields.get(field.name)
        if known is None and (old is None or table.merge_schema):
            # A later batch may come without it.
            fields[field.name] = StructField(field.name, field.dataType, True)
        elif known is None:
            problems.append(f"column {field.name}: the table has no such column; allow it with mergeSchema")
        elif known.dataType.simpleString() != field.dataType.simpleString():
            problems.append(
                f"column {field.name}: it is {field.dataType.simpleString()}, and "
                f"{known.dataType.simpleString()} in the table"
            )
    if problems:
        raise ConfigError(*[f"{table.path}: {problem}" for problem in problems])
    return StructType(list(fields.values()))


def _missing_partitions(schema: StructType, table: LakeTable) -> list[str]:
    names = {field.name for field in schema.fields}
    return [
        f"column {name}: rows are to be apart by it, but do not have it"
        for name in table.partition_by
        if name not in names
    ]
