"""Lake tables written and read by real Spark: what comes back is what was written, whatever partitions are
called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kourou.errors import ConfigError
from tests.needed import need_module

need_module("pyspark")
need_module("deltalake")
need_module("pyiceberg")

from kourou.spark.pipelines.lake.lake import (  # noqa: E402
    LakeTable,
    compact,
    open_backend,
    read_lake,
    write_batch,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "delta", "iceberg")
ROWS = (
    "(1, '%RETRY%group|a', date'2026-01-31', timestamp'2026-01-31 23:59:59.123456+00:00'), "
    "(2, '2026', date'2026-02-01', timestamp'2026-02-01 00:00:00+00:00'), "
    "(3, 'a b/c=d', date'2026-02-01', null), "
    "(4, null, date'2026-02-01', null), "
    "(5, 'ü{1}*?', null, null)"
)


def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT number, topic, day, at, map('k', cast(number AS string)) AS properties, "
        "array(topic) AS keys, cast('body' AS binary) AS value "
        f"FROM VALUES {ROWS} AS t(number, topic, day, at)"
    )


def content(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in frame.collect())


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_written_comes_back(spark: SparkSession, tmp_path: Path, format: str) -> None:
    table = LakeTable(format, str(tmp_path / "the [table]"), ("topic", "day"))
    with pytest.raises(ConfigError, match=f"no {format} table found"):
        read_lake(spark, table)
    frame = rows(spark)
    assert write_batch(table, frame, app_id="app", batch_id=0) == 5
    assert write_batch(table, frame, app_id="app", batch_id=0) == 0
    assert read_lake(spark, table).columns == frame.columns
    assert read_lake(spark, table).dtypes == frame.dtypes
    assert content(read_lake(spark, table)) == content(frame)
    assert write_batch(table, frame, app_id="app", batch_id=1) == 5
    before = read_lake(spark, table)
    assert compact(table, min_files=2).files_after == 5
    assert content(before) == content(read_lake(spark, table)) == content(frame.union(frame))
    found = read_lake(spark, table).where("topic = '2026'").select("number").collect()
    assert [row[0] for row in found] == [2, 2]


@pytest.mark.parametrize("format", FORMATS)
def test_without_partitions_and_without_rows(spark: SparkSession, tmp_path: Path, format: str) -> None:
    table = LakeTable(format, str(tmp_path / "table"))
    frame = rows(spark)
    assert write_batch(table, frame.where("number < 0"), app_id="app", batch_id=0) == 0
    assert write_batch(table, frame, app_id="app", batch_id=1) == 5
    assert content(read_lake(spark, table)) == content(frame)


@pytest.mark.parametrize(
    ("format", "partition_by"),
    [*((format, ("topic", "day")) for format in FORMATS), ("delta", ("topic", "at"))],
)
def test_a_row_replaces_the_one_with_its_key(
    spark: SparkSession, tmp_path: Path, format: str, partition_by: tuple[str, ...]
) -> None:
    """With partitions that are part of the key, and others: a row may move to another partition then."""
    table = LakeTable(format, str(tmp_path / "table"), partition_by, key=("topic", "day"))
    first = rows(spark)
    assert write_batch(table, first, app_id="app", batch_id=0) == 5
    before = read_lake(spark, table)
    changed = first.where("number IN (1, 4, 5)").selectExpr(
        "number + 10 AS number", "topic", "day", "timestamp'2026-03-01 00:00:00+00:00' AS at",
        "properties", "keys", "value",
    )  # fmt: skip
    new = first.where("number = 2").selectExpr(
        "20 AS number", "topic", "date'2026-03-01' AS day", "at", "properties", "keys", "value"
    )
    batch = changed.union(new)
    # Twice in a batch is once in the table; a batch that is repeated changes nothing.
    assert write_batch(table, batch.union(new), app_id="app", batch_id=1) == 4
    assert write_batch(table, first, app_id="app", batch_id=1) == 0
    expected = content(first.where("number IN (2, 3)").union(batch))
    assert content(read_lake(spark, table)) == expected
    assert content(before) == content(first)  # replaced files are kept for earlier readers
    compact(table, min_files=2, retain_ms=0)
    assert content(read_lake(spark, table)) == expected
    backend = open_backend(table)
    snapshot = backend.snapshot()
    assert snapshot is not None
    found = {path.relative_to(backend.data_folder) for path in backend.data_folder.rglob("kourou-*.parquet")}
    assert found == {Path(file.path) for file in snapshot.files}
