"""Rows encoded as entries of batch bodies, column by column: no Python object per row.

The layout of a batch body: protocol/batch.py. Rows that a batch cannot carry, or that may be invalid, are
only marked here, and checked one by one in invalid_rows.py: null, empty, large and delayed values, and texts
with characters that a property may not contain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kourou.protocol.layout import (
    BATCH_ENTRY,
    MAX_PROPERTIES_BYTES,
    MIN_BATCH_ENTRY_BYTES,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH,
    PROPERTY_SEPARATOR,
)
from kourou.protocol.properties import (
    KEY_SEPARATOR,
    MAX_SENT_PROPERTIES_BYTES,
    RESERVED_PROPERTIES,
    MessageConst,
)
from kourou.spark.sink.sink_columns import Rows, is_set

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

ALONE_BYTES: Final = 64 * 1024
"""Rows of this size or more are sent alone and compressed, which saves more than a shared request."""
_HEAD: Final = np.dtype(BATCH_ENTRY.dtype())
_NAME_END: Final = NAME_VALUE_SEPARATOR.encode()
_PAIR_END: Final = PROPERTY_SEPARATOR.encode()
_RESERVED: Final = sorted(RESERVED_PROPERTIES)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of many rows, contiguous: rows `a` to `b` are `body(a, b)`."""

    buffer: pa.Buffer
    offsets: Int64s

    def body(self, first: int, end: int) -> bytes:
        """The batch body of these entries."""
        return bytes(memoryview(self.buffer)[self.offsets[first] : self.offsets[end]])


def encode_entries(values: pa.Array, properties: pa.Array) -> Entries:
    """The entries of rows. A null is encoded as empty: such a row is sent singly, and its entry is not
    used."""
    values = pc.fill_null(values, b"")
    body_lengths = _lengths(values)
    property_lengths = _lengths(properties)
    heads = np.zeros(len(values), _HEAD)
    heads["size"] = MIN_BATCH_ENTRY_BYTES + body_lengths + property_lengths
    heads["body_length"] = body_lengths
    joined = pc.binary_join_element_wise(
        _fixed(heads.tobytes(), _HEAD.itemsize),
        values,
        # The properties of a row that is sent singly may be too long for their 16 bits.
        _fixed(
            np.minimum(property_lengths, MAX_PROPERTIES_BYTES).astype(PROPERTIES_LENGTH.dtype).tobytes(), 2
        ),
        properties,
        _scalar(b""),
    )
    offsets = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return Entries(joined.buffers()[2], offsets)


@dataclass(frozen=True, slots=True)
class Properties:
    """The property strings of rows, and which rows must be checked one by one."""

    texts: pa.Array
    is_single: Mask


def encode_properties(rows: Rows, ids: pa.Array, *, drop_reserved: bool) -> Properties:
    """The properties of each row, with its message id."""
    is_single = np.zeros(rows.count, np.bool_)
    parts = [_pairs(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, ids)]
    pair_counts = np.ones(rows.count, np.int64)
    for name, column in _column_properties(rows, is_single):
        has_value = is_set(column)
        pair_counts += _numpy(has_value)
        parts.append(_pairs(name, pc.if_else(has_value, column, None)))
    if rows.properties is not None:
        own, own_counts = _own(rows.properties, is_single, drop_reserved=drop_reserved)
        parts.append(own)
        pair_counts += own_counts
    texts = pc.binary_join_element_wise(*parts, _scalar(b"")) if len(parts) > 1 else parts[0]
    # A separator inside a name or value would add a pair.
    for separator in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR):
        # No row has fewer separators than pairs: if the totals match, no row has more.
        if _count_byte(texts, ord(separator)) != pair_counts.sum():
            is_single |= _numpy(pc.count_substring(texts, separator)) != pair_counts
    is_single |= _lengths(texts) > MAX_SENT_PROPERTIES_BYTES
    return Properties(texts, is_single)


def single_values(rows: Rows, *, alone_bytes: int) -> Mask:
    """Rows that cannot be in a batch: null, empty, large or delayed."""
    lengths = _lengths(pc.fill_null(rows.value, b""))
    is_single: Mask = (lengths == 0) | (lengths >= alone_bytes)
    if rows.delay_ms is not None:
        is_single |= _numpy(pc.fill_null(pc.not_equal(rows.delay_ms, 0), False))
    return is_single


