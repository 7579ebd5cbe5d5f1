"""RocketmqDataSource: Spark's format `rocketmq`, for batches and streams, for reading and writing.

A thin layer: it parses options (options.py) and delegates. Readers are pickled and run in other processes, so
they hold only options and a schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kourou.errors import ConfigError, KourouError
from kourou.spark.brief_errors import brief_errors, hide_closed_sockets
from kourou.spark.source.arrow_batches import BatchBuilder
from kourou.spark.source.columns import check_schema, chosen_columns, default_schema
from kourou.spark.source.offset_spec import EARLIEST_SPEC
from kourou.spark.source.offsets import Positions
from kourou.spark.source.options import ENDING_OPTION_NAMES, SourceOptions
from kourou.spark.source.planning import QueueRange, plan_tasks, ranges_between
from kourou.spark.source.pushed_filters import PushedFilters
from kourou.spark.source.queue_lookup import QueueLookup
from kourou.spark.source.reading import read_ranges
from kourou.spark.source.source_client import shared_client
from kourou.spark.source.store_source import StorePartition, plan_store, read_store
from kourou.spark.source.stream_driver import StreamDriver
from kourou.spark.source.table_options import (
    created_with,
    for_source,
    sink_options,
    source_options,
    with_comment,
)

# Every worker that plans, reads or writes imports this module first.
hide_closed_sockets()


class RocketmqDataSource(DataSource):
    """The data source `rocketmq`: reader, stream reader and writers."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @brief_errors()
    def schema(self) -> str:
        """The default schema. ConfigError for invalid options."""
        table = created_with(self.options)
        options = SourceOptions.parse(self.options if table is None else for_source(table))
        if options.columns is not None:
            chosen = chosen_columns(options.columns, options.row_format)
            found = ", ".join(f"`{name}` {kind}" for name, kind in chosen.items())
        else:
            found = default_schema(options.row_format, include_headers=options.include_headers)
        return found if table is None else with_comment(found, table)

    @brief_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(schema)
        if options.store is not None:
            return StoreReader(options, schema)
        if options.starting is not None and options.starting.kind == "latest":
            raise ConfigError("startingOffsets=latest leaves a batch nothing to read; use it with streams")
        if options.ending.kind == "earliest":
            raise ConfigError("endingOffsets=earliest leaves nothing to read")
        kind = FilteringReader if options.push_filters else RocketmqReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The stream reader; one that raises if the options are invalid."""
        try:
            return RocketmqStreamReader(self._stream_options(schema), schema)
        except KourouError as error:
            return InvalidStreamReader(error)

    @brief_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from kourou.spark.sink.data_sink import batch_writer

        return batch_writer(schema, sink_options(self.options, schema), overwrite)

    @brief_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from kourou.spark.sink.data_sink import stream_writer

        return stream_writer(schema, sink_options(self.options, schema), overwrite)

    def _options(self, schema: StructType) -> SourceOptions:
        options = SourceOptions.parse(source_options(self.options, schema))
        fields = {field.name: field.dataType.simpleString() for field in schema}
        if options.columns is not None and chosen_columns(options.columns, options.row_format) != fields:
            raise ConfigError("the option columns and .schema(…) are mutually exclusive: use one of them")
        check_schema(fields, options.row_format)
        return options

    def _stream_options(self, schema: StructType) -> SourceOptions:
        options = self._options(schema)
        if options.store is not None:
            raise ConfigError("the option store is for batches only (spark.read): a stream needs a broker")
        given = {name.lower() for name in source_options(self.options, schema)}
        endings = [name for name in ENDING_OPTION_NAMES if name.lower() in given]
        if endings:
            raise ConfigError(f"the option {endings[0]} is for batches (spark.read): a stream has no end")
        return options


class RangesPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        self.ranges = tuple(ranges)


def _builder(options: SourceOptions, schema: StructType) -> BatchBuilder:
    return BatchBuilder(
        to_arrow_schema(schema, timezone="UTC"),
        row_format=options.row_format,
        property_errors=options.property_errors,
    )


def _read(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    # Spark creates a partition of its own where there is nothing to read.
    if isinstance(partition, RangesPartition):
        with brief_errors():
            yield from read_ranges(options, _builder(options, schema), partition.ranges)


class RocketmqReader(DataSourceReader):
    """Reads a batch from brokers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    @brief_errors()
    def partitions(self) -> list[InputPartition]:
        """The ranges of each task; queries the brokers."""
        return list(map(RangesPartition, plan_tasks(self._ranges(), self.options.min_partitions)))

    def _ranges(self) -> list[QueueRange]:
        options = self.options
        lookup = QueueLookup(shared_client(options.connection), options)
        queues = lookup.queues()
        begin = lookup.resolve(queues, options.starting or EARLIEST_SPEC)
        end = lookup.resolve(queues, options.ending, is_end=True)
        return ranges_between(begin, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task, as Arrow batches."""
        return _read(self.options, self.schema, partition)


class FilteringReader(RocketmqReader):
    """The same with filters of the query, which select queues and ranges, and drop rows early.

    Correct only where a DataFrame is scanned once: see PUSH_FILTERS_OPTION. A class of its own, as Spark
    requires `spark.sql.python.filterPushdown.enabled=true` for readers with `pushFilters`.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.filters = PushedFilters(options.row_format)

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Keep the supported filters. All are returned, so that Spark applies them again."""
        self.filters.take(filters)
        return filters

    def _ranges(self) -> list[QueueRange]:
        ranges = [piece for piece in super()._ranges() if self.filters.may_have(piece.queue)]
        return self.filters.narrowed(ranges, shared_client(self.options.connection))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task that may pass the filters."""
        options = self.filters.narrowed_options(self.options)
        return map(self.filters.applied, _read(options, self.schema, partition))


class StoreReader(DataSourceReader):
    """Reads a batch from store directories, without a broker."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    @brief_errors()
    def partitions(self) -> list[InputPartition]:
        """The parts of log files that each task reads."""
        return list(plan_store(self.options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task, as Arrow batches."""
        if isinstance(partition, StorePartition):
            with brief_errors():
                yield from read_store(self.options, _builder(self.options, self.schema), partition)


class RocketmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from brokers. Offsets are those of offsets.py."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._driver: StreamDriver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    @property
    def driver(self) -> StreamDriver:
        """The StreamDriver, created on first use, so that workers have none."""
        if self._driver is None:
            self._driver = StreamDriver(shared_client(self.options.connection), self.options)
        return self._driver

    @brief_errors()
    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return self.driver.initial().to_json()

    @brief_errors()
    def getDefaultReadLimit(self) -> ReadLimit:
        return self.driver.default_limit()

    @brief_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` if there is nothing new."""
        end = self.driver.batch_end(Positions.from_json(start), limit)
        return start if end is None else end.to_json()

    @brief_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """The current ends of the queues are the end of the query."""
        self.driver.stop_at_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the queues, and the lag of the query, for Spark's progress report."""
        return self.driver.report()

    @brief_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of each task of a batch, without any query, so that a replanned batch is the same."""
        batch_end = Positions.from_json(end)
        begin = Positions.from_json(start).batch_begin(batch_end)
        tasks = plan_tasks(ranges_between(begin, batch_end.offsets), self.options.min_partitions)
        return list(map(RangesPartition, tasks))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task, as Arrow batches."""
        return _read(self.options, self.schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: Spark does not call it for the last batch, so progress is published elsewhere."""

    def stop(self) -> None:
        """Does nothing: Spark may not call it, and the process ends."""


class InvalidStreamReader(DataSourceStreamReader):
    """Raises the error of a stream on first use: an error raised by `streamReader` itself is lost in Spark
    (4.3), which then reports an undefined variable of its own."""

    def __init__(self, error: KourouError) -> None:
        self._error = error

    @brief_errors()
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @brief_errors()
    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._error

    @brief_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    @brief_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error
