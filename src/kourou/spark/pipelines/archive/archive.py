"""archive: topics to a folder of Parquet, Delta or Iceberg, every message exactly once.

A stream whose checkpoint lies in the archive: the range of a batch is recorded there before it is read, and
the lake's commit carries the batch number (lake.py). A run may end anywhere, even by kill -9; the next one
continues without loss or repeats. Rows have all columns of the source, so that replay.py can send them again,
and are partitioned by topic and by the UTC day on which they were stored.

Whether there is anything new is found without Spark, from the checkpoint and from the brokers:

    CHECKPOINT/offsets/N   `v1`, a line of Spark's own, and where batch N ends, a line for each source
    CHECKPOINT/commits/N   batch N is done

The files are Spark's: anything not understood for certain counts as new, and Spark finds out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.errors import ConfigError, KourouError
from kourou.spark.pipelines.archive.archive_folder import DATE, ArchiveFolder, archive_columns, ensure_archive
from kourou.spark.pipelines.lake.lake import (
    DEFAULT_RETAIN_MS,
    DEFAULT_TARGET_BYTES,
    LakeTable,
    compact,
    lake_writer,
    open_backend,
)
from kourou.spark.pipelines.progress import PipelineProgress, ProgressOutput, Reading, Summary
from kourou.spark.pipelines.query_start import start_query
from kourou.spark.pipelines.start_option import start_option
from kourou.spark.pipelines.written_rows import WrittenRows
from kourou.spark.source.offsets import Positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kourou.spark.pipelines.lake.lake_compaction import CompactionResult

_TITLE: Final = "archive"
_APP_ID: Final = "kourou-archive"
_COMPACT_EVERY: Final = 16
"""Batches between compactions of a continuous run."""
# A day in UTC, whatever the session's time zone is.
_DATE_OF: Final = (
    f"date_from_unix_date(cast(floor(unix_millis(store_timestamp) / 86400000) as int)) AS {DATE}"
)
_OURS: Final = {
    "subscribe": "topics",
    "subscribepattern": "--pattern",
    "startingoffsets": "--from",
    "startingtimestamp": "--from",
    "maxoffsetspertrigger": "--batch-messages",
    "groupid": "--group",
    "namesrv": "-n",
    "store": "topics",
    "rowformat": "nothing: rows are archived unchanged",
}
_VERSION: Final = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRequest:
    """The arguments of `kourou pipeline archive`."""

    to: str
    topics: tuple[str, ...] = ()
    namesrv: str | None = None
    pattern: str | None = None
    format: str | None = None
    follow: bool = False
    every_ms: int = 30_000
    start: str = "earliest"
    batch_messages: int = 1_000_000
    """Large enough to justify a batch's files, and small enough to be redone quickly after a crash."""
    compact: bool = True
    target_file_bytes: int = DEFAULT_TARGET_BYTES
    retain_ms: int = DEFAULT_RETAIN_MS
    table: str | None = None
    catalog: str | None = None
    group: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    as_json: bool = False
    fast_start: bool = False

    def archive(self) -> ArchiveFolder:
        """The archive's folder. ConfigError if it is invalid."""
        if not self.to:
            raise ConfigError("no destination: give the archive's folder with --to")
        return ensure_archive(
            self.to,
            topics=self.topics,
            pattern=self.pattern,
            format=self.format,
            name=self.table,
            catalog=self.catalog,
        )

    def source_options(self, archive: ArchiveFolder) -> dict[str, str]:
        """The options of the source. ConfigError for options that have a flag of their own."""
        problems = [
            f"--option {name}: use {_OURS[name.lower()]} instead"
            for name in self.options
            if name.lower() in _OURS
        ]
        if problems:
            raise ConfigError(*problems)
        found = {
            "subscribePattern" if archive.pattern is not None else "subscribe": archive.pattern
            if archive.pattern is not None
            else ",".join(archive.topics),
            **start_option("--from", self.start),
            "maxOffsetsPerTrigger": str(self.batch_messages),
            **self.options,
        }
        if self.namesrv:
            found["namesrv"] = self.namesrv
        if self.group:
            found["groupId"] = self.group
        return found


def run_archive(request: ArchiveRequest, output: ProgressOutput | None = None) -> Summary:
    """Archive once, or continuously. Errors are actionable and without stack traces."""
    from kourou.spark.pipelines.pipeline_errors import pipeline_errors
    from kourou.spark.pipelines.pipeline_session import pipeline_session

    archive = request.archive()
    options = request.source_options(archive)
    check_source(options)
    output = output or ProgressOutput.standard(as_json=request.as_json)
    with archive.locked():
        archive.save()
        if not request.follow and not has_new_rows(options, archive.checkpoint):
            return _nothing_new(request, archive, output)
        with (
            pipeline_session(_TITLE, master=request.master, fast_start=request.fast_start) as spark,
            pipeline_errors(_TITLE),
        ):
            written = WrittenRows()
            query = start_archive(spark, request, archive, options, written)
            return _watched(query, request, archive, output, written)