def _column_properties(rows: Rows, is_single: Mask) -> list[tuple[str, pa.Array]]:
    """The properties that have a column of their own."""
    found = []
    if rows.keys is not None:
        found.append((MessageConst.PROPERTY_KEYS, _joined_keys(rows.keys, is_single)))
    if rows.tags is not None:
        found.append((MessageConst.PROPERTY_TAGS, rows.tags))
    if rows.sharding_key is not None:
        is_single |= _numpy(pc.fill_null(_is_blank(rows.sharding_key), False))
        found.append((MessageConst.PROPERTY_SHARDING_KEY, rows.sharding_key))
    return found


def _joined_keys(keys: pa.Array, is_single: Mask) -> pa.Array:
    """Keys joined into one text, as in a message."""
    if not pa.types.is_large_list(keys.type):
        is_single |= _not_utf8(keys)
        return keys
    offsets = _numpy(keys.offsets).astype(np.int64)
    words = keys.values
    is_wrong = pc.fill_null(pc.match_substring_regex(words, "^$| "), True)
    is_single |= _any_within(_numpy(is_wrong), offsets)
    words = pc.fill_null(words, "").cast(pa.large_binary())
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), words)
    return pc.binary_join(lists, _scalar(KEY_SEPARATOR.encode()))


def _own(column: pa.Array, is_single: Mask, *, drop_reserved: bool) -> tuple[pa.Array, Int64s]:
    """User properties as text, and how many each row has."""
    offsets = _numpy(column.offsets).astype(np.int64)
    names, values = column.keys, column.items
    is_reserved = _numpy(pc.is_in(names, pa.array(_RESERVED, pa.large_string())))
    is_wrong = _numpy(pc.or_(_is_blank_or_null(names), _is_blank_or_null(values)))
    if drop_reserved:
        is_wrong &= ~is_reserved
        keep = pa.array(~is_reserved)
    else:
        is_wrong |= is_reserved
        keep = None
    is_single |= _any_within(is_wrong, offsets)
    pairs = pc.binary_join_element_wise(
        pc.fill_null(names, "").cast(pa.large_binary()),
        pc.fill_null(values, "").cast(pa.large_binary()),
        _scalar(_NAME_END),
    )
    pairs = pc.binary_join_element_wise(pairs, _scalar(_PAIR_END), _scalar(b""))
    if keep is not None:
        pairs = pairs.filter(keep)
        offsets = np.concatenate(([0], np.cumsum(~is_reserved)))[offsets]
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pairs)
    return pc.binary_join(lists, _scalar(b"")), np.diff(offsets)


def _pairs(name: str, column: pa.Array) -> pa.Array:
    """One property of each row, empty where the column is null."""
    pairs = pc.binary_join_element_wise(
        _scalar(name.encode() + _NAME_END), column, _scalar(_PAIR_END), _scalar(b"")
    )
    return pc.fill_null(pairs, b"")


def _is_blank(column: pa.Array) -> pa.Array:
    text = column.cast(pa.large_string())
    return pc.equal(pc.utf8_trim_whitespace(text), "")


def _is_blank_or_null(column: pa.Array) -> pa.Array:
    return pc.fill_null(_is_blank(column), True)


def _not_utf8(column: pa.Array) -> Mask:
    """Which values are not UTF-8. The whole column is checked at once; single values only if that fails."""
    try:
        column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(value) for value in column.to_pylist()], np.bool_)
    return np.zeros(len(column), np.bool_)


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _any_within(flags: Mask, offsets: Int64s) -> Mask:
    """For each list, whether one of its items is flagged."""
    before = np.concatenate(([0], np.cumsum(flags)))
    found: Mask = before[offsets[1:]] > before[offsets[:-1]]
    return found


def _lengths(column: pa.Array) -> Int64s:
    lengths: Int64s = _numpy(pc.binary_length(column)).astype(np.int64)
    return lengths


def _count_byte(column: pa.Array, byte: int) -> int:
    """How often a byte occurs in a column."""
    _, offsets, raw = column.buffers()
    if raw is None:
        return 0
    bounds = np.frombuffer(offsets, np.int64)[[column.offset, column.offset + len(column)]]
    return int(np.count_nonzero(np.frombuffer(raw, np.uint8)[bounds[0] : bounds[1]] == byte))


def _fixed(raw: bytes, width: int) -> pa.Array:
    """Values of a fixed width, as a column."""
    offsets = np.arange(0, len(raw) + 1, width, dtype=np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(raw)]
    )


def _scalar(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


def _numpy(column: pa.Array) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array
