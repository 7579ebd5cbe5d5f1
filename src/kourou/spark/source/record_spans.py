"""RecordSpans: where the parts of many stored records lie, as arrays; no object is made for a record.

A record is taken exactly if `decode_record` takes it, and what is wrong with another, that function says.
Sizes are followed in runs: records of one size, which most are, cost no step of the interpreter each.
Not here: which columns are made of the parts (columns.py), properties (property_table.py).
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.record import (
    BODY_LENGTH_POS,
    BODY_POS,
    BORN_HOST_POS,
    HOST_V6_EXTRA_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    RECONSUME_TIMES_POS,
    STORE_HOST_POS,
    STORE_TIMESTAMP_POS,
    decode_record,
    record_positions,
)
from kourou.store.log.record_arrays import heads_at, values_at

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

BORN_V6: Final = 0x10
STORE_V6: Final = 0x20
_HOSTS_V6: Final = BORN_V6 | STORE_V6
_SIZE: Final = struct.Struct(">i")
_U8: Final = np.dtype(">u1")
_I16: Final = np.dtype(">i2")
_I32: Final = np.dtype(">i4")
_I64: Final = np.dtype(">i8")
_MIN_LOOKAHEAD: Final = 64
_MAX_LOOKAHEAD: Final = 16_384
_ONE_BY_ONE: Final = 1_024


def record_bounds(raw: bytes) -> Int64s:
    """Where each record starts, and where the last one ends, by their sizes alone. ProtocolError where
    those do not fill `raw`."""
    bounds = leading_bounds(raw)
    if bounds[-1] != len(raw):
        record_positions(raw)  # says what is wrong
    return bounds


def leading_bounds(raw: bytes) -> Int64s:
    """The same for the records at the start of `raw`, up to the first that does not fit in, or is none."""
    parts: list[Int64s] = []
    at, look = 0, _MIN_LOOKAHEAD
    while at < len(raw):
        count, size = _run(raw, at, look)
        if count >= _MIN_LOOKAHEAD // 4:
            parts.append(np.arange(at, at + count * size, size, dtype=np.int64))
            at += count * size
            look = min(look * 4, _MAX_LOOKAHEAD)
            continue
        starts, following = _steps(raw, at)
        if following == at:
            break
        parts.append(starts)
        at, look = following, _MIN_LOOKAHEAD
    return np.append(np.concatenate(parts), at) if parts else np.zeros(1, np.int64)


def _run(raw: bytes, at: int, look: int) -> tuple[int, int]:
    """How many records from `at` on have size and magic of the first, up to `look`; and that size."""
    if len(raw) - at < MIN_RECORD_BYTES:
        return 0, 0
    (size,) = _SIZE.unpack_from(raw, at)
    if not MIN_RECORD_BYTES <= size <= len(raw) - at:
        return 0, 0
    count = min(look, (len(raw) - at) // size)
    marks: NDArray[np.uint64] = np.ndarray((count,), np.uint64, raw, at, (size,))
    is_same = marks == marks[0]
    return (count if is_same.all() else int(is_same.argmin())), size


def _steps(raw: bytes, at: int) -> tuple[Int64s, int]:
    """The starts of some records from `at` on, one by one, and where the next one is."""
    starts: list[int] = []
    add = starts.append
    end = len(raw)
    last = end - MIN_RECORD_BYTES
    unpack = _SIZE.unpack_from
    for _ in range(_ONE_BY_ONE):
        if at > last:
            break
        (size,) = unpack(raw, at)
        if size < MIN_RECORD_BYTES or size > end - at:
            break
        add(at)
        at += size
    return np.fromiter(starts, np.int64, len(starts)), at


class RecordSpans:
    """Records of `raw`, which start at `starts` and end at `ends`; row i of every array is record i."""

    def __init__(self, raw: bytes, starts: Int64s, ends: Int64s) -> None:
        self.raw = raw
        self.starts = starts
        self.ends = ends
        # As plain bytes first: numpy copies those at once, and fields one by one.
        self._heads = heads_at(raw, starts)
        self.sys_flags = self.field("sys_flag")
        self._has_v6 = bool((self.sys_flags & _HOSTS_V6).any())
        self._place()

    @classmethod
    def of(cls, raw: bytes) -> RecordSpans:
        """All records of a pull answer. ProtocolError for bytes that are none."""
        bounds = record_bounds(raw)
        spans = cls(raw, bounds[:-1], bounds[1:])
        if not spans.lengths_fit.all():
            decode_record(raw, int(spans.starts[spans.lengths_fit.argmin()]))
        return spans

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, which: Bools | slice) -> RecordSpans:
        """Some of them."""
        if isinstance(which, slice):
            is_all = which.indices(len(self)) == (0, len(self), 1)
        else:
            is_all = bool(which.all())
        return self if is_all else RecordSpans(self.raw, self.starts[which], self.ends[which])

    # -- numbers ---------------------------------------------------------------------------------

    def field(self, name: str) -> Int64s:
        """A field that lies before all hosts."""
        found: Int64s = self._heads[name].astype(np.int64)
        return found

    @cached_property
    def store_timestamps(self) -> Int64s:
        return self._behind_hosts("store_timestamp", STORE_TIMESTAMP_POS, _I64, BORN_V6)

    @cached_property
    def reconsume_times(self) -> Int64s:
        """How often each was delivered before."""
        return self._behind_hosts("reconsume_times", RECONSUME_TIMES_POS, _I32, _HOSTS_V6)

    @cached_property
    def born_hosts(self) -> NDArray[np.uint64]:
        """Address and port as one number, where they are IPv4."""
        found: NDArray[np.uint64] = self._heads["born_host"].astype(np.uint64)
        return found

    @cached_property
    def store_hosts(self) -> NDArray[np.uint64]:
        """The same of the broker, where its address is IPv4."""
        found: NDArray[np.uint64] = self._heads["store_host"].astype(np.uint64)
        if self._has_v6:
            positions = self.starts + STORE_HOST_POS + self._shift(BORN_V6)
            found = values_at(self.raw, positions, np.dtype(">u8")).astype(np.uint64)
        return found

    def host_bytes(self, row: int, *, is_born: bool) -> bytes:
        """One host as it is stored, IPv6 or not."""
        flag = int(self.sys_flags[row])
        at = int(self.starts[row]) + BORN_HOST_POS
        born_bytes = 8 + (HOST_V6_EXTRA_BYTES if flag & BORN_V6 else 0)
        if is_born:
            return self.raw[at : at + born_bytes]
        at += born_bytes + 8
        return self.raw[at : at + 8 + (HOST_V6_EXTRA_BYTES if flag & STORE_V6 else 0)]

    def _behind_hosts(self, name: str, position: int, kind: np.dtype[Any], flags: int) -> Int64s:
        if not self._has_v6:
            return self.field(name)
        found: Int64s = values_at(self.raw, self.starts + position + self._shift(flags), kind).astype(
            np.int64
        )
        return found

    def _shift(self, flags: int) -> Int64s:
        """By how much the IPv6 hosts among `flags` shift what follows them."""
        shift = np.zeros(len(self), np.int64)
        for flag in (BORN_V6, STORE_V6):
            if flags & flag:
                shift += np.where(self.sys_flags & flag, HOST_V6_EXTRA_BYTES, 0)
        return shift

    # -- parts -----------------------------------------------------------------------------------

    def property_rows(self) -> NDArray[np.uint8] | None:
        """The property strings as rows of a matrix; None where they are not all of one length, or empty."""
        lengths = self.ends - self.property_begins
        if not len(self) or not lengths[0] or bool((lengths != lengths[0]).any()):
            return None
        found = values_at(self.raw, self.property_begins, np.dtype(f"V{lengths[0]}"))
        return found.view(np.uint8).reshape(len(self), int(lengths[0]))

    @cached_property
    def same_topic(self) -> bytes | None:
        """The topic where all have the same one; else None."""
        lengths = self.topic_ends - self.topic_begins
        if not len(self) or not lengths[0] or bool((lengths != lengths[0]).any()):
            return None
        found = values_at(self.raw, self.topic_begins, np.dtype(f"V{lengths[0]}"))
        return found[0].tobytes() if bool((found == found[0]).all()) else None

    def _place(self) -> None:
        """Find body, topic and properties, and whether the lengths add up."""
        raw = self.raw
        body_lengths = self._behind_hosts("body_length", BODY_LENGTH_POS, _I32, _HOSTS_V6)
        self.body_begins = self.starts + BODY_POS
        if self._has_v6:
            self.body_begins = self.body_begins + self._shift(_HOSTS_V6)
        self.body_ends = self.body_begins + body_lengths
        magics = self._heads["magic"]
        is_v2 = magics == MESSAGE_MAGIC_CODE_V2
        topic_lengths = values_at(raw, self.body_ends, _U8).astype(np.int64)
        topic_fits = topic_lengths <= MAX_TOPIC_BYTES_V1
        self.topic_begins = self.body_ends + 1
        if is_v2.any():
            lengths_v2 = values_at(raw, self.body_ends, _I16).astype(np.int64)
            topic_fits = np.where(is_v2, lengths_v2 >= 0, topic_fits)
            topic_lengths = np.where(is_v2, lengths_v2, topic_lengths)
            self.topic_begins = self.topic_begins + is_v2
        self.topic_ends = self.topic_begins + topic_lengths
        property_lengths = values_at(raw, self.topic_ends, _I16).astype(np.int64)
        self.property_begins = self.topic_ends + 2
        self.lengths_fit: Bools = (
            (is_v2 | (magics == MESSAGE_MAGIC_CODE))
            & (body_lengths >= 0)
            & topic_fits
            & (property_lengths >= 0)
            & (self.property_begins + property_lengths == self.ends)
        )
