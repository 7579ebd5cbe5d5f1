"""ArchivedRows: the messages of an archive that a replay covers: counted, sliced and sent by Spark.

Workers send the rows of a slice as the sink does, at the requested pace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kourou.protocol.bodies import MessageQueue
from kourou.spark.pipelines.archive.archive_folder import DATE, ArchiveFolder
from kourou.spark.pipelines.lake.lake import read_lake
from kourou.spark.pipelines.replay.replay_plan import Bucket, Slice, plan_slices
from kourou.spark.pipelines.replay.replay_range import DAY_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kourou.spark.sink.sink_columns import SinkColumns
    from kourou.spark.sink.sink_options import SinkOptions

_QUEUE: Final = ("topic", "broker", "queue_id")
_STORED_MS: Final = "unix_millis(store_timestamp)"
_MIN_BUCKET_MS: Final = 1_000
_MAX_BUCKETS: Final = 5_000
"""Per queue; limited by the driver's memory."""
SENT_SCHEMA: Final = "rows bigint, refused bigint"
_PIECES_A_SECOND: Final = 10


@dataclass(frozen=True, slots=True)
class QueueCount:
    """The messages of one queue to replay."""

    topic: str
    broker: str
    queue_id: int
    rows: int
    first_offset: int
    last_offset: int
    first_ms: int
    last_ms: int

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker, self.queue_id)


