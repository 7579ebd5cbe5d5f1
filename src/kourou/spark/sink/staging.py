"""StagedDeliveries: the rows of one task, staged at brokers as parts of an atomic publish.

Nothing is visible until the driver commits the publish; then exactly the parts that it names are published,
in the order of their numbers. Part numbers contain the id of the task attempt: parts of attempts that failed,
or were not needed, have numbers that no commit names.

A part has the rows of one broker, of one or several queues. Rows that select no queue go to the queues of
their topic in turn.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Final

from kourou.client.producer.atomic_publish import AtomicPublish
from kourou.errors import KourouError, ResponseError
from kourou.protocol.atomic import StagedGroup
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message
from kourou.spark.sink.invalid_rows import error_message
from kourou.spark.sink.sending import SentDeliveries, SinkBatch, SinkCounts
from kourou.spark.sink.sink_batches import RejectedRow, RowBatch
from kourou.spark.sink.sink_errors import RowLocation, SinkRowError
from kourou.spark.sink.sink_options import SinkOptions
from kourou.spark.sink.sink_producer import SinkProducer

_INDEX_BITS: Final = 22
# What a part has besides the entries: for each group, and for all of it.
_GROUP_BYTES: Final = 1_024
# The properties of a message, and what else is stored with it.
_ROOM_BYTES: Final = 40 * 1024


def staging_options(options: SinkOptions) -> SinkOptions:
    """The options for rows that are staged: a broker's maxMessageSize applies to a whole part."""
    limit = options.max_message_bytes
    if limit > 2 * _ROOM_BYTES:
        limit -= _ROOM_BYTES
    return replace(
        options, max_message_bytes=limit, batch_bytes=min(options.batch_bytes, limit - _GROUP_BYTES)
    )


@dataclass(slots=True)
class _OpenPart:
    """What is staged together at one broker."""

    number: int
    location: RowLocation
    staged: asyncio.Future[None]
    groups: list[StagedGroup] = field(default_factory=list)
    size_bytes: int = 0
    rows: int = 0


