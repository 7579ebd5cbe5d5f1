"""RowSender: the rows of one task on their way to brokers, many parcels at a time.

At least once: `send` returns when brokers have stored every row, or raises. What may go through later is
tried again, so often and with such pauses as the options say; after a lost answer a message is there twice,
under one message id. Parcels of a queue that rows chose go one after the other, so their order holds
whatever fails. Not here: what a parcel is (sink_batches.py), the connections (sink_producer.py).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa

from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.spark.sink.invalid_rows import error_message
from kourou.spark.sink.row_ids import RowIds
from kourou.spark.sink.sink_batches import Parcel, ParcelPlan, Refused, Scene, Single
from kourou.spark.sink.sink_columns import SinkColumns
from kourou.spark.sink.sink_errors import RowPlace, RowRefusedError, SinkRowError
from kourou.spark.sink.sink_options import SinkOptions
from kourou.spark.sink.sink_producer import SinkProducer, WorkerProducer

T = TypeVar("T")

_PARCEL_BYTES: Final = 8 * 1024
"""About what a parcel under way costs beside its rows: a task, a request, futures. Rows that travel alone may
be so small that this is all there is to count."""


@dataclass(slots=True)
class SinkCounts:
    """What became of the rows of a task."""

    rows: int = 0
    """Stored in the topics that they were for."""
    refused_rows: int = 0
    """Told of in the error topic instead."""
    sent_bytes: int = 0
    retries: int = 0

    def __str__(self) -> str:
        return (
            f"{self.rows} rows, {self.sent_bytes} bytes; {self.refused_rows} rows refused; "
            f"{self.retries} attempts failed"
        )

    def __add__(self, other: SinkCounts) -> SinkCounts:
        return SinkCounts(
            self.rows + other.rows,
            self.refused_rows + other.refused_rows,
            self.sent_bytes + other.sent_bytes,
            self.retries + other.retries,
        )


class RowSender:
    """Sends the rows of one task; used once, from the task's thread."""

    def __init__(
        self, options: SinkOptions, columns: SinkColumns, worker: WorkerProducer, partition: int
    ) -> None:
        self._options = options
        self._columns = columns
        self._partition = partition
        self._first_row = 0
        self._portal = worker.portal
        self._deliveries = _Deliveries(options, worker.producer)
        self._under_way: deque[tuple[concurrent.futures.Future[None], int]] = deque()
        self._under_way_bytes = 0
        self._plan = ParcelPlan(options, self._queues_of, RowIds())

    def send(self, batches: Iterator[pa.RecordBatch]) -> SinkCounts:
        """Send all rows. On return brokers have them; SinkRowError names one that they do not have."""
        try:
            for batch in batches:
                scene = Scene(self._columns.rows(batch), self._partition, self._first_row)
                for parcel in self._plan.parcels(scene):
                    self._begin(parcel)
                self._first_row += batch.num_rows
            while self._under_way:
                self._end_oldest()
        finally:
            # After a failure nothing more is tried; what is written already may be stored all the same.
            self._deliveries.is_over = True
        return self._deliveries.counts

    def _begin(self, parcel: Parcel | Single | Refused) -> None:
        size_bytes = _PARCEL_BYTES + parcel.size_bytes
        while self._under_way and self._under_way_bytes + size_bytes > self._options.max_in_flight_bytes:
            self._end_oldest()
        while self._under_way and self._under_way[0][0].done():
            self._end_oldest()
        future = self._portal.submit(lambda: self._deliveries.deliver(parcel))
        self._under_way.append((future, size_bytes))
        self._under_way_bytes += size_bytes

    def _end_oldest(self) -> None:
        future, size_bytes = self._under_way.popleft()
        self._under_way_bytes -= size_bytes
        future.result()

    def _queues_of(self, topic: str) -> Sequence[MessageQueue]:
        place = RowPlace(self._partition, self._first_row, topic)
        return self._portal.call(lambda: self._deliveries.queues(place, topic))


