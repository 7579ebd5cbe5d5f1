"""ParquetLake: Parquet files with a log, so that a batch is present completely or not at all, and once.

    FOLDER/topic=orders/date=2026-01-31/kourou-….parquet   for any reader of Parquet
    FOLDER/_kourou/data/…                                   the same files: hard links, or copies
    FOLDER/_kourou/log/00000000000000000012.json            what each commit added and removed

Only the log counts: `read_lake` reads the files that it names, below `_kourou/data`, where those that
compaction has replaced stay for a while. What lies outside is for readers that know nothing of this, and is
made to agree with the log after each commit: it may lack a batch for a moment, and around a compaction have
rows twice for a moment. A commit is a new file under the next number, renamed to it when it is on disk.
Every 20th commit names all files, so that few have to be read.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kourou.errors import ConfigError
from kourou.spark.pipelines.lake.lake_files import (
    HIDDEN,
    DataFile,
    LakeConflictError,
    LakeSnapshot,
    clean_orphans,
    clean_staging,
    fsync,
    is_older,
    our_files,
    touch_all,
)
from kourou.spark.pipelines.lake.lake_schema import merged_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kourou.spark.pipelines.lake.lake import LakeTable

_FORMAT: Final = 1
_FULL_EVERY: Final = 20
_READ_ATTEMPTS: Final = 5


@dataclass(slots=True)
class _State:
    """The table after a commit; number -1 before the first."""

    version: int = -1
    schema: dict[str, Any] | None = None
    partition_by: tuple[str, ...] = ()
    files: dict[str, DataFile] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)


class ParquetLake:
    """One table of Parquet files."""

    keeps_partition_columns = False
    sanitizes_folders = False

    def __init__(self, table: LakeTable) -> None:
        self._table = table
        self._folder = table.folder
        self._log = table.folder / HIDDEN / "log"

    @property
    def data_folder(self) -> Path:
        return self._folder / HIDDEN / "data"

    @property
    def partition_by(self) -> tuple[str, ...]:
        state = self._load()
        return self._table.partition_by if state.schema is None else state.partition_by

    def prepare(self, schema: StructType) -> None:
        """Create the table if it does not exist, and repair the visible files after a crash."""
        state = self._load()
        if state.schema is None:
            if next(iter(self._folder.rglob("*.parquet")), None) is not None and not self._log.exists():
                raise ConfigError(
                    f"{self._table.path}: contains Parquet files that Kourou did not write; "
                    "choose another folder"
                )
            self._log.mkdir(parents=True, exist_ok=True)
            self.data_folder.mkdir(parents=True, exist_ok=True)
            return
        merged_schema(_struct(state.schema), schema, self._table)
        with self._locked():
            self._show(self._load())

    def last_batch_id(self, app_id: str) -> int | None:
        """The last committed batch of a writer."""
        return self._load().batches.get(app_id)

    def append(
        self,
        files: Sequence[DataFile],
        schema: StructType,
        *,
        app_id: str,
        batch_id: int,
        replaced: Sequence[DataFile] = (),
    ) -> None:
        """Add files as a batch, in place of others; on return the commit is on disk."""

        def change(state: _State) -> _State:
            if state.batches.get(app_id, -1) >= batch_id:
                return state  # another process was faster: its files count, ours are unreferenced
            old = None if state.schema is None else _struct(state.schema)
            return replace(
                state,
                schema=json.loads(merged_schema(old, schema, self._table).json()),
                partition_by=self._table.partition_by if old is None else state.partition_by,
                files=_exchanged(state.files, replaced, files),
                batches=state.batches | {app_id: batch_id},
            )

        touch_all(self.data_folder, replaced)
        self._commit(change)

    def snapshot(self) -> LakeSnapshot | None:
        state = self._load()
        if state.schema is None:
            return None
        return LakeSnapshot(_struct(state.schema), tuple(state.files.values()))

    def paths(self) -> list[Path]:
        """The files of the current rows; unlike `snapshot` without PySpark."""
        return [self.data_folder / path for path in self._load().files]

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Replace files by others with the same rows."""

        def change(state: _State) -> _State:
            return replace(state, files=_exchanged(state.files, old, new))

        touch_all(self.data_folder, old)
        self._commit(change)

    def clean(self, retain_ms: int) -> int:
        """Remove files and commits that have been unreferenced for longer than this."""
        clean_staging(self._folder, retain_ms)
        with self._locked():
            state = self._load()
            self._show(state)
        last_full = state.version - state.version % _FULL_EVERY
        for path in list(self._log.glob("*.json")):
            if path.stem.isdigit() and int(path.stem) < last_full and is_older(path, retain_ms):
                path.unlink(missing_ok=True)
        # Loaded again to include concurrent commits; younger files are not touched anyway.
        used = self._load().files
        return clean_orphans(self.data_folder, used.__contains__, retain_ms)

    # -- the log ---------------------------------------------------------------------------------

    def _load(self) -> _State:
        for _ in range(_READ_ATTEMPTS):
            with suppress(FileNotFoundError):  # a commit was removed after the folder was listed
                return self._load_once()
        raise ConfigError(f"{self._log}: commits are missing; restore the folder from a backup")

    def _load_once(self) -> _State:
        versions = sorted(int(path.stem) for path in self._log.glob("*.json") if path.stem.isdigit())
        if not versions:
            return _State()
        entries = []
        for version in range(versions[-1], -1, -1):
            entries.append(self._entry(version))
            if entries[-1]["full"]:
                break
        state = _State()
        for entry in reversed(entries):
            state = _after(state, entry)
        return state

    def _entry(self, version: int) -> dict[str, Any]:
        path = self._log / _name(version)
        try:
            entry: dict[str, Any] = json.loads(path.read_text())
            format_version = entry["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}: is not a commit of a table: {error}") from error
        if format_version != _FORMAT:
            raise ConfigError(
                f"{path}: written by a later version of Kourou ({format_version}); use that version"
            )
        return entry

    def _commit(self, change: Callable[[_State], _State]) -> None:
        """Change the table; on return the commit is on disk and visible."""
        with self._locked():
            before = self._load()
            after = change(before)
            if after is not before:
                after = replace(after, version=before.version + 1)
                self._publish(after.version, _entry_of(before, after))
            self._show(after)

    def _publish(self, version: int, entry: dict[str, Any]) -> None:
        draft = self._log / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps(entry))
        fsync(draft)
        os.rename(draft, self._log / _name(version))
        fsync(self._log)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A lock for one commit at a time, released when the process ends."""
        with open(self._folder / HIDDEN / "lock", "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- visible files ---------------------------------------------------------------------------

    def _show(self, state: _State) -> None:
        """Make the visible files agree with the log."""
        shown = {path.relative_to(self._folder).as_posix() for path in our_files(self._folder)}
        for path in state.files.keys() - shown:
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                _link(self.data_folder / path, target)
        for path in shown - state.files.keys():
            (self._folder / path).unlink(missing_ok=True)


def _exchanged(
    files: dict[str, DataFile], old: Sequence[DataFile], new: Sequence[DataFile]
) -> dict[str, DataFile]:
    gone = {file.path for file in old}
    if not gone <= files.keys():
        raise LakeConflictError(next(iter(gone - files.keys())))
    kept = {path: file for path, file in files.items() if path not in gone}
    return kept | {file.path: file for file in new}


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # The file system has no hard links.
        draft = target.with_name(f".{target.name}")
        shutil.copyfile(source, draft)
        os.rename(draft, target)


def _name(version: int) -> str:
    return f"{version:020d}.json"


def _struct(schema: dict[str, Any]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(schema)


def _entry_of(before: _State, after: _State) -> dict[str, Any]:
    """A commit: the whole table periodically, otherwise only the changes."""
    full = after.version % _FULL_EVERY == 0
    known = {} if full else before.files
    batches = after.batches.items()
    return {
        "format": _FORMAT,
        "version": after.version,
        "full": full,
        "at_ms": time.time_ns() // 1_000_000,
        "schema": after.schema,
        "partition_by": after.partition_by,
        "batches": {app: number for app, number in batches if full or before.batches.get(app) != number},
        "add": [_file_json(file) for path, file in after.files.items() if path not in known],
        "remove": [path for path in known if path not in after.files],
    }


def _file_json(file: DataFile) -> dict[str, Any]:
    return {"path": file.path, "rows": file.rows, "bytes": file.size_bytes, "partition": dict(file.partition)}


def _after(state: _State, entry: dict[str, Any]) -> _State:
    gone = set(entry["remove"])
    files = {path: file for path, file in state.files.items() if path not in gone}
    for each in entry["add"]:
        partition = tuple(each["partition"].items())
        files[each["path"]] = DataFile(each["path"], each["rows"], each["bytes"], partition)
    return _State(
        version=entry["version"],
        schema=entry["schema"],
        partition_by=tuple(entry["partition_by"]),
        files=files,
        batches=state.batches | entry["batches"],
    )
