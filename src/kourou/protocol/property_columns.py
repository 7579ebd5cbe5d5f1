"""PropertyColumns: single properties of many records at once.

The property strings of a batch are joined into one and taken apart by position, with arrays: no
object is made for a value unless it is asked for. Means the same as `PropertyScanner`, which serves
one record at a time. Not here: hashes of values (span_hashes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.intp]


class Spans(NamedTuple):
    """Parts of a byte string, in order: row i of the batch has `[begins[i], ends[i])`."""

    rows: Positions
    begins: Positions
    ends: Positions

    def select(self, which: NDArray[np.bool_]) -> Spans:
        """Some of them."""
        return Spans(self.rows[which], self.begins[which], self.ends[which])


class PropertyColumns:
    """The properties of some records, as stored; `joined` is what spans are parts of."""

    __slots__ = ("_begins", "_ends", "_row_starts", "data", "joined")

    def __init__(self, properties: Sequence[bytes]) -> None:
        self.joined = b"\x02".join((b"", *properties, b""))
        self.data = np.frombuffer(self.joined, np.uint8)
        lengths = np.fromiter(map(len, properties), np.intp, len(properties))
        # Where the separator in front of each record's string stands.
        self._row_starts = np.cumsum(lengths + 1) - (lengths + 1)
        separators = np.flatnonzero(self.data == 2)
        self._begins, self._ends = separators[:-1] + 1, separators[1:]

    def __len__(self) -> int:
        return len(self._row_starts)

    def spans(self, name: str) -> Spans:
        """Where the values of `name` are, at most one a record."""
        needle = f"{name}\x01".encode()
        # A pair without a value is no pair.
        hits = np.flatnonzero(self._starts_with(needle) & (self._ends - self._begins > len(needle)))
        begins = self._begins[hits]
        rows = np.searchsorted(self._row_starts, begins) - 1
        spans = Spans(rows, begins + len(needle), self._ends[hits])
        is_last = np.ones(len(rows), np.bool_)
        is_last[:-1] = rows[1:] != rows[:-1]
        return spans if is_last.all() else spans.select(is_last)

    def values(self, name: str) -> dict[int, bytes]:
        """The values of `name` by row."""
        if f"\x02{name}\x01".encode() not in self.joined:
            return {}
        rows, begins, ends = (column.tolist() for column in self.spans(name))
        joined = self.joined
        return {row: joined[begin:end] for row, begin, end in zip(rows, begins, ends, strict=True)}

    def words(self, spans: Spans) -> Spans:
        """`spans` cut at each space; what is empty is left out."""
        spaces = np.flatnonzero(self.data == 0x20)
        if not len(spaces) or not len(spans.rows):
            return spans
        of = np.searchsorted(spans.begins, spaces, "right") - 1
        is_inside = (of >= 0) & (spaces < spans.ends[np.maximum(of, 0)])
        cuts = spaces[is_inside]
        begins = np.sort(np.concatenate((spans.begins, cuts + 1)))
        ends = np.sort(np.concatenate((spans.ends, cuts)))
        rows = spans.rows[np.searchsorted(spans.begins, begins, "right") - 1]
        return Spans(rows, begins, ends).select(begins < ends)

    def _starts_with(self, needle: bytes) -> NDArray[np.bool_]:
        count = len(self.joined) - len(needle) + 1
        kind = np.dtype(f"S{len(needle)}")
        everywhere: NDArray[Any] = np.ndarray((max(count, 0),), kind, self.joined, strides=(1,))
        starts = np.zeros(len(self._begins), np.bool_)
        is_long_enough = self._begins < count
        starts[is_long_enough] = everywhere[self._begins[is_long_enough]] == needle
        return starts
