"""Lake tables: folders of Parquet, Delta or Iceberg that streams write exactly once and Spark reads back.

    write = lake_writer(LakeTable("delta", "out/orders", partition_by=("day",)), app_id="orders")
    frame.writeStream.foreachBatch(write).option("checkpointLocation", …).start()

A micro-batch is in the table completely or not at all, and once: Spark writes its files to a staging folder,
and one atomic commit adds them together with the batch's number. A batch that Spark repeats after a crash is
recognised and skipped. In a table with a key, a row replaces the earlier one with the same key. Delta and
Iceberg are written by delta-rs and pyiceberg: no JAR. Paths are folders of this machine, or ones that driver
and executors all see under one name. Not here: the three formats (lake_parquet.py, lake_delta.py,
lake_iceberg.py).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kourou.errors import ConfigError
from kourou.spark.pipelines.lake.lake_files import (
    DataFile,
    LakeBackend,
    LakeConflictError,
    LakeSnapshot,
    new_staging,
    read_files,
    stage,
    take_staged,
)
from kourou.spark.pipelines.sql.sql_names import quoted
from kourou.spark.pipelines.whole_batch import compute_state
from kourou.wording import suggestion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kourou.spark.pipelines.lake.lake_compaction import CompactionResult

_log = logging.getLogger(__name__)

FORMATS: Final = ("parquet", "delta", "iceberg")
DEFAULT_TARGET_BYTES: Final = 128 * 1024 * 1024
"""Of compacted files: large enough that opening files does not dominate a scan."""
DEFAULT_MIN_FILES: Final = 4
"""This many small files in a partition justify a rewrite."""
DEFAULT_RETAIN_MS: Final = 3_600_000
"""How long replaced files are kept after a compaction: earlier readers may still need them."""
_ESCAPED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_QUERY_ID: Final = "sql.streaming.queryId"
_UPDATE_ATTEMPTS: Final = 5
_CLEAN_EVERY: Final = 16
"""A table with a key is rewritten by every batch: after this many, files replaced long ago are removed."""
# Types of partition columns whose text is the same in file names and in all logs.
_PLAIN_TYPES: Final = ("string", "byte", "short", "integer", "long", "date")


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table's location and format. ConfigError if they are invalid."""

    format: str
    path: str
    """A folder. For Iceberg: the warehouse, with a catalog of its own in it."""
    partition_by: tuple[str, ...] = ()
    """Partition columns; an existing table keeps its own."""
    merge_schema: bool = False
    """Whether new columns are added to the table; otherwise such a batch fails."""
    name: str = "lake.rows"
    """Iceberg: the table's name in its catalog."""
    catalog: str = ""
    """Iceberg: a catalog of pyiceberg's own configuration (.pyiceberg.yaml), instead of the folder's."""
    key: tuple[str, ...] = ()
    """Columns by which a written row replaces an earlier one; without them every row is added."""

    def __post_init__(self) -> None:
        problems = [*_format_problems(self.format), *_path_problems(self.path)]
        if self.format == "iceberg" and len([part for part in self.name.split(".") if part]) < 2:
            problems.append(f"table {self.name!r}: an Iceberg table needs a namespace, such as lake.rows")
        if self.format == "delta" and _ESCAPED.search(self.path):
            problems.append(
                f"{self.path}: delta-rs decodes % and two digits as a character; choose another name"
            )
        if problems:
            raise ConfigError(*problems)

    @property
    def folder(self) -> Path:
        """The path, on this machine."""
        return Path(unquote(self.path[5:]) if self.path.startswith("file:") else self.path).absolute()


def _format_problems(name: str) -> list[str]:
    if name in FORMATS:
        return []
    hint = suggestion(name, FORMATS) or f"; use one of {', '.join(FORMATS)}"
    return [f"unknown format {name!r}{hint}"]


