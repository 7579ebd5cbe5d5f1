"""PropertyTable: the properties of many records at once, as Arrow columns.

Equivalent to `decode_properties`; invalid UTF-8 becomes U+FFFD. Not here: parsing of the property strings
(protocol/property_columns.py), the meaning of properties (columns.py).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kourou.protocol.layout import PROPERTIES_LENGTH
from kourou.protocol.property_columns import PAIR_END, Positions, PropertyColumns
from kourou.protocol.record_spans import RecordSpans
from kourou.spark.source.arrow_pieces import data_of, pieces

_PADDING: Final = bytes(8)
"""After the last string, so that eight bytes can be read from the start of any name."""
_SEPARATORS: Final = bytes((PAIR_END, PAIR_END))
_LOW_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(8)] + [(1 << 64) - 1], np.uint64)
_FACTORS: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


class PropertyTable(PropertyColumns):
    """The properties of some records."""

    def __init__(self, records: RecordSpans) -> None:
        # The bytes before a property string are its length: room for separators.
        begins = records.property_begins - PROPERTIES_LENGTH.size
        bounds, content = data_of(pieces(records.raw, begins, records.ends, pa.binary()))
        row_begins, end = bounds[:-1].astype(np.intp), int(bounds[-1])
        text = np.zeros(len(content) + 1 + len(_PADDING), np.uint8)
        text[: len(content)] = content
        text[row_begins] = text[row_begins + 1] = text[end] = PAIR_END
        super().__init__(*_as_utf8(text.tobytes(), row_begins, end))

    # -- one property ----------------------------------------------------------------------------

    def column(self, name: str) -> Any:
        """The values of `name` as strings; null where a record has none."""
        rows, begins, ends = self.spans(name)
        return pieces(self.data, begins, ends, pa.string(), rows, self.row_count)

    def words(self, name: str) -> Any:
        """The words of `name`, separated by spaces, as lists; empty where a record has none."""
        rows, begins, ends = self.word_spans(self.spans(name))
        bounds = np.searchsorted(rows, np.arange(self.row_count + 1)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(bounds), pieces(self.data, begins, ends, pa.string()))

    # -- all of them -----------------------------------------------------------------------------

    def maps(self) -> Any:
        """All properties of each record, as maps."""
        bounds, names, values = self.pairs()
        return pa.MapArray.from_arrays(bounds, names, values)

    def pairs(self) -> tuple[Any, Any, Any]:
        """Bounds of the rows, names and values of all properties, each name once in a row."""
        shape = self.shape
        if shape is not None and len(set(shape)) == len(shape):
            return self._pairs_of(shape)
        bounds, which = self.row_bounds, self._kept()
        begins, name_ends, ends = self.begins, self.name_ends, self.ends
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
        count = len(self.begins)
        names = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(text)])
        values = pieces(self.data, self.name_ends + 1, self.ends, pa.string())
        return pa.array(self.row_bounds.astype(np.int32)), names, values

    def _kept(self) -> NDArray[np.bool_] | None:
        """Which pairs are kept where a row has a name twice; None for all."""
        rows = self._rows_with_a_name_twice()
        if not len(rows):
            return None
        kept = np.ones(len(self.begins), np.bool_)
        for row in rows.tolist():
            first, end = int(self.row_bounds[row]), int(self.row_bounds[row + 1])
            names = [self.name(pair) for pair in range(first, end)]
            last = {name: pair for pair, name in enumerate(names, first)}
            kept[first:end] = [last[name] == pair for pair, name in enumerate(names, first)]
        return kept

    def _rows_with_a_name_twice(self) -> Positions:
        """Those rows, and possibly others: names are compared by hash."""
        hashes = self._name_hashes()
        counts = np.diff(self.row_bounds)
        rows = np.repeat(np.arange(self.row_count), counts)
        hashes ^= rows.astype(np.uint64) * _FACTORS[2]
        order = np.argsort(hashes, kind="stable")
        is_twin = hashes[order][1:] == hashes[order][:-1]
        return np.unique(rows[order[1:][is_twin]])

    def _name_hashes(self) -> NDArray[np.uint64]:
        """A hash of each name: of its length, its first and its last eight bytes."""
        everywhere: NDArray[np.uint64] = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))
        lengths = self.name_lengths
        short = np.minimum(lengths, 8)
        first = everywhere[self.begins] & _LOW_BYTES[short]
        last = everywhere[self.name_ends - short] & _LOW_BYTES[short]
        found: NDArray[np.uint64] = first * _FACTORS[0] ^ last * _FACTORS[1] ^ lengths.astype(np.uint64)
        return found


def _as_utf8(text: bytes, row_begins: Positions, end: int) -> tuple[bytes, Positions, int]:
    """The joined strings as valid UTF-8, as Java would read them; the start of each, the end of the last."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            begins = row_begins.tolist()
            strings = [
                _SEPARATORS + text[begin + len(_SEPARATORS) : row_end].decode("utf-8", "replace").encode()
                for begin, row_end in zip(begins, [*begins[1:], end], strict=True)
            ]
            ends = np.cumsum(np.fromiter(map(len, strings), np.intp, len(strings)))
            row_begins, end = np.append(0, ends[:-1]).astype(np.intp), int(ends[-1])
            text = b"".join((*strings, _SEPARATORS[:1], _PADDING))
    return text, row_begins, end
