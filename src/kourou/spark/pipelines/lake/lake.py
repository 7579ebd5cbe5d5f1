"""Lake tables: folders of Parquet, Delta or Iceberg that streams write exactly once and Spark reads back.

    write = lake_writer(LakeTable("delta", "out/orders", partition_by=("day",)), app_id="orders")
    frame.writeStream.foreachBatch(write).option("checkpointLocation", …).start()

A micro-batch is in the table wholly or not at all, and once: Spark writes its files aside, and one atomic
commit adds them together with the batch's number. A batch that Spark does again after a crash is found there
and left out. Delta and Iceberg are written by delta-rs and pyiceberg: no JAR. Paths are folders of this
machine, or ones that driver and executors all see under one name.
Not here: the three formats (lake_parquet.py, lake_delta.py, lake_iceberg.py).
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
from kourou.spark.pipelines.lake.lake_files import LakeBackend, new_staging, read_files, stage, take_staged
from kourou.wording import suggestion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kourou.spark.pipelines.lake.lake_compaction import CompactionResult

_log = logging.getLogger(__name__)

FORMATS: Final = ("parquet", "delta", "iceberg")
DEFAULT_TARGET_BYTES: Final = 128 * 1024 * 1024
"""Of compacted files: large enough that a scan is not a matter of opening files."""
DEFAULT_MIN_FILES: Final = 4
"""So many small files in a partition are worth rewriting them."""
DEFAULT_RETAIN_MS: Final = 3_600_000
"""How long files stay that compaction has replaced: readers that began before may still need them."""
_ESCAPED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class LakeTable:
    """Where rows are kept, and how. ConfigError says what is wrong with it."""

    format: str
    path: str
    """A folder. For Iceberg: the warehouse, with a catalog of its own in it."""
    partition_by: tuple[str, ...] = ()
    """Columns that rows are apart by; of a table that is there already, its own count."""
    merge_schema: bool = False
    """Whether columns that the table does not have are added to it; else such a batch fails."""
    name: str = "lake.rows"
    """Iceberg: the table's name in its catalog."""
    catalog: str = ""
    """Iceberg: a catalog of pyiceberg's own configuration (.pyiceberg.yaml), instead of the folder's."""

    def __post_init__(self) -> None:
        problems = [*_format_problems(self.format), *_path_problems(self.path)]
        if self.format == "iceberg" and len([part for part in self.name.split(".") if part]) < 2:
            problems.append(f"table {self.name!r}: an Iceberg table has a namespace, such as lake.rows")
        if self.format == "delta" and _ESCAPED.search(self.path):
            problems.append(
                f"{self.path}: delta-rs takes % and two digits for another sign; name it otherwise"
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
    hint = suggestion(name, FORMATS) or f"; there are {', '.join(FORMATS)}"
    return [f"there is no format {name!r}{hint}"]


def _path_problems(path: str) -> list[str]:
    if not path:
        return ["the path is missing: the folder of the table"]
    scheme = path.partition("://")[0] if "://" in path else ""
    if scheme not in ("", "file"):
        return [f"{path}: has to be a folder that this machine sees; {scheme}:// is not written to"]
    return []


def lake_writer(table: LakeTable, *, app_id: str) -> Callable[[DataFrame, int], int]:
    """What `foreachBatch` calls; it gives how many rows it has added. `app_id` tells writers of one table
    apart: choose a name for each stream.

    The stream's own id, which is in its checkpoint, counts besides: a stream that begins anew with another
    checkpoint is another writer, and its batches are not taken for those of the one before.
    """

    def write(frame: DataFrame, batch_id: int) -> int:
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        writer = f"{app_id}:{query_id}" if query_id else app_id
        return write_batch(table, frame, app_id=writer, batch_id=batch_id)

    return write


def write_batch(table: LakeTable, frame: DataFrame, *, app_id: str, batch_id: int) -> int:
    """Add the rows of a batch unless they are there; on return they are on disk. Gives how many it added."""

    def staged(backend: LakeBackend, staging: Path) -> None:
        stage(frame, backend.partition_by, staging, keeps_columns=backend.keeps_partition_columns)

    return commit_batch(table, frame.schema, staged, app_id=app_id, batch_id=batch_id)


def commit_batch(
    table: LakeTable,
    schema: StructType,
    write_files: Callable[[LakeBackend, Path], None],
    *,
    app_id: str,
    batch_id: int,
) -> int:
    """As `write_batch`, whoever writes the files: into partition folders below the one that is given."""
    backend = open_backend(table)
    backend.prepare(schema)
    last = backend.last_batch_id(app_id)
    if last is not None and last >= batch_id:
        _log.info("%s: batch %d is there already", table.path, batch_id)
        return 0
    staging = new_staging(table.folder)
    write_files(backend, staging)
    files = take_staged(staging, backend.data_folder, sanitizes_folders=backend.sanitizes_folders)
    if files:
        backend.append(files, schema, app_id=app_id, batch_id=batch_id)
    return sum(file.rows for file in files)


def read_lake(spark: SparkSession, table: LakeTable) -> DataFrame:
    """The rows as they are now. What is written or compacted later does not change or disturb the DataFrame,
    for as long as replaced files are kept. ConfigError: there is no such table."""
    backend = open_backend(table)
    snapshot = backend.snapshot()
    if snapshot is None:
        raise ConfigError(f"{table.path}: there is no {table.format} table here")
    partition_by = () if backend.keeps_partition_columns else backend.partition_by
    return read_files(spark, backend.data_folder, snapshot.files, snapshot.schema, partition_by)


def compact(
    table: LakeTable,
    *,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    min_files: int = DEFAULT_MIN_FILES,
    retain_ms: int = DEFAULT_RETAIN_MS,
) -> CompactionResult:
    """Make few large files of many small ones, and remove what was replaced longer than `retain_ms` ago.

    Readers and writers may be at work beside it; ended at any moment, the table has the same rows.
    """
    from kourou.spark.pipelines.lake.lake_compaction import compact_backend

    backend = open_backend(table)
    if backend.snapshot() is None:
        raise ConfigError(f"{table.path}: there is no {table.format} table here")
    staging = new_staging(table.folder)
    return compact_backend(
        backend, staging, target_bytes=target_bytes, min_files=min_files, retain_ms=retain_ms
    )


def open_backend(table: LakeTable) -> LakeBackend:
    """The format's own part. ConfigError: what it needs is not installed."""
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
            f"the format {table.format} needs the Python package {error.name}: pip install 'kourou[lake]'"
        ) from error


def table_rows(table: LakeTable) -> int:
    """How many rows a table has, by what its log says; 0 if it is not there."""
    snapshot: Any = open_backend(table).snapshot()
    return 0 if snapshot is None else sum(file.rows for file in snapshot.files)
