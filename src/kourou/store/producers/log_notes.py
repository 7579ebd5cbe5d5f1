"""The sequences that the log has: read from stored records, for recovery and for slaves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.layout import BLANK, BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODES, MIN_RECORD_BYTES
from kourou.protocol.names import (
    PRODUCERS_TOPIC,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TIMER_TOPIC,
)
from kourou.protocol.producer_sequence import (
    RAW_SEQUENCE_START,
    SEQUENCE_PROPERTY,
    ProducerOpening,
    ProducerSequence,
    parse_property,
)
from kourou.protocol.properties import MessageConst, PropertyScanner, properties_from_bytes
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_mark
from kourou.store.log.log_scanner import PIECE_BYTES

if TYPE_CHECKING:
    from kourou.protocol.message import MessageExt
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_scanner import LogScanner
    from kourou.store.producers.producer_table import ProducerTable

_log = logging.getLogger(__name__)

_WAITING_TOPICS: Final = frozenset({RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC})
_QUEUE_ID_DIGITS: Final = 9
_scan: Final = PropertyScanner(
    SEQUENCE_PROPERTY, MessageConst.PROPERTY_REAL_TOPIC, MessageConst.PROPERTY_REAL_QUEUE_ID
).values


def note_records(table: ProducerTable, raw: bytes, phy_offset: int) -> None:
    """Note the sequences of the records in `raw`, which begins with a record, at `phy_offset` of the log."""
    mark = raw.find(RAW_SEQUENCE_START)
    position = 0
    while mark >= 0:
        size = record_mark(raw, position)[0]
        while position + size <= mark:
            position += size
            size = record_mark(raw, position)[0]
        if position + size > len(raw):
            return
        note_record(table, raw, position, phy_offset + position)
        position += size
        mark = raw.find(RAW_SEQUENCE_START, position)


class StoredSequence(NamedTuple):
    """The property of a stored message, and the queue in which it counts: the one it was sent to, also while
    it waits elsewhere for its time, or for the end of its transaction."""

    value: str
    topic: str
    queue_id: int


def stored_sequence(record: MessageExt) -> StoredSequence | None:
    """The sequence of a stored message; None if it has none. ProtocolError: its queue is not known."""
    value, real_topic, real_queue_id = _scan(properties_from_bytes(record.raw_properties))
    if not value:
        return None
    if record.topic not in _WAITING_TOPICS:
        return StoredSequence(value, record.topic, record.queue_id)
    number = real_queue_id or ""
    if not real_topic or not number.isascii() or not number.isdigit() or len(number) > _QUEUE_ID_DIGITS:
        raise ProtocolError(f"a message of {record.topic} does not name its queue")
    return StoredSequence(value, real_topic, int(number))


def note_record(table: ProducerTable, raw: bytes, position: int, phy_offset: int) -> None:
    """Note the sequence of the record at `position`, or the producer that it opened, if it has such a
    property."""
    try:
        record = decode_record(raw, position, verify_body_crc=False, with_body=False)
        stored = stored_sequence(record)
        if stored is None:
            return
        found = parse_property(stored.value)
    except ProtocolError as error:
        _log.warning("the record at %d of the CommitLog: %s; its sequence is ignored", phy_offset, error)
        return
    if isinstance(found, ProducerSequence):
        table.note_stored(found, stored.topic, stored.queue_id, phy_offset, record.store_timestamp)
    elif record.topic != PRODUCERS_TOPIC:
        return
    elif isinstance(found, ProducerOpening):
        table.note_opened(found, record.store_timestamp)
    else:
        table.forget(found)


def note_log(table: ProducerTable, log: CommitLog, scanner: LogScanner, begin: int, end: int) -> None:
    """Note the sequences of all records in [begin, end), where records begin. Damaged stretches are passed
    over."""
    at = begin
    while at < end:
        log_file = log.file_at(at)
        if log_file is None:
            return
        limit = min(log_file.end_phy_offset, end)
        raw = log.read(at, min(PIECE_BYTES, limit - at)) or b""
        size = record_mark(raw)[0] if len(raw) >= BLANK.size else 0
        if len(raw) < size <= limit - at:
            raw = log.read(at, size) or b""
        whole = _whole_records(raw)
        if whole:
            note_records(table, raw[:whole], at)
            at += whole
        elif len(raw) >= BLANK.size and record_mark(raw)[1] == BLANK_MAGIC_CODE:
            at = log_file.end_phy_offset
        else:
            found = scanner.next_record(at + 1, end)
            if found is None:
                return
            at = found


def _whole_records(raw: bytes) -> int:
    """How many bytes the complete records at the beginning of `raw` have."""
    position, last = 0, len(raw) - BLANK.size
    while position <= last:
        size, magic = record_mark(raw, position)
        if magic not in MESSAGE_MAGIC_CODES or size < MIN_RECORD_BYTES or position + size > len(raw):
            break
        position += size
    return position
