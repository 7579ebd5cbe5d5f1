"""`kourou pipeline stats`: traffic of topics per minute.

For each minute of storing and each topic: messages, bytes, their rates, latency from the producer's clock to
the broker's (median, 99th percentile, maximum), and the most frequent keys. Without a destination, a snapshot
of what is stored, or a live view. With one, a stream that writes each minute once it is over: to a Parquet
table exactly once, to a topic at least once.

The most frequent keys come from the sketch of Spark's `approx_top_k_accumulate`. Spark's own `approx_top_k`
omits keys that the sketch cannot prove to be among the first: in a minute with many keys of similar counts,
that is all of them. The sketch has counts for the keys that it still tracks (Misra-Gries): each is a lower
bound, too low by at most the sketch's error.

Bytes, little-endian (Apache DataSketches, frequencies ItemsSketch): preamble_longs u8 (low 6 bits; 1: empty),
version u8, family u8, 5 more bytes, active_items i32, unused i32, stream_weight i64, error i64,
counts i64[active_items], then for each item: size i32, UTF-8.
"""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.errors import ConfigError
from kourou.protocol.names import send_topic_problem
from kourou.spark.pipelines.job_watch import job_progress
from kourou.spark.pipelines.pipeline_errors import pipeline_errors
from kourou.spark.pipelines.pipeline_session import pipeline_session
from kourou.spark.pipelines.progress import PipelineProgress, ProgressOutput
from kourou.spark.pipelines.query_start import start_query
from kourou.spark.pipelines.sql.row_texts import as_json, as_texts, number_columns, text_rows
from kourou.spark.pipelines.sql.sql import RowPrinter
from kourou.spark.pipelines.written_rows import WrittenRows
from kourou.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TITLE: Final = "stats"
CHECKPOINT: Final = "_checkpoint"
"""The default folder of the stream's state, below the Parquet folder; readers ignore it."""
_SCHEMA: Final = "key string, value binary, topic string, born_timestamp timestamp, store_timestamp timestamp"
_SETTINGS: Final = {
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.sql.session.timeZone": "UTC",
}
# Patterns exclude system topics anyway.
_EVERY_TOPIC: Final = ".*"
TOP_KEYS_TYPE: Final = "keys array<struct<key: string, messages: bigint>>, is_approximate boolean"
"""The result of `top_keys`, as fields of a struct in Spark's DDL."""

