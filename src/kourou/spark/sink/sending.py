"""RowSender: sends the rows of one task to brokers, many batches at a time.

What sending means is up to its Deliveries. SentDeliveries: messages are visible at once, at least once each:
`send` returns when brokers have stored every row, or raises. Transient failures are retried,
with the number and pauses of the options; after a lost response a message is stored twice, with one message
id. Batches for a queue that rows selected are sent one after the other, so their order holds whatever fails.
Not here: how rows are batched (sink_batches.py), the connections (sink_producer.py), rows that become visible
with a commit (staging.py).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.spark.sink.invalid_rows import error_message
from kourou.spark.sink.row_ids import RowIds
from kourou.spark.sink.sink_batches import BatchOrigin, BatchPlan, RejectedRow, RowBatch, SingleRow
from kourou.spark.sink.sink_columns import SinkColumns
from kourou.spark.sink.sink_errors import RowLocation, RowRefusedError, SinkRowError
from kourou.spark.sink.sink_options import SinkOptions
from kourou.spark.sink.sink_producer import SinkProducer, WorkerProducer

T = TypeVar("T")
SinkBatch: TypeAlias = RowBatch | SingleRow | RejectedRow

_OVERHEAD_BYTES: Final = 8 * 1024
"""The approximate overhead of a batch in flight: a task, a request, futures. Rows that are sent alone may be
so small that the overhead dominates."""

_FAIR_BYTES: Final = 128 * 1024
"""Below this size the cost of a request shows."""


@dataclass(slots=True)
class SinkCounts:
    """Counts for the rows of a task."""

    rows: int = 0
    """Stored in their topics."""
    refused_rows: int = 0
    """Reported to the error topic instead."""
    sent_bytes: int = 0
    retries: int = 0

    def __str__(self) -> str:
        return (
            f"{self.rows} rows, {self.sent_bytes} bytes; {self.refused_rows} rows rejected; "
            f"{self.retries} failed attempts"
        )

    def __add__(self, other: SinkCounts) -> SinkCounts:
        return SinkCounts(
            self.rows + other.rows,
            self.refused_rows + other.refused_rows,
            self.sent_bytes + other.sent_bytes,
            self.retries + other.retries,
        )


class Deliveries(Protocol):
    """How the batches of one task reach the brokers. All of it runs on the producer's loop."""

    counts: SinkCounts
    is_over: bool
    """The task has failed: nothing is retried any more."""
    is_gathering: bool
    """Whether batches may wait until `flush`."""

    async def queues(self, location: RowLocation, topic: str) -> list[MessageQueue]:
        """The queues of a topic, for the row at `location`."""

    def deliver(self, sink_batch: SinkBatch) -> asyncio.Future[None]:
        """Deliver a batch; called in the order in which the batches of one queue are to be stored."""

    def flush(self) -> None:
        """Let no batch wait for others."""


