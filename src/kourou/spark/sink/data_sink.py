"""The sink: `df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

Each task sends its rows and reports their number in its commit message. Delivery is at least once: when a
task or a batch is retried, its rows are sent again.

A Delivery implements one delivery guarantee; AtLeastOnce is the only one so far. It receives the task, batch
and query that it works for, so that another guarantee could recognise earlier attempts. Not here: how rows
are sent (sending.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kourou.errors import ConfigError
from kourou.spark.brief_errors import brief_errors
from kourou.spark.option_reader import refusal
from kourou.spark.sink.sink_columns import SinkColumns
from kourou.spark.sink.sink_options import SinkOptions
from kourou.spark.spark_processes import plans_writes

if TYPE_CHECKING:
    import pyarrow as pa

    from kourou.spark.sink.sending import SinkCounts

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkTask:
    """The identity of a task. Query and batch are those of a streaming query, None in a batch write."""

    partition: int
    attempt: int = 0
    query_id: str | None = None
    batch_id: int | None = None

    @classmethod
    def current(cls) -> SinkTask:
        """The task that this process is running."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls(0)
        # Private to Spark: `write` receives neither, and both are needed to recognise a batch.
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            context.partitionId(),
            context.attemptNumber(),
            context.getLocalProperty("sql.streaming.queryId"),
            None if batch_id is None else int(batch_id),
        )


@dataclass
class SinkCommit(WriterCommitMessage):
    """The result of a task, for the driver."""

    task: SinkTask
    counts: SinkCounts


class Delivery(Protocol):
    """One delivery guarantee. `write` runs in the workers, the rest on the driver."""

    def write(self, batches: Iterator[pa.RecordBatch], task: SinkTask) -> SinkCommit:
        """Send the rows of one task."""

    def commit(self, done: Sequence[SinkCommit], batch_id: int | None) -> None:
        """Called on the driver when all tasks have succeeded."""

    def abort(self, done: Sequence[SinkCommit], batch_id: int | None) -> None:
        """A task failed, or `commit` did; `done` has the tasks that succeeded."""


@dataclass(frozen=True)
class AtLeastOnce:
    """Rows are visible as soon as a broker has stored them: there is nothing to commit or to roll back."""

    options: SinkOptions
    columns: SinkColumns

    def write(self, batches: Iterator[pa.RecordBatch], task: SinkTask) -> SinkCommit:
        """Send the rows; on return the brokers have stored them."""
        from kourou.spark.sink.sending import RowSender
        from kourou.spark.sink.sink_producer import wait_worker_producer

        worker = wait_worker_producer(self.options)
        sender = RowSender(self.options, self.columns, worker, task.partition)
        return SinkCommit(task, sender.send(batches))

    def commit(self, done: Sequence[SinkCommit], batch_id: int | None) -> None:
        """Log how much was written."""
        _log.info("%s: %s", _what(batch_id), _sum(done))

    def abort(self, done: Sequence[SinkCommit], batch_id: int | None) -> None:
        """Log what is stored already; a retry of the write sends it again."""
        _log.warning("%s failed; already stored: %s", _what(batch_id), _sum(done))


def _what(batch_id: int | None) -> str:
    return "batch write" if batch_id is None else f"batch {batch_id}"


def _sum(done: Sequence[SinkCommit]) -> SinkCounts:
    from kourou.spark.sink.sending import SinkCounts

    return sum((commit.counts for commit in done), SinkCounts())


def _stored(messages: Sequence[WriterCommitMessage | None]) -> list[SinkCommit]:
    """The tasks that succeeded: Spark has None for the others."""
    return [message for message in messages if isinstance(message, SinkCommit)]


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch query, which runs once."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    @brief_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task."""
        return self._delivery.write(iterator, SinkTask.current())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._delivery.commit(_stored(messages), None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed after all retries."""
        self._delivery.abort(_stored(messages), None)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query; Spark creates a new one for each."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    @brief_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task of a micro-batch."""
        return self._delivery.write(iterator, SinkTask.current())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch are done."""
        self._delivery.commit(_stored(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task of a micro-batch failed after all retries, or its commit did."""
        self._delivery.abort(_stored(messages), batchId)


def batch_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> BatchWriter:
    """For DataSource.writer. Problems are reported here, before a task runs: options and columns in one
    ConfigError, then an unreachable name server or a topic without a route."""
    from kourou.spark.sink.sink_start import check_reachable

    if overwrite:
        raise ConfigError('mode "overwrite": a topic cannot be overwritten; use mode("append")')
    delivery = _delivery(schema, options)
    check_reachable(delivery.options)
    return BatchWriter(delivery)


def stream_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> StreamWriter:
    """For DataSource.streamWriter. Problems are reported here, as for a batch; Spark calls it to plan and to
    commit each micro-batch, so name server and topic are checked the first time only."""
    from kourou.spark.sink.sink_start import check_reachable_once

    if overwrite:
        raise ConfigError('output mode "complete": a topic cannot be overwritten; use outputMode("update")')
    delivery = _delivery(schema, options)
    if plans_writes():
        check_reachable_once(delivery.options)
    return StreamWriter(delivery)


def _delivery(schema: Any, options: Mapping[str, str]) -> AtLeastOnce:
    problems: list[str] = []
    parsed, columns = None, None
    try:
        parsed = SinkOptions.parse(options)
    except ConfigError as error:
        problems += error.problems
    # An invalid topic is reported only once.
    given = {name.lower(): value for name, value in options.items()}
    try:
        columns = SinkColumns.of(schema, given.get("topic"))
    except ConfigError as error:
        problems += error.problems
    if parsed is None:
        raise ConfigError(*problems)  # the first names the component
    if columns is None:
        raise refusal("sink", problems)
    return AtLeastOnce(parsed, columns)