class ArchivedRows:
    """Messages of some topics stored in a time range, except for those already sent."""

    def __init__(
        self,
        spark: SparkSession,
        archive: ArchiveFolder,
        *,
        topics: Sequence[str],
        from_ms: int | None,
        until_ms: int | None,
        next_offsets: Mapping[MessageQueue, int],
    ) -> None:
        from pyspark.sql.functions import col

        self._spark = spark
        self._all = read_lake(spark, archive.table).where(col("topic").isin(*topics))
        self._rows = self._left(_within(self._all, from_ms, until_ms), next_offsets)

    def _left(self, rows: DataFrame, next_offsets: Mapping[MessageQueue, int]) -> DataFrame:
        from pyspark.sql.functions import broadcast

        if not next_offsets:
            return rows
        following = [
            (queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in next_offsets.items()
        ]
        bounds = self._spark.createDataFrame(
            following, "topic string, broker string, queue_id int, next_offset bigint"
        )
        joined = rows.join(broadcast(bounds), list(_QUEUE), "left")
        return joined.where("queue_offset >= coalesce(next_offset, 0)").drop("next_offset")

    def counts(self) -> list[QueueCount]:
        """The number of messages, by queue."""
        from pyspark.sql.functions import expr

        found = self._rows.groupBy(*_QUEUE).agg(
            expr("count(*) AS rows"),
            expr("min(queue_offset) AS first_offset"),
            expr("max(queue_offset) AS last_offset"),
            expr(f"min({_STORED_MS}) AS first_ms"),
            expr(f"max({_STORED_MS}) AS last_ms"),
        )
        return sorted((QueueCount(**row.asDict()) for row in found.collect()), key=lambda count: count.queue)

    def whole_range_ms(self) -> tuple[int, int]:
        """When the first and the last message of these topics were stored, regardless of the range."""
        row = self._all.selectExpr(f"min({_STORED_MS})", f"max({_STORED_MS})").first()
        assert row is not None, "an aggregate has a row"
        return row[0] or 0, row[1] or 0

    def slices(self, counts: Sequence[QueueCount], slice_rows: int) -> Iterator[Slice]:
        """The slices, in sending order."""
        from pyspark.sql.functions import expr

        if not counts:
            return iter(())
        first_ms = min(count.first_ms for count in counts)
        last_ms = max(count.last_ms for count in counts)
        bucket_ms = max(_MIN_BUCKET_MS, (last_ms - first_ms) // _MAX_BUCKETS + 1)
        found = self._rows.groupBy(*_QUEUE, expr(f"floor({_STORED_MS} / {bucket_ms}) AS bucket")).agg(
            expr("count(*) AS rows"), expr("min(queue_offset) AS first"), expr("max(queue_offset) AS last")
        )
        buckets = [
            Bucket(
                MessageQueue(row["topic"], row["broker"], row["queue_id"]),
                row["bucket"] * bucket_ms,
                row["rows"],
                row["first"],
                row["last"],
            )
            for row in found.collect()
        ]
        return plan_slices(buckets, bucket_ms=bucket_ms, slice_rows=slice_rows)

    def send(
        self,
        part: Slice,
        to: Mapping[MessageQueue, MessageQueue],
        options: SinkOptions,
        *,
        rate: float | None,
        origin: str | None,
    ) -> tuple[int, int]:
        """Send a slice; on return brokers have stored it. Returns the number of messages sent, and of those
        rejected, which are in the error topic."""
        from kourou.spark.sink.sink_columns import SinkColumns

        messages = self._messages(part, to, options, origin)
        # With a rate, tasks run one after the other, so that the rate applies to all of them.
        by = list(_QUEUE)
        tasks = messages.repartition(1) if rate is not None else messages.repartition(*by)
        ordered = tasks.sortWithinPartitions(*by, "queue_offset").selectExpr(*_sent_columns(options))
        columns = SinkColumns.of(ordered.schema, options.topic)
        done = ordered.mapInArrow(sending(options, columns, rate), SENT_SCHEMA).collect()
        return sum(row["rows"] for row in done), sum(row["refused"] for row in done)

    def _messages(
        self, part: Slice, to: Mapping[MessageQueue, MessageQueue], options: SinkOptions, origin: str | None
    ) -> DataFrame:
        """The rows of a slice, with their targets."""
        from pyspark.sql.functions import broadcast

        bounds: list[tuple[Any, ...]] = [
            (
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                each.first,
                each.last,
                to[queue].broker_name,
                to[queue].queue_id,
            )
            for queue, each in part.ranges.items()
        ]
        table = self._spark.createDataFrame(
            bounds,
            "topic string, broker string, queue_id int, first bigint, last bigint, to_broker string, "
            "to_queue int",
        )
        rows = _within(self._rows, part.begin_ms, part.end_ms).join(broadcast(table), list(_QUEUE))
        return rows.where("queue_offset BETWEEN first AND last").withColumn("properties", _properties(origin))


def _within(rows: DataFrame, from_ms: int | None, until_ms: int | None) -> DataFrame:
    """Rows stored in a range; filtered by day first, so that files of other days are not opened."""
    if from_ms is not None:
        rows = rows.where(f"{DATE} >= date_from_unix_date({from_ms // DAY_MS})")
        rows = rows.where(f"store_timestamp >= timestamp_millis({from_ms})")
    if until_ms is not None:
        rows = rows.where(f"{DATE} <= date_from_unix_date({until_ms // DAY_MS})")
        rows = rows.where(f"store_timestamp < timestamp_millis({until_ms})")
    return rows


def _sent_columns(options: SinkOptions) -> list[str]:
    names = ["value", "key", "tags", "properties", "to_queue AS queue_id", "to_broker AS broker"]
    return names if options.topic is not None else ["topic", *names]


def _properties(origin: str | None) -> Any:
    """The properties, without blank ones, which cannot be sent, and with the message's original position."""
    from pyspark.sql.functions import expr, lit, map_concat

    kept = expr("map_filter(properties, (name, text) -> trim(name) != '' AND trim(text) != '')")
    if origin is None:
        return kept
    from pyspark.sql.functions import concat_ws, create_map, map_filter

    place = concat_ws("/", "topic", "broker", "queue_id", "queue_offset")
    others = map_filter(kept, lambda name, _: name != lit(origin))
    return map_concat(others, create_map(lit(origin), place))


def paced(
    batches: Iterator[Any],
    rows_per_second: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Any]:
    """Arrow batches in chunks of a tenth of a second, none before the rate allows it; None: unlimited."""
    if rows_per_second is None:
        yield from batches
        return
    piece_rows = max(1, int(rows_per_second / _PIECES_A_SECOND))
    begun, given = clock(), 0
    for batch in batches:
        for first in range(0, batch.num_rows, piece_rows):
            wait_s = begun + given / rows_per_second - clock()
            if wait_s > 0:
                sleep(wait_s)
            piece = batch.slice(first, piece_rows)
            yield piece
            given += piece.num_rows
    # The next chunk starts as late as if it were part of this one.
    wait_s = begun + given / rows_per_second - clock()
    if wait_s > 0:
        sleep(wait_s)


def sending(
    options: SinkOptions, columns: SinkColumns, rows_per_second: float | None
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For `mapInArrow`: sends the rows of a task and yields their number, in one row."""

    def send(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        from kourou.spark.sink.sending import RowSender
        from kourou.spark.sink.sink_producer import worker_producer

        context = TaskContext.get()
        sender = RowSender(
            options, columns, worker_producer(options), 0 if context is None else context.partitionId()
        )
        counts = sender.send(paced(batches, rows_per_second), is_paced=rows_per_second is not None)
        yield pa.RecordBatch.from_pydict({"rows": [counts.rows], "refused": [counts.refused_rows]})

    return send
