"""RecordSpans: where the parts of many stored records lie, as arrays; no object is made for a record.

A record is valid exactly if `decode_record` accepts it; that function says what is wrong with another one.
Sizes are followed in runs: records of one size, which most are, cost no step of the interpreter each.
Not here: what the parts are used for, properties (property_columns.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.layout import (
    HOSTS_V6,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    PROPERTIES_LENGTH,
    RECORD,
    RECORD_HEADS,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    Buffer,
    Layout,
)
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_positions

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

_HEAD: Final = np.dtype(RECORD.dtype())
# Copied as bytes, which is quicker than field by field.
_HEAD_BYTES: Final = np.dtype(f"V{RECORD.size}")
_TOPIC_LENGTH_V1: Final = np.dtype(TOPIC_LENGTH_V1.dtype)
_TOPIC_LENGTH_V2: Final = np.dtype(TOPIC_LENGTH_V2.dtype)
_PROPERTIES_LENGTH: Final = np.dtype(PROPERTIES_LENGTH.dtype)
_SIZE: Final = RECORD.part("total_size")
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


def values_at(raw: Buffer, positions: Int64s, kind: np.dtype[Any]) -> NDArray[Any]:
    """What lies at these positions. For positions outside it is anything: the lengths of such a record do
    not add up, whatever is read there."""
    count = len(raw) - kind.itemsize + 1
    if count < 1:
        return np.zeros(len(positions), kind)
    everywhere: NDArray[Any] = np.ndarray((count,), kind, raw, strides=(1,))
    if len(positions) and (int(positions.max()) >= count or int(positions.min()) < 0):
        positions = np.clip(positions, 0, count - 1)
    return everywhere[positions]


class RecordSpans:
    """Records of `raw`, which start at `starts` and end at `ends`; row i of every array is record i."""

    def __init__(self, raw: Buffer, starts: Int64s, ends: Int64s) -> None:
        self.raw = raw
        self.starts = starts
        self.ends = ends
        self._heads = values_at(raw, starts, _HEAD_BYTES).view(_HEAD)
        self.sys_flags: Int64s = self._heads["sys_flag"].astype(np.int64)
        self._has_v6 = bool((self.sys_flags & HOSTS_V6).any())
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
        """The spans of these records."""
        if isinstance(which, slice):
            is_all = which.indices(len(self)) == (0, len(self), 1)
        else:
            is_all = bool(which.all())
        return self if is_all else RecordSpans(self.raw, self.starts[which], self.ends[which])

    # -- numbers ---------------------------------------------------------------------------------

    def field(self, name: str) -> Int64s:
        """A field, wherever hosts put it."""
        found: Int64s = self._stored(name).astype(np.int64)
        return found

    @cached_property
    def store_timestamps(self) -> Int64s:
        """Store times in milliseconds since 1970."""
        return self.field("store_timestamp")

    def hosts(self, name: str) -> NDArray[np.uint64]:
        """Address and port of `born_host` or `store_host` as one number, where they are IPv4."""
        found: NDArray[np.uint64] = self._stored(name).astype(np.uint64)
        return found

    def host_bytes(self, row: int, name: str) -> bytes:
        """One host as it is stored, IPv6 or not."""
        head = RECORD_HEADS[int(self.sys_flags[row]) & HOSTS_V6]
        start = int(self.starts[row])
        return bytes(self.raw[start + head.at(name) : start + head.end(name)])

    def _stored(self, name: str) -> NDArray[Any]:
        if not self._has_v6 or RECORD.at(name) <= RECORD.at("born_host"):
            found: NDArray[Any] = self._heads[name]
            return found
        positions = self.starts + self._by_hosts(lambda head: head.at(name))
        return values_at(self.raw, positions, np.dtype(RECORD.kind(name).dtype))

    def _by_hosts(self, position: Callable[[Layout], int]) -> Int64s:
        """A position in each record, which depends on the kinds of its hosts."""
        by_flags = np.zeros(HOSTS_V6 + 1, np.int64)
        for flags, head in RECORD_HEADS.items():
            by_flags[flags] = position(head)
        found: Int64s = by_flags[self.sys_flags & HOSTS_V6]
        return found

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
        body_lengths = self.field("body_length")
        self.body_begins = self.starts + RECORD.size
        if self._has_v6:
            self.body_begins = self.starts + self._by_hosts(lambda head: head.size)
        self.body_ends = self.body_begins + body_lengths
        magics = self._heads["magic"]
        is_v2 = magics == MESSAGE_MAGIC_CODE_V2
        topic_lengths = values_at(raw, self.body_ends, _TOPIC_LENGTH_V1).astype(np.int64)
        topic_fits = topic_lengths <= MAX_TOPIC_BYTES_V1
        self.topic_begins = self.body_ends + TOPIC_LENGTH_V1.size
        if is_v2.any():
            lengths_v2 = values_at(raw, self.body_ends, _TOPIC_LENGTH_V2).astype(np.int64)
            topic_fits = np.where(is_v2, lengths_v2 >= 0, topic_fits)
            topic_lengths = np.where(is_v2, lengths_v2, topic_lengths)
            self.topic_begins = self.topic_begins + is_v2 * (TOPIC_LENGTH_V2.size - TOPIC_LENGTH_V1.size)
        self.topic_ends = self.topic_begins + topic_lengths
        property_lengths = values_at(raw, self.topic_ends, _PROPERTIES_LENGTH).astype(np.int64)
        self.property_begins = self.topic_ends + PROPERTIES_LENGTH.size
        self.lengths_fit: Bools = (
            (is_v2 | (magics == MESSAGE_MAGIC_CODE))
            & (body_lengths >= 0)
            & topic_fits
            & (property_lengths >= 0)
            & (self.property_begins + property_lengths == self.ends)
        )
