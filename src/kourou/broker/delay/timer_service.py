"""TimerService: enters timer messages into the wheel, and delivers those whose time has come.

One task: it reads what was stored in rmq_sys_wheel_timer, takes out the slots that are over, and
puts their messages to their real topics, with when they were entered and taken out in their
properties. A message that waits longer than the wheel reaches is put to the timer topic again.
Not here: the wheel (timer_messages.py), which messages get here (delayed_messages.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, compress
from typing import TYPE_CHECKING, Final, Protocol

from kourou.broker.delay.delayed_messages import slot_time
from kourou.broker.delay.deliveries import (
    DELIVERY_BYTES,
    DELIVERY_MESSAGES,
    DeliveredRecords,
    Deliveries,
    DeliveryWriter,
    find_delivered,
    target_of,
)
from kourou.broker.delay.timer_messages import TimerEntry, TimerMessages
from kourou.broker.storage.record_reads import read_records_at
from kourou.errors import ProtocolError, StorageError
from kourou.protocol.layout import Buffer
from kourou.protocol.message import MessageExt
from kourou.protocol.names import TIMER_TOPIC
from kourou.protocol.properties import (
    MessageConst,
    PropertyScanner,
    get_property,
    properties_from_bytes,
    properties_to_bytes,
    set_property,
)
from kourou.protocol.record import decode_record
from kourou.store.log.put_status import PutStatus
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT, CqUnit
from kourou.store.steps import run_steps
from kourou.store.timer.timer_log import TimerUnit
from kourou.store.timer.timer_recovery import TimerDamageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.log.log_watch import LogWatch
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.message_lookup import MessageLookup
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_LOOK_MS: Final = 100
_AFTER_FAILURE_S: Final = 0.1
_DELETE_EXPIRED_S: Final = 30.0
_REJOIN_S: Final = 5.0
_NOTE_EVERY_BYTES: Final = 64 * 1024 * 1024
_UNITS: Final = 4_096

_REAL_TOPIC: Final = MessageConst.PROPERTY_REAL_TOPIC
_DEL_UNIQKEY: Final = MessageConst.PROPERTY_TIMER_DEL_UNIQKEY
_ROLL_TIMES: Final = MessageConst.PROPERTY_TIMER_ROLL_TIMES

_scan_delay: Final = PropertyScanner(
    MessageConst.PROPERTY_TIMER_DELAY_SEC, MessageConst.PROPERTY_TIMER_DELAY_MS
).values
_scan_entry: Final = PropertyScanner(MessageConst.PROPERTY_TIMER_OUT_MS, _REAL_TOPIC, _DEL_UNIQKEY).values


class SettledRecords(Protocol):
    """Knows timer messages that need not be delivered any more."""

    def is_settled(self, phy_offset: int) -> bool:
        """Whether the record there is one."""
        ...

    def is_needless(self, phy_offset: int) -> bool:
        """Whether it need not even be entered: nothing on the wheel needs it, which a restart would find
        there without it."""
        ...

    def entering(self, phy_offset: int) -> None:
        """Records up to there are entered from now on, or were passed over."""
        ...

    def delivering(self, phy_offset: int, topic: str, tags: str | None) -> None:
        """The record there is delivered to this topic."""
        ...

    def forget_settled(self, phy_offsets: Iterable[int]) -> None:
        """They will not be asked for again."""
        ...


class TimerService:
    """Works the wheel of one broker."""

    def __init__(
        self,
        *,
        timers: TimerMessages,
        config: LiveConfig,
        log: CommitLog,
        log_watch: LogWatch,
        appender: LogAppender,
        queues: ConsumeQueues,
        lookup: MessageLookup,
        topics: TopicConfigManager,
        deliveries: DeliveryWriter,
        clock_watch: ClockWatch,
        records: RecordReader,
        disk: DiskThreads,
        store_work: asyncio.Lock,
        now_ms: Callable[[], int],
    ) -> None:
        self._timers = timers
        self._config = config
        self._log = log
        self._log_watch = log_watch
        self._appender = appender
        self._queues = queues
        self._lookup = lookup
        self._topics = topics
        self._deliveries = deliveries
        self._watch = clock_watch
        self._records = records
        self._disk = disk
        self._store_work = store_work
        self._now_ms = now_ms
        self._delivered = DeliveredRecords()
        self._entered_ms = 0
        self._is_held = False
        # What need not be delivered; None: everything must be.
        self.settled: SettledRecords | None = None
        self._dropped: list[int] = []
        self._flushed_s = 0.0
        self._expired_s = 0.0
        self._looked_s = 0.0

    # -- life ------------------------------------------------------------------------------------

    @property
    def is_pending(self) -> bool:
        """Whether the topic ever had a message that may still wait."""
        return self._queue() is not None

    def first_phy_offset(self) -> int:
        """Where the first message of the topic lies; the log's end when there is none. May wait for the
        disk."""
        queue = self._queue()
        unit = None if queue is None else queue.unit(queue.min_queue_offset)
        return self._log.max_phy_offset if unit is None else unit.phy_offset

    def recover(self, delivered: DeliveredRecords, begin_phy_offset: int) -> None:
        """Go on behind what was entered, and without what was delivered, which was found in the log from
        `begin_phy_offset` on. Waits for the disk."""
        if delivered:
            self._delivered, self._timers.recovered_note = delivered, begin_phy_offset
        queue, last_phy_offset = self._queue(), self._timers.last_entered_phy_offset
        record = None if last_phy_offset is None else self._lookup.look_message(last_phy_offset)
        if record is not None and record.topic == TIMER_TOPIC:
            self._timers.queue_offset = record.queue_offset + 1
        low, high = (0, 0) if queue is None else (queue.min_queue_offset, queue.max_queue_offset)
        self._timers.queue_offset = min(max(self._timers.queue_offset, low), high)

    def load(self) -> None:
        """Take over what the files say. Waits for the disk."""
        self._timers.load(self._now_ms(), self._topics.table, has_messages=self.is_pending)

    @property
    def taken_out_ms(self) -> int:
        """At the start: what was due earlier is taken out. 0: anything may wait, the files were rebuilt."""
        return 0 if self._timers.is_rebuilt else self._timers.read_ms

    def waiting_for(self, topic: str) -> Iterator[MessageExt]:
        """The timer messages for `topic` that are not delivered yet, in the order in which they were stored.
        To be called at the start, behind `recover`. Waits for the disk."""
        places = self._timers.waiting_for(topic)
        for phy_offset, size in chain(places, self._not_entered()):
            record = _decode(self._log.read(phy_offset, size))
            if record is None or (self._delivered and self._delivered.is_done(record)):
                continue
            if get_property(properties_from_bytes(record.raw_properties), _REAL_TOPIC) == topic:
                yield record

    def _not_entered(self) -> Iterator[tuple[int, int]]:
        queue, queue_offset = self._queue(), self._timers.queue_offset
        while queue is not None and queue_offset < queue.max_queue_offset:
            units = [CqUnit(*fields) for fields in UNIT.iter_unpack(queue.read_units(queue_offset, _UNITS))]
            yield from ((unit.phy_offset, unit.size) for unit in units if unit.is_message)
            queue_offset += len(units)
            if not units:  # a file of the queue is missing: as `_enter_new`
                queue_offset += queue.units_per_file - queue_offset % queue.units_per_file

    def start(self, tasks: TaskOwner) -> None:
        tasks.start(self._run(), "timers")

    def save_at_stop(self) -> None:
        """Write all files, here and now; the log is durable. Waits for the disk."""
        try:
            self._timers.drop_candidate()
            run_steps(self._timers.flush_steps(self._now_ms()))
            metrics = self._timers.metrics
            if metrics.is_dirty:
                metrics.store(metrics.snapshot(self._topics.table))
        except OSError as error:
            _log.error("the timer messages' files cannot be written: %s", error)

    def close(self) -> None:
        """Let go of the files."""
        self._timers.close()

    async def _run(self) -> None:
        await self._flush()  # a broker that is killed soon leaves a note too
        while True:
            try:
                # A fenced store takes no deliveries, and what it lacks is not to be taken for gone.
                if not self._appender.is_fenced:
                    await self._turn()
            except StorageError as error:
                _log.error("timer messages wait: %s", error)
                await asyncio.sleep(_AFTER_FAILURE_S)
            wait_ms = min(_LOOK_MS, self._timers.wait_ms(self._wheel_ms()))
            await asyncio.sleep(max(1, wait_ms) / 1000)

    async def _turn(self) -> None:
        config = self._config.current
        self._watch.look()
        if not config.timer_stop_enqueue and self._timers.has_room(self._wheel_ms()):
            await self._enter_new()
            self._forget_delivered()
        if not config.timer_stop_dequeue:
            await self._take_out()
        await self._flush_when_due()
        await self._rejoin_clock()

    def _wheel_ms(self) -> int:
        """The time that slots go by."""
        return self._watch.steady_ms() + self._timers.ahead_ms

    async def _rejoin_clock(self) -> None:
        """After a step of the clock the wheel goes by a time of its own, until nothing waits any more."""
        timers, queue, now_s = self._timers, self._queue(), asyncio.get_running_loop().time()
        if timers.ahead_ms == self._watch.stepped_ms or now_s - self._looked_s < _REJOIN_S:
            return
        self._looked_s = now_s
        is_entered = queue is None or timers.queue_offset == queue.max_queue_offset
        if is_entered and await self._disk.run(timers.is_empty):
            timers.ahead_ms, self._entered_ms = self._watch.stepped_ms, 0
            self._delivered, timers.recovered_note = DeliveredRecords(), None
            await self._disk.run(timers.restart_at, self._wheel_ms())
            _log.info("no timer message waits: the timer wheel goes by the clock again")

    async def _rebuild(self, damage: TimerDamageError) -> None:
        """Begin anew, with all messages of the topic that are not delivered."""
        timers = self._timers
        async with self._store_work:
            begin = self.first_phy_offset()
            timers.ahead_ms = self._watch.stepped_ms
            await self._disk.run(timers.rebuild, self._wheel_ms(), damage)
            timers.metrics.load({}, self._topics.table, self._now_ms())
            delivered = await self._disk.run(find_delivered, self._log, begin)
        self._entered_ms = 0
        self.recover(delivered, begin)

    def _forget_delivered(self) -> None:
        """Once everything is entered that a killed broker may have delivered, and the slots are over
        that it waits in."""
        if self._delivered:
            self._entered_ms = self._entered_ms or self._wheel_ms()
            if self._timers.read_ms > self._entered_ms:
                self._delivered, self._timers.recovered_note = DeliveredRecords(), None

    def _queue(self) -> ConsumeQueue | None:
        return self._queues.find(TIMER_TOPIC, 0)

    # -- entering --------------------------------------------------------------------------------

    async def _enter_new(self) -> None:
        """Enter all that was stored since."""
        timers, queue = self._timers, self._queue()
        while queue is not None and timers.queue_offset < queue.max_queue_offset:
            timers.queue_offset = max(timers.queue_offset, queue.min_queue_offset)
            units = await self._read_units(queue)
            if not units:  # a file of the queue is missing
                behind = timers.queue_offset - timers.queue_offset % queue.units_per_file
                timers.queue_offset = min(behind + queue.units_per_file, queue.max_queue_offset)
                continue
            self._dropped.clear()
            wanted = self._needed(units)
            records = await read_records_at(self._log, self._records, wanted)
            now_ms = self._wheel_ms()
            for unit, raw in zip(wanted, records, strict=True):
                self._enter(unit, _decode(raw), now_ms)
            timers.queue_offset += len(units)
            self._forget_dropped()
            await asyncio.sleep(0)

    def _enter(self, unit: CqUnit, record: MessageExt | None, now_ms: int) -> None:
        """Have a message wait, unless it is delivered."""
        if record is None:
            _log.error("the timer message at %d cannot be read, it is not delivered", unit.phy_offset)
            return
        if self._delivered and self._delivered.is_done(record):
            return
        entry = _entry(unit, record)
        if entry is None:
            return
        out_ms = self._out_ms(entry, record, now_ms)
        self._timers.enter(entry if out_ms == entry.out_ms else replace(entry, out_ms=out_ms), now_ms)
        if entry.is_delete:
            for other_ms in self._other_slots(entry.out_ms) - {out_ms}:
                if other_ms >= self._timers.read_ms:
                    self._timers.enter(replace(entry, out_ms=other_ms), now_ms)

    def _out_ms(self, entry: TimerEntry, record: MessageExt, now_ms: int) -> int:
        """The slot that a message waits for, in the wheel's time. One that an earlier process stored, by a
        clock that may have been ahead, waits no longer than its delay."""
        out_ms = self._slot_ms(self._watch.steady_of(entry.out_ms, entry.phy_offset))
        if entry.phy_offset >= self._watch.start_phy_offset or out_ms <= now_ms:
            return out_ms
        sec, ms = _scan_delay(properties_from_bytes(record.raw_properties))
        delay_ms = int(sec) * 1000 if sec and sec.isdecimal() else int(ms) if ms and ms.isdecimal() else None
        latest_ms = out_ms if delay_ms is None else slot_time(now_ms + delay_ms, self._timers.precision_ms)
        return min(out_ms, latest_ms)

    def _slot_ms(self, steady_ms: int) -> int:
        """The wheel's slot of a slot in steady time: rather the next one than the one before."""
        precision_ms = self._timers.precision_ms
        return -(-(steady_ms + self._timers.ahead_ms) // precision_ms) * precision_ms

    def _other_slots(self, out_ms: int) -> set[int]:
        """Where a message may wait that is to be left out: it may have been entered before the clock was
        stepped."""
        steps = accumulate((step.ms for step in self._watch.steps), initial=0)
        return {out_ms, *(self._slot_ms(out_ms - stepped_ms) for stepped_ms in steps)}

    def _needed(self, units: list[CqUnit]) -> list[CqUnit]:
        """Those that have to be entered."""
        settled = self.settled
        if settled is None:
            return units
        is_needless = [settled.is_needless(unit.phy_offset) for unit in units]
        settled.entering(units[-1].phy_offset)
        self._dropped += (unit.phy_offset for unit in compress(units, is_needless))
        return [unit for unit, is_left_out in zip(units, is_needless, strict=True) if not is_left_out]

    def _drop(self, phy_offset: int) -> bool:
        """Whether a record is left out, since it is settled."""
        is_settled = self.settled is not None and self.settled.is_settled(phy_offset)
        if is_settled:
            self._dropped.append(phy_offset)
        return is_settled

    def _forget_dropped(self) -> None:
        """They are passed for good: their marks are not needed any more."""
        if self.settled is not None and self._dropped:
            self.settled.forget_settled(self._dropped)
            self._dropped.clear()

    async def _read_units(self, queue: ConsumeQueue) -> list[CqUnit]:
        queue_offset = self._timers.queue_offset
        raw = queue.read_units_nowait(queue_offset, DELIVERY_MESSAGES)
        if raw is None:
            raw = await self._disk.run(queue.read_units, queue_offset, DELIVERY_MESSAGES)
        return [CqUnit(*fields) for fields in UNIT.iter_unpack(raw)]

    # -- taking out ------------------------------------------------------------------------------

    async def _take_out(self) -> None:
        """Deliver the messages of all slots that are over."""
        timers = self._timers
        while (slot := timers.next_over(self._wheel_ms())) is not None:
            timers.begin_slot()
            try:
                units = await self._disk.run(timers.units_of, slot)
            except TimerDamageError as damage:
                await self._rebuild(damage)
                return
            recalled = await self._recalled(units)
            self._dropped.clear()
            wanted = [unit for unit in units if unit.is_roll or not unit.is_delete]
            wanted = [unit for unit in wanted if not self._drop(unit.phy_offset)]
            while wanted:
                count = _pass_size(wanted)
                left = await self._deliver(wanted[:count], recalled)
                wanted = left + wanted[count:]
                await asyncio.sleep(_AFTER_FAILURE_S if left else 0)
            timers.slot_done(units, self._now_ms())
            self._forget_dropped()

    async def _recalled(self, units: Sequence[TimerUnit]) -> set[str]:
        """Which messages of a slot are to be left out."""
        deletes = [_place(unit) for unit in units if unit.is_delete and not unit.is_roll]
        keys = set()
        for raw in await read_records_at(self._log, self._records, deletes):
            record = _decode(raw)
            key = None if record is None else record.get_property(_DEL_UNIQKEY)
            if key:
                keys.add(key)
        return keys

    async def _deliver(self, units: list[TimerUnit], recalled: set[str]) -> list[TimerUnit]:
        """Put messages; those that have to be tried again."""
        records = await read_records_at(self._log, self._records, [_place(unit) for unit in units])
        due_ms = self._wall_ms(self._timers.read_ms + self._timers.precision_ms)
        deliveries = self._deliveries.begin(due_ms=due_ms)
        count = 0
        for unit, raw in zip(units, records, strict=True):
            record = _decode(raw)
            is_done = record is None or (bool(self._delivered) and self._delivered.is_done(record))
            is_done = is_done or self._drop(unit.phy_offset)  # settled while it was read
            if record is None:
                _log.error("the timer message at %d cannot be read, it is not delivered", unit.phy_offset)
            if not is_done and record is not None and not self._put(deliveries, unit, record, recalled):
                break
            count += 1
        is_stored = deliveries.store()
        left = units[count:] if is_stored else units
        if left and not self._is_held:
            _log.error("timer messages cannot be delivered from %d on: %s", left[0].phy_offset, deliveries)
        self._is_held = bool(left)
        return left

    def _put(self, deliveries: Deliveries, unit: TimerUnit, record: MessageExt, recalled: set[str]) -> bool:
        """Add one message, unless it was recalled; False when it has to wait."""
        properties = properties_from_bytes(record.raw_properties)
        target = target_of(properties)
        if target is None:
            _log.error("the timer message at %d has no destination: %s", record.phy_offset, record.properties)
            return True
        key = target.uniq_key
        if not unit.is_roll and recalled and (key in recalled or f"{target.topic}+{key}" in recalled):
            return True
        entered_ms, taken_ms = self._wall_ms(unit.write_ms), self._now_ms()
        properties = set_property(properties, MessageConst.PROPERTY_TIMER_ENQUEUE_MS, str(entered_ms))
        properties = set_property(properties, MessageConst.PROPERTY_TIMER_DEQUEUE_MS, str(taken_ms))
        if self.settled is not None and not unit.is_roll:
            self.settled.delivering(unit.phy_offset, target.topic, target.tags)
        if unit.is_roll:
            target = target._replace(topic=TIMER_TOPIC, queue_id=0)
            rolled = get_property(properties, _ROLL_TIMES) or "0"
            times = int(rolled) if rolled.isdecimal() else 0
            properties = set_property(properties, _ROLL_TIMES, str(times + 1))
        if deliveries.put(record, target, properties_to_bytes(properties)):
            return True
        # With the times in its properties it may be too large; it was not without them.
        return deliveries.put(record, target) or self._is_hopeless(deliveries, record)

    def _wall_ms(self, wheel_ms: int) -> int:
        return wheel_ms - self._timers.ahead_ms + self._watch.stepped_ms

    def _is_hopeless(self, deliveries: Deliveries, record: MessageExt) -> bool:
        """Whether a refused message will never be taken: then the others must not wait for it."""
        refusal = deliveries.refusal
        if refusal is None or refusal.status is PutStatus.SERVICE_NOT_AVAILABLE:
            return False
        _log.error("the timer message at %d cannot be delivered: %s", record.phy_offset, refusal)
        return True

    # -- flushing --------------------------------------------------------------------------------

    async def _flush_when_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        is_early = now_s - self._flushed_s < self._config.current.timer_flush_interval_ms / 1000
        if is_early or self._log_watch.is_displaced:
            return
        noted = self._timers.noted_phy_offset or 0
        if self._timers.wants_flush or self._log.max_phy_offset - noted > _NOTE_EVERY_BYTES:
            await self._flush()
        if now_s - self._expired_s > _DELETE_EXPIRED_S:
            self._expired_s = now_s
            await self._disk.run(self._timers.find_first)
            await self._disk.run(self._timers.delete_expired)
            await self._save_metrics()

    async def _save_metrics(self) -> None:
        metrics = self._timers.metrics
        if not metrics.is_dirty:
            return
        snapshot, metrics.is_dirty = metrics.snapshot(self._topics.table), False
        try:
            await self._disk.run(metrics.store, snapshot)
        except OSError as error:
            metrics.is_dirty = True
            _log.error("cannot write the number of waiting timer messages: %s", error)

    async def _flush(self) -> None:
        self._flushed_s = asyncio.get_running_loop().time()
        try:
            await self._disk.run_steps(self._timers.flush_steps(self._now_ms()))
        except OSError as error:
            _log.error("the timer messages' files cannot be written: %s", error)


def _entry(unit: CqUnit, record: MessageExt) -> TimerEntry | None:
    out_ms, topic, recalls = _scan_entry(properties_from_bytes(record.raw_properties))
    if not out_ms or not out_ms.isdecimal() or topic is None:
        _log.error("the timer message at %d has no time or no topic", unit.phy_offset)
        return None
    return TimerEntry(int(out_ms), unit.phy_offset, unit.size, topic, recalls is not None)


def _decode(raw: Buffer | None) -> MessageExt | None:
    """The record, if it is a timer message at all; anything else lies there by damage."""
    try:
        record = None if raw is None else decode_record(raw)
    except ProtocolError as error:
        _log.error("a timer message cannot be read: %s", error)
        return None
    return record if record is not None and record.topic == TIMER_TOPIC else None


def _place(unit: TimerUnit) -> CqUnit:
    return CqUnit(unit.phy_offset, unit.size, 0)


def _pass_size(units: Sequence[TimerUnit]) -> int:
    """How many of them one commit cycle may carry."""
    size_bytes = 0
    for count, unit in enumerate(units[:DELIVERY_MESSAGES]):
        size_bytes += unit.size
        if count and size_bytes > DELIVERY_BYTES:
            return count
    return min(len(units), DELIVERY_MESSAGES)
