"""Lake tables without a JVM: batches are there once, compaction changes no row, mistakes are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from tests.needed import need_module
from tests.unit.pipelines.lake_kit import (
    FORMATS,
    numbers_in,
    pa,
    pq,
    put,
    snapshot_of,
    table_of,
)

need_module("deltalake")

from kourou.spark.pipelines.lake.lake import LakeTable, compact, open_backend, table_rows  # noqa: E402
from kourou.spark.pipelines.lake.lake_files import DataFile, LakeConflictError  # noqa: E402

DAY_MS = 86_400_000


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    return table_of(request.param, tmp_path / "a folder")


def test_a_batch_is_there_once_however_often_it_is_written(table: LakeTable) -> None:
    assert put(table, 0, [0, 1]) == 2
    assert put(table, 1, [2, 3]) == 2
    assert put(table, 1, [2, 3]) == 0
    assert put(table, 0, [0, 1]) == 0
    assert put(table, 2, [4]) == 1
    assert numbers_in(table) == [0, 1, 2, 3, 4]
    assert table_rows(table) == 5


def test_writers_with_other_ids_have_batches_of_their_own(table: LakeTable) -> None:
    assert put(table, 7, [0], app_id="one") == 1
    assert put(table, 3, [1], app_id="two") == 1
    assert put(table, 3, [1], app_id="two") == 0
    assert put(table, 8, [2], app_id="one") == 1
    assert numbers_in(table) == [0, 1, 2]


def test_a_table_that_is_not_there_has_no_snapshot(table: LakeTable) -> None:
    assert open_backend(table).snapshot() is None
    assert table_rows(table) == 0
    with pytest.raises(ConfigError, match=f"no {table.format} table found"):
        compact(table)


def test_odd_names_are_partitions_too(table: LakeTable) -> None:
    put(table, 0, [0], topic="%RETRY%group|a")
    put(table, 1, [1], topic="%RETRY%group|a")
    put(table, 2, [2], topic="2026")
    values = {dict(file.partition)["topic"] for file in snapshot_of(table).files}
    assert values == {"%RETRY%group|a", "2026"}
    assert compact(table, min_files=2).files_before == 2
    assert {dict(file.partition)["topic"] for file in snapshot_of(table).files} == values
    assert numbers_in(table) == [0, 1, 2]


def test_compaction_makes_few_files_of_many_and_keeps_rows_and_batches(table: LakeTable) -> None:
    for number in range(6):
        put(table, number, [number], topic="odd" if number % 2 else "even")
    before = snapshot_of(table)
    result = compact(table, min_files=2, retain_ms=DAY_MS)
    assert (result.files_before, result.files_after, result.rows) == (6, 2, 6)
    assert result.removed_files == 0
    assert len(snapshot_of(table).files) == 2
    assert numbers_in(table) == [0, 1, 2, 3, 4, 5]
    # Whoever has looked before still reads what was there.
    assert numbers_in(table, before) == [0, 1, 2, 3, 4, 5]
    assert put(table, 5, [5]) == 0
    assert put(table, 6, [6]) == 1
    assert snapshot_of(table).schema.simpleString() == before.schema.simpleString()


def test_replaced_files_are_removed_when_their_time_is_over(table: LakeTable) -> None:
    for number in range(4):
        put(table, number, [number])
    before = snapshot_of(table)
    compact(table, retain_ms=DAY_MS)
    assert compact(table, retain_ms=0).removed_files == 4
    folder = open_backend(table).data_folder
    assert not any((folder / file.path).exists() for file in before.files)
    assert numbers_in(table) == [0, 1, 2, 3]


def test_few_files_are_left_alone(table: LakeTable) -> None:
    for number in range(3):
        put(table, number, [number])
    assert compact(table, min_files=4).files_before == 0
    assert len(snapshot_of(table).files) == 3


def test_files_that_another_has_replaced_are_not_replaced_again(table: LakeTable) -> None:
    for number in range(2):
        put(table, number, [number])
    files = snapshot_of(table).files
    compact(table, min_files=2, retain_ms=DAY_MS)
    with pytest.raises(LakeConflictError):
        open_backend(table).replace(files, [])
    with pytest.raises(LakeConflictError):
        open_backend(table).replace([DataFile("nowhere.parquet", 1, 1)], [])
    assert numbers_in(table) == [0, 1]


def test_a_new_column_is_refused_and_with_merge_schema_added(table: LakeTable, tmp_path: Path) -> None:
    put(table, 0, [0])
    with pytest.raises(ConfigError, match="column extra: not in the table"):
        put(table, 1, [1], more=("extra",))
    merging = table_of(table.format, table.folder, merge_schema=True)
    assert put(merging, 1, [1], more=("extra",)) == 1
    assert put(table, 2, [2]) == 1
    assert "extra" in [field.name for field in snapshot_of(table).schema.fields]
    compact(table, min_files=2, retain_ms=DAY_MS)
    file = snapshot_of(table).files[0]
    rows = pq.ParquetFile(open_backend(table).data_folder / file.path).read().to_pylist()
    assert {row["number"]: row["extra"] for row in rows} == {0: None, 1: "more", 2: None}


# -- plain Parquet -------------------------------------------------------------------------------


@pytest.fixture
def parquet(tmp_path: Path) -> LakeTable:
    return table_of("parquet", tmp_path / "table")


def shown(table: LakeTable) -> list[int]:
    """What a reader sees that knows nothing of us."""
    numbers: list[int] = pq.read_table(table.folder)["number"].to_pylist()
    return sorted(numbers)


def test_any_reader_of_parquet_sees_the_rows(parquet: LakeTable) -> None:
    for number in range(5):
        put(parquet, number, [number])
        assert shown(parquet) == list(range(number + 1))
    compact(parquet, retain_ms=DAY_MS)
    assert shown(parquet) == [0, 1, 2, 3, 4]


def test_what_readers_see_is_repaired_after_a_crash(parquet: LakeTable) -> None:
    for number in range(2):
        put(parquet, number, [number])
    gone = next(parquet.folder.glob("topic=*/date=*/*.parquet"))
    gone.rename(gone.with_name("kourou-that-nobody-committed.parquet"))
    put(parquet, 1, [1])  # does nothing else
    assert shown(parquet) == [0, 1]
    assert not gone.with_name("kourou-that-nobody-committed.parquet").exists()


def test_files_without_a_commit_are_unowned_and_removed_later(parquet: LakeTable) -> None:
    put(parquet, 0, [0])
    folder = open_backend(parquet).data_folder
    lost = folder / "topic=orders" / "kourou-lost.parquet"
    lost.write_bytes(b"half a fi")
    staging = parquet.folder / "_kourou" / "staging" / "of-a-killed-process"
    staging.mkdir()
    assert numbers_in(parquet) == [0]
    compact(parquet, retain_ms=DAY_MS)
    assert lost.exists() and staging.exists()
    for path in (lost, staging):
        os.utime(path, (0, 0))
    assert compact(parquet, retain_ms=DAY_MS).removed_files == 1
    assert not lost.exists() and not staging.exists()


def test_old_commits_are_removed_and_the_rest_is_enough(parquet: LakeTable) -> None:
    for number in range(45):
        put(parquet, number, [number])
    log = parquet.folder / "_kourou" / "log"
    assert len(list(log.glob("*.json"))) == 45
    open_backend(parquet).clean(0)
    assert min(int(path.stem) for path in log.glob("*.json")) == 40
    assert numbers_in(parquet) == list(range(45))
    assert put(parquet, 44, [44]) == 0


def test_a_damaged_commit_is_named(parquet: LakeTable) -> None:
    put(parquet, 0, [0])
    path = parquet.folder / "_kourou" / "log" / f"{0:020d}.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=f"{path.name}: is not a commit of a table"):
        snapshot_of(parquet)
    path.write_text('{"format": 99}')
    with pytest.raises(ConfigError, match="written by a later version of Kourou"):
        snapshot_of(parquet)


def test_a_folder_with_files_of_others_is_not_written_to(parquet: LakeTable) -> None:
    parquet.folder.mkdir()
    (parquet.folder / "part-0.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match="contains Parquet files that Kourou did not write"):
        put(parquet, 0, [0])


# -- mistakes ------------------------------------------------------------------------------------


def test_mistakes_in_a_table_are_reported() -> None:
    with pytest.raises(ConfigError, match="unknown format 'detla'; did you mean delta"):
        LakeTable("detla", "out")
    with pytest.raises(ConfigError, match="s3:// is not supported"):
        LakeTable("delta", "s3://bucket/table")
    with pytest.raises(ConfigError, match="the path is missing"):
        LakeTable("delta", "")
    with pytest.raises(ConfigError, match="an Iceberg table needs a namespace"):
        LakeTable("iceberg", "out", name="rows")
    with pytest.raises(ConfigError, match="choose another name"):
        LakeTable("delta", "out/a%20b")
    assert LakeTable("parquet", "file:/out/a%20b").folder == Path("/out/a b")


def test_missing_partition_columns_are_reported(tmp_path: Path) -> None:
    table = LakeTable("delta", str(tmp_path / "t"), ("day",))
    with pytest.raises(ConfigError, match="column day: a partition column is missing"):
        put(table, 0, [0])


def test_a_damaged_delta_log_is_reported(tmp_path: Path) -> None:
    table = table_of("delta", tmp_path / "t")
    put(table, 0, [0])
    for path in (table.folder / "_delta_log").glob("*.json"):
        path.write_text("{")
    with pytest.raises(ConfigError, match="is not a readable Delta table"):
        snapshot_of(table)


def test_large_rows_are_compacted_in_small_pieces(tmp_path: Path) -> None:
    from kourou.spark.pipelines.lake.lake_compaction import _batch_rows

    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"value": [os.urandom(1 << 20) for _ in range(40)]}), path)
    with pq.ParquetFile(path) as file:
        assert 1 <= _batch_rows(file) <= 16
    pq.write_table(pa.table({"value": [b"small"] * 40}), path)
    with pq.ParquetFile(path) as file:
        assert _batch_rows(file) == 8_192
