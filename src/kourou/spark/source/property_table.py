"""PropertyTable: the properties of many records at once, as Arrow columns.

The property strings are joined into one, with a separator before each, and split by position. Equivalent to
`decode_properties`: of two pairs with the same name the later wins, a pair without name or value is ignored,
invalid UTF-8 becomes U+FFFD. Not here: the meaning of properties (columns.py).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kourou.protocol.record_spans import RecordSpans
from kourou.spark.source.arrow_pieces import data_of, pieces

Positions = NDArray[np.intp]

_NAME_END: Final = 1
_PAIR_END: Final = 2
_PADDING: Final = 8
"""Bytes after the last string, so that eight bytes can be read from the start of any name."""
_LOW_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(8)] + [(1 << 64) - 1], np.uint64)
_FACTORS: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


class Spans(NamedTuple):
    """Values of one property: row `rows[i]` has the bytes from `begins[i]` to `ends[i]`."""

    rows: Positions
    begins: Positions
    ends: Positions


class PropertyTable:
    """The properties of some records."""

    def __init__(self, records: RecordSpans) -> None:
        count = len(records)
        self.row_count = count
        # The two bytes before a property string are its length: room for separators.
        joined = pieces(records.raw, records.property_begins - 2, records.ends, pa.binary())
        bounds, content = data_of(joined)
        self.data = np.zeros(len(content) + 1 + _PADDING, np.uint8)
        self.data[: len(content)] = content
        self._begin_rows(bounds.astype(np.intp))
        self._make_utf8()
        self._find_pairs()

    def _begin_rows(self, bounds: Positions) -> None:
        self._row_begins, self._end = bounds[:-1], int(bounds[-1])
        self.data[self._row_begins] = _PAIR_END
        self.data[self._row_begins + 1] = _PAIR_END
        self.data[self._end] = _PAIR_END

    def _make_utf8(self) -> None:
        """Make all text valid UTF-8, as Java would read it."""
        text = self.data[: self._end].tobytes()
        if text.isascii():
            return
        try:
            text.decode()
        except UnicodeDecodeError:
            begins = self._row_begins.tolist()
            strings = [
                b"\x02\x02" + text[begin + 2 : end].decode("utf-8", "replace").encode()
                for begin, end in zip(begins, [*begins[1:], self._end], strict=True)
            ]
            joined = b"".join(strings)
            self.data = np.zeros(len(joined) + 1 + _PADDING, np.uint8)
            self.data[: len(joined)] = np.frombuffer(joined, np.uint8)
            lengths = np.fromiter(map(len, strings), np.intp, len(strings))
            self._begin_rows(np.concatenate((np.zeros(1, np.intp), np.cumsum(lengths))))

    def _find_pairs(self) -> None:
        separators = np.flatnonzero(self.data[: self._end + 1] == _PAIR_END)
        begins, ends = separators[:-1] + 1, separators[1:]
        is_piece = begins < ends
        begins, ends = begins[is_piece], ends[is_piece]
        name_ends = self._find_name_ends(begins, ends)
        is_pair = (name_ends > begins) & (name_ends + 1 < ends)
        if not is_pair.all():
            begins, name_ends, ends = begins[is_pair], name_ends[is_pair], ends[is_pair]
        self._begins, self._name_ends, self._ends = begins, name_ends, ends

    def _find_name_ends(self, begins: Positions, ends: Positions) -> Positions:
        """The position of the first 0x01 of each piece, or the piece's end."""
        marks = np.flatnonzero(self.data[: self._end] == _NAME_END)
        if len(marks) == len(begins) and bool(((begins <= marks) & (marks < ends)).all()):
            return marks  # one in each piece, the usual case
        at = np.searchsorted(marks, begins)
        found = np.append(marks, self._end)[at]
        return np.where(found < ends, found, ends)

    @cached_property
    def _row_bounds(self) -> Positions:
        """Row i has the pairs from `[i]` up to `[i + 1]`."""
        return np.searchsorted(self._begins, np.append(self._row_begins, self._end))

    @cached_property
    def _name_lengths(self) -> Positions:
        return self._name_ends - self._begins

    @cached_property
    def _shape(self) -> list[bytes] | None:
        """The names that every row has, in order; None where rows differ. Producers of one kind write rows of
        one shape, which need no search."""
        rows, pairs = self.row_count, len(self._begins)
        if (
            not rows
            or pairs % rows
            or not bool((self._row_bounds == np.arange(rows + 1) * (pairs // rows)).all())
        ):
            return None
        each = pairs // rows
        names = [self._name(pair) for pair in range(each)]
        for pair, name in enumerate(names):
            mine = slice(pair, None, each)
            if not bool((self._name_lengths[mine] == len(name)).all()):
                return None
            if not bool((self._words_at(self._begins[mine], len(name)) == name).all()):
                return None
        return names

    def _words_at(self, begins: Positions, length: int) -> NDArray[Any]:
        everywhere: NDArray[Any] = np.ndarray(
            (len(self.data) - length + 1,), f"S{length}", self.data, strides=(1,)
        )
        return everywhere[begins]

    # -- one property ----------------------------------------------------------------------------

    def spans(self, name: str) -> Spans:
        """The positions of the values of `name`, at most one per row."""
        needle = name.encode()
        shape = self._shape
        if shape is not None:
            hits, rows = self._in_shape(shape, needle)
        else:
            hits, rows = self._search(needle)
        return Spans(rows, self._name_ends[hits] + 1, self._ends[hits])

    def _in_shape(self, shape: list[bytes], needle: bytes) -> tuple[Positions, Positions]:
        if needle not in shape:
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        last = len(shape) - 1 - shape[::-1].index(needle)
        return np.arange(last, len(self._begins), len(shape)), np.arange(self.row_count)

    def _search(self, needle: bytes) -> tuple[Positions, Positions]:
        hits = np.flatnonzero(self._name_lengths == len(needle))
        if len(hits):
            hits = hits[self._words_at(self._begins[hits], len(needle)) == needle]
        rows = self._rows_of(hits)
        is_last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
        return (hits, rows) if is_last.all() else (hits[is_last], rows[is_last])

    def _rows_of(self, pairs: Positions) -> Positions:
        first, end = self._row_bounds[:-1], self._row_bounds[1:]
        if len(pairs) == self.row_count and bool(((first <= pairs) & (pairs < end)).all()):
            return np.arange(self.row_count)  # one in each row
        return np.searchsorted(first, pairs, "right") - 1

    def column(self, name: str) -> Any:
        """The values of `name` as strings; null where a record has none."""
        rows, begins, ends = self.spans(name)
        return pieces(self.data, begins, ends, pa.string(), rows, self.row_count)

    def words(self, name: str) -> Any:
        """The words of `name`, separated by spaces, as lists; empty where a record has none."""
        rows, begins, ends = self.spans(name)
        blanks = np.flatnonzero(self.data[: self._end] == 0x20)
        if len(blanks) and len(rows):
            firsts, of_rows = begins, rows
            of = np.searchsorted(begins, blanks, "right") - 1
            cuts = blanks[(of >= 0) & (blanks < ends[np.maximum(of, 0)])]
            begins, ends = np.sort(np.append(begins, cuts + 1)), np.sort(np.append(ends, cuts))
            rows = of_rows[np.searchsorted(firsts, begins, "right") - 1]
            is_word = begins < ends
            rows, begins, ends = rows[is_word], begins[is_word], ends[is_word]
        bounds = np.searchsorted(rows, np.arange(self.row_count + 1)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(bounds), pieces(self.data, begins, ends, pa.string()))

    # -- all of them -----------------------------------------------------------------------------

    def maps(self) -> Any:
        """All properties of each record, as maps."""
        bounds, names, values = self.pairs()
        return pa.MapArray.from_arrays(bounds, names, values)

    def pairs(self) -> tuple[Any, Any, Any]:
        """Bounds of the rows, names and values of all properties, each name once in a row."""
        shape = self._shape
        if shape is not None and len(set(shape)) == len(shape):
            return self._pairs_of(shape)
        bounds, which = self._row_bounds, self._kept()
        begins, name_ends, ends = self._begins, self._name_ends, self._ends
        if which is not None:
            bounds = np.append(0, np.cumsum(which))[bounds]
            begins, name_ends, ends = begins[which], name_ends[which], ends[which]
        names = pieces(self.data, begins, name_ends, pa.string())
        values = pieces(self.data, name_ends + 1, ends, pa.string())
        return pa.array(bounds.astype(np.int32)), names, values

    def _pairs_of(self, shape: list[bytes]) -> tuple[Any, Any, Any]:
        """The same where all rows have the same names, which are simply repeated."""
        ends = np.cumsum(list(map(len, shape)), dtype=np.int32)
        size = int(ends[-1]) if shape else 0
        row_starts = np.arange(self.row_count, dtype=np.int32)[:, None] * np.int32(size)
        bounds = np.append(np.int32(0), (row_starts + ends).reshape(-1)).astype(np.int32)
        text = b"".join(shape) * self.row_count
        count = len(self._begins)
        names = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(text)])
        values = pieces(self.data, self._name_ends + 1, self._ends, pa.string())
        return pa.array(self._row_bounds.astype(np.int32)), names, values

    def _kept(self) -> NDArray[np.bool_] | None:
        """Which pairs are kept where a row has a name twice; None for all."""
        rows = self._rows_with_a_name_twice()
        if not len(rows):
            return None
        kept = np.ones(len(self._begins), np.bool_)
        for row in rows.tolist():
            first, end = int(self._row_bounds[row]), int(self._row_bounds[row + 1])
            names = [self._name(pair) for pair in range(first, end)]
            last = {name: pair for pair, name in enumerate(names, first)}
            kept[first:end] = [last[name] == pair for pair, name in enumerate(names, first)]
        return kept

    def _name(self, pair: int) -> bytes:
        return self.data[int(self._begins[pair]) : int(self._name_ends[pair])].tobytes()

    def _rows_with_a_name_twice(self) -> Positions:
        """Those rows, and possibly others: names are compared by hash."""
        hashes = self._name_hashes()
        counts = np.diff(self._row_bounds)
        rows = np.repeat(np.arange(self.row_count), counts)
        hashes ^= rows.astype(np.uint64) * _FACTORS[2]
        order = np.argsort(hashes, kind="stable")
        is_twin = hashes[order][1:] == hashes[order][:-1]
        return np.unique(rows[order[1:][is_twin]])

    def _name_hashes(self) -> NDArray[np.uint64]:
        """A hash of each name: of its length, its first and its last eight bytes."""
        everywhere: NDArray[np.uint64] = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))
        lengths = self._name_lengths
        short = np.minimum(lengths, 8)
        first = everywhere[self._begins] & _LOW_BYTES[short]
        last = everywhere[self._name_ends - short] & _LOW_BYTES[short]
        found: NDArray[np.uint64] = first * _FACTORS[0] ^ last * _FACTORS[1] ^ lengths.astype(np.uint64)
        return found
