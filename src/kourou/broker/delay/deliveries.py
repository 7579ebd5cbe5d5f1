"""Deliveries: messages whose time has come, put in one commit cycle, of which all are stored or none. And
DeliveredRecords: what a broker that was killed had delivered before it could record so.

For the delay levels and for timers. A delivered record names the one it was made from: its prepared
transaction offset, a field that only committed transactions use otherwise, holds that one's phy_offset plus
one. So the log behind the last recorded progress tells which deliveries are done. Apache's deliveries have 0
there. Those of timers are recognized by the message's id and time: the property that says when a message was
taken out of the wheel.
Not here: which messages are due, where the progress is recorded (delay_offsets.py, timer_checkpoint.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kourou.errors import ProtocolError
from kourou.protocol.layout import BLANK, BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODES, MIN_RECORD_BYTES
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_TRANS_HALF_TOPIC, TIMER_TOPIC
from kourou.protocol.producer_sequence import raw_without_sequence
from kourou.protocol.properties import MessageConst, PropertyScanner, property_start
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_mark, record_prepared_offset
from kourou.protocol.tags import tags_code
from kourou.store.delay_levels import delivered_level
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import index_keys
from kourou.store.log.log_scanner import PIECE_BYTES, LogScanner
from kourou.store.log.put_status import PutRefusedError, PutStatus

if TYPE_CHECKING:
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles

_TimerKey: TypeAlias = tuple[str, str]

_TAKEN_OUT: Final = property_start(MessageConst.PROPERTY_TIMER_DEQUEUE_MS).encode()
DELIVERY_MESSAGES: Final = 500
"""In one commit cycle at most: other requests wait so long."""
DELIVERY_BYTES: Final = 256 * 1024
"""The same, but for a message that is larger by itself."""
_scan: Final = PropertyScanner(
    MessageConst.PROPERTY_REAL_TOPIC,
    MessageConst.PROPERTY_REAL_QUEUE_ID,
    MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    MessageConst.PROPERTY_TAGS,
    MessageConst.PROPERTY_KEYS,
).values


@dataclass(slots=True)
class DeliveredRecords:
    """Where the records lie that others were made from: of each delay level the last, of timers all."""

    last_of_level: dict[int, int] = field(default_factory=dict)
    timers: set[int] = field(default_factory=set)
    _unmarked: set[_TimerKey] = field(default_factory=set)
    _rolled: dict[_TimerKey, int] = field(default_factory=dict)
    """Where the last copy lies that waits on."""

    def __bool__(self) -> bool:
        return bool(self.timers or self._unmarked or self._rolled)

    def is_done(self, timer: MessageExt) -> bool:
        """Whether a record of the timer topic was delivered, or put to the topic again."""
        if timer.phy_offset in self.timers:
            return True
        key = _timer_key(timer)
        return key in self._unmarked or self._rolled.get(key, -1) > timer.phy_offset

    def add(self, record: MessageExt) -> None:
        """Take a record that was made from another."""
        if not record.prepared_transaction_offset:
            self._add_unmarked(record)
            return
        origin, level = record.prepared_transaction_offset - 1, delivered_level(record)
        if MessageConst.PROPERTY_TIMER_OUT_MS in record.properties:
            self.timers.add(origin)
        if level is not None:
            self.last_of_level[level] = max(origin, self.last_of_level.get(level, 0))

    def _add_unmarked(self, record: MessageExt) -> None:
        key = _timer_key(record)
        if MessageConst.PROPERTY_TIMER_DEQUEUE_MS not in record.properties or not key[0]:
            return
        if record.topic == TIMER_TOPIC:
            self._rolled[key] = max(record.phy_offset, self._rolled.get(key, -1))
        else:
            self._unmarked.add(key)


def _timer_key(record: MessageExt) -> _TimerKey:
    properties = record.properties
    uniq_key = properties.get(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "")
    return uniq_key, properties.get(MessageConst.PROPERTY_TIMER_OUT_MS, "")


def mark_of(phy_offset: int) -> int:
    """What a delivered record carries whose origin lies at `phy_offset`: 0 means none."""
    return phy_offset + 1


def find_delivered(log: CommitLog, phy_offset: int) -> DeliveredRecords:
    """What the log from `phy_offset` on says. Reads all of it, and waits for the disk."""
    found = DeliveredRecords()
    for raw, position in _derived(log, max(phy_offset, log.min_phy_offset)):
        try:
            found.add(decode_record(raw, position))
        except ProtocolError:
            continue  # damaged: its contents are unknown
    return found


def _derived(log: CommitLog, phy_offset: int) -> Iterator[tuple[bytes, int]]:
    """The records that were made from another one: the bytes they are in, and where."""
    scanner = LogScanner(log, (), max_record_bytes=log.file_bytes)
    end = log.max_phy_offset
    while phy_offset < end:
        raw = _piece(log, phy_offset, end)
        walked = yield from _walk(raw)
        phy_offset += walked
        if not walked:
            next_phy_offset = scanner.next_record(phy_offset + 1, end)
            phy_offset = end if next_phy_offset is None else next_phy_offset


def _piece(log: CommitLog, phy_offset: int, end: int) -> bytes:
    log_file = log.file_at(phy_offset)
    if log_file is None:
        return b""
    left = min(log_file.end_phy_offset, end) - phy_offset
    raw = log.read(phy_offset, min(left, PIECE_BYTES)) or b""
    size, magic = record_mark(raw) if len(raw) >= MIN_RECORD_BYTES else (0, 0)
    if magic in MESSAGE_MAGIC_CODES and len(raw) < size <= left:
        return log.read(phy_offset, size) or b""
    return raw


def _walk(raw: bytes) -> Generator[tuple[bytes, int], None, int]:
    """Whole records at the start of `raw`; returns how many bytes they and a blank behind them take."""
    position, end = 0, len(raw)
    while position + BLANK.size <= end:
        size, magic = record_mark(raw, position)
        if magic == BLANK_MAGIC_CODE:
            return position + max(size, BLANK.size)
        if magic not in MESSAGE_MAGIC_CODES or size < MIN_RECORD_BYTES or position + size > end:
            break
        is_marked = record_prepared_offset(raw, position) != 0
        if is_marked or raw.find(_TAKEN_OUT, position, position + size) >= 0:
            yield raw, position
        position += size
    return position


class Target(NamedTuple):
    """Where a message goes whose time has come, and what it is found by there."""

    topic: str
    queue_id: int
    uniq_key: str | None
    tags: str | None
    keys: str | None


def target_of(properties: str) -> Target | None:
    """What the properties of a waiting message say; None when they name no place that can be."""
    topic, queue_id, uniq_key, tags, keys = _scan(properties)
    if not topic or topic == RMQ_SYS_TRANS_HALF_TOPIC or not queue_id or not queue_id.isdecimal():
        return None
    return Target(topic, int(queue_id), uniq_key, tags, keys)


class Deliveries:
    """The puts of one commit cycle, which is open: nothing may be awaited before `store`."""

    def __init__(self, cycles: Cycles, appender: LogAppender, queues: ConsumeQueues) -> None:
        self._cycles = cycles
        self._queue = queues.get
        self._put = appender.put
        self._waiting = 0
        self._status = PutStatus.PUT_OK
        self.refusal: PutRefusedError | None = None
        self.count = 0
        self.size_bytes = 0

    def __str__(self) -> str:
        return str(self.refusal) if self.refusal is not None else self._status.name

    def put(self, record: MessageExt, target: Target, properties: bytes | None = None) -> bool:
        """Add what was stored as `record`, for its `target` and perhaps with other properties; False
        when the store refuses it (`refusal`): those before it stay."""
        try:
            self._put(
                self._queue(target.topic, target.queue_id),
                record.stored_body,
                raw_without_sequence(record.raw_properties if properties is None else properties),
                tags_code(target.tags),
                index_keys(target.uniq_key, target.keys),
                record.born_timestamp,
                record.raw_born_host,
                record.sys_flag,
                record.flag,
                record.reconsume_times,
                mark_of(record.phy_offset),
                self._done,
                False,
            )
        except PutRefusedError as refusal:
            self.refusal = refusal
            return False
        self._waiting += 1
        self.count += 1
        self.size_bytes += record.store_size
        return True

    def store(self) -> bool:
        """End the commit cycle here and now: they must not wait for what else this iteration brings. False:
        nothing of them is in the log. Nobody else gets a turn between the first put and this."""
        if self._waiting:
            self._cycles.renew()
        return not self._waiting and self._status.is_stored

    def _done(self, status: PutStatus, _: int, __: int) -> None:
        self._waiting -= 1
        if status is not PutStatus.PUT_OK and not status.is_stored:
            self._status = status


class DeliveryWriter:
    """Opens commit cycles for deliveries of one broker."""

    def __init__(self, *, cycles: Cycles, appender: LogAppender, queues: ConsumeQueues) -> None:
        self._cycles = cycles
        self._appender = appender
        self._queues = queues

    def begin(self, *, due_ms: int) -> Deliveries:
        """Deliveries of messages that are due at `due_ms`."""
        self._cycles.open()
        if self._appender.begin_cycle() < due_ms:
            # The open commit cycle began before: its records would say that they were stored too early.
            self._cycles.renew()
        return Deliveries(self._cycles, self._appender, self._queues)
