"""The same rows behind several sources of Spark: our broker, its store's folder, Kafka, and Parquet files.

Rows are made once, as Parquet files with the columns of Spark's Kafka source, and sent from there, by
Spark's sinks: so all hold the same keys and values, in as many queues, partitions or files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
OUR_SINK = "Kourou's sink"
KAFKA_SINK = "Kafka's sink"
READY = "ready batches in Python"
"""The ceiling of a source in Python (_ready_batches.py)."""


@dataclass(frozen=True)
class Place:
    """Where the rows of one size are."""

    topic: str
    size_bytes: int
    rows: int
    queues: int
    namesrv: str
    store: Path
    kafka: str
    parquet: Path
    server_pids: dict[str, int]
    """By the name of the source that it serves."""
    options: dict[str, str]
    """Of our sources, besides those that they need."""


@dataclass(frozen=True)
class Source:
    """Something that is read. `width` are the columns: those of Spark's Kafka source, the source's own,
    or the value alone."""

    name: str
    width: str
    frame: Callable[[SparkSession, Place], DataFrame]


def make_rows(spark: SparkSession, place: Place) -> None:
    """Write the Parquet files: values of random letters, which nothing makes smaller."""
    spark.range(0, place.rows, 1, place.queues).selectExpr(
        "cast(concat('key-', id) AS binary) AS key",
        f"cast(randstr({place.size_bytes}, 7) AS binary) AS value",
        f"'{place.topic}' AS topic",
        f"cast(id % {place.queues} AS int) AS partition",
        f"id div {place.queues} AS offset",
        "current_timestamp() AS timestamp",
        "1 AS timestampType",
    ).write.parquet(str(place.parquet))


def senders(spark: SparkSession, place: Place, part: int, parts: int) -> dict[str, Callable[[], None]]:
    """What sends one of `parts` equal parts of the rows, by the sink's name."""
    last = place.rows // place.queues
    low, high = last * part // parts, last * (part + 1) // parts
    rows = spark.read.parquet(str(place.parquet)).where(f"offset >= {low} AND offset < {high}")
    columns = rows.select("key", "value", "partition")
    ours = columns.write.format("rocketmq").mode("append").option("namesrv", place.namesrv)
    kafka = columns.write.format("kafka").mode("append").option("kafka.bootstrap.servers", place.kafka)
    return {
        OUR_SINK: ours.option("topic", place.topic).save,
        KAFKA_SINK: kafka.option("topic", place.topic).save,
    }


def _ours(width: str) -> Callable[[SparkSession, Place], DataFrame]:
    def frame(spark: SparkSession, place: Place) -> DataFrame:
        reader = spark.read.format("rocketmq").options(**place.options).option("namesrv", place.namesrv)
        return _of_width(reader.option("subscribe", place.topic), width)

    return frame


def _store(width: str, *, verify_crc: bool = True) -> Callable[[SparkSession, Place], DataFrame]:
    def frame(spark: SparkSession, place: Place) -> DataFrame:
        reader = spark.read.format("rocketmq").options(**place.options).option("store", str(place.store))
        reader = reader.option("verifyCrc", verify_crc)
        return _of_width(reader.option("subscribe", place.topic), width)

    return frame


def _of_width(reader: DataFrameReader, width: str) -> DataFrame:
    if width == "value":
        reader = reader.schema("value binary")
    elif width == "kafka":
        reader = reader.option("rowFormat", "kafka")
    return reader.load()


def _kafka(width: str) -> Callable[[SparkSession, Place], DataFrame]:
    def frame(spark: SparkSession, place: Place) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", place.kafka)
        rows = reader.option("subscribe", place.topic).load()
        return rows.select("value") if width == "value" else rows

    return frame


def _ready(width: str) -> Callable[[SparkSession, Place], DataFrame]:
    def frame(spark: SparkSession, place: Place) -> DataFrame:
        from benchmarks._ready_batches import ReadyBatches

        spark.dataSource.register(ReadyBatches)
        reader = (
            spark.read.format(ReadyBatches.name()).option("topic", place.topic).option("rows", place.rows)
        )
        reader = reader.option("queues", place.queues).option("topic", place.topic)
        reader = reader.option("valueBytes", place.size_bytes)
        return _of_width(reader, width)

    return frame


def _parquet(width: str) -> Callable[[SparkSession, Place], DataFrame]:
    def frame(spark: SparkSession, place: Place) -> DataFrame:
        rows = spark.read.parquet(str(place.parquet))
        return rows.select("value") if width == "value" else rows

    return frame


OURS = Source("Kourou", "kafka", _ours("kafka"))
STORE = Source("store folder", "kafka", _store("kafka"))
KAFKA = Source("Kafka", "kafka", _kafka("kafka"))
PARQUET = Source("Parquet", "kafka", _parquet("kafka"))
SOURCES = (
    KAFKA,
    OURS,
    PARQUET,
    STORE,
    Source("store folder, verifyCrc=false", "kafka", _store("kafka", verify_crc=False)),
    Source(READY, "kafka", _ready("kafka")),
    Source("Kafka", "value", _kafka("value")),
    Source("Kourou", "value", _ours("value")),
    Source("Parquet", "value", _parquet("value")),
    Source("store folder", "value", _store("value")),
    Source(READY, "value", _ready("value")),
    Source("Kourou", "own", _ours("own")),
    Source("store folder", "own", _store("own")),
)
"""In this order within a round, so that what is compared runs side by side."""


def streams(spark: SparkSession, place: Place, rows_per_batch: int) -> dict[str, DataFrame]:
    """The rows as streams of small batches, by the source's name."""
    ours = spark.readStream.format("rocketmq").option("namesrv", place.namesrv).option("rowFormat", "kafka")
    # Spark's Kafka source of 4.1 does not stream in Spark 4.3. This one needs no server: the lower bound.
    floor = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return {
        OURS.name: ours.option("subscribe", place.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_per_batch)
        .load(),
        "Spark's `rate-micro-batch`": floor.load(),
    }
