"""Compaction: combines small files into large ones, partition by partition, without Spark.

New files are staged, and one commit replaces the old ones: a reader sees either. Memory holds one chunk of a
file at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kourou.spark.pipelines.lake.lake_files import (
    COMPRESSION,
    DataFile,
    LakeBackend,
    LakeConflictError,
    take_staged,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

_BATCH_ROWS: Final = 8_192
_BATCH_BYTES: Final = 16 * 1024 * 1024
"""The size of a chunk: fewer rows if they are large."""
_GROUP_BYTES: Final = 128 * 1024 * 1024
_GROUP_ROWS: Final = 131_072
"""The size of a row group: readers skip groups outside of their time range."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction."""

    files_before: int = 0
    """Small files that were replaced."""
    files_after: int = 0
    rows: int = 0
    removed_files: int = 0
    """Unreferenced files that were removed."""


def plan_compaction(
    files: Sequence[DataFile], *, target_bytes: int, min_files: int
) -> list[tuple[DataFile, ...]]:
    """Which files are combined: neighbours in a partition, up to the target size."""
    partitions: dict[object, list[DataFile]] = {}
    for file in files:
        # Two files above half the size would not fit into one.
        if file.size_bytes <= target_bytes // 2:
            partitions.setdefault((file.folder, file.partition), []).append(file)
    groups: list[tuple[DataFile, ...]] = []
    for small in partitions.values():
        if len(small) >= max(2, min_files):
            groups += _packed(small, target_bytes)
    return groups


def _packed(files: Sequence[DataFile], target_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    group: list[DataFile] = []
    size_bytes = 0
    for file in files:
        if group and size_bytes + file.size_bytes > target_bytes:
            if len(group) > 1:
                yield tuple(group)
            group, size_bytes = [], 0
        group.append(file)
        size_bytes += file.size_bytes
    if len(group) > 1:
        yield tuple(group)


def compact_backend(
    backend: LakeBackend, staging: Path, *, target_bytes: int, min_files: int, retain_ms: int
) -> CompactionResult:
    """Compact a table, with a commit for each new file, and remove unreferenced files."""
    snapshot = backend.snapshot()
    before = after = rows = 0
    if snapshot is not None:
        schema = _file_schema(backend, snapshot.schema)
        for group in plan_compaction(snapshot.files, target_bytes=target_bytes, min_files=min_files):
            try:
                new = _merged(backend.data_folder, group, schema, staging)
                backend.replace(group, new)
            except LakeConflictError as error:
                _log.info("%s: compacted by another process, or gone: %s", backend.data_folder, error)
                continue
            before, after, rows = before + len(group), after + len(new), rows + sum(each.rows for each in new)
    return CompactionResult(before, after, rows, backend.clean(retain_ms))


def _file_schema(backend: LakeBackend, schema: StructType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    left_out = () if backend.keeps_partition_columns else backend.partition_by
    return to_arrow_schema(
        StructType([field for field in schema.fields if field.name not in left_out]), timezone="UTC"
    )


def _merged(folder: Path, group: Sequence[DataFile], schema: Any, staging: Path) -> list[DataFile]:
    """One file with the rows of all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = staging / group[0].folder / "merged.parquet"
    target.parent.mkdir(parents=True)
    with pq.ParquetWriter(target, schema, compression=COMPRESSION) as writer:
        pending: list[Any] = []
        count = 0
        for batch in _batches(folder, group, schema):
            pending.append(batch)
            count += batch.num_rows
            if count >= _GROUP_ROWS or sum(each.nbytes for each in pending) >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(pending, schema))
                pending, count = [], 0
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema))
    # Folder names of foreign tables need not reflect the partitions.
    return [replace(file, partition=group[0].partition) for file in take_staged(staging, folder)]


def _batches(folder: Path, group: Sequence[DataFile], schema: Any) -> Iterator[Any]:
    """Chunks of the files, with the table's current columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in group:
        try:
            source = pq.ParquetFile(folder / file.path)
        except FileNotFoundError:
            raise LakeConflictError(file.path) from None
        with source:
            for batch in source.iter_batches(batch_size=_batch_rows(source)):
                names = set(batch.schema.names)
                columns = [
                    batch.column(field.name).cast(field.type)
                    if field.name in names
                    else pa.nulls(batch.num_rows, field.type)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _batch_rows(source: Any) -> int:
    metadata = source.metadata
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    total_bytes = sum(int(group.total_byte_size) for group in groups)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * int(metadata.num_rows) // max(1, total_bytes)))
