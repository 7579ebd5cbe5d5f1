"""Rows encoded as entries of batch bodies, column by column: no Python object per row.

The layout of a batch body: protocol/batch.py. An entry is a sequence of pieces (head, value, length of the
properties, and the properties), and all entries are joined at once, in the order in which they are sent:

    properties = encode_properties(rows, ids, drop_reserved=False, more_bytes=40)
    more = [b"EPOCH\\x013\\x02SEQ\\x01", numbers, b"\\x02"]
    entries = encode_entries(rows.value, properties, order, more)
    entries.body(0, 10)  # the batch body of the first ten

`more` has the pieces of properties that depend on the place of an entry, such as its number in a queue.

Rows that a batch cannot carry, or that may be invalid, are only marked here, and checked one by one in
invalid_rows.py: null, empty, large and delayed values, and texts with characters that a property may not
contain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

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
ByteRows = npt.NDArray[np.uint8]
"""Values of one width: a row of bytes for each."""
Piece: TypeAlias = bytes | ByteRows | pa.Array
"""A part of every entry: the same bytes for all, bytes of one width, or a `large_binary` column without
nulls."""

ALONE_BYTES: Final = 64 * 1024
"""Rows of this size or more are sent alone and compressed, which saves more than a shared request."""
_HEAD: Final = np.dtype(BATCH_ENTRY.dtype())
_NAME_END: Final = NAME_VALUE_SEPARATOR.encode()
_PAIR_END: Final = PROPERTY_SEPARATOR.encode()
_ID_NAME: Final = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode() + _NAME_END
_RESERVED: Final = sorted(RESERVED_PROPERTIES)
_NOTHING: Final = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of many rows, contiguous: rows `a` to `b` are `body(a, b)`."""

    buffer: pa.Buffer
    offsets: Int64s

    def body(self, first: int, end: int) -> memoryview:
        """The batch body of these entries, not copied."""
        return memoryview(self.buffer).cast("B")[self.offsets[first] : self.offsets[end]]


@dataclass(frozen=True, slots=True)
class Properties:
    """The property strings of rows, in pieces, and which rows must be checked one by one."""

    pieces: Sequence[Piece]
    is_single: Mask


def encode_entries(
    values: pa.Array, properties: Properties, order: Int64s | None = None, more: Sequence[Piece] = ()
) -> Entries:
    """The entries of rows, in `order`. A null is encoded as empty: such a row is sent singly, and its entry
    is not used. `more` follows the properties of each entry, and is in the order of the entries."""
    values, pieces = _without_nulls(values), list(properties.pieces)
    if order is not None:
        index = pa.array(order)
        values, pieces = values.take(index), [_reordered(piece, order, index) for piece in pieces]
    pieces += more
    body_lengths = _lengths(values)
    property_lengths = _total_lengths(pieces, len(values))
    heads = np.zeros(len(values), _HEAD)
    heads["size"] = MIN_BATCH_ENTRY_BYTES + body_lengths + property_lengths
    heads["body_length"] = body_lengths
    # The properties of a row that is sent singly may be too long for their 16 bits.
    lengths = np.minimum(property_lengths, MAX_PROPERTIES_BYTES).astype(PROPERTIES_LENGTH.dtype)
    joined = _joined([_byte_rows(heads), values, _byte_rows(lengths), *pieces], len(values))
    return Entries(joined.buffers()[2], _offsets(joined))


def encode_properties(rows: Rows, ids: ByteRows, *, drop_reserved: bool, more_bytes: int = 0) -> Properties:
    """The properties of each row, with its message id. `more_bytes` is the most that further pieces add."""
    is_single = np.zeros(rows.count, np.bool_)
    pieces: list[Piece] = [_ID_NAME, ids, _PAIR_END]
    for name, column in _column_properties(rows, is_single):
        is_single |= _has_separator(column)
        pieces += _pairs(name, column)
    if rows.properties is not None:
        pieces.append(_own(rows.properties, is_single, drop_reserved=drop_reserved))
    is_single |= _total_lengths(pieces, rows.count) > MAX_SENT_PROPERTIES_BYTES - more_bytes
    return Properties(pieces, is_single)


def single_values(rows: Rows, *, alone_bytes: int) -> Mask:
    """Rows that cannot be in a batch: null, empty, large or delayed."""
    lengths = _lengths(_without_nulls(rows.value))
    is_single: Mask = (lengths == 0) | (lengths >= alone_bytes)
    if rows.delay_ms is not None:
        is_single |= _numpy(pc.fill_null(pc.not_equal(rows.delay_ms, 0), False))
    return is_single


# -- properties ----------------------------------------------------------------------------------


def _column_properties(rows: Rows, is_single: Mask) -> Iterator[tuple[str, pa.Array]]:
    """The properties that have a column of their own."""
    if rows.keys is not None:
        yield MessageConst.PROPERTY_KEYS, _joined_keys(rows.keys, is_single)
    if rows.tags is not None:
        yield MessageConst.PROPERTY_TAGS, rows.tags
    if rows.sharding_key is not None:
        is_single |= _numpy(pc.fill_null(_is_blank(rows.sharding_key), False))
        yield MessageConst.PROPERTY_SHARDING_KEY, rows.sharding_key


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
    return pc.binary_join(lists, pa.scalar(KEY_SEPARATOR.encode(), pa.large_binary()))


