"""`kourou pipeline sql`: a query over topics and archives, once or as a stream.

Not here: tables (tables.py), printing (a RowPrinter of the caller).
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from kourou.errors import ConfigError
from kourou.spark.pipelines.job_watch import job_progress
from kourou.spark.pipelines.pipeline_errors import pipeline_errors, short_reason
from kourou.spark.pipelines.pipeline_session import pipeline_session
from kourou.spark.pipelines.progress import PipelineProgress, ProgressOutput, Summary
from kourou.spark.pipelines.query_start import start_query
from kourou.spark.pipelines.sql.row_texts import as_json, as_texts, number_columns, text_rows
from kourou.spark.pipelines.sql.tables import (
    TableNames,
    TableOptions,
    TopicTables,
    check_names,
    connection_client,
    find_names,
)
from kourou.spark.pipelines.sql.union_source import archive_topics
from kourou.spark.pipelines.written_rows import WrittenRows
from kourou.spark.source.source_client import SourceClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kourou.spark.pipelines.query_watch import StopRequest

TITLE: Final = "sql"
_READS: Final = ("select", "with", "values", "from", "table", "describe", "desc", "explain", "show", "(")
_FIRST_WORD: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+|\()", re.S)
_SHOW_TABLES: Final = re.compile(r"\s*show\s+(tables|topics)\s*;?\s*$", re.I)
# The first that Spark accepts: new rows, changed groups, or the complete result each time.
_OUTPUT_MODES: Final = ("append", "update", "complete")
_SETTINGS: Final = {
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    # Queries are small; otherwise Spark adapts its partitions.
    "spark.sql.adaptive.enabled": "true",
}


class RowPrinter(Protocol):
    """Prints rows. `wants_json`: each row is one JSON object."""

    wants_json: bool

    def print_rows(
        self, names: Sequence[str], are_numbers: Sequence[bool], rows: Iterable[tuple[str | None, ...]]
    ) -> int:
        """Write rows; returns their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRequest:
    """The query and its tables."""

    sql: str
    tables: TableOptions
    params: Mapping[str, str] = field(default_factory=dict)
    """Texts for `:name` in the query."""
    limit: int | None = None
    master: str = "local[*]"
    settings: Mapping[str, str] = field(default_factory=dict)
    interval_seconds: float = 1.0
    """The interval between the batches of a stream."""


def run_sql(request: SqlRequest, printer: RowPrinter, output: ProgressOutput) -> None:
    """Run a query once, or follow it; rows go to the printer. ConfigError if the query or the options are
    invalid."""
    check_statement(request.sql)
    with _client(request.tables) as client:
        names = TableNames(find_names(request.tables, client), archive_topics(request.tables.archives))
        if _SHOW_TABLES.match(request.sql):
            _print_tables(names, printer)
            return
        check_names(request.sql, names)
        settings = {**_SETTINGS, **request.settings}
        with pipeline_session(
            "kourou sql", master=request.master, settings=settings, fast_start=True
        ) as spark:
            tables = TopicTables(spark, request.tables, names, client)
            try:
                frame = tables.query(request.sql, request.params)
                if request.tables.is_stream:
                    _follow(frame, request, printer)
                else:
                    _run_once(spark, frame, request, printer, output)
            finally:
                tables.drop_views()


def check_statement(sql: str) -> None:
    """ConfigError for anything but a query."""
    match = _FIRST_WORD.match(sql)
    word = match[1] if match else ""
    if not word:
        raise ConfigError('the query is empty: give SQL such as "SELECT count(*) FROM orders"')
    if word.lower() not in _READS:
        raise ConfigError(f"{word.upper()} is not supported: this command only reads, with SELECT")


@contextmanager
def _client(tables: TableOptions) -> Iterator[_LazyClient]:
    lazy = _LazyClient(tables)
    try:
        yield lazy
    finally:
        lazy.stop()


class _LazyClient:
    """A client that is started on first use."""

    def __init__(self, tables: TableOptions) -> None:
        self._tables = tables
        self._started: SourceClient | None = None

    def __call__(self) -> SourceClient:
        if self._started is None:
            client = connection_client(self._tables)
            client.start()
            self._started = client
        return self._started

    def stop(self) -> None:
        """Stop the client, if it was started."""
        if self._started is not None:
            self._started.stop()


