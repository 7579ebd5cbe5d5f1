"""DeliveredRecords: what a broker that was killed had delivered before it could note so.

A record delivered after its delay names the record it was made from: its prepared transaction
offset, a field that only committed transactions use otherwise, holds that one's phy_offset plus
one. So the log behind the last note tells which deliveries are done. Apache's deliveries have 0
there. Those of timers are recognised by the message's id and time: the property that says when a message
was taken out of the wheel.
Not here: where the notes are (delay_offsets.py, timer_checkpoint.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kourou.errors import ProtocolError
from kourou.protocol.layout import BLANK, BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODES, MIN_RECORD_BYTES
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC
from kourou.protocol.properties import MessageConst, property_start
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_mark, record_prepared_offset
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_scanner import PIECE_BYTES, LogScanner

_TimerKey: TypeAlias = tuple[str, str]

_TAKEN_OUT: Final = property_start(MessageConst.PROPERTY_TIMER_DEQUEUE_MS).encode()


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
        origin, properties = record.prepared_transaction_offset - 1, record.properties
        level = properties.get(MessageConst.PROPERTY_DELAY_TIME_LEVEL, "")
        if MessageConst.PROPERTY_TIMER_OUT_MS in properties:
            self.timers.add(origin)
        if level.isascii() and level.isdigit() and record.topic != RMQ_SYS_SCHEDULE_TOPIC:
            self.last_of_level[int(level)] = max(origin, self.last_of_level.get(int(level), 0))

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
            continue  # damage: what it was, nobody knows
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
