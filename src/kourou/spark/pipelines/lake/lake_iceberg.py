"""IcebergLake: an Iceberg table, with files written by Spark and metadata written by pyiceberg.

The batch's number is a property of the table, set in the same commit that adds its files. Without a catalog
in pyiceberg's configuration the table's folder has one: `catalog.db`, in SQLite.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from sqlalchemy import URL

from kourou.errors import ConfigError
from kourou.spark.pipelines.lake.lake_files import (
    DataFile,
    LakeConflictError,
    LakeSnapshot,
    clean_orphans,
    clean_staging,
    partition_of,
    touch_all,
)
from kourou.spark.pipelines.lake.lake_schema import merged_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kourou.spark.pipelines.lake.lake import LakeTable

_BATCH: Final = "kourou.batch."
# Otherwise each commit would leave a description of the whole table behind.
_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
CATALOG_FILE: Final = "catalog.db"


class IcebergLake:
    """One Iceberg table."""

    # pyiceberg reads the partition of a file from its columns.
    keeps_partition_columns = True
    sanitizes_folders = False

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    @property
    def data_folder(self) -> Path:
        found = self._open()
        assert found is not None, "prepare makes it"
        return _local(found.location()) / "data"

    @property
    def partition_by(self) -> tuple[str, ...]:
        found = self._open()
        if found is None:
            return self._table.partition_by
        names = {field.field_id: field.name for field in found.schema().fields}
        return tuple(names[each.source_id] for each in found.spec().fields)

    def prepare(self, schema: StructType) -> None:
        """Create the table if it does not exist; add new columns, if allowed."""
        found = self._open()
        if found is None:
            self._create(merged_schema(None, schema, self._table))
            return
        old = _struct(found)
        merged = merged_schema(old, schema, self._table)
        if len(merged.fields) > len(old.fields):
            with found.update_schema() as update:
                update.union_by_name(_arrow(merged))

    def _create(self, schema: StructType) -> None:
        namespace = self._table.name.rpartition(".")[0]
        self._table.folder.mkdir(parents=True, exist_ok=True)
        self._catalog.create_namespace_if_not_exists(namespace)
        transaction = self._catalog.create_table_transaction(
            self._table.name, _arrow(schema), properties=_PROPERTIES
        )
        with transaction as begun, begun.update_spec() as spec:
            for name in self._table.partition_by:
                spec.add_field(name, IdentityTransform(), name)

    def last_batch_id(self, app_id: str) -> int | None:
        """The last committed batch of a writer."""
        found = self._open()
        text = None if found is None else found.properties.get(_BATCH + app_id)
        return None if text is None else int(text)

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
        number = str(batch_id)
        batch = {_BATCH + app_id: number}
        names = {"kourou.app-id": app_id, "kourou.batch-id": number}
        if replaced:
            self._exchange(replaced, files, properties=batch, snapshot_properties=names)
            return
        found = self._open()
        assert found is not None, "prepare makes it"
        with found.transaction() as transaction:
            transaction.set_properties(batch)
            transaction.add_files(
                [str(self.data_folder / file.path) for file in files],
                snapshot_properties=names,
                # File names are unique.
                check_duplicate_files=False,
            )

    def snapshot(self) -> LakeSnapshot | None:
        """The current table. ConfigError if rows were deleted by delete files."""
        found = self._open()
        if found is None:
            return None
        folder = self.data_folder
        return LakeSnapshot(
            _struct(found), tuple(self._file(task, folder) for task in found.scan().plan_files())
        )

    def _file(self, task: Any, folder: Path) -> DataFile:
        if task.delete_files:
            raise ConfigError(
                f"{self._table.path}: the Iceberg table has delete files, which Kourou does not read; "
                "compact it with the program that wrote them"
            )
        path = _relative(_local(task.file.file_path), folder)
        return DataFile(path, task.file.record_count, task.file.file_size_in_bytes, partition_of(path))

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Replace files by others with the same rows, in one commit."""
        self._exchange(old, new)

    def _exchange(
        self,
        old: Sequence[DataFile],
        new: Sequence[DataFile],
        *,
        properties: dict[str, str] | None = None,
        snapshot_properties: dict[str, str] | None = None,
    ) -> None:
        found = self._open()
        assert found is not None
        folder = self.data_folder
        gone = {file.path for file in old}
        known = {
            path: task.file
            for task in found.scan().plan_files()
            if (path := _relative(_local(task.file.file_path), folder)) in gone
        }
        if len(known) < len(gone):
            raise LakeConflictError(next(iter(gone - known.keys())))
        touch_all(folder, old)
        paths = [str(folder / file.path) for file in new]
        try:
            with found.transaction() as transaction:
                if properties:
                    transaction.set_properties(properties)
                snapshot = transaction.update_snapshot(snapshot_properties or {})
                with snapshot.overwrite() as overwrite:
                    for data_file in known.values():
                        overwrite.delete_data_file(data_file)
                    added = parquet_files_to_data_files(found.io, transaction.table_metadata, iter(paths))
                    for data_file in added:
                        overwrite.append_data_file(data_file)
        except CommitFailedException as error:
            raise LakeConflictError(str(error)) from error

    def clean(self, retain_ms: int) -> int:
        """Expire snapshots that are older than this, and remove our files that are in no other."""
        clean_staging(self._table.folder, retain_ms)
        found = self._open()
        if found is None:
            return 0
        before = datetime.fromtimestamp(time.time() - retain_ms / 1000, UTC)
        if any(each.timestamp_ms < before.timestamp() * 1000 for each in found.snapshots()):
            found.maintenance.expire_snapshots().older_than(before).commit()
            found.refresh()
        used = self._used(found)
        return clean_orphans(self.data_folder, used.__contains__, retain_ms)

    def _used(self, table: Table) -> set[str]:
        """The files of all remaining snapshots."""
        folder = self.data_folder
        manifests = {
            manifest.manifest_path: manifest
            for snapshot in table.snapshots()
            for manifest in snapshot.manifests(table.io)
        }
        return {
            _relative(_local(entry.data_file.file_path), folder)
            for manifest in manifests.values()
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.data_file.content == DataFileContent.DATA
        }

    @cached_property
    def _catalog(self) -> Catalog:
        if self._table.catalog:
            return load_catalog(self._table.catalog)
        folder = self._table.folder
        return SqlCatalog(
            "kourou",
            **{"uri": _sqlite_address(folder / CATALOG_FILE), "warehouse": str(folder)},
        )

    def _open(self) -> Table | None:
        if not self._table.catalog and not (self._table.folder / CATALOG_FILE).is_file():
            return None
        try:
            return self._catalog.load_table(self._table.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def _sqlite_address(path: Path) -> str:
    """The URL of a database file. Versions of SQLAlchemy differ in which characters they quote."""
    address: str = URL.create("sqlite", database=str(path)).render_as_string()
    return address


def _local(location: str) -> Path:
    address = urlparse(location)
    if address.scheme not in ("", "file"):
        raise ConfigError(f"{location}: must be a folder that this machine can access")
    return Path(unquote(address.path) if address.scheme else location)


def _relative(path: Path, folder: Path) -> str:
    try:
        return path.relative_to(folder).as_posix()
    except ValueError:  # of another writer
        return str(path)


def _arrow(schema: StructType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def _struct(table: Table) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema().as_arrow())
