"""PropertyColumns: the properties of many records at once, split by position, with arrays.

The property strings are joined into one, with a separator before each; no object is created for a value
unless it is needed. Equivalent to `decode_properties`, which decodes one string: of two pairs with the same
name the later wins, a pair without name or value is ignored. Not here: single strings (properties.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from kourou.protocol.properties import KEY_SEPARATOR, RAW_PROPERTY_SEPARATOR, property_start

Positions = NDArray[np.intp]

NAME_END: Final = ord(NAME_VALUE_SEPARATOR)
PAIR_END: Final = ord(PROPERTY_SEPARATOR)
_BLANK: Final = ord(KEY_SEPARATOR)


class Spans(NamedTuple):
    """Parts of a byte string, in order: row `rows[i]` has the bytes from `begins[i]` to `ends[i]`."""

    rows: Positions
    begins: Positions
    ends: Positions

    def select(self, which: NDArray[np.bool_]) -> Spans:
        """The spans of these rows."""
        return Spans(self.rows[which], self.begins[which], self.ends[which])


class PropertyColumns:
    """The properties of some records; `joined` is what spans are parts of.

    Each string has separators before it, the first of them at `row_begins`, and there is one at `end`.
    """

    def __init__(self, joined: bytes, row_begins: Positions, end: int) -> None:
        self.joined = joined
        self.data = np.frombuffer(joined, np.uint8)
        self.row_count = len(row_begins)
        self._row_begins, self._end = row_begins, end
        self._find_pairs()

    @classmethod
    def of(cls, properties: Sequence[bytes]) -> PropertyColumns:
        """The properties in these strings."""
        lengths = np.fromiter(map(len, properties), np.intp, len(properties))
        ends = np.cumsum(lengths + 1)
        joined = RAW_PROPERTY_SEPARATOR.join((b"", *properties, b""))
        return cls(joined, ends - lengths - 1, len(joined) - 1)

    def _find_pairs(self) -> None:
        separators = np.flatnonzero(self.data[: self._end + 1] == PAIR_END)
        begins, ends = separators[:-1] + 1, separators[1:]
        is_piece = begins < ends
        if not is_piece.all():
            begins, ends = begins[is_piece], ends[is_piece]
        name_ends = self._find_name_ends(begins, ends)
        is_pair = (name_ends > begins) & (name_ends + 1 < ends)
        if not is_pair.all():
            begins, name_ends, ends = begins[is_pair], name_ends[is_pair], ends[is_pair]
        self.begins, self.name_ends, self.ends = begins, name_ends, ends

    def _find_name_ends(self, begins: Positions, ends: Positions) -> Positions:
        """The position of the first 0x01 of each piece, or the piece's end."""
        marks = np.flatnonzero(self.data[: self._end] == NAME_END)
        if len(marks) == len(begins) and bool(((begins <= marks) & (marks < ends)).all()):
            return marks  # one in each piece, the usual case
        at = np.searchsorted(marks, begins)
        found = np.append(marks, self._end)[at]
        return np.where(found < ends, found, ends)

    # -- rows ------------------------------------------------------------------------------------

    @cached_property
    def row_bounds(self) -> Positions:
        """Row i has the pairs from `[i]` up to `[i + 1]`."""
        return np.searchsorted(self.begins, np.append(self._row_begins, self._end))

    @cached_property
    def name_lengths(self) -> Positions:
        """The length of the name of each pair."""
        return self.name_ends - self.begins

    @cached_property
    def shape(self) -> list[bytes] | None:
        """The names that every row has, in order; None where rows differ. Producers of one kind write rows of
        one shape, which need no search."""
        rows, pairs = self.row_count, len(self.begins)
        if (
            not rows
            or pairs % rows
            or not bool((self.row_bounds == np.arange(rows + 1) * (pairs // rows)).all())
        ):
            return None
        each = pairs // rows
        names = [self.name(pair) for pair in range(each)]
        for pair, name in enumerate(names):
            mine = slice(pair, None, each)
            if not bool((self.name_lengths[mine] == len(name)).all()):
                return None
            if not bool((self._words_at(self.begins[mine], len(name)) == name).all()):
                return None
        return names

    def name(self, pair: int) -> bytes:
        """The name of one pair."""
        return self.joined[int(self.begins[pair]) : int(self.name_ends[pair])]

    def _words_at(self, begins: Positions, length: int) -> NDArray[Any]:
        everywhere: NDArray[Any] = np.ndarray(
            (len(self.data) - length + 1,), f"S{length}", self.data, strides=(1,)
        )
        return everywhere[begins]

    # -- one property ----------------------------------------------------------------------------

    def spans(self, name: str) -> Spans:
        """The positions of the values of `name`, at most one per row."""
        needle = name.encode()
        shape = self.shape
        if shape is not None:
            hits, rows = self._in_shape(shape, needle)
        else:
            hits, rows = self._search(needle)
        return Spans(rows, self.name_ends[hits] + 1, self.ends[hits])

    def _in_shape(self, shape: list[bytes], needle: bytes) -> tuple[Positions, Positions]:
        if needle not in shape:
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        last = len(shape) - 1 - shape[::-1].index(needle)
        return np.arange(last, len(self.begins), len(shape)), np.arange(self.row_count)

    def _search(self, needle: bytes) -> tuple[Positions, Positions]:
        hits = np.flatnonzero(self.name_lengths == len(needle))
        if len(hits):
            hits = hits[self._words_at(self.begins[hits], len(needle)) == needle]
        rows = self._rows_of(hits)
        is_last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
        return (hits, rows) if is_last.all() else (hits[is_last], rows[is_last])

    def _rows_of(self, pairs: Positions) -> Positions:
        first, end = self.row_bounds[:-1], self.row_bounds[1:]
        if len(pairs) == self.row_count and bool(((first <= pairs) & (pairs < end)).all()):
            return np.arange(self.row_count)  # one in each row
        return np.searchsorted(first, pairs, "right") - 1

    def values(self, name: str) -> dict[int, bytes]:
        """The values of `name` by row."""
        if (PROPERTY_SEPARATOR + property_start(name)).encode() not in self.joined:
            return {}
        rows, begins, ends = (column.tolist() for column in self.spans(name))
        joined = self.joined
        return {row: joined[begin:end] for row, begin, end in zip(rows, begins, ends, strict=True)}

    def word_spans(self, spans: Spans) -> Spans:
        """`spans` split at each space, without empty words."""
        blanks = np.flatnonzero(self.data[: self._end] == _BLANK)
        if not len(blanks) or not len(spans.rows):
            return spans
        of = np.searchsorted(spans.begins, blanks, "right") - 1
        cuts = blanks[(of >= 0) & (blanks < spans.ends[np.maximum(of, 0)])]
        begins = np.sort(np.concatenate((spans.begins, cuts + 1)))
        ends = np.sort(np.concatenate((spans.ends, cuts)))
        rows = spans.rows[np.searchsorted(spans.begins, begins, "right") - 1]
        return Spans(rows, begins, ends).select(begins < ends)