class StagedDeliveries:
    """Stages the batches of one task attempt; `attempt_id` is unique for the publish."""

    is_gathering: bool = True

    def __init__(
        self, options: SinkOptions, producer: SinkProducer, publish: AtomicPublish, attempt_id: int
    ) -> None:
        """`options` are those of `staging_options`."""
        self._options = options
        self._producer = producer
        self._publish = publish
        self._first_number = attempt_id << _INDEX_BITS
        self._next_index = 0
        self._part_bytes = min(options.batch_bytes, options.max_message_bytes)
        self._lookup = SentDeliveries(options, producer)
        self._queues: dict[str, list[MessageQueue]] = {}
        self._turns: dict[str, int] = {}
        self._open: dict[str, _OpenPart] = {}
        # Batches of a queue are added in the order in which they are delivered.
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = SinkCounts()
        self.is_over = False
        self.parts: dict[str, list[int]] = {}
        """The numbers of the parts at each broker; all of them are staged when all batches are delivered."""
        self.brokers: set[str] = set()
        """The brokers that this task, or another attempt, may have staged parts at."""

    async def queues(self, location: RowLocation, topic: str) -> list[MessageQueue]:
        """The queues of a topic, for the row at `location`."""
        found = self._queues.get(topic)
        if found is None:
            found = self._queues[topic] = await self._lookup.queues(location, topic)
            self.brokers.update(queue.broker_name for queue in found)
        return found

    def deliver(self, sink_batch: SinkBatch) -> asyncio.Future[None]:
        """Stage a batch, with others or alone."""
        return asyncio.ensure_future(self._deliver(sink_batch))

    def flush(self) -> None:
        """Stage what has been delivered so far."""
        self._start(self._flush())

    async def _flush(self) -> None:
        async with self._turn:
            for broker_name in list(self._open):
                self._stage_open(broker_name)

    async def _deliver(self, sink_batch: SinkBatch) -> None:
        async with self._turn:
            if isinstance(sink_batch, RejectedRow):
                part = await self._add_rejected(sink_batch)
            elif isinstance(sink_batch, RowBatch):
                queue = sink_batch.queue or await self._next_queue(sink_batch.location(), sink_batch.topic)
                group = self._producer.staged_entries(sink_batch.topic, queue.queue_id, sink_batch.body())
                part = self._add(queue, group, sink_batch.location(), sink_batch.count)
            else:
                location = sink_batch.location()
                queue = sink_batch.queue or await self._next_queue(location, sink_batch.topic)
                part = await self._add_message(queue, sink_batch.message, location)
        await asyncio.shield(part.staged)
        if isinstance(sink_batch, RejectedRow):
            self.counts.refused_rows += 1
        else:
            self.counts.rows += sink_batch.count
            self.counts.sent_bytes += sink_batch.size_bytes

    # -- parts -------------------------------------------------------------------------------------

    async def _add_rejected(self, rejected: RejectedRow) -> _OpenPart:
        topic, refusal = self._options.error_topic, rejected.error
        if topic is None:
            raise refusal
        limit = self._options.max_message_bytes
        message = error_message(topic, rejected.origin.rows, rejected.row, refusal, max_message_bytes=limit)
        queue = await self._next_queue(refusal.location, topic)
        return await self._add_message(queue, message, refusal.location)

    async def _add_message(self, queue: MessageQueue, message: Message, location: RowLocation) -> _OpenPart:
        group = await self._producer.staged_message(message, queue.queue_id)
        return self._add(queue, group, location, 1)

    def _add(self, queue: MessageQueue, group: StagedGroup, location: RowLocation, rows: int) -> _OpenPart:
        broker_name, size_bytes = queue.broker_name, len(group.entries) + _GROUP_BYTES
        part = self._open.get(broker_name)
        if part is not None and part.size_bytes + size_bytes > self._part_bytes:
            self._stage_open(broker_name)
            part = None
        if part is None:
            number = self._first_number + self._next_index
            self._next_index += 1
            part = _OpenPart(number, location, asyncio.get_running_loop().create_future())
            self._open[broker_name] = part
        part.groups.append(group)
        part.size_bytes += size_bytes
        part.rows += rows
        if part.size_bytes >= self._part_bytes // 2:
            self._stage_open(broker_name)
        return part

    async def _next_queue(self, location: RowLocation, topic: str) -> MessageQueue:
        queues = await self.queues(location, topic)
        if not queues:
            raise SinkRowError(location, "the topic has no writable queue")
        turn = self._turns.get(topic)
        if turn is None:
            turn = random.randrange(len(queues))
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]

    def _stage_open(self, broker_name: str) -> None:
        part = self._open.pop(broker_name)
        self.parts.setdefault(broker_name, []).append(part.number)
        self._start(self._stage(broker_name, part))

    async def _stage(self, broker_name: str, part: _OpenPart) -> None:
        seconds = sum(self._options.pauses_s()) + self._options.send_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                await self._publish.stage(broker_name, part.number, part.groups)
        except TimeoutError:
            reason = (
                f"broker {broker_name!r} did not answer for {seconds:.0f} s (retryTimes="
                f"{self._options.retry_times}); nothing of this batch is visible"
            )
            part.staged.set_exception(SinkRowError(part.location, reason))
        except ResponseError as error:
            rows = f", or one of the {part.rows} rows from there on" if part.rows > 1 else ""
            reason = f"this row{rows} is rejected by the broker: {error}"
            part.staged.set_exception(SinkRowError(part.location, reason))
        except KourouError as error:
            part.staged.set_exception(SinkRowError(part.location, str(error)))
        else:
            part.staged.set_result(None)
        # What is not waited for any more is not reported as lost.
        part.staged.exception()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
