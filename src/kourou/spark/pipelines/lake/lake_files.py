"""Files of a lake table: staged by Spark, added by a commit, read back; shared by all formats.

Internal files of a table are in its folder `_kourou`: Parquet readers ignore names with an underscore. Not
here: which files belong to a table (the formats' own logs).
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

from kourou.spark.pipelines.sql.sql_names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

HIDDEN: Final = "_kourou"
FILE_PREFIX: Final = "kourou-"
COMPRESSION: Final = "zstd"
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
# Partition columns have other names while files are written, so that the files may contain them too.
_BY: Final = "__by_"
_UNSAFE_CHARS: Final = re.compile(r"[^A-Za-z0-9=/._-]")
_GLOB_CHARS: Final = frozenset("*?[]{}\\")


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file; `path` is relative to the data folder, with `/`, including partition folders."""

    path: str
    rows: int
    size_bytes: int
    partition: tuple[tuple[str, str | None], ...] = ()
    """Column and value, as text."""

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """The state of a table at one time."""

    schema: StructType
    files: tuple[DataFile, ...]


class LakeConflictError(Exception):
    """Files to be replaced are no longer part of the table: another process was faster."""


class LakeBackend(Protocol):
    """The operations of a format. Every change is one atomic commit."""

    keeps_partition_columns: bool
    """Whether files contain their partition columns."""
    sanitizes_folders: bool
    """Whether folder names are reduced to letters and digits."""

    @property
    def data_folder(self) -> Path:
        """The folder of the data files."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned; may be empty."""

    def prepare(self, schema: StructType) -> None:
        """Create the table if it does not exist. ConfigError if it differs, or rows do not fit."""

    def last_batch_id(self, app_id: str) -> int | None:
        """The last committed batch of a writer."""

    def append(
        self,
        files: Sequence[DataFile],
        schema: StructType,
        *,
        app_id: str,
        batch_id: int,
        replaced: Sequence[DataFile] = (),
    ) -> None:
        """Add files as a batch of a writer, and remove the replaced ones. LakeConflictError if some of these
        are gone."""

    def snapshot(self) -> LakeSnapshot | None:
        """The current table; None if there is none."""

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Replace files by others with the same rows. LakeConflictError if some are gone."""

    def clean(self, retain_ms: int) -> int:
        """Remove files that have been unreferenced for longer than this; returns their number."""


# -- writing -------------------------------------------------------------------------------------


def new_staging(folder: Path) -> Path:
    """A folder for one batch's files; only its parent exists yet."""
    parent = folder / HIDDEN / "staging"
    parent.mkdir(parents=True, exist_ok=True)
    return parent / uuid.uuid4().hex


def stage(frame: DataFrame, partition_by: Sequence[str], staging: Path, *, keeps_columns: bool) -> None:
    """Let Spark write rows to a staging folder."""
    # Other readers, such as delta-rs and pyiceberg, do not support Spark's legacy timestamps.
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    for name in partition_by:
        frame = frame.withColumn(_BY + name, frame[name])
    if not keeps_columns:
        frame = frame.drop(*partition_by)
    writer = frame.write.option("compression", COMPRESSION)
    if partition_by:
        writer = writer.partitionBy(*[_BY + name for name in partition_by])
    writer.parquet(str(staging))


def take_staged(staging: Path, data_folder: Path, *, sanitizes_folders: bool = False) -> list[DataFile]:
    """Move the files of a staging folder to the data folder; on return they are on disk, but not
    committed."""
    import pyarrow.parquet as pq

    name = f"{FILE_PREFIX}{uuid.uuid4().hex}"
    taken, folders = [], set()
    for number, source in enumerate(sorted(staging.rglob("*.parquet"))):
        rows = pq.read_metadata(source).num_rows
        folder = source.parent.relative_to(staging).as_posix().replace(_BY, "")
        partition = partition_of(f"{folder}/")
        folder = (
            "" if folder == "." else f"{_UNSAFE_CHARS.sub('_', folder) if sanitizes_folders else folder}/"
        )
        if rows:
            path = f"{folder}{name}-{number}.parquet"
            taken.append(DataFile(path, rows, _moved(source, data_folder / path), partition))
            folders.add(data_folder / folder)
    for each in folders:
        fsync(each)
    remove_tree(staging)
    return taken