def _path_problems(path: str) -> list[str]:
    if not path:
        return ["the path is missing: the folder of the table"]
    scheme = path.partition("://")[0] if "://" in path else ""
    if scheme not in ("", "file"):
        return [f"{path}: must be a folder that this machine can access; {scheme}:// is not supported"]
    return []


def lake_writer(
    table: LakeTable, *, app_id: str, checkpoint: Path | None = None
) -> Callable[[DataFrame, int], int]:
    """A function for `foreachBatch` that returns the number of written rows. `app_id` distinguishes the
    writers of a table: choose a name for each stream.

    The stream's own id, from its checkpoint, is part of the identity: a stream that starts over with another
    checkpoint is another writer, and its batches are not mistaken for earlier ones. A stream with state, such
    as aggregations, needs `checkpoint`, the folder of its own.
    """

    def write(frame: DataFrame, batch_id: int) -> int:
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        writer = f"{app_id}:{query_id}" if query_id else app_id
        written = write_batch(table, frame, app_id=writer, batch_id=batch_id, checkpoint=checkpoint)
        if table.key and batch_id % _CLEAN_EVERY == 0:
            open_backend(table).clean(DEFAULT_RETAIN_MS)
        return written

    return write


def write_batch(
    table: LakeTable, frame: DataFrame, *, app_id: str, batch_id: int, checkpoint: Path | None = None
) -> int:
    """Add the rows of a batch, or replace those with the same key, unless this has happened already; on
    return they are on disk. Returns the number of written rows."""
    if table.key:
        frame = frame.dropDuplicates(list(table.key))

    def staged(backend: LakeBackend, staging: Path) -> None:
        stage(frame, backend.partition_by, staging, keeps_columns=backend.keeps_partition_columns)

    written = commit_batch(
        table, frame.schema, staged, app_id=app_id, batch_id=batch_id, spark=frame.sparkSession
    )
    if written is None:
        compute_state(frame, checkpoint)
    return written or 0


def commit_batch(
    table: LakeTable,
    schema: StructType,
    write_files: Callable[[LakeBackend, Path], None],
    *,
    app_id: str,
    batch_id: int,
    spark: SparkSession | None = None,
) -> int | None:
    """Like `write_batch`, for a function that writes files into partition folders below the given folder.
    Returns None if the batch is there already. A table with a key needs the session."""
    backend = open_backend(table)
    backend.prepare(schema)
    last = backend.last_batch_id(app_id)
    if last is not None and last >= batch_id:
        _log.info("%s: batch %d is already committed", table.path, batch_id)
        return None
    staging = new_staging(table.folder)
    write_files(backend, staging)
    files = take_staged(staging, backend.data_folder, sanitizes_folders=backend.sanitizes_folders)
    if files and table.key:
        assert spark is not None
        _commit_update(spark, table, backend, files, schema, app_id=app_id, batch_id=batch_id)
    elif files:
        backend.append(files, schema, app_id=app_id, batch_id=batch_id)
    return sum(file.rows for file in files)


def _commit_update(
    spark: SparkSession,
    table: LakeTable,
    backend: LakeBackend,
    new: list[DataFile],
    schema: StructType,
    *,
    app_id: str,
    batch_id: int,
) -> None:
    """Commit files whose rows replace those with the same key: the partitions that they touch are written
    again without these."""
    for attempt in range(1, _UPDATE_ATTEMPTS + 1):
        snapshot = backend.snapshot()
        old = () if snapshot is None else _touched(table, backend, snapshot, new)
        kept = [] if snapshot is None or not old else _kept(spark, table, backend, snapshot.schema, old, new)
        try:
            backend.append([*new, *kept], schema, app_id=app_id, batch_id=batch_id, replaced=old)
            return
        except LakeConflictError as error:  # a compaction at the same time
            _log.info("%s: batch %d starts over: %s", table.path, batch_id, error)
            if attempt == _UPDATE_ATTEMPTS:
                raise


