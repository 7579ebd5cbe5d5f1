"""A stream with guarantee=exactly-once, without a JVM: the processes of Spark are played by this one."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kourou.testing import LocalCluster
from tests.spark.kit.sink_kit import pickles, record_batch, schema_of

from kourou.spark.sink.data_sink import _delivery  # isort: skip (the kit skips where there is no pyarrow)
from kourou.spark.sink.exactly_once import ExactlyOnce, StagedCommit  # isort: skip
from kourou.spark.sink.sink_commit import SinkCommit, SinkTask  # isort: skip
from kourou.spark.sink.sink_plan import plan_batch  # isort: skip
from kourou.spark.sink.sink_producer import wait_worker_producer  # isort: skip

WAIT_S = 20


class Sink:
    """A stream into a topic."""

    def __init__(self, mq: LocalCluster, topic: str, query_id: str = "query-1", **options: str) -> None:
        self.mq, self.topic, self.query_id = mq, topic, query_id
        self._attempts = random.randrange(1 << 20)
        self.options = {
            "namesrv": mq.namesrv,
            "topic": topic,
            "guarantee": "exactly-once",
            "sinkId": f"sink-{topic}",
            "retryIntervalMs": "20",
            **options,
        }

    def plan(self, names: Sequence[str] = ("value",)) -> ExactlyOnce:
        """What the planning process sends to the tasks."""
        delivery = self._delivery(names)
        worker = wait_worker_producer(delivery.options)
        planned = dataclasses.replace(delivery, plan=plan_batch(worker, delivery.options))
        copy: ExactlyOnce = pickles.loads(pickles.dumps(planned))
        return copy

    def task(
        self, planned: ExactlyOnce, batch_id: int, partition: int, rows: Sequence[Mapping[str, Any]]
    ) -> StagedCommit:
        """One attempt of one task."""
        self._attempts += 1
        names = list(dict.fromkeys(name for row in rows for name in row)) or ["value"]
        batches = [record_batch(schema_of(names), rows)] if rows else []
        task = SinkTask(partition, 0, self.query_id, batch_id, self._attempts)
        commit = pickles.loads(pickles.dumps(planned.write(iter(batches), task)))
        assert isinstance(commit, StagedCommit)
        return commit

    def stage(
        self, batch_id: int, *partitions: Sequence[bytes], planned: ExactlyOnce | None = None
    ) -> list[StagedCommit]:
        """All tasks of a batch."""
        planned = planned or self.plan()
        return [
            self.task(planned, batch_id, number, [{"value": value} for value in values])
            for number, values in enumerate(partitions)
        ]

    def run(self, batch_id: int, *partitions: Sequence[bytes]) -> list[StagedCommit]:
        """A whole batch."""
        done = self.stage(batch_id, *partitions)
        self.commit(done, batch_id)
        return done

    def commit(self, done: Sequence[SinkCommit], batch_id: int) -> None:
        """In the process that commits, which has no plan."""
        self._delivery(["value"]).commit(done, batch_id)

    def abort(self, done: Sequence[SinkCommit], batch_id: int) -> None:
        self._delivery(["value"]).abort(done, batch_id)

    def _delivery(self, names: Sequence[str]) -> ExactlyOnce:
        delivery = _delivery(schema_of(names), self.options)
        assert isinstance(delivery, ExactlyOnce)
        return delivery

    def stored(self) -> Counter[bytes]:
        return Counter(message.body for message in self.mq.messages(self.topic))

    def wait(self, *values: bytes) -> None:
        """The topic gets exactly these values: a commit is published within a second, and what another batch
        behind it has published shows that no more follows."""
        wait_stored(self.stored, Counter(values))


def wait_stored(stored: Callable[[], Counter[bytes]], expected: Counter[bytes]) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := stored()) != expected:
        assert not found - expected, f"too many: {shown(found - expected)}"
        assert time.monotonic() < deadline, f"missing: {shown(expected - found)}"
        time.sleep(0.02)


def shown(counts: Counter[bytes]) -> list[tuple[bytes, int]]:
    return [(value[:40], count) for value, count in counts.most_common(20)]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
