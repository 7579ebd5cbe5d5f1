"""What a task of the sink is, and what it reports to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from kourou.spark.sink.sending import SinkCounts


@dataclass(frozen=True, slots=True)
class SinkTask:
    """The identity of a task. Query and batch are those of a streaming query, None in a batch write."""

    partition: int
    attempt: int = 0
    query_id: str | None = None
    batch_id: int | None = None
    attempt_id: int = 0
    """Unique among all attempts of all tasks of the driver."""

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
            context.taskAttemptId(),
        )


@dataclass
class SinkCommit(WriterCommitMessage):
    """The result of a task, for the driver."""

    task: SinkTask
    counts: SinkCounts


def describe_batch(batch_id: int | None) -> str:
    """`batch 7`, or that it is a batch write."""
    return "batch write" if batch_id is None else f"batch {batch_id}"


def total(done: Sequence[SinkCommit]) -> SinkCounts:
    """The counts of all tasks."""
    from kourou.spark.sink.sending import SinkCounts

    return sum((commit.counts for commit in done), SinkCounts())