def _print_tables(names: TableNames, printer: RowPrinter) -> None:
    topics = names.shown()
    where = {
        topic: " and ".join(
            word for word, side in (("live", names.live), ("archive", names.archived)) if topic in side
        )
        for topic in topics
    }
    rows: list[tuple[str | None, ...]] = [(topic, where[topic]) for topic in topics]
    if printer.wants_json:
        rows = [(json.dumps({"table": topic, "where": side}),) for topic, side in rows]
    printer.print_rows(["table", "where"], [False, False], rows)


# -- once ------------------------------------------------------------------------------------------


def _run_once(
    spark: SparkSession, frame: DataFrame, request: SqlRequest, printer: RowPrinter, output: ProgressOutput
) -> None:
    texts = as_json(frame) if printer.wants_json else as_texts(frame)
    limit = request.limit
    more: list[tuple[str | None, ...]] = []
    with pipeline_errors("the query failed"):
        with job_progress(spark, TITLE, output):
            found = text_rows(texts, None if limit is None else limit + 1)
            # Wait for the first rows, so that the progress line is gone before anything is printed.
            first = list(islice(found, 1))
        rows = _chained(first, found)
        printed = printer.print_rows(
            texts.columns, number_columns(frame), rows if limit is None else islice(rows, limit)
        )
        more = list(islice(rows, 1)) if limit is not None and printed == limit else []
    if more:
        print(
            f"{TITLE}: there are more than {limit} rows; use --limit N for more, --limit 0 for all",
            file=sys.stderr,
        )


def _chained(
    first: list[tuple[str | None, ...]], rest: Iterator[tuple[str | None, ...]]
) -> Iterator[tuple[str | None, ...]]:
    yield from first
    yield from rest


# -- as a stream -----------------------------------------------------------------------------------


def _follow(frame: DataFrame, request: SqlRequest, printer: RowPrinter) -> None:
    from kourou.spark.pipelines.query_watch import QueryWatch, StopRequest

    if not frame.isStreaming:
        raise ConfigError("--follow requires a topic in the query: archives and values do not change")
    stop_request, written = StopRequest(), WrittenRows()
    query = start_follow(frame, request, printer, stop_request, written)
    # Progress would get in the way of rows.
    with PipelineProgress(TITLE, ProgressOutput(False, io.StringIO(), False)) as progress:
        ended = QueryWatch(query, progress, written).wait(stop_request)
        summary: Summary = progress.finish(ended)
    print(summary.words(), file=sys.stderr)


def start_follow(
    frame: DataFrame,
    request: SqlRequest,
    printer: RowPrinter,
    stop_request: StopRequest,
    written: WrittenRows,
) -> StreamingQuery:
    """Start the printing stream, in the first output mode that Spark accepts; it counts the printed rows."""
    from pyspark.errors import AnalysisException

    left = [request.limit]

    def show(batch: DataFrame, _batch_id: int) -> int:
        if stop_request.times:
            return 0
        texts = as_json(batch) if printer.wants_json else as_texts(batch)
        try:
            printed = printer.print_rows(texts.columns, number_columns(batch), text_rows(texts, left[0]))
        except BrokenPipeError:
            stop_request.note()  # the output was closed, as with `| head`
            return 0
        if left[0] is not None:
            left[0] -= printed
            if left[0] <= 0:
                stop_request.note()
        return printed

    # The last batch may be interrupted; its state is not used again.
    frame.sparkSession.conf.set("spark.sql.streaming.stateStore.commitValidation.enabled", "false")
    refusals = []
    for mode in _OUTPUT_MODES:
        writer = frame.writeStream.foreachBatch(written.counting(show)).outputMode(mode)
        writer = writer.trigger(processingTime=f"{request.interval_seconds} seconds")
        try:
            return start_query(writer.start)
        except AnalysisException as error:
            refusals.append(short_reason(error))
    # The problem reported for update mode is the relevant one; the other modes have rules of their own.
    raise ConfigError(f"the query cannot be followed: {refusals[_OUTPUT_MODES.index('update')]}")
