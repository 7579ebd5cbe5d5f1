"""SinkPlan: what the driver knows of a sink when a batch begins, and which batches may follow.

The coordinator of a sink, a broker, keeps the query and the number of the last batch that was committed. A
query continues with the next batch, or repeats the last one. Anything else is an error that says what to do:
a lost, new or old checkpoint, another query, a batch write that is out of order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kourou.errors import ConfigError, KourouError
from kourou.spark.sink.sink_errors import SinkBatchError
from kourou.spark.sink.sink_options import AT_LEAST_ONCE, SinkOptions

if TYPE_CHECKING:
    from kourou.client.producer.atomic_publish import AtomicHandle
    from kourou.spark.sink.sink_producer import WorkerProducer

_WRITE: Final = "write "
"""Begins what stands for the query in a batch write."""


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What the tasks of one batch, and its commit, need to know."""

    sink_id: str
    sink_name: str
    """The sink at its coordinator."""
    handle: AtomicHandle
    last_query: str | None = None
    """The query of the last batch that the sink has committed, and the number of that batch."""
    last_batch: int = -1
    replace_query: str | None = None

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether the sink has this batch. SinkBatchError if it cannot be written exactly once."""
        if self.last_query is None or self.replaces(query_id):
            return False
        if self.last_query != query_id:
            raise SinkBatchError(self._other_query(query_id, batch_id))
        if batch_id < self.last_batch:
            raise SinkBatchError(
                f"sink {self.sink_id!r}: the query is at batch {batch_id}, but batch {self.last_batch} has "
                "been committed: the checkpoint is older than the data that was written. Restore the newest "
                "checkpoint; if there is none, start with a new one, which tells what to do next"
            )
        return batch_id == self.last_batch

    def replaces(self, query_id: str) -> bool:
        """Whether this query takes over a sink that belonged to another one."""
        is_other = self.last_query is not None and self.last_query != query_id
        return is_other and (
            self.replace_query == shown_query(self.last_query) or self._is_next_write(query_id)
        )

    def _is_next_write(self, query_id: str) -> bool:
        """Whether both are batch writes, in their order."""
        if self.last_query is None or not (self.last_query + query_id).startswith(_WRITE):
            return False
        return query_id.startswith(_WRITE) and is_before(shown_query(self.last_query), shown_query(query_id))

    def _other_query(self, query_id: str, batch_id: int) -> str:
        last, is_write = shown_query(self.last_query), query_id.startswith(_WRITE)
        if is_write and str(self.last_query).startswith(_WRITE):
            return (
                f"sink {self.sink_id!r}: writeId {shown_query(query_id)!r} is not behind {last!r}, the last "
                "one that was committed, so it may have been written already. Ids of one sink have to ascend "
                "(numbers, or texts such as 2026-11-18); a write that is out of order needs a sinkId of its "
                f"own, or option replaceQuery={last!r} if it was not written"
            )
        if is_write or str(self.last_query).startswith(_WRITE):
            return (
                f"sink {self.sink_id!r}: it belongs to {describe_query(self.last_query)}, and this is "
                f"{describe_query(query_id)}; a stream and batch writes need a sinkId of their own each"
            )
        return (
            f"sink {self.sink_id!r}: it belongs to query {last}, which has committed batch "
            f"{self.last_batch}; this is query {query_id} at batch {batch_id}. Its checkpoint was lost, is "
            "new, or belongs to another query. To continue, start with the checkpoint of the old query. A "
            "different query needs a sinkId of its own. If this query replaces the old one, and starts where "
            f"that has ended (startingOffsets), set the option replaceQuery={last}"
        )


def identity(options: SinkOptions, query_id: str | None, batch_id: int | None) -> tuple[str, int]:
    """What identifies a batch of a sink: query and number."""
    if batch_id is None:
        return f"{_WRITE}{options.write_id}", 0
    if query_id is None:
        raise SinkBatchError(
            f"Spark has not given its query id to the tasks: use guarantee={AT_LEAST_ONCE} with this version"
        )
    return query_id, batch_id


def shown_query(query_id: str | None) -> str:
    """The query id, or the writeId."""
    return (query_id or "").removeprefix(_WRITE)


def describe_query(query_id: str | None) -> str:
    kind = "batch write" if (query_id or "").startswith(_WRITE) else "query"
    return f"{kind} {shown_query(query_id)!r}"


def is_before(first: str, second: str) -> bool:
    """Whether a writeId is before another one: numbers by their value, other texts by their characters.

    >>> is_before("9", "10"), is_before("2026-11-18", "2026-11-17")
    (True, False)
    """
    if first.isdecimal() and second.isdecimal():
        return int(first) < int(second)
    return first < second


# -- planning --------------------------------------------------------------------------------------


def plan_batch(worker: WorkerProducer, options: SinkOptions) -> SinkPlan:
    """Begin the publish of the next batch, on the driver. ConfigError: the brokers do not support it;
    SinkBatchError: they cannot be reached, or a batch write is out of order."""
    assert options.sink_id is not None  # checked with the options
    producer, pauses_s = worker.producer, options.pauses_s()
    sink_id, topics = options.sink_id, [topic for topic in (options.topic, options.error_topic) if topic]
    while True:
        try:
            if lacking := worker.portal.call(lambda: producer.brokers_without_atomic(topics)):
                raise ConfigError(_unsupported(lacking))
            sink_name, handle, last = worker.portal.call(
                lambda: producer.begin_sink_batch(sink_id, options.stage_timeout_ms)
            )
            break
        except ConfigError:
            raise
        except KourouError as error:
            pause_s = next(pauses_s, None)
            if pause_s is None:
                raise SinkBatchError(f"sink {sink_id!r}: a batch cannot begin: {error}") from error
            time.sleep(pause_s)
    last_batch = -1 if last.kourou_batch_id is None else last.kourou_batch_id
    plan = SinkPlan(sink_id, sink_name, handle, last.kourou_query_id, last_batch, options.replace_query)
    if options.write_id is not None:
        plan.is_committed(*identity(options, None, None))
    return plan


def _unsupported(brokers: Sequence[str]) -> str:
    return (
        f"guarantee=exactly-once: needs brokers of Kourou that support atomic publishes, and "
        f"{', '.join(brokers)} {'does' if len(brokers) == 1 else 'do'} not; set guarantee={AT_LEAST_ONCE}"
    )
