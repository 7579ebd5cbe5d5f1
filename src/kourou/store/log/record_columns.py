"""RecordColumns: many records of the CommitLog at once, field by field, as arrays.

For whoever has to look at every record of a log: `store check` reads hundreds of megabytes a
second this way, record by record it would be a tenth. A record counts as valid exactly if
`read_dispatch_request` takes it; what is wrong with one that is not, that function says.
Not here: which bytes to read (check_log.py), what the fields must agree with.
"""

from __future__ import annotations

import enum
import struct
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kourou.errors import ProtocolError
from kourou.protocol.properties import MessageConst
from kourou.protocol.record import (
    BLANK_MAGIC_CODE,
    BODY_LENGTH_POS,
    BODY_POS,
    HOST_V6_EXTRA_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    PROPERTY_CRC_BYTES,
    STORE_TIMESTAMP_POS,
    Buffer,
    verify_property_crc,
)
from kourou.store.log.dispatch_request import read_dispatch_request
from kourou.store.log.record_arrays import heads_at, values_at

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_CRC_MASK: Final = 0x7FFFFFFF
_CRC_NAME: Final = f"{MessageConst.PROPERTY_CRC32}\x01".encode()
_CRC_NAME_TYPE: Final = np.dtype(f"S{len(_CRC_NAME)}")
_MARK: Final = struct.Struct(">iI")
_MARK_TYPE: Final = np.dtype([("size", ">i4"), ("magic", ">u4")])
_U8: Final = np.dtype(">u1")
_U16: Final = np.dtype(">u2")
_I16: Final = np.dtype(">i2")
_I32: Final = np.dtype(">i4")
_I64: Final = np.dtype(">i8")


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


def read_piece(raw: bytes, phy_offset: int) -> Piece:
    """Read the records of `raw`, which lies at `phy_offset` of the log, up to the first that is none."""
    starts, stop = _walk(raw)
    bounds = np.array(starts, np.int64)
    fields = RecordFields(raw, bounds[:-1], bounds[1:])
    is_valid = fields.lengths_fit & (fields.phy_offsets == phy_offset + fields.starts)
    count = len(is_valid) if is_valid.all() else int(is_valid.argmin())
    count = _matching_crcs(raw, fields, count)
    count = _accepted(raw, fields, phy_offset, count)
    end = starts[count]
    columns = _columns(raw, fields, phy_offset, count)
    return Piece(columns, end, stop if count == len(is_valid) else Stop.BAD)


def fields_at(raw: Buffer, starts: Int64s, sizes: Int64s, phy_offsets: Int64s) -> tuple[RecordFields, Bools]:
    """The fields of records of these sizes and phy_offsets at these positions of `raw`, and which of them are
    records: by lengths, place and the CRC of the body. Those of others may be anything. Rules for topics and
    properties are not looked at here (`read_dispatch_request`)."""
    ends = starts + sizes
    marks = values_at(raw, starts, _MARK_TYPE)
    fields = RecordFields(raw, starts, ends)
    is_valid: Bools = (
        (marks["size"] == sizes)
        & ((marks["magic"] == MESSAGE_MAGIC_CODE) | (marks["magic"] == MESSAGE_MAGIC_CODE_V2))
        & (ends <= len(raw))
        & fields.lengths_fit
        & (fields.phy_offsets == phy_offsets)
    )
    rows = np.flatnonzero(is_valid)
    is_valid[rows[~_crcs_match(raw, fields, rows)]] = False
    return fields, is_valid


def _walk(raw: bytes) -> tuple[list[int], Stop]:
    """Where records start, by their sizes alone, and where the last one ends."""
    starts = [0]
    at = 0
    last = len(raw) - _MARK.size
    unpack = _MARK.unpack_from
    while at <= last:
        size, magic = unpack(raw, at)
        if magic != MESSAGE_MAGIC_CODE and magic != MESSAGE_MAGIC_CODE_V2:
            return starts, Stop.BLANK if magic == BLANK_MAGIC_CODE else Stop.BAD
        if size < MIN_RECORD_BYTES:
            return starts, Stop.BAD
        at += size
        if at > len(raw):
            return starts, Stop.MORE
        starts.append(at)
    return starts, Stop.MORE


