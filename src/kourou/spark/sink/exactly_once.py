"""ExactlyOnce: each batch of a sink becomes visible as a whole, and once.

    plan      a process of the driver begins an atomic publish, and reads the last batch that the sink has
              committed from its coordinator, the broker that decides the publishes of this sink
    tasks     stage their rows (staging.py); their commit messages name the parts
    commit    the coordinator commits exactly those parts, and stores (sink id, query id, batch id) with the
              decision

A batch that was committed, and that Spark runs again because it could not note that, is recognised by the
tasks from the plan, and by the coordinator. A plan fences the publishes of earlier plans of the same sink, so
that what it has read stays true until its commit.

The query id is known to tasks only: the driver takes it from their commit messages. In a batch write, the
writeId stands for the query.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kourou.errors import AtomicRolledBackError, AtomicUndecidedError, KourouError, ProducerFencedError
from kourou.spark.sink.sink_columns import SinkColumns
from kourou.spark.sink.sink_commit import SinkCommit, SinkTask, describe_batch, total
from kourou.spark.sink.sink_errors import SinkBatchError
from kourou.spark.sink.sink_options import SinkOptions
from kourou.spark.sink.sink_plan import SinkPlan, identity

if TYPE_CHECKING:
    import pyarrow as pa

    from kourou.client.producer.atomic_publish import AtomicPublish, SinkBatch
    from kourou.protocol.atomic import Outcome

_log = logging.getLogger(__name__)


@dataclass
class StagedCommit(SinkCommit):
    """The result of a task: the parts that it has staged."""

    plan: SinkPlan | None = None
    parts: dict[str, list[int]] = field(default_factory=dict)
    """The parts at each broker, in the order of the rows."""
    brokers: tuple[str, ...] = ()
    """Brokers that other attempts may have staged parts at."""
    is_repeat: bool = False
    """The sink has this batch: nothing was staged."""


@dataclass(frozen=True)
class ExactlyOnce:
    """The guarantee `exactly-once`. Without a plan it can commit, and not write."""

    options: SinkOptions
    columns: SinkColumns
    plan: SinkPlan | None = None

    def write(self, batches: Iterator[pa.RecordBatch], task: SinkTask) -> SinkCommit:
        """Stage the rows of one task; on return brokers keep them, and nothing is visible."""
        from kourou.spark.sink.sending import RowSender, SinkCounts
        from kourou.spark.sink.sink_producer import wait_worker_producer
        from kourou.spark.sink.staging import StagedDeliveries, staging_options

        plan = self.plan
        if plan is None:
            raise SinkBatchError("Spark has not planned this write: this version of Spark is not supported")
        query_id, batch_id = identity(self.options, task.query_id, task.batch_id)
        if plan.is_committed(query_id, batch_id):
            return StagedCommit(task, SinkCounts(), plan, is_repeat=True)
        options = staging_options(self.options)
        worker = wait_worker_producer(options)
        deliveries = worker.portal.do(
            lambda: StagedDeliveries(
                options, worker.producer, worker.producer.join_atomic(plan.handle), task.attempt_id
            )
        )
        more = worker.producer.batch_properties.encode()
        sender = RowSender(options, self.columns, worker, task.partition, deliveries, more)
        counts = sender.send(batches)
        return StagedCommit(task, counts, plan, deliveries.parts, tuple(sorted(deliveries.brokers)))

    def commit(self, done: Sequence[SinkCommit], batch_id: int | None) -> None:
        """Make all parts visible, once. SinkBatchError: nothing is visible, or the whole batch becomes so, in
        which case it is not written again."""
        commits = _staged(done)
        what = f"sink {self.options.sink_id!r}, {describe_batch(batch_id)}"
        if not commits or not any(each.parts for each in commits):
            is_repeat = any(each.is_repeat for each in commits)
            _log.info("%s: %s", what, "committed before, skipped" if is_repeat else "no rows")
            return
        plan, participants = _plan_of(commits), _participants(commits)
        query_id, number = identity(self.options, commits[0].task.query_id, batch_id)
        if self._decide(plan, participants, query_id, number):
            _log.info("%s: committed: %s", what, total(done))
        else:
            _log.info("%s: committed before, skipped", what)

    def abort(self, done: Sequence[SinkCommit], batch_id: int | None) -> None:
        """Drop what was staged, unless it is committed."""
        from kourou.spark.sink.sink_producer import worker_producer

        commits = [each for each in _staged(done) if each.parts]
        what = f"sink {self.options.sink_id!r}, {describe_batch(batch_id)}"
        if not commits:
            _log.warning("%s failed; nothing of it is visible", what)
            return
        try:
            worker = worker_producer(self.options)
            publish = worker.producer.join_atomic(_plan_of(commits).handle)
            worker.portal.call(lambda: publish.roll_back(_participants(commits)))
        except KourouError as error:
            # Committed, or the coordinator drops it when its time is over.
            _log.warning("%s failed, and was not rolled back: %s", what, error)
        else:
            _log.warning("%s failed, and is rolled back", what)

    def _decide(
        self, plan: SinkPlan, participants: dict[str, list[int]], query_id: str, batch_id: int
    ) -> bool:
        """Whether this publish is committed; else the sink had the batch, and it is dropped."""
        from kourou.client.producer.atomic_publish import SinkBatch
        from kourou.protocol.atomic import Outcome
        from kourou.spark.sink.sink_producer import wait_worker_producer

        worker = wait_worker_producer(self.options)
        publish = worker.producer.join_atomic(plan.handle)
        sink = SinkBatch(plan.sink_name, query_id, batch_id, replaces_query=plan.replaces(query_id))
        outcome = worker.portal.call(lambda: self._commit(publish, participants, sink))
        if outcome is not Outcome.ALREADY_COMMITTED:
            # A program that reads when the write has ended finds the rows.
            worker.portal.call(lambda: worker.producer.wait_published(plan.handle, participants))
            return True
        try:
            worker.portal.call(lambda: publish.roll_back(participants))
        except KourouError as error:
            _log.info("%s: what was staged again is dropped later: %s", plan.sink_id, error)
        return False

    async def _commit(
        self, publish: AtomicPublish, participants: dict[str, list[int]], sink: SinkBatch
    ) -> Outcome:
        seconds = sum(self.options.pauses_s()) + self.options.send_timeout_ms / 1000
        where = f"sink {self.options.sink_id!r}"
        try:
            async with asyncio.timeout(seconds):
                return await publish.commit(participants, sink=sink)
        except (TimeoutError, AtomicUndecidedError) as error:
            raise SinkBatchError(
                f"{where}: its coordinator, broker {publish.handle.coordinator!r}, did not answer for "
                f"{seconds:.0f} s: the batch is not visible, or will be as a whole. Start the broker; the "
                "query may be started again at any time, and skips the batch if it was committed"
            ) from error
        except AtomicRolledBackError as error:
            raise SinkBatchError(
                f"{where}: the batch is rolled back, and nothing of it is visible: {error}. It is written "
                "again by a restart of the query; if a batch takes longer than stageTimeoutMs "
                f"({self.options.stage_timeout_ms} ms), raise that, or lower maxOffsetsPerTrigger"
            ) from error
        except ProducerFencedError as error:
            raise SinkBatchError(
                f"{where}: another query or write with this sinkId has begun a batch, so this one is not "
                "committed, and nothing of it is visible. A sinkId belongs to one query at a time"
            ) from error


# -- commit messages -------------------------------------------------------------------------------


def _staged(done: Sequence[SinkCommit]) -> list[StagedCommit]:
    """In the order of the partitions."""
    found = [each for each in done if isinstance(each, StagedCommit)]
    return sorted(found, key=lambda each: each.task.partition)


def _plan_of(commits: Sequence[StagedCommit]) -> SinkPlan:
    plans = {each.plan for each in commits}
    plan = plans.pop()
    assert plan is not None and not plans, "the tasks of one batch have one plan"
    return plan


def _participants(commits: Sequence[StagedCommit]) -> dict[str, list[int]]:
    """The parts to publish at each broker; none at those that may have parts of other attempts only."""
    participants: dict[str, list[int]] = {}
    for commit in commits:
        for broker_name in commit.brokers:
            participants.setdefault(broker_name, [])
        for broker_name, parts in commit.parts.items():
            participants.setdefault(broker_name, []).extend(parts)
    return participants
