"""DeltaLake: a Delta table, with files written by Spark and a log written by delta-rs.

The batch's number is in the same commit as its files, as the protocol's own `txn` action. So any Delta reader
can read the table, and any Delta writer can write to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from kourou.errors import ConfigError
from kourou.spark.pipelines.lake.lake_files import (
    DataFile,
    LakeConflictError,
    LakeSnapshot,
    clean_orphans,
    clean_staging,
    touch_all,
)
from kourou.spark.pipelines.lake.lake_schema import merged_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kourou.spark.pipelines.lake.lake import LakeTable

_UNREADABLE: Final = frozenset({"deletionVectors", "columnMapping"})


class DeltaLake:
    """One Delta table."""

    keeps_partition_columns = False
    # Paths in the log are URL-encoded, and readers differ in how often they decode them.
    sanitizes_folders = True

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    @property
    def data_folder(self) -> Path:
        return self._table.folder

    @property
    def partition_by(self) -> tuple[str, ...]:
        found = self._open()
        return self._table.partition_by if found is None else tuple(found.metadata().partition_columns)

    def prepare(self, schema: StructType) -> None:
        """Create the table if it does not exist; add new columns, if allowed."""
        found = self._open()
        if found is None:
            self._create(merged_schema(None, schema, self._table))
            return
        old = _struct(found)
        merged = merged_schema(old, schema, self._table)
        new = merged.fields[len(old.fields) :]
        if new:
            fields = Schema.from_json(
                json.dumps({"type": "struct", "fields": [each.jsonValue() for each in new]})
            )
            found.alter.add_columns(fields.fields)

    def _create(self, schema: StructType) -> None:
        folder = self._table.folder
        folder.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            str(folder),
            Schema.from_json(schema.json()),
            mode="ignore",
            partition_by=list(self._table.partition_by),
        )

    def last_batch_id(self, app_id: str) -> int | None:
        """The last committed batch of a writer."""
        found = self._open()
        return None if found is None else found.transaction_version(app_id)

    def append(
        self,
        files: Sequence[DataFile],
        schema: StructType,
        *,
        app_id: str,
        batch_id: int,
        replaced: Sequence[DataFile] = (),
    ) -> None:
        """Add files as a batch, in place of others, in one commit."""
        properties = CommitProperties(app_transactions=[Transaction(app_id, batch_id)])
        self._exchange(replaced, files, properties, data_change=True)

    def snapshot(self) -> LakeSnapshot | None:
        """The current table. ConfigError if its rows cannot be read from its files alone."""
        found = self._open()
        if found is None:
            return None
        features = _UNREADABLE.intersection(found.protocol().reader_features or ())
        if features:
            raise ConfigError(
                f"{self._table.path}: the table uses {' and '.join(sorted(features))}, which Kourou "
                "does not read; rewrite it without"
            )
        columns = found.metadata().partition_columns
        names = ["path", "size_bytes", "num_records", *[f"partition.{column}" for column in columns]]
        rows = _rows(found, names)
        files = [
            DataFile(
                row["path"],
                int(row["num_records"] or 0),
                int(row["size_bytes"]),
                tuple((column, _text(row[f"partition.{column}"])) for column in columns),
            )
            for row in rows
        ]
        return LakeSnapshot(_struct(found), tuple(files))

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Replace files by others with the same rows, in one commit."""
        self._exchange(old, new, None, data_change=False)

    def clean(self, retain_ms: int) -> int:
        """Remove our files that have been unreferenced for longer than this. Older versions become
        unreadable."""
        clean_staging(self._table.folder, retain_ms)
        snapshot = self.snapshot()
        used = {file.path for file in snapshot.files} if snapshot is not None else set()
        return clean_orphans(self.data_folder, used.__contains__, retain_ms)

    def _open(self) -> DeltaTable | None:
        folder = self._table.folder
        if not (folder / "_delta_log").is_dir():
            return None
        try:
            return DeltaTable(str(folder))
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise ConfigError(f"{self._table.path}: is not a readable Delta table: {error}") from error

    def _exchange(
        self,
        old: Sequence[DataFile],
        new: Sequence[DataFile],
        properties: CommitProperties | None,
        *,
        data_change: bool,
    ) -> None:
        added = [_add(file, data_change=data_change) for file in new]
        if not old:
            self._write(added, properties)
            return
        snapshot = self.snapshot()
        known = {file.path for file in snapshot.files} if snapshot is not None else set()
        gone = {file.path for file in old} - known
        if gone:
            raise LakeConflictError(next(iter(gone)))
        touch_all(self.data_folder, old)
        now_ms = time.time_ns() // 1_000_000
        removed = [
            RemoveAction(file.path, data_change, now_ms, file.size_bytes, dict(file.partition))
            for file in old
        ]
        try:
            self._write([*added, *removed], properties)
        except CommitFailedError as error:
            raise LakeConflictError(str(error)) from error

    def _write(self, actions: list[Any], properties: CommitProperties | None) -> None:
        table = self._open()
        assert table is not None, "prepare makes it"
        table.create_write_transaction(
            actions,
            mode="append",
            schema=table.schema(),
            partition_by=list(table.metadata().partition_columns),
            commit_properties=properties,
        )


def _add(file: DataFile, *, data_change: bool) -> AddAction:
    return AddAction(
        file.path,
        file.size_bytes,
        dict(file.partition),
        time.time_ns() // 1_000_000,
        data_change,
        json.dumps({"numRecords": file.rows}),
    )


def _rows(table: DeltaTable, names: list[str]) -> list[dict[str, Any]]:
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    rows: list[dict[str, Any]] = actions.select(names).to_pylist()
    return rows


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _struct(table: DeltaTable) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(table.schema().to_json()))
