"""For tests of lake tables without a JVM: batches of numbered rows, and what is in a table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from tests.needed import need_module

pa = need_module("pyarrow")
pq = need_module("pyarrow.parquet")
types = need_module("pyspark.sql.types")
need_module("deltalake")
need_module("pyiceberg")

from kourou.spark.pipelines.lake.lake import LakeTable, commit_batch, open_backend  # noqa: E402
from kourou.spark.pipelines.lake.lake_files import LakeBackend, LakeSnapshot  # noqa: E402

FORMATS = ("parquet", "delta", "iceberg")
DAY = date(2026, 1, 31)
AT = datetime(2026, 1, 31, 8, tzinfo=UTC)


def schema(*more: str) -> Any:
    """What archives have, in short; `more` are columns of text besides."""
    text = types.StringType()
    fields = [
        types.StructField("number", types.LongType()),
        types.StructField("topic", text),
        types.StructField("date", types.DateType()),
        types.StructField("at", types.TimestampType()),
        types.StructField("keys", types.ArrayType(text)),
        types.StructField("properties", types.MapType(text, text)),
    ]
    return types.StructType([*fields, *[types.StructField(name, text) for name in more]])


def table_of(format: str, folder: Path, **options: Any) -> LakeTable:
    """A table, apart by topic and date."""
    return LakeTable(format, str(folder), ("topic", "date"), **options)


def put(
    table: LakeTable,
    batch_id: int,
    numbers: list[int],
    *,
    topic: str = "orders",
    app_id: str = "app",
    more: tuple[str, ...] = (),
) -> int:
    """Write a batch of rows, as Spark would; gives how many were added."""
    struct = schema(*more)

    def write(backend: LakeBackend, staging: Path) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        count = len(numbers)
        columns = {
            "number": numbers,
            "topic": [topic] * count,
            "date": [DAY] * count,
            "at": [AT] * count,
            "keys": [["k1", "k2"]] * count,
            "properties": [[("name", "value")]] * count,
            **{name: ["more"] * count for name in more},
        }
        rows = pa.table(columns, schema=to_arrow_schema(struct, timezone="UTC"))
        if not backend.keeps_partition_columns:
            rows = rows.drop_columns(["topic", "date"])
        folder = staging / f"__by_topic={escaped(topic)}" / f"__by_date={DAY}"
        folder.mkdir(parents=True)
        pq.write_table(rows, folder / "part-0.parquet")

    return commit_batch(table, struct, write, app_id=app_id, batch_id=batch_id) or 0


def escaped(value: str) -> str:
    """As Spark names folders."""
    return "".join(f"%{ord(sign):02X}" if sign in '%|"#*:=?\\{[]^/' else sign for sign in value)


def snapshot_of(table: LakeTable) -> LakeSnapshot:
    """The table as it is now."""
    found = open_backend(table).snapshot()
    assert found is not None
    return found


def numbers_in(table: LakeTable, snapshot: LakeSnapshot | None = None) -> list[int]:
    """All numbers of a table, sorted, read file by file."""
    folder = open_backend(table).data_folder
    found: list[int] = []
    for file in (snapshot or snapshot_of(table)).files:
        column = pq.ParquetFile(folder / file.path).read(columns=["number"])["number"].to_pylist()
        assert len(column) == file.rows
        found += column
    return sorted(found)
