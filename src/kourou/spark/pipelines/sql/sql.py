"""`kourou pipeline sql`: a query over topics and archives, once or as a stream.

Not here: how tables are made (tables.py), how rows are printed (a RowPrinter of the caller).
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
# The first that Spark takes: rows as they come, groups as they change, or the whole result anew.
_OUTPUT_MODES: Final = ("append", "update", "complete")
_SETTINGS: Final = {
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    # A query is small, or Spark makes its partitions larger by itself.
    "spark.sql.adaptive.enabled": "true",
}


class RowPrinter(Protocol):
    """Writes rows for people or programs. `wants_json`: rows are one JSON object each."""

    wants_json: bool

    def print_rows(
        self, names: Sequence[str], are_numbers: Sequence[bool], rows: Iterable[tuple[str | None, ...]]
    ) -> int:
        """Write rows; gives how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRequest:
    """What to ask, of what."""

    sql: str
    tables: TableOptions
    limit: int | None = None
    master: str = "local[*]"
    settings: Mapping[str, str] = field(default_factory=dict)
    interval_seconds: float = 1.0
    """Between the batches of a stream."""


def run_sql(request: SqlRequest, printer: RowPrinter, output: ProgressOutput) -> None:
    """Ask once, or follow; rows go to the printer. ConfigError: the query or the options are wrong."""
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
                frame = tables.query(request.sql)
                if request.tables.is_stream:
                    _follow(frame, request, printer)
                else:
                    _run_once(spark, frame, request, printer, output)
            finally:
                tables.drop_views()


def check_statement(sql: str) -> None:
    """ConfigError for anything but a question."""
    match = _FIRST_WORD.match(sql)
    word = match[1] if match else ""
    if not word:
        raise ConfigError('the query is empty: give SQL such as "SELECT count(*) FROM orders"')
    if word.lower() not in _READS:
        raise ConfigError(
            f"{word.upper()} is not for this command: it reads, with SELECT; it changes nothing"
        )


@contextmanager
def _client(tables: TableOptions) -> Iterator[_LazyClient]:
    lazy = _LazyClient(tables)
    try:
        yield lazy
    finally:
        lazy.stop()


class _LazyClient:
    """A client that is started when it is asked for."""

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
        """Stop it, if it runs."""
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
            # Before anything is printed the first rows have to be there, so that progress is out of the way.
            first = list(islice(found, 1))
        rows = _chained(first, found)
        printed = printer.print_rows(
            texts.columns, number_columns(frame), rows if limit is None else islice(rows, limit)
        )
        more = list(islice(rows, 1)) if limit is not None and printed == limit else []
    if more:
        print(
            f"{TITLE}: there are more rows than {limit}; --limit N shows more, --limit 0 all", file=sys.stderr
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
        raise ConfigError("--follow needs a topic in the query: archives and values do not go on")
    stop_request, written = StopRequest(), WrittenRows()
    query = start_follow(frame, request, printer, stop_request, written)
    # Rows are what people look at: progress would be in their way.
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
    """Start the stream that prints, in the first mode that Spark takes for it, and counts what it prints."""
    from pyspark.errors import AnalysisException

    left = [request.limit]

    def show(batch: DataFrame, _batch_id: int) -> int:
        if stop_request.times:
            return 0
        texts = as_json(batch) if printer.wants_json else as_texts(batch)
        try:
            printed = printer.print_rows(texts.columns, number_columns(batch), text_rows(texts, left[0]))
        except BrokenPipeError:
            stop_request.note()  # nobody reads any more, as with `| head`
            return 0
        if left[0] is not None:
            left[0] -= printed
            if left[0] <= 0:
                stop_request.note()
        return printed

    # The last batch may be left in the middle; its state is nobody's any more.
    frame.sparkSession.conf.set("spark.sql.streaming.stateStore.commitValidation.enabled", "false")
    refusals = []
    for mode in _OUTPUT_MODES:
        writer = frame.writeStream.foreachBatch(written.counting(show)).outputMode(mode)
        writer = writer.trigger(processingTime=f"{request.interval_seconds} seconds")
        try:
            return start_query(writer.start)
        except AnalysisException as error:
            refusals.append(short_reason(error))
    # What is wrong with groups that change is wrong for good; the other modes have rules of their own.
    raise ConfigError(f"the query cannot be followed: {refusals[_OUTPUT_MODES.index('update')]}")
