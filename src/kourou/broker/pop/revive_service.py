"""ReviveService: delivers messages again whose invisible time has ended without an ack.

Each is put into the retry topic of its group and topic; behind it an ack for its check point, in the same
commit cycle. A kill in between can deliver it twice, and loses nothing. A message that was delivered as often
as its group allows becomes a dead letter. A message that was deleted meanwhile, or whose topic or group was,
is dropped.

One task; it works in small portions, so that other requests get their turn however many messages are due.
What cannot be stored now is tried again after a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.delay.deliveries import DELIVERY_BYTES, DELIVERY_MESSAGES
from kourou.broker.pop.revived_runs import RunSource
from kourou.broker.send.dead_letters import make_dead_letter, next_attempt
from kourou.broker.storage.inner_message import InnerMessage
from kourou.broker.storage.record_reads import read_records_at
from kourou.errors import ProtocolError, StorageError
from kourou.protocol.codes import PermName
from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX
from kourou.protocol.pop.retry_topics import POP_RETRY_QUEUES, pop_retry_topic, popped_topic
from kourou.protocol.properties import MessageConst
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.queue.cq_unit import UNIT, UNIT_BYTES, CqUnit
from kourou.store.read.message_lookup import decode_sound_record

if TYPE_CHECKING:
    from kourou.broker.pop.check_points import CheckPoint, CheckPointTable
    from kourou.broker.pop.contracts import PopStored
    from kourou.broker.pop.in_flight import PopCounts
    from kourou.broker.pop.revive_log import ReviveLog
    from kourou.broker.pop.revived_runs import RevivedRuns
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.event_counters import EventCounters
    from kourou.broker.storage.inner_message import MessageWriter
    from kourou.broker.storage.record_reads import RecordReader, RecordReads
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.protocol.layout import Buffer
    from kourou.protocol.message import MessageExt
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_CHECK_POINTS: Final = 128
"""Taken at a time."""
_LOOK_S: Final = 0.1
_FIRST_PAUSE_MS: Final = 500
_LONGEST_PAUSE_MS: Final = 10_000
_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)
_HOST: Final = "pop-revive"


class _Overdue(NamedTuple):
    """A message that is to be delivered again."""

    check_point: CheckPoint
    bit: int
    unit: CqUnit | None
    """Where it lies; None: it is gone."""

    @property
    def is_acked(self) -> bool:
        """Whether it was acked meanwhile, or is about to be."""
        return bool(self.bit & (self.check_point.acking | self.check_point.acked))


class _Put:
    """What has become of messages in one commit cycle. `refusal`: why those behind them have to wait."""

    def __init__(self) -> None:
        self.acked: dict[CheckPoint, int] = {}
        self.revived = self.gone = 0
        self.dead_letters: list[tuple[str, str]] = []
        self.refusal: PutRefusedError | None = None


class _AllStored:
    """Several puts, waited for together."""

    def __init__(self) -> None:
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = 0
        self._failure: PutStatus | None = None

    def expect(self) -> PopStored:
        """One more."""
        self._waiting += 1
        return self._one

    def _one(self, status: PutStatus) -> None:
        self._waiting -= 1
        if not status.is_stored:
            self._failure = self._failure or status
        if not self._waiting and not self._done.done():
            self._done.set_result(None)

    async def wait(self) -> None:
        """Return when all are stored. StorageError: some are not."""
        if self._waiting:
            await self._done
        if self._failure is not None:
            raise StorageError(self._failure.remark or self._failure.name)


class ReviveService:
    """Revives the messages of one broker."""

    def __init__(
        self,
        *,
        table: CheckPointTable,
        log: ReviveLog,
        counts: PopCounts,
        config: LiveConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueues,
        commit_log: CommitLog,
        appender: LogAppender,
        records: RecordReader,
        writer: MessageWriter,
        runs: RevivedRuns,
        events: EventCounters,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._table = table
        self._log = log
        self._counts = counts
        self._config = config
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._queues = queues
        self._commit_log = commit_log
        self._appender = appender
        self._records = records
        self._writer = writer
        self._runs = runs
        self._events = events
        self._monotonic_ms = monotonic_ms
        self._pause_ms = 0

    def start(self, tasks: TaskOwner) -> None:
        """Begin to revive what is due."""
        tasks.start(self._run(), "pop-revive")

    async def _run(self) -> None:
        while True:
            if self._may_revive:
                await self._revive_due()
            due_ms = self._table.next_due_ms
            wait_s = _LOOK_S if due_ms is None else (due_ms - self._monotonic_ms()) / 1000
            await asyncio.sleep(min(_LOOK_S, max(0.001, wait_s)))

    @property
    def _may_revive(self) -> bool:
        """Not in a fenced store, and not as a master whose reign has ended: another one revives them."""
        may_commit = self._offsets.may_commit
        return not self._appender.is_fenced and (may_commit is None or may_commit())

    async def _revive_due(self) -> None:
        while taken := self._table.take_due(self._monotonic_ms(), _CHECK_POINTS):
            try:
                await self._revive(taken)
                self._pause_ms = 0
            except (OSError, StorageError) as error:
                if not self._pause_ms:
                    _log.error("popped messages cannot be delivered again now, retrying: %s", error)
                self._pause_ms = min(max(_FIRST_PAUSE_MS, self._pause_ms * 2), _LONGEST_PAUSE_MS)
            again_ms = self._monotonic_ms() + self._pause_ms
            for check_point in taken:
                self._table.postpone(check_point, again_ms)  # if it is open still
            if self._pause_ms:
                return
            await asyncio.sleep(0)

    async def _revive(self, check_points: Sequence[CheckPoint]) -> None:
        """Put all their messages. StorageError: some are not stored."""
        wanted: list[tuple[CheckPoint, int]] = []
        dropped: list[CheckPoint] = []
        for check_point in check_points:
            if not check_point.is_dropped and self._is_wanted(check_point):
                wanted.append((check_point, check_point.unacked & ~check_point.acking))
            else:
                dropped.append(check_point)
        if dropped:
            await self._drop(dropped)
        for portion in _portions(await self._find(wanted)):
            units = [overdue.unit for overdue in portion if overdue.unit is not None]
            raws = iter(await read_records_at(self._commit_log, self._records, units))
            await self._put([(overdue, None if overdue.unit is None else next(raws)) for overdue in portion])

    def _is_wanted(self, check_point: CheckPoint) -> bool:
        """Whether topic and group are still there."""
        topic, group = check_point.topic, check_point.group
        has_topics = self._topics.get(topic) is not None and (
            self._topics.get(popped_topic(topic, group)) is not None
        )
        skips = self._config.current.pop_revive_skip_if_group_absent
        return has_topics and (not skips or self._groups.find(group) is not None)

    async def _drop(self, check_points: Sequence[CheckPoint]) -> None:
        for check_point in check_points:
            _log.info(
                "%s/%d: messages from %d on are not delivered again to group %s: topic or group is gone",
                check_point.topic,
                check_point.queue_id,
                check_point.start_offset,
                check_point.group,
            )
        unacked = [(check_point, check_point.unacked) for check_point in check_points]
        # Beside their check points, which may be far from due: a restart has to find both.
        await self._stored(unacked, partial(self._log.ack, is_consumed=False))
        self._counts.dropped += sum(bits.bit_count() for _, bits in unacked)

    # -- reading -----------------------------------------------------------------------------------

    async def _find(self, wanted: Sequence[tuple[CheckPoint, int]]) -> list[_Overdue]:
        """Where the messages lie."""
        found: list[_Overdue] = []
        for check_point, bits in wanted:
            overdue = self._find_nowait(check_point, bits)
            if overdue is None:
                overdue = await self._records.read(partial(self._find_single, check_point, bits))
            found += overdue
        return found

    def _find_nowait(self, check_point: CheckPoint, bits: int) -> list[_Overdue] | None:
        """The same for one check point whose units are in memory, one after the other; else None."""
        queue = self._queues.find(check_point.topic, check_point.queue_id)
        queue_offsets = check_point.offsets_of(bits)
        first, count = queue_offsets[0], len(queue_offsets)
        if queue is None or first < queue.min_queue_offset or queue_offsets[-1] - first >= count:
            return None
        raw = queue.read_units_nowait(first, count)
        if raw is None or len(raw) < count * UNIT_BYTES:
            return None
        units = (CqUnit(*fields) for fields in UNIT.iter_unpack(raw))
        return [
            _Overdue(check_point, bit, unit if unit.is_message else None)
            for bit, unit in zip(_single_bits(bits), units, strict=True)
        ]

    def _find_single(self, check_point: CheckPoint, bits: int, reads: RecordReads) -> list[_Overdue]:
        found = []
        queue = self._queues.find(check_point.topic, check_point.queue_id)
        for bit, queue_offset in zip(_single_bits(bits), check_point.offsets_of(bits), strict=True):
            unit = None
            if queue is not None and queue.min_queue_offset <= queue_offset < queue.max_queue_offset:
                unit = reads.unit(queue, queue_offset)
            found.append(_Overdue(check_point, bit, unit if unit is not None and unit.is_message else None))
        return found

    # -- putting -----------------------------------------------------------------------------------

    async def _put(self, portion: Sequence[tuple[_Overdue, Buffer | None]]) -> None:
        """Put messages and their acks. Nothing is awaited before all of them are in the commit cycle."""
        put = _Put()
        for check_point, run in groupby(portion, lambda each: each[0].check_point):
            self._put_run(check_point, [each for each in run if not each[0].is_acked], put)
            if put.refusal is not None:
                break
        await self._stored(list(put.acked.items()), self._log.put_ack_now)
        self._counts.revived += put.revived
        self._counts.dead_letters += len(put.dead_letters)
        self._counts.dropped += put.gone
        for group, topic in put.dead_letters:
            self._events.dead_letter(group, topic)
        if put.refusal is not None:
            raise put.refusal

    def _put_run(
        self, check_point: CheckPoint, run: Sequence[tuple[_Overdue, Buffer | None]], put: _Put
    ) -> None:
        """Put messages of one check point."""
        at = 0
        while at < len(run):
            count = self._put_plain(check_point, run[at:])
            if count:
                put.revived += count
            else:
                count, (overdue, raw) = 1, run[at]
                record = _decode(raw, overdue)
                try:
                    is_dead = None if record is None else self._put_again(check_point, record)
                except PutRefusedError as error:
                    put.refusal = error
                    return
                put.revived += is_dead is False
                put.gone += is_dead is None
                if is_dead and record is not None:
                    topic = popped_topic(record.topic, check_point.group)
                    put.dead_letters.append((check_point.group, topic))
            bits = sum([overdue.bit for overdue, _ in run[at : at + count]])
            put.acked[check_point] = put.acked.get(check_point, 0) | bits
            at += count

    def _put_plain(self, check_point: CheckPoint, run: Sequence[tuple[_Overdue, Buffer | None]]) -> int:
        """Put as many as the kernel takes: how many."""
        if not self._runs.is_usable:
            return 0
        records, units = [], []
        for overdue, raw in run:
            if raw is None or overdue.unit is None:
                break
            records.append(raw)
            units.append(UNIT.pack(*overdue.unit))
        if not records:
            return 0
        topic, group, queue_id = check_point.topic, check_point.group, check_point.queue_id
        group_config = self._groups.table.get(group)
        attempts = None if group_config is None else group_config.retry_max_times
        source = RunSource(topic, queue_id, group, check_point.pop_time, attempts)
        return self._runs.put(source, records, b"".join(units), *self._retry_queue(topic, queue_id, group))

    async def _stored(
        self,
        acked: Sequence[tuple[CheckPoint, int]],
        put: Callable[[CheckPoint, int, PopStored], None],
    ) -> None:
        """Put acks; on return they are stored. StorageError: they are not."""
        stored = _AllStored()
        for check_point, bits in acked:
            put(check_point, bits, stored.expect())
        await stored.wait()

    def _put_again(self, check_point: CheckPoint, record: MessageExt) -> bool | None:
        """Put a message; whether it has become a dead letter. None: it cannot be put, now or later.
        PutRefusedError: it has to wait."""
        message, is_dead = self._message(check_point, record)
        if self._put_if_legal(message):
            return is_dead
        # Its properties have no room, or the names of group and topic are too long for those of a topic.
        message.properties = InnerMessage.of(record).properties
        if self._put_if_legal(message):
            return is_dead
        make_dead_letter(message, check_point.group, self._topics)
        if self._put_if_legal(message):
            return True
        _log.error(
            "%s/%d, offset %d cannot be delivered again to group %s",
            record.topic,
            record.queue_id,
            record.queue_offset,
            check_point.group,
        )
        return None

    def _put_if_legal(self, message: InnerMessage) -> bool:
        try:
            self._writer.put_now(message, None)
        except PutRefusedError as refusal:
            if refusal.status not in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
                raise
            _log.warning("a popped message cannot be put to %s: %s", message.topic, refusal)
            return False
        return True

    def _message(self, check_point: CheckPoint, record: MessageExt) -> tuple[InnerMessage, bool]:
        """What is put for a message, and whether it is a dead letter."""
        group = check_point.group
        group_config = self._groups.table.get(group)
        if group_config is not None and record.reconsume_times >= group_config.retry_max_times:
            message = next_attempt(record, popped_topic(record.topic, group))
            make_dead_letter(message, group, self._topics)
            return message, True
        message = InnerMessage.of(record)
        is_first = not record.reconsume_times
        message.reconsume_times += 1
        if is_first or message.get_property(MessageConst.PROPERTY_FIRST_POP_TIME) is None:
            message.set_property(MessageConst.PROPERTY_FIRST_POP_TIME, str(check_point.pop_time))
        message.set_property(MessageConst.PROPERTY_ORIGIN_GROUP, group)
        message.topic, message.queue_id = self._retry_queue(record.topic, record.queue_id, group)
        return message, False

    def _retry_queue(self, topic: str, popped_queue_id: int, group: str) -> tuple[str, int]:
        """Where messages of a queue go for the group: those of a retry topic to the same one again. Where
        queues are priorities they keep their queue."""
        config, topics = self._config.current, self._topics
        if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            topic = pop_retry_topic(topic, group, is_v2=config.enable_retry_topic_v2)
        topics.create_in_send_back(topic, POP_RETRY_QUEUES, _READ_WRITE)
        popped, queue_id = popped_topic(topic, group), 0
        if config.use_separate_retry_queue or topics.has_priorities(popped):
            retry_config = topics.separate_retries(topic, [popped])
            queue_id = popped_queue_id if popped_queue_id < retry_config.write_queue_nums else 0
        if self._offsets.query(group, topic, queue_id) < 0:
            self._offsets.commit(group, topic, queue_id, 0, _HOST)
        return topic, queue_id


def _portions(overdue: Sequence[_Overdue]) -> Iterator[list[_Overdue]]:
    """What one commit cycle may carry, in turn."""
    portion: list[_Overdue] = []
    size_bytes = 0
    for each in overdue:
        size = 0 if each.unit is None else each.unit.size
        if portion and (len(portion) >= DELIVERY_MESSAGES or size_bytes + size > DELIVERY_BYTES):
            yield portion
            portion, size_bytes = [], 0
        portion.append(each)
        size_bytes += size
    if portion:
        yield portion


def _decode(raw: Buffer | None, overdue: _Overdue) -> MessageExt | None:
    """The record, if it can be read and is what the queue says."""
    if raw is None or overdue.unit is None:
        return None
    check_point = overdue.check_point
    try:
        record = decode_sound_record(bytes(raw), overdue.unit.phy_offset)
    except ProtocolError as error:
        _log.error(
            "%s/%d: a popped message cannot be read and is not delivered again to group %s: %s",
            check_point.topic,
            check_point.queue_id,
            check_point.group,
            error,
        )
        return None
    return record if record.topic == check_point.topic else None


def _single_bits(bits: int) -> list[int]:
    return [1 << index for index in range(bits.bit_length()) if bits >> index & 1]
