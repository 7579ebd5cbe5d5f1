"""ArchiveFolder: the marker, format and lock of an archive.

    FOLDER/_kourou/archive.json   format, topics
    FOLDER/_kourou/checkpoint     the progress of the archiving stream (Spark's)
    FOLDER/_kourou/replays        the progress of interrupted replays

The rest of the folder is a lake table (lake.py), with the columns of `archive_columns`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from kourou.errors import ConfigError
from kourou.spark.pipelines.lake.lake import LakeTable
from kourou.spark.pipelines.lake.lake_files import HIDDEN, fsync

DATE: Final = "date"
"""The UTC day on which a message was stored: an additional column."""
PARTITION_BY: Final = ("topic", DATE)
DEFAULT_TABLE: Final = "archive.messages"
_VERSION: Final = 1
_MARK: Final = "archive.json"


def archive_columns() -> str:
    """All columns of the source, in Spark's DDL; the day is added to them."""
    from kourou.spark.source.columns import default_schema

    return f"{default_schema('rocketmq')}, flag int"


@dataclass(frozen=True, slots=True)
class ArchiveFolder:
    """An archive: its folder, format and topics."""

    path: str
    format: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    name: str = DEFAULT_TABLE
    """Iceberg: the table's name in its catalog."""
    catalog: str = ""
    """Iceberg: a catalog of pyiceberg's own configuration, instead of the folder's."""

    @property
    def table(self) -> LakeTable:
        return LakeTable(self.format, self.path, PARTITION_BY, name=self.name, catalog=self.catalog)

    @property
    def hidden(self) -> Path:
        return self.table.folder / HIDDEN

    @property
    def checkpoint(self) -> Path:
        return self.hidden / "checkpoint"

    def save(self) -> None:
        """On return the marker is on disk."""
        self.hidden.mkdir(parents=True, exist_ok=True)
        content = {"version": _VERSION, **asdict(self)}
        del content["path"]
        write_atomically(self.hidden / _MARK, json.dumps(content, indent=2))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A lock, so that one process archives at a time; released when the process ends. ConfigError if it
        is taken."""
        rest = "is archiving to it; stop it first, or choose another folder"
        with locked_file(self.hidden / "archive.lock", f"{self.path}: process PID {rest}"):
            yield


@contextmanager
def locked_file(path: Path, words: str) -> Iterator[None]:
    """A lock for one process, released when the process ends. ConfigError if it is taken; `words` describe
    what the holder does, with PID for the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ConfigError(words.replace("PID", file.read().strip() or "unknown")) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def open_archive(path: str | Path) -> ArchiveFolder:
    """The archive in a folder. ConfigError if there is none, or a later version created it."""
    folder = LakeTable("parquet", str(path)).folder
    if not folder.is_dir():
        raise ConfigError(f"{path}: no such folder")
    mark = folder / HIDDEN / _MARK
    if not mark.is_file():
        raise ConfigError(
            f"{path}: is not an archive: it has no {HIDDEN}/{_MARK}; kourou pipeline archive creates one"
        )
    return _parsed(str(path), mark)


def _parsed(path: str, mark: Path) -> ArchiveFolder:
    try:
        content: dict[str, Any] = json.loads(mark.read_text())
        version = content.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{mark}: cannot read it: {error}; restore it from a backup") from error
    if version != _VERSION:
        raise ConfigError(f"{path}: created by a later version of Kourou ({version}); use that version")
    try:
        archive = ArchiveFolder(path, **{**content, "topics": tuple(content["topics"])})
        archive.table  # noqa: B018  for its checks
    except (TypeError, KeyError, ConfigError) as error:
        raise ConfigError(f"{mark}: cannot read it: {error}; restore it from a backup") from error
    return archive


def ensure_archive(
    path: str | Path,
    *,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    format: str | None = None,
    name: str | None = None,
    catalog: str | None = None,
) -> ArchiveFolder:
    """The archive in a folder, with these topics added; a new one if there is none. Not saved.

    ConfigError if the folder is something else, or another kind of archive.
    """
    folder = LakeTable(format or "parquet", str(path)).folder
    if not (folder / HIDDEN / _MARK).is_file():
        _check_new(path, folder, topics, pattern)
        return ArchiveFolder(
            str(path),
            format or "parquet",
            tuple(sorted(set(topics))),
            pattern,
            name or DEFAULT_TABLE,
            catalog or "",
        )
    archive = open_archive(path)
    problems = [
        f"{path}: the archive's {what} is {has!r}, not {asked!r}; choose another folder for that"
        for what, has, asked in (
            ("format", archive.format, format),
            ("table", archive.name, name),
            ("catalog", archive.catalog, catalog),
            ("pattern", archive.pattern, pattern),
        )
        if asked is not None and asked != has
    ]
    if topics and archive.pattern is not None:
        problems.append(f"{path}: the archive has a pattern, {archive.pattern!r}; do not give topics")
    if problems:
        raise ConfigError(*problems)
    return replace(archive, topics=tuple(sorted({*archive.topics, *topics})))


def _check_new(path: str | Path, folder: Path, topics: Sequence[str], pattern: str | None) -> None:
    problems = []
    if folder.exists() and not folder.is_dir():
        problems.append(f"{path}: is a file; an archive is a folder")
    elif folder.is_dir() and any(each.name != HIDDEN for each in folder.iterdir()):
        problems.append(f"{path}: the folder is not empty, and is not an archive; choose a new one")
    if not topics and pattern is None:
        problems.append("nothing to archive: give topics, or --pattern")
    if topics and pattern is not None:
        problems.append("topics and --pattern are mutually exclusive: use one of them")
    if problems:
        raise ConfigError(*problems)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content atomically; on return it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    fsync(draft)
    os.rename(draft, path)
    fsync(path.parent)