def _touched(
    table: LakeTable, backend: LakeBackend, snapshot: LakeSnapshot, new: list[DataFile]
) -> tuple[DataFile, ...]:
    """The files that may have rows with the keys of the new ones."""
    partition_by = backend.partition_by
    types = {field.name: field.dataType.typeName() for field in snapshot.schema.fields}
    if not all(name in table.key and types.get(name) in _PLAIN_TYPES for name in partition_by):
        return snapshot.files
    partitions = {file.partition for file in new}
    return tuple(file for file in snapshot.files if file.partition in partitions)


def _kept(
    spark: SparkSession,
    table: LakeTable,
    backend: LakeBackend,
    schema: StructType,
    old: tuple[DataFile, ...],
    new: list[DataFile],
) -> list[DataFile]:
    """Files with those rows of the old ones whose keys the new ones do not have."""
    from pyspark.sql.functions import expr

    partition_by = backend.partition_by
    outside = () if backend.keeps_partition_columns else partition_by
    before = read_files(spark, backend.data_folder, old, schema, outside).alias("before")
    after = read_files(spark, backend.data_folder, new, schema, outside).alias("after")
    has_same_key = " AND ".join(f"before.{quoted(name)} <=> after.{quoted(name)}" for name in table.key)
    rows = before.join(after, expr(has_same_key), "left_anti")
    staging = new_staging(table.folder)
    stage(rows, partition_by, staging, keeps_columns=backend.keeps_partition_columns)
    return take_staged(staging, backend.data_folder, sanitizes_folders=backend.sanitizes_folders)


def read_lake(spark: SparkSession, table: LakeTable) -> DataFrame:
    """The current rows. Later writes and compactions do not affect the DataFrame, as long as replaced files
    are kept. ConfigError if there is no such table."""
    backend = open_backend(table)
    snapshot = backend.snapshot()
    if snapshot is None:
        raise ConfigError(f"{table.path}: no {table.format} table found")
    partition_by = () if backend.keeps_partition_columns else backend.partition_by
    return read_files(spark, backend.data_folder, snapshot.files, snapshot.schema, partition_by)


def parquet_files(folder: str | Path) -> list[Path]:
    """The files of the current rows of a Parquet table, for readers without Spark, such as pyarrow; none if
    there is no table. Together they are a snapshot; they stay for an hour after they were replaced."""
    from kourou.spark.pipelines.lake.lake_parquet import ParquetLake

    return ParquetLake(LakeTable("parquet", str(folder))).paths()


def compact(
    table: LakeTable,
    *,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    min_files: int = DEFAULT_MIN_FILES,
    retain_ms: int = DEFAULT_RETAIN_MS,
) -> CompactionResult:
    """Combine small files into large ones, and remove files replaced longer than `retain_ms` ago.

    Safe beside readers and writers, and if interrupted at any time.
    """
    from kourou.spark.pipelines.lake.lake_compaction import compact_backend

    backend = open_backend(table)
    if backend.snapshot() is None:
        raise ConfigError(f"{table.path}: no {table.format} table found")
    staging = new_staging(table.folder)
    return compact_backend(
        backend, staging, target_bytes=target_bytes, min_files=min_files, retain_ms=retain_ms
    )


def open_backend(table: LakeTable) -> LakeBackend:
    """The backend of a format. ConfigError if its packages are not installed."""
    try:
        if table.format == "parquet":
            from kourou.spark.pipelines.lake.lake_parquet import ParquetLake

            return ParquetLake(table)
        if table.format == "delta":
            from kourou.spark.pipelines.lake.lake_delta import DeltaLake

            return DeltaLake(table)
        from kourou.spark.pipelines.lake.lake_iceberg import IcebergLake

        return IcebergLake(table)
    except ImportError as error:
        raise ConfigError(
            f"the format {table.format} requires the Python package {error.name}: pip install 'kourou[lake]'"
        ) from error


def table_rows(table: LakeTable) -> int:
    """The number of rows of a table according to its log; 0 if it does not exist."""
    snapshot: Any = open_backend(table).snapshot()
    return 0 if snapshot is None else sum(file.rows for file in snapshot.files)