class RecordFields:
    """Where the parts of each record lie, as its own numbers say, and whether those add up."""

    __slots__ = (
        "_data",
        "body_at",
        "body_end",
        "crcs",
        "lengths_fit",
        "phy_offsets",
        "properties_at",
        "properties_end",
        "queue_ids",
        "queue_offsets",
        "starts",
        "store_timestamps",
        "sys_flags",
        "topic_at",
        "topic_end",
    )

    def __init__(self, raw: Buffer, starts: Int64s, ends: Int64s) -> None:
        self._data = raw
        self.starts = starts
        heads = heads_at(raw, starts)
        self.crcs = heads["body_crc"].astype(np.int64)
        self.queue_ids = heads["queue_id"].astype(np.int64)
        self.queue_offsets = heads["queue_offset"].astype(np.int64)
        self.phy_offsets = heads["phy_offset"].astype(np.int64)
        self.sys_flags = heads["sys_flag"].astype(np.int64)
        self.store_timestamps = heads["store_timestamp"].astype(np.int64)
        shift = self._shift_v6()
        body_lengths = heads["body_length"].astype(np.int64)
        if shift.any():
            body_lengths = values_at(raw, starts + shift + BODY_LENGTH_POS, _I32).astype(np.int64)
        self._place(starts + shift + BODY_POS, body_lengths, heads["magic"] == MESSAGE_MAGIC_CODE_V2, ends)

    def _shift_v6(self) -> Int64s:
        """By how much IPv6 hosts shift the body; store timestamps are put right on the way."""
        born = np.where(self.sys_flags & _BORN_V6, HOST_V6_EXTRA_BYTES, 0)
        if born.any():
            positions = self.starts + STORE_TIMESTAMP_POS + born
            self.store_timestamps = values_at(self._data, positions, _I64).astype(np.int64)
        return born + np.where(self.sys_flags & _STORE_V6, HOST_V6_EXTRA_BYTES, 0)

    def _place(self, body_at: Int64s, body_lengths: Int64s, is_v2: Bools, ends: Int64s) -> None:
        """Find body, topic and properties."""
        self.body_at = body_at
        self.body_end = body_at + body_lengths
        topic_lengths = values_at(self._data, self.body_end, _U8).astype(np.int64)
        self.topic_at = self.body_end + 1
        if is_v2.any():
            lengths_v2 = values_at(self._data, self.body_end, _U16).astype(np.int64)
            topic_lengths = np.where(is_v2, lengths_v2, topic_lengths)
            self.topic_at = self.topic_at + is_v2
        self.topic_end = self.topic_at + topic_lengths
        properties_lengths = values_at(self._data, self.topic_end, _I16).astype(np.int64)
        self.properties_at = self.topic_end + 2
        self.properties_end = self.properties_at + properties_lengths
        self.lengths_fit: Bools = (
            (body_lengths >= 0)
            & (self.body_end < ends)
            & (properties_lengths >= 0)
            & (self.properties_end == ends)
        )


def _matching_crcs(raw: bytes, fields: RecordFields, count: int) -> int:
    """How many of the first `count` records have the body that their CRC was made of."""
    is_right = _crcs_match(raw, fields, np.arange(count))
    return count if is_right.all() else int(is_right.argmin())


def _crcs_match(raw: Buffer, fields: RecordFields, rows: NDArray[np.intp]) -> Bools:
    """Which of these records have the body that their CRC was made of."""
    view = memoryview(raw)
    crc32 = zlib.crc32
    begins, ends = fields.body_at[rows], fields.body_end[rows]
    bodies = zip(begins.tolist(), ends.tolist(), strict=True)
    crcs = np.fromiter((crc32(view[start:end]) for start, end in bodies), np.int64, len(rows)) & _CRC_MASK
    # A record without a body may say any CRC.
    is_right: Bools = (crcs == fields.crcs[rows]) | (begins == ends)
    return is_right


def _accepted(raw: bytes, fields: RecordFields, phy_offset: int, count: int) -> int:
    """How many of the first `count` records `read_dispatch_request` takes too.

    It has rules for topics, queues and properties that few records come near; those few it looks at.
    """
    starts = fields.starts[:count].tolist()
    ends = fields.properties_end[:count].tolist()
    for row in sorted(_suspects(raw, fields, count)):
        if not _is_accepted(raw[starts[row] : ends[row]], phy_offset + starts[row]):
            return row
    return count


def _is_accepted(record: bytes, phy_offset: int) -> bool:
    try:
        read_dispatch_request(record, 0, phy_offset, (), check_crc=False)
    except ProtocolError:
        return False
    return True


def _suspects(raw: bytes, fields: RecordFields, count: int) -> set[int]:
    """Records out of the ordinary, and the first of each topic."""
    topics = _slices(raw, fields.topic_at[:count], fields.topic_end[:count])
    firsts = dict(zip(reversed(topics), range(count - 1, -1, -1), strict=True))
    suspects = set(firsts.values())
    suspects.update(np.flatnonzero(fields.queue_ids[:count] < 0).tolist())
    suspects.update(row for row, topic in enumerate(topics) if len(topic) > MAX_TOPIC_BYTES_V1)
    properties = _slices(raw, fields.properties_at[:count], fields.properties_end[:count])
    suspects.update(row for row, text in enumerate(properties) if b"\0" in text)
    return suspects


def _columns(raw: bytes, fields: RecordFields, phy_offset: int, count: int) -> RecordColumns:
    starts = fields.starts[:count]
    ends = fields.properties_end[:count]
    return RecordColumns(
        starts + phy_offset,
        ends - starts,
        fields.queue_ids[:count],
        fields.queue_offsets[:count],
        fields.sys_flags[:count],
        fields.store_timestamps[:count],
        _slices(raw, fields.topic_at[:count], fields.topic_end[:count]),
        _slices(raw, fields.properties_at[:count], ends),
        _bad_property_crcs(raw, starts, ends),
    )


def _slices(raw: bytes, starts: Int64s, ends: Int64s) -> list[bytes]:
    return [raw[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _bad_property_crcs(raw: bytes, starts: Int64s, ends: Int64s) -> list[int]:
    """The records that end with a CRC over all of them that does not match."""
    has_crc = values_at(raw, ends - PROPERTY_CRC_BYTES, _CRC_NAME_TYPE) == _CRC_NAME
    return [
        int(row)
        for row in np.flatnonzero(has_crc)
        if not verify_property_crc(raw[int(starts[row]) : int(ends[row])])
    ]