class _Deliveries:
    """Brings parcels to brokers, on the loop of the producer."""

    def __init__(self, options: SinkOptions, producer: SinkProducer) -> None:
        self._options = options
        self._producer = producer
        self._last: dict[MessageQueue, asyncio.Future[None]] = {}
        self.counts = SinkCounts()
        self.is_over = False

    async def queues(self, place: RowPlace, topic: str) -> list[MessageQueue]:
        """The queues of a topic, for the row at `place`."""
        try:
            return await self._tried(lambda: self._producer.queues(topic), lambda: place)
        except _AnsweredError as error:
            raise SinkRowError(place, str(error)) from error

    def deliver(self, parcel: Parcel | Single | Refused) -> asyncio.Future[None]:
        """Have a parcel stored; called in the order in which parcels for one queue are to be stored."""
        if isinstance(parcel, Refused):
            return asyncio.ensure_future(self._refuse(parcel.scene, parcel.row, parcel.error))
        if parcel.queue is None:
            return asyncio.ensure_future(self._send(parcel))
        previous = self._last.get(parcel.queue)
        task = asyncio.ensure_future(self._send_after(previous, parcel))
        self._last[parcel.queue] = task
        return task

    async def _send_after(self, previous: asyncio.Future[None] | None, parcel: Parcel | Single) -> None:
        if previous is not None:
            await asyncio.wait([previous])
            if previous.cancelled() or previous.exception() is not None:
                return  # who waits for that one hears of it, and this one would come before it
        await self._send(parcel)

    async def _send(self, parcel: Parcel | Single) -> None:
        try:
            await self._tried(lambda: self._sent(parcel), parcel.place)
        except _AnsweredError as error:
            await self._answered(parcel, error.response)
        else:
            self.counts.rows += parcel.count
            self.counts.sent_bytes += parcel.size_bytes

    async def _sent(self, parcel: Parcel | Single) -> None:
        if isinstance(parcel, Parcel):
            await self._producer.send_entries(parcel.topic, parcel.body(), parcel.count, parcel.queue)
        else:
            await self._producer.send(parcel.message, queue=parcel.queue)

    async def _answered(self, parcel: Parcel | Single, error: ResponseError) -> None:
        """A broker does not take the parcel, and will not later. If rows are at fault, find out which."""
        if error.code != ResponseCode.MESSAGE_ILLEGAL:
            raise SinkRowError(parcel.place(), str(error)) from error
        if isinstance(parcel, Parcel) and parcel.count > 1:
            for half in parcel.halves():
                await self._send(half)
            return
        row = parcel.row if isinstance(parcel, Single) else int(parcel.numbers[parcel.first])
        refusal = RowRefusedError(parcel.place(), f"the broker refuses it: {error}")
        await self._refuse(parcel.scene, row, refusal)

    async def _refuse(self, scene: Scene, row: int, refusal: RowRefusedError) -> None:
        topic = self._options.error_topic
        if topic is None:
            raise refusal
        limit = self._options.max_message_bytes
        message = error_message(topic, scene.rows, row, refusal, max_message_bytes=limit)
        try:
            await self._tried(lambda: self._producer.send(message), lambda: refusal.place)
        except _AnsweredError as error:
            reason = f"{refusal.reason}; and the error topic {topic!r} does not take it: {error.response}"
            raise SinkRowError(refusal.place, reason) from error
        self.counts.refused_rows += 1

    async def _tried(self, attempt: Callable[[], Awaitable[T]], place: Callable[[], RowPlace]) -> T:
        """Try until it works. SinkRowError when it does not, _AnsweredError when a broker says that it
        never will."""
        pauses_s = self._options.pauses_s()
        while True:
            try:
                return await attempt()
            except ResponseError as error:
                raise _AnsweredError(error) from error
            except KourouError as error:
                pause_s = next(pauses_s, None)
                if not error.retriable or pause_s is None or self.is_over:
                    raise SinkRowError(place(), self._story(error)) from error
            self.counts.retries += 1
            await asyncio.sleep(pause_s)

    def _story(self, error: KourouError) -> str:
        if not error.retriable:
            return str(error)
        times = self._options.retry_times
        return f"given up after {times + 1} attempts (retryTimes is {times}); the last: {error}"


class _AnsweredError(Exception):
    """A broker's answer that another attempt would get too."""

    def __init__(self, response: ResponseError) -> None:
        super().__init__(str(response))
        self.response = response