_PREAMBLE: Final = struct.Struct("<BBB5xiiqq")
_EMPTY_PREAMBLE_LONGS: Final = 1
_PREAMBLE_LONGS_MASK: Final = 0x3F
_VERSION: Final = 1
_FAMILY: Final = 10
_SIZE: Final = struct.Struct("<i")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsRequest:
    """The topics, and the destination of the numbers."""

    source: Mapping[str, str]
    """Options of the format `rocketmq`, without topics."""
    topics: tuple[str, ...] = ()
    """Empty: all except for system topics."""
    follow: bool = False
    top: int = 5
    """The number of keys to list."""
    window_seconds: int = 60
    """The length of a window: a minute."""
    late_seconds: int = 60
    """How long after the newest message a minute is closed."""
    to_topic: str | None = None
    parquet: str | None = None
    checkpoint: str | None = None
    limit: int | None = None
    master: str = "local[*]"
    settings: Mapping[str, str] = field(default_factory=dict)
    interval_seconds: float = 10.0

    @property
    def writes(self) -> bool:
        return self.to_topic is not None or self.parquet is not None

    @property
    def options(self) -> dict[str, str]:
        """The options of the source, with topics."""
        which = {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": _EVERY_TOPIC}
        return {**self.source, **which}


def checked(request: StatsRequest) -> StatsRequest:
    """The request with its checkpoint. ConfigError lists every problem."""
    problems = []
    if request.to_topic is not None and (problem := send_topic_problem(request.to_topic)):
        problems.append(f"--to-topic: {problem}")
    if request.to_topic in request.topics:
        problems.append(f"--to-topic {request.to_topic}: is also read; write to another topic")
    parquet, checkpoint = _absolute(request.parquet), _absolute(request.checkpoint)
    if request.writes and checkpoint is None:
        if parquet is None:
            problems.append("--checkpoint is missing: a folder for the progress of --to-topic")
        else:
            checkpoint = f"{parquet}/{CHECKPOINT}"
    if not request.writes and checkpoint is not None:
        problems.append("--checkpoint requires --to-topic or --parquet: otherwise nothing is kept")
    if problems:
        raise ConfigError(*problems)
    return replace(request, parquet=parquet, checkpoint=checkpoint)


def _absolute(folder: str | None) -> str | None:
    """Spark has its own working directory. A path with a scheme is kept."""
    return folder if folder is None or "://" in folder else str(Path(folder).absolute())


def run_stats(request: StatsRequest, printer: RowPrinter, output: ProgressOutput) -> None:
    """Count once, or continuously. KourouError if it fails."""
    request = checked(request)
    _check_topics(request)
    settings = {**_SETTINGS, **request.settings}
    with pipeline_session("kourou stats", master=request.master, settings=settings, fast_start=True) as spark:
        if request.writes:
            _keep(spark, request, output)
        elif request.follow:
            _follow(spark, request, printer)
        else:
            _look(spark, request, printer, output)


def _check_topics(request: StatsRequest) -> None:
    """Check that there is something to read, before Spark starts. KourouError if not."""
    from kourou.spark.pipelines.check.reachable import find_queues
    from kourou.spark.source.source_client import SourceClient

    options = SourceOptions.parse(request.options)
    with SourceClient(options.connection) as client:
        if not find_queues(client, options):
            raise ConfigError("there is no topic to count yet, except for system topics; name one with -t")


# -- what is counted -------------------------------------------------------------------------------


def per_minute(messages: DataFrame, *, top: int, window_seconds: int = 60) -> DataFrame:
    """The numbers of each window (a minute by default) and topic."""
    from pyspark.sql import functions as f

    latency_ms = "timestampdiff(MILLISECOND, born_timestamp, store_timestamp)"
    grouped = messages.groupBy(f.window("store_timestamp", f"{window_seconds} seconds"), "topic").agg(
        f.count("*").alias("messages"),
        f.sum(f.octet_length("value")).alias("bytes"),
        f.expr(f"percentile_approx({latency_ms}, array(0.5, 0.99))").alias("latency"),
        f.expr(f"max({latency_ms})").alias("latency_max_ms"),
        f.expr("approx_top_k_accumulate(key) FILTER (WHERE key IS NOT NULL)").alias("sketch"),
    )
    # Not functools.partial: Spark would take its type hints for those of a pandas UDF.
    named = f.udf(lambda sketch: top_keys(sketch, top), TOP_KEYS_TYPE)
    return (
        grouped.select(
            f.col("window.start").alias("minute"),
            "topic",
            "messages",
            "bytes",
            f.round(f.col("messages") / window_seconds, 2).alias("messages_per_second"),
            f.round(f.col("bytes") / window_seconds, 1).alias("bytes_per_second"),
            f.col("latency")[0].alias("latency_p50_ms"),
            f.col("latency")[1].alias("latency_p99_ms"),
            "latency_max_ms",
            named("sketch.sketch").alias("top"),
        )
        .select(
            "*",
            f.col("top.keys").alias("top_keys"),
            f.col("top.is_approximate").alias("top_keys_approximate"),
        )
        .drop("top")
    )


def _messages(spark: SparkSession, request: StatsRequest, *, is_stream: bool, **options: str) -> DataFrame:
    reader = spark.readStream if is_stream else spark.read
    given = {**request.options, **options}
    frame = reader.format("rocketmq").schema(_SCHEMA).options(**given).load()
    return frame if request.to_topic is None else frame.where(frame["topic"] != request.to_topic)


def _stream(spark: SparkSession, request: StatsRequest, **options: str) -> DataFrame:
    messages = _messages(spark, request, is_stream=True, **options)
    late = messages.withWatermark("store_timestamp", f"{request.late_seconds} seconds")
    return per_minute(late, top=request.top, window_seconds=request.window_seconds)


# -- a look ----------------------------------------------------------------------------------------


def _look(spark: SparkSession, request: StatsRequest, printer: RowPrinter, output: ProgressOutput) -> None:
    with pipeline_errors(f"{TITLE} failed"):
        messages = _messages(spark, request, is_stream=False)
        frame = per_minute(messages, top=request.top, window_seconds=request.window_seconds)
        ordered = frame.orderBy("minute", "topic")
        with job_progress(spark, TITLE, output):
            rows = list(text_rows(_texts(ordered, printer), request.limit))
        _print(ordered, printer, rows)


def _follow(spark: SparkSession, request: StatsRequest, printer: RowPrinter) -> None:
    """The minutes that have changed, after each batch."""
    from kourou.spark.pipelines.query_watch import QueryWatch, StopRequest

    stop_request, written = StopRequest(), WrittenRows()
    left = [request.limit]

    def show(batch: DataFrame, _batch_id: int) -> int:
        ordered = batch.orderBy("minute", "topic")
        rows = list(text_rows(_texts(ordered, printer), left[0]))
        try:
            _print(ordered, printer, rows)
        except BrokenPipeError:
            stop_request.note()
            return 0
        if left[0] is not None:
            left[0] -= len(rows)
            stop_request.times += left[0] <= 0
        return len(rows)

    with pipeline_errors(f"{TITLE} failed"):
        query = _start(_stream(spark, request), request, written.counting(show), mode="update")
    with PipelineProgress(TITLE, ProgressOutput(False, io.StringIO(), False)) as progress:
        summary = progress.finish(QueryWatch(query, progress, written).wait(stop_request))
    print(summary.words(), file=sys.stderr)


def _texts(frame: DataFrame, printer: RowPrinter) -> DataFrame:
    from pyspark.sql.functions import expr

    if printer.wants_json:
        return as_json(frame)
    keys = expr("array_join(transform(top_keys, each -> concat(each.key, ': ', each.messages)), ', ')")
    return as_texts(frame.withColumn("top_keys", keys))


def _print(frame: DataFrame, printer: RowPrinter, rows: list[tuple[str | None, ...]]) -> None:
    printer.print_rows(frame.columns, number_columns(frame), rows)


# -- kept ------------------------------------------------------------------------------------------


def _keep(spark: SparkSession, request: StatsRequest, output: ProgressOutput) -> None:
    """Write each minute to its destination once it is over."""
    from kourou.spark.pipelines.query_watch import QueryWatch

    kept = WrittenRows()
    with pipeline_errors(f"{TITLE} failed"):
        # A stream reads from the end by default; stored messages count, too.
        starts = {} if _has_start(request.source) else {"startingOffsets": "earliest"}
        write = kept.counting(batch_writer(request))
        query = _start(_stream(spark, request, **starts), request, write, mode="append")
    with PipelineProgress(TITLE, output) as progress:
        ended = QueryWatch(query, progress, kept).wait()
        progress.say(f"wrote {kept.total or 0} complete minutes; later ones wait for the next run")
        progress.finish(ended)


def batch_writer(request: StatsRequest) -> Callable[[DataFrame, int], int]:
    """A function that writes the minutes of a batch and returns their number."""
    from kourou.spark.pipelines.lake.lake import LakeTable, lake_writer

    # Older tables have no `top_keys_approximate`.
    table = None if request.parquet is None else LakeTable("parquet", request.parquet, merge_schema=True)
    to_lake = None if table is None else lake_writer(table, app_id=TITLE)

    def write(batch: DataFrame, batch_id: int) -> int:
        with _persisted(batch):
            minutes = int(batch.count())
            if not minutes:
                return 0
            # The topic first: a batch repeated after a failure is in the table once.
            if request.to_topic is not None:
                _send(batch, request)
            if to_lake is not None:
                to_lake(batch, batch_id)
            return minutes

    return write


def _send(batch: DataFrame, request: StatsRequest) -> None:
    from pyspark.sql import functions as f

    columns = [f.col(name) for name in batch.columns]
    value = f.to_json(f.struct(*columns), {"ignoreNullFields": "false"}).alias("value")
    # Keep the minutes of a topic in one queue, in order.
    rows = (
        batch.orderBy("minute")
        .coalesce(1)
        .select(value, f.col("topic").alias("key"), f.col("topic").alias("sharding_key"))
    )
    options = {name: text for name, text in request.source.items() if name.lower() in _SINK_OPTIONS}
    writer = rows.write.format("rocketmq").mode("append").options(**options)
    writer.options(topic=request.to_topic, createTopic="true").save()


_SINK_OPTIONS: Final = frozenset({"namesrv", "accesskey", "secretkey", "securitytoken", "namespace", "tls"})


def _start(
    frame: DataFrame, request: StatsRequest, write: Callable[[DataFrame, int], None], *, mode: str
) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(write).outputMode(mode).queryName(TITLE)
    if request.checkpoint is not None:
        writer = writer.option("checkpointLocation", request.checkpoint)
    if request.follow:
        writer = writer.trigger(processingTime=f"{request.interval_seconds} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    return start_query(writer.start)


def _has_start(options: Mapping[str, str]) -> bool:
    return any(name.lower().startswith("starting") for name in options)


@contextmanager
def _persisted(batch: DataFrame) -> Iterator[None]:
    """Cache the rows, so that they are computed once."""
    batch.persist()
    try:
        yield
    finally:
        batch.unpersist()


def top_keys(sketch: bytes, top: int) -> tuple[list[tuple[str, int]], bool]:
    """The top keys with their counts, and whether counts are lower bounds. ValueError for other bytes."""
    if len(sketch) < _SIZE.size or (sketch[1], sketch[2]) != (_VERSION, _FAMILY):
        raise ValueError(f"this version of Spark has another sketch format, starting with {sketch[:8].hex()}")
    if sketch[0] & _PREAMBLE_LONGS_MASK == _EMPTY_PREAMBLE_LONGS:
        return [], False
    _, _, _, items, _, _, error = _PREAMBLE.unpack_from(sketch)
    counts = struct.unpack_from(f"<{items}q", sketch, _PREAMBLE.size)
    at = _PREAMBLE.size + 8 * items
    found = []
    for count in counts:
        (size,) = _SIZE.unpack_from(sketch, at)
        at += _SIZE.size
        found.append((sketch[at : at + size].decode("utf-8", "replace"), count))
        at += size
    found.sort(key=lambda each: (-each[1], each[0]))
    return found[:top], error > 0
