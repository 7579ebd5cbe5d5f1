"""ScheduleService: delivers messages of the delay levels when they are due.

Each level is a queue of SCHEDULE_TOPIC_XXXX, in the order of store times and so of due times: its
first undelivered message tells when to look again. What is due is put to its real topic, many in
one commit cycle, and only then counted as delivered. The delivered record keeps all properties, DELAY and
REAL_… included, and names the record it was made from, so that after a kill nothing is delivered
twice (deliveries.py).
Not here: how a message gets into a level (delayed_messages.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kourou.broker.delay.deliveries import (
    DELIVERY_BYTES,
    DELIVERY_MESSAGES,
    DeliveredRecords,
    Deliveries,
    DeliveryWriter,
    target_of,
)
from kourou.broker.storage.record_reads import read_records_at
from kourou.errors import ProtocolError, StorageError
from kourou.protocol.layout import Buffer
from kourou.protocol.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    SCHEDULE_CONSUMER_GROUP,
)
from kourou.protocol.properties import properties_from_bytes
from kourou.protocol.record import decode_record
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT, CqUnit

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.delay.delay_offsets import DelayOffsetManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.log.log_watch import LogWatch
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

# A level that is empty now may have a message that is due after its delay: levels are seconds.
_IDLE_MS: Final = 100
# Under load a commit cycle carries what came due in this time: messages are late by it, and cost less.
_GATHER_MS: Final = 5
_AFTER_FAILURE_MS: Final = 100
_TURN_S: Final = 0.02
_FLUSH_LOOK_S: Final = 0.05
# So much more log makes the note worth writing anew although nothing was delivered.
_NOTE_EVERY_BYTES: Final = 64 * 1024 * 1024


class ScheduleService:
    """Delivers the levels of one broker. `delay_offsets` says how far it is."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        log: CommitLog,
        log_watch: LogWatch,
        appender: LogAppender,
        queues: ConsumeQueues,
        delay_levels: tuple[int, ...],
        delay_offsets: DelayOffsetManager,
        deliveries: DeliveryWriter,
        clock_watch: ClockWatch,
        records: RecordReader,
        disk: DiskThreads,
        stats: BrokerStatsManager,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._log = log
        self._log_watch = log_watch
        self._appender = appender
        self._consume_queues = queues
        self._delays = delay_levels
        self._offsets = delay_offsets
        self._deliveries = deliveries
        self._watch = clock_watch
        self._records = records
        self._disk = disk
        self._stats = stats
        self._now_ms = now_ms
        self._held: set[int] = set()
        self._from_ahead: dict[int, tuple[int, int]] = {}
        self._time_s = asyncio.get_running_loop().time

    # -- life ------------------------------------------------------------------------------------

    @property
    def is_pending(self) -> bool:
        """Whether a message waits in some level."""
        return any(queue.max_queue_offset > self._next(queue) for queue in self._queues())

    def recover(self, delivered: DeliveredRecords) -> None:
        """Count what was delivered and not noted. May wait for the disk."""
        for queue in self._queues():
            level, queue_offset = queue.queue_id + 1, self._next(queue)
            origin = delivered.last_of_level.get(level)
            if origin is not None:
                queue_offset = max(queue_offset, _behind(queue, origin))
            if queue_offset != self._offsets.table.get(level):
                self._offsets.advance(level, queue_offset)

    def start(self, tasks: TaskOwner) -> None:
        """Begin to deliver, and to record how far it is."""
        tasks.start(self._run(), "deliver-delay-levels")
        tasks.start(self._save(), "write-delay-offsets")

    def save_at_stop(self) -> None:
        """Note how far it is, here and now; the log is durable. Waits for the disk."""
        try:
            self._offsets.persist()
        except OSError as error:
            _log.error("%s cannot be written: %s", self._offsets.path, error.strerror or error)

    # -- delivering ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            wait_ms = _IDLE_MS
            self._watch.look()
            # A fenced store takes no deliveries, and what it lacks is not to be taken for gone.
            for queue in () if self._appender.is_fenced else self._queues():
                try:
                    wait_ms = min(wait_ms, await self._deliver_for_a_while(queue))
                except StorageError as error:
                    self._tell_held(queue.queue_id + 1, str(error))
                    wait_ms = min(wait_ms, _AFTER_FAILURE_MS)
            await asyncio.sleep(wait_ms / 1000)

    async def _deliver_for_a_while(self, queue: ConsumeQueue) -> int:
        """Deliver what is due; in how many ms to look again. What is due goes before what arrives: senders
        can wait. But they are not to be kept for long."""
        end_s = self._time_s() + _TURN_S
        while True:
            wait_ms = await self._deliver(queue)
            if wait_ms or self._time_s() > end_s:
                return wait_ms

    def _queues(self) -> list[ConsumeQueue]:
        """Of all levels that ever had a message, also of those that the broker no longer has."""
        queues = self._consume_queues
        found = (queues.find(RMQ_SYS_SCHEDULE_TOPIC, n) for n in queues.queue_ids(RMQ_SYS_SCHEDULE_TOPIC))
        return [queue for queue in found if queue is not None]

    def _next(self, queue: ConsumeQueue) -> int:
        """The first message that is not delivered."""
        queue_offset = self._offsets.table.get(queue.queue_id + 1, 0)
        return min(max(queue_offset, queue.min_queue_offset), queue.max_queue_offset)

    async def _deliver(self, queue: ConsumeQueue) -> int:
        """Deliver some of what is due; in how many ms to look again."""
        queue_offset = self._next(queue)
        if queue_offset == queue.max_queue_offset:
            return _IDLE_MS
        units = await self._read_units(queue, queue_offset)
        if not units:  # a file of the queue is missing
            per_file = queue.units_per_file
            behind = queue_offset - queue_offset % per_file + per_file
            self._offsets.advance(queue.queue_id + 1, min(behind, queue.max_queue_offset))
            return 0
        now_ms = self._delivery_ms()
        due = self._due(units, now_ms)
        has_more = len(due) == len(units)
        if not due:
            wait_ms = await self._due_ms(queue, queue_offset, units[0]) - now_ms
            if wait_ms > 0:
                return wait_ms
            due, has_more = units[:1], True
        records = await read_records_at(self._log, self._records, due)
        due_ms = min(due[-1].tags_code, self._now_ms())
        return self._put(queue, queue_offset, records, due_ms, has_more=has_more)

    def _delivery_ms(self) -> int:
        """Now, in steady time; at most the store timestamp that a delivery gets. A batch that is already open
        has an earlier one, by which a message would be delivered before its delay is over."""
        stamp_ms = self._appender.begin_cycle()
        return min(self._watch.steady_ms(), self._watch.steady_now_of(stamp_ms))

    def _due(self, units: Sequence[CqUnit], now_ms: int) -> Sequence[CqUnit]:
        """The first ones that are due, of a size that one commit cycle may carry."""
        steps, steady_of = self._watch.steps, self._watch.steady_of
        count = size_bytes = 0
        for unit in units:
            size_bytes += unit.size
            due_ms = steady_of(unit.tags_code, unit.phy_offset) if steps else unit.tags_code
            if due_ms > now_ms or (count and size_bytes > DELIVERY_BYTES):
                break
            count += 1
        return units[:count]

    async def _read_units(self, queue: ConsumeQueue, queue_offset: int) -> list[CqUnit]:
        raw = queue.read_units_nowait(queue_offset, DELIVERY_MESSAGES)
        if raw is None:
            raw = await self._disk.run(queue.read_units, queue_offset, DELIVERY_MESSAGES)
        return [CqUnit(*fields) for fields in UNIT.iter_unpack(raw)]

    async def _due_ms(self, queue: ConsumeQueue, queue_offset: int, unit: CqUnit) -> int:
        """When the first message of a level is due, in steady time. One that an earlier process stored, by
        a clock that was ahead of the present one, has waited for an unknown time: it waits for its delay
        once more from the start on, not until the clock reaches that time again."""
        due_ms = self._watch.steady_of(unit.tags_code, unit.phy_offset)
        delay_ms = self._delays[min(queue.queue_id, len(self._delays) - 1)]
        start_ms = self._watch.start_ms
        if unit.phy_offset >= self._watch.start_phy_offset or unit.tags_code <= start_ms + delay_ms:
            return due_ms
        known = self._from_ahead.get(queue.queue_id)
        if known is None or known[0] != queue_offset:
            stored_ms = await self._records.read(lambda reads: reads.store_time(unit.phy_offset))
            if stored_ms > start_ms:
                due_ms = min(due_ms, start_ms + unit.tags_code - stored_ms)
            known = self._from_ahead[queue.queue_id] = (queue_offset, due_ms)
        return known[1]

    def _put(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        records: Sequence[Buffer | None],
        due_ms: int,
        *,
        has_more: bool,
    ) -> int:
        level = queue.queue_id + 1
        deliveries = self._deliveries.begin(due_ms=due_ms)
        for index, raw in enumerate(records):
            if not self._put_one(deliveries, queue, queue_offset + index, raw):
                records = records[:index]
                break
        is_stored = deliveries.store()
        if is_stored and records:
            self._offsets.advance(level, queue_offset + len(records))
        if not is_stored or deliveries.refusal is not None:
            self._tell_held(level, str(deliveries))
            return _AFTER_FAILURE_MS
        self._tell_held(level, None)
        if self._config.current.enable_schedule_message_stats:
            self._stats.group_get(
                SCHEDULE_CONSUMER_GROUP, RMQ_SYS_SCHEDULE_TOPIC, deliveries.count, deliveries.size_bytes
            )
        return 0 if has_more else _GATHER_MS

    def _tell_held(self, level: int, reason: str | None) -> None:
        """Say that a level cannot go on, and that it can again: once, not at each attempt."""
        if reason is not None and level not in self._held:
            self._held.add(level)
            _log.error(
                "delay level %d cannot deliver at %d: %s", level, self._offsets.table.get(level, 0), reason
            )
        elif reason is None and level in self._held:
            self._held.discard(level)
            _log.info("delay level %d delivers again", level)

    def _put_one(
        self, deliveries: Deliveries, queue: ConsumeQueue, queue_offset: int, raw: Buffer | None
    ) -> bool:
        """Deliver a message, or pass over what is none; False when it has to wait."""
        if raw is None:
            _log.warning("%s: the record of queue_offset %d is gone, it is passed over", queue, queue_offset)
            return True
        try:
            record = decode_record(raw)
        except ProtocolError as error:
            _log.error("%s: queue_offset %d cannot be delivered: %s", queue, queue_offset, error)
            return True
        target = target_of(properties_from_bytes(record.raw_properties))
        if target is None:
            _log.error("%s: queue_offset %d has no destination: %s", queue, queue_offset, record.properties)
            return True
        return deliveries.put(record, target)

    # -- noting ----------------------------------------------------------------------------------

    async def _save(self) -> None:
        # At once: a broker that is killed before its first interval is over leaves a note too.
        self._offsets.is_dirty = True
        while True:
            noted = self._offsets.noted_phy_offset or 0
            is_due = self._offsets.is_dirty or self._log.max_phy_offset - noted > _NOTE_EVERY_BYTES
            if is_due and not self._log_watch.is_displaced:
                await self._save_now()
            await asyncio.sleep(self._config.current.flush_delay_offset_interval / 1000)

    async def _save_now(self) -> None:
        """Write the note once the deliveries that it counts are durable: else a power loss would lose
        them, and the note would say that they are done."""
        raw, self._offsets.is_dirty = self._offsets.dump(), False
        end = self._offsets.noted_phy_offset or 0
        while self._log.flushed_phy_offset < end:  # noqa: ASYNC110 (the flusher tells the cycle only)
            await asyncio.sleep(_FLUSH_LOOK_S)
        try:
            await self._disk.run(self._offsets.store, raw)
        except OSError as error:
            self._offsets.is_dirty = True
            _log.error("%s cannot be written: %s", self._offsets.path, error.strerror or error)


def _behind(queue: ConsumeQueue, phy_offset: int) -> int:
    """The queue_offset behind the message whose record lies at `phy_offset`; 0 if it is not in there."""
    found = queue.first_where(lambda unit: unit.phy_offset >= phy_offset)
    unit = queue.unit(found)
    return found + 1 if unit is not None and unit.phy_offset == phy_offset else 0