class RowSender:
    """Sends the rows of one task; used once, from the task's thread."""

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        worker: WorkerProducer,
        partition: int,
        deliveries: Deliveries | None = None,
        more: bytes = b"",
    ) -> None:
        """`more` are properties of every row that is sent in a batch."""
        self._options = options
        self._columns = columns
        self._partition = partition
        self._first_row = 0
        self._portal = worker.portal
        self._deliveries = deliveries or SentDeliveries(options, worker.producer)
        self._in_flight: deque[tuple[concurrent.futures.Future[None], int]] = deque()
        self._in_flight_bytes = 0
        self._plan = BatchPlan(options, self._queues_of, RowIds(), more)

    def send(self, batches: Iterator[pa.RecordBatch], *, is_paced: bool = False) -> SinkCounts:
        """Send all rows. On return brokers have stored them; SinkRowError names a row that is not stored.
        `is_paced`: each batch is sent when it comes."""
        try:
            for batch in batches if is_paced else merged(batches, self._enough_bytes):
                origin = BatchOrigin(self._columns.rows(batch), self._partition, self._first_row)
                for sink_batch in self._plan.sink_batches(origin):
                    self._submit(sink_batch)
                self._first_row += batch.num_rows
            self._flush()
            while self._in_flight:
                self._wait_oldest()
        finally:
            # After a failure nothing is retried; requests already written may still be stored.
            self._deliveries.is_over = True
        return self._deliveries.counts

    def _enough_bytes(self) -> int:
        """How many rows are split among queues at once: enough for requests of a fair size to each."""
        wanted = max(self._options.batch_bytes, _FAIR_BYTES * self._plan.queue_count)
        return min(wanted, self._options.max_in_flight_bytes // 2)

    def _flush(self) -> None:
        if self._deliveries.is_gathering:
            self._portal.do(self._deliveries.flush)

    def _submit(self, sink_batch: SinkBatch) -> None:
        size_bytes = _OVERHEAD_BYTES + sink_batch.size_bytes
        if self._in_flight and self._in_flight_bytes + size_bytes > self._options.max_in_flight_bytes:
            self._flush()
        while self._in_flight and self._in_flight_bytes + size_bytes > self._options.max_in_flight_bytes:
            self._wait_oldest()
        while self._in_flight and self._in_flight[0][0].done():
            self._wait_oldest()
        future = self._portal.submit(lambda: self._deliveries.deliver(sink_batch))
        self._in_flight.append((future, size_bytes))
        self._in_flight_bytes += size_bytes

    def _wait_oldest(self) -> None:
        future, size_bytes = self._in_flight.popleft()
        self._in_flight_bytes -= size_bytes
        future.result()

    def _queues_of(self, topic: str) -> Sequence[MessageQueue]:
        location = RowLocation(self._partition, self._first_row, topic)
        return self._portal.call(lambda: self._deliveries.queues(location, topic))


class SentDeliveries:
    """Sends batches to brokers, on the producer's loop."""

    is_gathering: bool = False

    def __init__(self, options: SinkOptions, producer: SinkProducer) -> None:
        self._options = options
        self._producer = producer
        self._last: dict[MessageQueue, asyncio.Future[None]] = {}
        self.counts = SinkCounts()
        self.is_over = False

    async def queues(self, location: RowLocation, topic: str) -> list[MessageQueue]:
        """The queues of a topic, for the row at `location`."""
        try:
            return await self._with_retries(lambda: self._producer.queues(topic), lambda: location)
        except _RejectedError as error:
            raise SinkRowError(location, str(error)) from error

    def flush(self) -> None:
        """Nothing waits."""

    def deliver(self, sink_batch: SinkBatch) -> asyncio.Future[None]:
        """Store a batch; to be called in the order in which the batches of one queue are to be stored."""
        if isinstance(sink_batch, RejectedRow):
            return asyncio.ensure_future(
                self._report_rejected(sink_batch.origin, sink_batch.row, sink_batch.error)
            )
        if sink_batch.queue is None:
            return asyncio.ensure_future(self._send(sink_batch))
        previous = self._last.get(sink_batch.queue)
        task = asyncio.ensure_future(self._send_after(previous, sink_batch))
        self._last[sink_batch.queue] = task
        return task

    async def _send_after(
        self, previous: asyncio.Future[None] | None, sink_batch: RowBatch | SingleRow
    ) -> None:
        if previous is not None:
            await asyncio.wait([previous])
            if previous.cancelled() or previous.exception() is not None:
                return  # the earlier failure is reported, and this batch must not overtake it
        await self._send(sink_batch)

    async def _send(self, sink_batch: RowBatch | SingleRow) -> None:
        try:
            await self._with_retries(lambda: self._send_once(sink_batch), sink_batch.location)
        except _RejectedError as error:
            await self._handle_rejection(sink_batch, error.response)
        else:
            self.counts.rows += sink_batch.count
            self.counts.sent_bytes += sink_batch.size_bytes

    async def _send_once(self, sink_batch: RowBatch | SingleRow) -> None:
        if isinstance(sink_batch, RowBatch):
            await self._producer.send_entries(
                sink_batch.topic, sink_batch.body(), sink_batch.count, sink_batch.queue
            )
        else:
            await self._producer.send(sink_batch.message, queue=sink_batch.queue)

    async def _handle_rejection(self, sink_batch: RowBatch | SingleRow, error: ResponseError) -> None:
        """A broker rejected the batch for good. If rows are invalid, find out which by halving."""
        if error.code != ResponseCode.MESSAGE_ILLEGAL:
            raise SinkRowError(sink_batch.location(), str(error)) from error
        if isinstance(sink_batch, RowBatch) and sink_batch.count > 1:
            for half in sink_batch.halves():
                await self._send(half)
            return
        row = (
            sink_batch.row if isinstance(sink_batch, SingleRow) else int(sink_batch.numbers[sink_batch.first])
        )
        refusal = RowRefusedError(sink_batch.location(), f"rejected by the broker: {error}")
        await self._report_rejected(sink_batch.origin, row, refusal)

    async def _report_rejected(self, origin: BatchOrigin, row: int, refusal: RowRefusedError) -> None:
        topic = self._options.error_topic
        if topic is None:
            raise refusal
        limit = self._options.max_message_bytes
        message = error_message(topic, origin.rows, row, refusal, max_message_bytes=limit)
        try:
            await self._with_retries(lambda: self._producer.send(message), lambda: refusal.location)
        except _RejectedError as error:
            reason = f"{refusal.reason}; and the error topic {topic!r} rejected it: {error.response}"
            raise SinkRowError(refusal.location, reason) from error
        self.counts.refused_rows += 1

    async def _with_retries(
        self, attempt: Callable[[], Awaitable[T]], location: Callable[[], RowLocation]
    ) -> T:
        """Retry transient failures. SinkRowError when retries are exhausted, _RejectedError when a broker
        rejects the request for good."""
        pauses_s = self._options.pauses_s()
        while True:
            try:
                return await attempt()
            except ResponseError as error:
                raise _RejectedError(error) from error
            except KourouError as error:
                pause_s = next(pauses_s, None)
                if not error.retriable or pause_s is None or self.is_over:
                    raise SinkRowError(location(), self._describe_failure(error)) from error
            self.counts.retries += 1
            await asyncio.sleep(pause_s)

    def _describe_failure(self, error: KourouError) -> str:
        if not error.retriable:
            return str(error)
        times = self._options.retry_times
        return f"gave up after {times + 1} attempts (retryTimes={times}); last error: {error}"


def merged(batches: Iterable[pa.RecordBatch], enough_bytes: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of `enough_bytes` or more, except for the last one and those before a larger
    one. Spark's Arrow batches may be small, and their rows are split among the queues that they select."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        size_bytes = batch.nbytes
        if waiting and max(size_bytes, waiting_bytes) >= enough_bytes():
            yield pa.concat_batches(waiting)
            waiting, waiting_bytes = [], 0
        if size_bytes >= enough_bytes():
            yield batch
        else:
            waiting.append(batch)
            waiting_bytes += size_bytes
    if waiting:
        yield pa.concat_batches(waiting)


class _RejectedError(Exception):
    """An error response that a retry would not change."""

    def __init__(self, response: ResponseError) -> None:
        super().__init__(str(response))
        self.response = response