def _pairs(name: str, column: pa.Array) -> list[Piece]:
    """One property of each row; nothing where the column is null or empty."""
    head = name.encode() + _NAME_END
    has_value = is_set(column)
    if pc.all(has_value).as_py():
        return [head, column, _PAIR_END]
    pairs = _joined([head, _without_nulls(column), _PAIR_END], len(column))
    return [pc.if_else(has_value, pairs, _NOTHING)]


def _own(column: pa.Array, is_single: Mask, *, drop_reserved: bool) -> pa.Array:
    """User properties as text."""
    offsets = _numpy(column.offsets).astype(np.int64)
    names, values = column.keys, column.items
    is_reserved = _numpy(pc.is_in(names, pa.array(_RESERVED, pa.large_string())))
    is_wrong = _numpy(pc.or_(_is_blank_or_null(names), _is_blank_or_null(values)))
    names, values = (_without_nulls(part.cast(pa.large_binary())) for part in (names, values))
    is_wrong |= _has_separator(names) | _has_separator(values)
    is_wrong = is_wrong & ~is_reserved if drop_reserved else is_wrong | is_reserved
    is_single |= _any_within(is_wrong, offsets)
    pairs = _joined([names, _NAME_END, values, _PAIR_END], len(names))
    if drop_reserved:
        pairs = pairs.filter(pa.array(~is_reserved))
        offsets = np.concatenate(([0], np.cumsum(~is_reserved)))[offsets]
    # The pairs of a row are next to each other.
    bounds = _offsets(pairs)[offsets]
    return _column(len(bounds) - 1, bounds, pairs.buffers()[2])


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


def _has_separator(column: pa.Array) -> Mask:
    """Which values contain a separator of properties. The whole column is searched at once; single values
    only if there is one."""
    found = np.zeros(len(column), np.bool_)
    text = _text(column)
    for separator in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR):
        if (text == ord(separator)).any():
            found |= _numpy(pc.fill_null(pc.match_substring(column, separator), False))
    return found


def _any_within(flags: Mask, offsets: Int64s) -> Mask:
    """For each list, whether one of its items is flagged."""
    before = np.concatenate(([0], np.cumsum(flags)))
    found: Mask = before[offsets[1:]] > before[offsets[:-1]]
    return found


# -- pieces --------------------------------------------------------------------------------------


def _joined(pieces: Sequence[Piece], count: int) -> pa.Array:
    """The pieces of each of `count` entries, one behind the other."""
    columns: list[pa.Array] = []
    for is_column, found in groupby(pieces, lambda piece: isinstance(piece, pa.Array)):
        group = list(found)
        columns += group if is_column else [_fixed(group, count)]
    return pc.binary_join_element_wise(*columns, _NOTHING)


def _fixed(pieces: Sequence[bytes | ByteRows], count: int) -> pa.Array:
    """Pieces of a fixed width as one column: each column less makes the join faster."""
    width = sum(map(_width, pieces))
    joined = np.empty((count, width), np.uint8)
    at = 0
    for piece in pieces:
        end = at + _width(piece)
        joined[:, at:end] = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
        at = end
    return _column(count, np.arange(0, count * width + 1, width), pa.py_buffer(joined))


def _width(piece: bytes | ByteRows) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.shape[1]


def _reordered(piece: Piece, order: Int64s, index: pa.Array) -> Piece:
    if isinstance(piece, pa.Array):
        return piece.take(index)
    return piece if isinstance(piece, bytes) else piece[order]


def _total_lengths(pieces: Sequence[Piece], count: int) -> Int64s:
    """How long the pieces of each entry are together."""
    total = np.zeros(count, np.int64)
    for piece in pieces:
        total += _lengths(piece) if isinstance(piece, pa.Array) else _width(piece)
    return total


# -- columns -------------------------------------------------------------------------------------


def _column(count: int, offsets: Int64s, text: pa.Buffer) -> pa.Array:
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), text])


def _without_nulls(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, b"") if column.null_count else column


def _offsets(column: pa.Array) -> Int64s:
    """Where the values of a `large_binary` column begin and end."""
    if not len(column):
        return np.zeros(1, np.int64)  # its buffers may be missing
    found: Int64s = np.frombuffer(column.buffers()[1], np.int64)[
        column.offset : column.offset + len(column) + 1
    ]
    return found


def _text(column: pa.Array) -> npt.NDArray[np.uint8]:
    """The values of a `large_binary` column, one behind the other."""
    offsets, raw = _offsets(column), column.buffers()[2]
    if raw is None:
        return np.zeros(0, np.uint8)
    return np.frombuffer(raw, np.uint8)[offsets[0] : offsets[-1]]


def _lengths(column: pa.Array) -> Int64s:
    """The lengths of the values of a `large_binary` column without nulls."""
    return np.diff(_offsets(column))


def _byte_rows(array: npt.NDArray[Any]) -> ByteRows:
    return array.view(np.uint8).reshape(len(array), array.itemsize)


def _numpy(column: pa.Array) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array