def _moved(source: Path, target: Path) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    fsync(source)
    size_bytes = source.stat().st_size
    os.rename(source, target)
    return size_bytes


def partition_of(path: str) -> tuple[tuple[str, str | None], ...]:
    """The partition columns and values of a folder path."""
    pairs = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return tuple(
        (unquote(name), None if value == NULL_PARTITION else unquote(value)) for name, _, value in pairs
    )


def fsync(path: Path) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(folder: Path) -> None:
    """Remove a folder. Spark may keep writing for a moment to the folder of a killed process."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


# -- unreferenced files --------------------------------------------------------------------------


def clean_staging(folder: Path, retain_ms: int) -> None:
    """Remove the leftovers of processes that were killed while writing."""
    for each in (folder / HIDDEN / "staging").glob("*"):
        if is_older(each, retain_ms):
            remove_tree(each)


def is_older(path: Path, age_ms: int) -> bool:
    """Whether a file was last modified longer ago than this."""
    try:
        return path.stat().st_mtime * 1000 <= time.time() * 1000 - age_ms
    except FileNotFoundError:
        return False


def our_files(folder: Path) -> Iterator[Path]:
    """Files that a writer or a compaction has created below a folder, except for hidden folders."""
    if not folder.is_dir():
        return
    for where, names, files in os.walk(folder):
        names[:] = [name for name in names if not name.startswith(("_", "."))]
        for name in files:
            if name.startswith(FILE_PREFIX) and name.endswith(".parquet"):
                yield Path(where, name)


def clean_orphans(folder: Path, is_used: Callable[[str], bool], retain_ms: int) -> int:
    """Remove our files that have been unreferenced for longer than this; returns their number."""
    count = 0
    for path in list(our_files(folder)):
        if not is_used(path.relative_to(folder).as_posix()) and is_older(path, retain_ms):
            path.unlink(missing_ok=True)
            count += 1
    return count


def touch_all(folder: Path, files: Sequence[DataFile]) -> None:
    """Restart the retention time of files."""
    for file in files:
        try:
            os.utime(folder / file.path)
        except FileNotFoundError:
            raise LakeConflictError(file.path) from None


# -- reading -------------------------------------------------------------------------------------


def read_files(
    spark: SparkSession,
    folder: Path,
    files: Sequence[DataFile],
    schema: StructType,
    partition_by: Sequence[str],
) -> DataFrame:
    """The rows of these files. `partition_by` are columns that the files do not contain."""
    if not files:
        return spark.createDataFrame([], schema)
    if not partition_by:
        return _read(spark, folder, files, schema, has_folders=False)
    # Folder names give partition values, except in foreign tables and for values with special characters.
    named = [file for file in files if file.partition == partition_of(file.path)]
    groups: dict[Any, list[DataFile]] = {}
    for file in files:
        if file.partition != partition_of(file.path):
            groups.setdefault(file.partition, []).append(file)
    parts = [_read(spark, folder, named, schema, has_folders=True)] if named else []
    parts += [_read_partition(spark, folder, group, schema) for group in groups.values()]
    return reduce(lambda left, right: left.unionByName(right), parts)


def _read(
    spark: SparkSession, folder: Path, files: Sequence[DataFile], schema: StructType, *, has_folders: bool
) -> DataFrame:
    reader = spark.read.schema(schema)
    if has_folders:
        reader = reader.option("basePath", str(folder))
    frame = reader.parquet(*[_glob_escaped(folder / file.path) for file in files])
    return frame.select(*[quoted(field.name) for field in schema.fields])


def _read_partition(
    spark: SparkSession, folder: Path, files: Sequence[DataFile], schema: StructType
) -> DataFrame:
    from pyspark.sql.functions import lit
    from pyspark.sql.types import StructType

    values = dict(files[0].partition)
    inside = StructType([field for field in schema.fields if field.name not in values])
    frame = _read(spark, folder, files, inside, has_folders=False)
    for field in schema.fields:
        if field.name in values:
            frame = frame.withColumn(field.name, lit(values[field.name]).cast(field.dataType))
    return frame.select(*[quoted(field.name) for field in schema.fields])


def _glob_escaped(path: Path) -> str:
    """A path with glob characters escaped."""
    return "".join(f"\\{sign}" if sign in _GLOB_CHARS else sign for sign in str(path))
