"""The sink: `df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

A Delivery implements one guarantee. At least once: each task sends its rows, and when a task or a batch is
retried, its rows are sent again. Exactly once: exactly_once.py. Not here: how rows are sent (sending.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kourou.errors import ConfigError
from kourou.spark.brief_errors import brief_errors
from kourou.spark.option_reader import refusal
from kourou.spark.sink.exactly_once import ExactlyOnce
from kourou.spark.sink.sink_columns import SinkColumns
from kourou.spark.sink.sink_commit import SinkCommit, SinkTask, describe_batch, total
from kourou.spark.sink.sink_options import SinkOptions
from kourou.spark.sink.sink_plan import plan_batch
from kourou.spark.spark_processes import plans_writes

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


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
        _log.info("%s: %s", describe_batch(batch_id), total(done))

    def abort(self, done: Sequence[SinkCommit], batch_id: int | None) -> None:
        """Log what is stored already; a retry of the write sends it again."""
        _log.warning("%s failed; already stored: %s", describe_batch(batch_id), total(done))


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
    if isinstance(delivery, ExactlyOnce) and delivery.options.write_id is None:
        raise ConfigError(
            "option writeId: needed for a batch write with guarantee=exactly-once: it identifies this write, "
            "and a repeat with the same id is skipped"
        )
    check_reachable(delivery.options)
    return BatchWriter(_planned(delivery))


def stream_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> StreamWriter:
    """For DataSource.streamWriter. Problems are reported here, as for a batch; Spark calls it to plan and to
    commit each micro-batch, so name server and topic are checked the first time only."""
    from kourou.spark.sink.sink_start import check_reachable_once

    if overwrite:
        raise ConfigError('output mode "complete": a topic cannot be overwritten; use outputMode("update")')
    delivery = _delivery(schema, options)
    if isinstance(delivery, ExactlyOnce) and delivery.options.write_id is not None:
        raise ConfigError("option writeId: for batch writes only; Spark numbers the batches of a stream")
    if plans_writes():
        check_reachable_once(delivery.options)
        delivery = _planned(delivery)
    return StreamWriter(delivery)


def _planned(delivery: AtLeastOnce | ExactlyOnce) -> AtLeastOnce | ExactlyOnce:
    """With the atomic publish of the batch, where there is one."""
    if isinstance(delivery, AtLeastOnce):
        return delivery
    from kourou.spark.sink.sink_producer import wait_worker_producer

    options = delivery.options
    return replace(delivery, plan=plan_batch(wait_worker_producer(options), options))


def _delivery(schema: Any, options: Mapping[str, str]) -> AtLeastOnce | ExactlyOnce:
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
    if not parsed.is_exactly_once:
        return AtLeastOnce(parsed, columns)
    if "delay_ms" in columns.positions:
        raise refusal(
            "sink",
            [
                "column delay_ms: delayed messages cannot be written with guarantee=exactly-once; drop the "
                "column, or set guarantee=at-least-once"
            ],
        )
    return ExactlyOnce(parsed, columns)