def check_source(options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
    """Check options, name servers and topics before Spark starts."""
    from kourou.spark.pipelines.check.reachable import find_queues
    from kourou.spark.source.options import SourceOptions
    from kourou.spark.source.source_client import shared_client

    parsed = SourceOptions.parse(options, environ)
    find_queues(shared_client(parsed.connection), parsed)


def start_archive(
    spark: SparkSession,
    request: ArchiveRequest,
    archive: ArchiveFolder,
    options: Mapping[str, str],
    written: WrittenRows,
) -> StreamingQuery:
    """Start the stream, which counts the rows it writes."""
    rows = spark.readStream.format("rocketmq").schema(archive_columns()).options(**options).load()
    writer = (
        rows.selectExpr("*", _DATE_OF)
        .writeStream.queryName(_TITLE)
        .foreachBatch(written.counting(_Batches(request, archive).write))
        .option("checkpointLocation", str(archive.checkpoint))
    )
    if request.follow:
        writer = writer.trigger(processingTime=f"{request.every_ms} milliseconds")
    else:
        writer = writer.trigger(availableNow=True)
    return start_query(writer.start)


class _Batches:
    """Writes batches, and compacts from time to time."""

    def __init__(self, request: ArchiveRequest, archive: ArchiveFolder) -> None:
        self._request = request
        self._table = archive.table
        self._write = lake_writer(archive.table, app_id=_APP_ID)

    def write(self, frame: DataFrame, batch_id: int) -> int:
        """On return the batch is in the archive. Returns the number of new rows."""
        rows = self._write(frame, batch_id)
        if self._request.follow and batch_id % _COMPACT_EVERY == _COMPACT_EVERY - 1:
            _compacted(self._request, self._table)
        return rows


def _watched(
    query: StreamingQuery,
    request: ArchiveRequest,
    archive: ArchiveFolder,
    output: ProgressOutput,
    written: WrittenRows,
) -> Summary:
    from kourou.spark.pipelines.query_watch import QueryWatch

    with PipelineProgress(_TITLE, output) as progress:
        ended = QueryWatch(query, progress, written).wait()
        _compact_last(request, archive, progress)
        return progress.finish(ended)


def _nothing_new(request: ArchiveRequest, archive: ArchiveFolder, output: ProgressOutput) -> Summary:
    """A run with nothing to read, which does not need Spark."""
    with PipelineProgress(_TITLE, output) as progress:
        progress.show(Reading(lag_messages=0, lag_seconds=0.0, rows_written=0))
        _compact_last(request, archive, progress)
        return progress.finish(note="nothing new; Spark was not started")


def _compact_last(request: ArchiveRequest, archive: ArchiveFolder, progress: PipelineProgress) -> None:
    # There is no table before the first message.
    if open_backend(archive.table).snapshot() is None:
        return
    result = _compacted(request, archive.table)
    if result is not None and result.files_before:
        progress.say(f"compacted {result.files_before} files to {result.files_after}")


def _compacted(request: ArchiveRequest, table: LakeTable) -> CompactionResult | None:
    if not request.compact:
        return None
    return compact(table, target_bytes=request.target_file_bytes, retain_ms=request.retain_ms)


def has_new_rows(options: Mapping[str, str], checkpoint: Path) -> bool:
    """Whether a run up to the current end has work: an unfinished batch, or new messages."""
    from kourou.spark.source.options import SourceOptions
    from kourou.spark.source.source_client import shared_client

    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        from kourou.spark.source.stream_driver import StreamDriver
    except ImportError:  # the start of Spark reports what to install
        return True
    parsed = SourceOptions.parse(options)
    # The same decision as in a run.
    driver = StreamDriver(shared_client(parsed.connection), parsed)
    try:
        start = driver.initial() if is_new(checkpoint) else committed_positions(checkpoint)
        if start is None:
            return True
        driver.stop_at_now()
        return driver.batch_end(start, ReadAllAvailable()) is not None
    except KourouError:  # the run fails the same way and reports it
        return True


def is_new(checkpoint: Path) -> bool:
    """Whether no batch was ever started."""
    return not _batches(checkpoint / "offsets") and not _batches(checkpoint / "commits")


def committed_positions(checkpoint: Path) -> Positions | None:
    """Where the last batch ended; None if it is unfinished or not understood."""
    begun, done = _batches(checkpoint / "offsets"), _batches(checkpoint / "commits")
    if not begun or not done or max(begun) != max(done):
        return None
    try:
        version, _, offset = (checkpoint / "offsets" / str(max(begun))).read_text().splitlines()
        return Positions.from_json(json.loads(offset)) if version == _VERSION else None
    except (OSError, ValueError, KourouError):
        return None


def _batches(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
