"""RecordColumns: many records of the CommitLog at once, field by field, as arrays.

For code that looks at every record of a log: `store check` reads hundreds of megabytes a
second this way, record by record it would be a tenth. A record counts as valid exactly if
`read_dispatch_request` takes it; what is wrong with one that is not, that function says.
Not here: which bytes to read (check_log.py), what the fields must agree with.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kourou.errors import ProtocolError
from kourou.protocol.layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODES,
    MIN_RECORD_BYTES,
    Buffer,
)
from kourou.protocol.record import PROPERTY_CRC_BYTES, PROPERTY_CRC_NAME, verify_property_crc
from kourou.protocol.record_fields import record_mark
from kourou.protocol.record_spans import Bools, Int64s, RecordSpans, leading_bounds, values_at
from kourou.store.kernel import Kernel
from kourou.store.log.body_crcs import crcs_match
from kourou.store.log.dispatch_request import read_dispatch_request

_CRC_NAME_TYPE: Final = np.dtype(f"S{len(PROPERTY_CRC_NAME)}")


class Stop(enum.Enum):
    """Why a piece ends where it does."""

    MORE = "the bytes end, or end inside a record"
    BLANK = "a blank record is there"
    BAD = "no valid record is there"


@dataclass(slots=True)
class RecordColumns:
    """Valid records that follow each other; row i of every column is record i.

    `bad_property_crcs` are rows whose `__CRC32#` does not match: damage that the body's CRC missed.
    """

    phy_offsets: Int64s
    sizes: Int64s
    queue_ids: Int64s
    queue_offsets: Int64s
    sys_flags: Int64s
    store_timestamps: Int64s
    topics: list[bytes]
    properties: list[bytes]
    bad_property_crcs: list[int]

    def __len__(self) -> int:
        return len(self.topics)


@dataclass(frozen=True, slots=True)
class Piece:
    """The records at the start of some bytes: what they are, where they end, and why there."""

    columns: RecordColumns
    end: int
    stop: Stop


class _Texts(NamedTuple):
    """Topics and properties of records."""

    topics: list[bytes]
    properties: list[bytes]


def read_piece(raw: bytes, phy_offset: int, kernel: Kernel | None = None) -> Piece:
    """Read the records of `raw`, which lies at `phy_offset` of the log, up to the first that is none. With
    a kernel, that computes the CRCs of bodies."""
    bounds = leading_bounds(raw)
    records = RecordSpans(raw, bounds[:-1], bounds[1:])
    is_valid = records.lengths_fit & (records.field("phy_offset") == phy_offset + records.starts)
    count = len(is_valid) if is_valid.all() else int(is_valid.argmin())
    count = _matching_crcs(records, count, kernel)
    texts = _texts(records, count)
    count = _accepted(records, texts, phy_offset)
    end = int(bounds[count])
    return Piece(_columns(records, texts, phy_offset, count), end, _stop_at(raw, end))


def _stop_at(raw: bytes, end: int) -> Stop:
    """Why the valid records end there."""
    if len(raw) - end < BLANK.size:
        return Stop.MORE
    size, magic = record_mark(raw, end)
    if magic == BLANK_MAGIC_CODE:
        return Stop.BLANK
    is_cut = magic in MESSAGE_MAGIC_CODES and size >= MIN_RECORD_BYTES and size > len(raw) - end
    return Stop.MORE if is_cut else Stop.BAD


def spans_at(raw: Buffer, starts: Int64s, sizes: Int64s, phy_offsets: Int64s) -> tuple[RecordSpans, Bools]:
    """Records of these sizes and phy_offsets at these positions of `raw`, and which of them are records: by
    lengths, place and the CRC of the body. Those of others may be anything. Rules for topics and properties
    are not checked here (`read_dispatch_request`)."""
    ends = starts + sizes
    records = RecordSpans(raw, starts, ends)
    is_valid: Bools = (
        (records.field("total_size") == sizes)
        & (ends <= len(raw))
        & records.lengths_fit
        & (records.field("phy_offset") == phy_offsets)
    )
    rows = np.flatnonzero(is_valid)
    is_valid[rows[~crcs_match(records, rows)]] = False
    return records, is_valid


def _matching_crcs(records: RecordSpans, count: int, kernel: Kernel | None) -> int:
    """How many of the first `count` records have the body that their CRC was made of."""
    is_right = crcs_match(records, slice(0, count), kernel)
    return count if is_right.all() else int(is_right.argmin())


def _accepted(records: RecordSpans, texts: _Texts, phy_offset: int) -> int:
    """How many of the records with these texts `read_dispatch_request` takes too.

    It has rules for topics, queues and properties that few records come near; those few it looks at.
    """
    for row in sorted(_suspects(records, texts)):
        start, end = int(records.starts[row]), int(records.ends[row])
        if not _is_accepted(bytes(records.raw[start:end]), phy_offset + start):
            return row
    return len(texts.topics)


def _is_accepted(record: bytes, phy_offset: int) -> bool:
    try:
        read_dispatch_request(record, 0, phy_offset, (), check_crc=False)
    except ProtocolError:
        return False
    return True


def _suspects(records: RecordSpans, texts: _Texts) -> set[int]:
    """Records out of the ordinary, and the first of each topic."""
    topics, properties = texts
    count = len(topics)
    firsts = dict(zip(reversed(topics), range(count - 1, -1, -1), strict=True))
    suspects = set(firsts.values())
    suspects.update(np.flatnonzero(records.field("queue_id")[:count] < 0).tolist())
    if max(map(len, firsts), default=0) > MAX_TOPIC_BYTES_V1:
        suspects.update(row for row, topic in enumerate(topics) if len(topic) > MAX_TOPIC_BYTES_V1)
    if b"\0" in b"".join(properties):
        suspects.update(row for row, text in enumerate(properties) if b"\0" in text)
    return suspects


def _texts(records: RecordSpans, count: int) -> _Texts:
    """The texts of the first `count` records."""
    raw = records.raw
    return _Texts(
        _slices(raw, records.topic_begins[:count], records.topic_ends[:count]),
        _slices(raw, records.property_begins[:count], records.ends[:count]),
    )


def _columns(records: RecordSpans, texts: _Texts, phy_offset: int, count: int) -> RecordColumns:
    starts = records.starts[:count]
    ends = records.ends[:count]
    return RecordColumns(
        starts + phy_offset,
        ends - starts,
        records.field("queue_id")[:count],
        records.field("queue_offset")[:count],
        records.sys_flags[:count],
        records.store_timestamps[:count],
        texts.topics[:count],
        texts.properties[:count],
        _bad_property_crcs(records.raw, starts, ends),
    )


def _slices(raw: Buffer, starts: Int64s, ends: Int64s) -> list[bytes]:
    raw = bytes(raw)  # no copy of one
    return [raw[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _bad_property_crcs(raw: Buffer, starts: Int64s, ends: Int64s) -> list[int]:
    """The records that end with a CRC over all of them that does not match."""
    has_crc = values_at(raw, ends - PROPERTY_CRC_BYTES, _CRC_NAME_TYPE) == PROPERTY_CRC_NAME
    return [
        int(row)
        for row in np.flatnonzero(has_crc)
        if not verify_property_crc(bytes(raw[int(starts[row]) : int(ends[row])]))
    ]
