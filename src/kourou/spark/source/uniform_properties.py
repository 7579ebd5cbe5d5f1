"""UniformProperties: the properties of records whose property strings all have one form, as a matrix.

Producers of one kind write strings of one form: the same names in the same order, values of the same lengths.
Then a property is a block of columns, and no search is needed. Equivalent to PropertyTable, which handles all
other strings. Not here: the meaning of properties (columns.py).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kourou.protocol.properties import KEY_SEPARATOR, RAW_PROPERTY_SEPARATOR
from kourou.protocol.property_columns import NAME_END, PAIR_END, PropertyColumns
from kourou.protocol.record_spans import RecordSpans
from kourou.spark.source.property_table import PropertyTable

Bytes = NDArray[np.uint8]

_BLANK: Final = ord(KEY_SEPARATOR)
_ASCII: Final = 0x80


class _Block(NamedTuple):
    """Where the value of one property is in every row."""

    begin: int
    end: int


class UniformProperties:
    """The properties of some records; `blocks` locates the values by name."""

    def __init__(self, records: RecordSpans, rows: Bytes, blocks: dict[bytes, _Block]) -> None:
        self._records = records
        self._rows = rows
        self._blocks = blocks

    @classmethod
    def of(cls, records: RecordSpans) -> UniformProperties | None:
        """None where the strings differ in form, or are irregular."""
        rows = records.property_rows()
        if rows is None:
            return None
        blocks = _blocks(rows[0].tobytes())
        if blocks is None:
            return None
        # Outside of values all rows must be equal; values must not contain separators, and must be ASCII.
        low, high = rows.min(axis=0), rows.max(axis=0)
        is_value = np.zeros(len(low), np.bool_)
        for begin, end in blocks.values():
            is_value[begin:end] = True
        if bool(((low != high) & ~is_value).any()) or bool((low[is_value] <= PAIR_END).any()):
            return None
        return None if int(high.max()) >= _ASCII else cls(records, rows, blocks)

    def column(self, name: str) -> Any:
        """The values of `name` as strings; null where a record has none."""
        block = self._blocks.get(name.encode())
        count = len(self._rows)
        if block is None:
            return pa.nulls(count, pa.string())
        data = np.ascontiguousarray(self._rows[:, block.begin : block.end])
        return _strings(data.reshape(-1), _offsets(count, [block.end - block.begin]))

    def words(self, name: str) -> Any:
        """The words of `name`, separated by spaces, as lists; empty where a record has none."""
        block = self._blocks.get(name.encode())
        if block is not None and bool((self._rows[:, block.begin : block.end] == _BLANK).any()):
            return PropertyTable(self._records).words(name)
        count = len(self._rows)
        bounds = np.arange(count + 1, dtype=np.int32) if block is not None else np.zeros(count + 1, np.int32)
        words = self.column(name) if block is not None else pa.array([], pa.string())
        return pa.ListArray.from_arrays(pa.array(bounds), words)

    def maps(self) -> Any:
        """All properties of each record, as maps."""
        return pa.MapArray.from_arrays(*self.pairs())

    def pairs(self) -> tuple[Any, Any, Any]:
        """Bounds of the rows, names and values of all properties, each name once in a row."""
        count, names = len(self._rows), list(self._blocks)
        blocks = [np.arange(begin, end) for begin, end in self._blocks.values()]
        values = self._rows[:, np.concatenate(blocks)]
        text = np.frombuffer(b"".join(names) * count, np.uint8)
        bounds = np.arange(0, (count + 1) * len(names), len(names), dtype=np.int32)
        return (
            pa.array(bounds),
            _strings(text, _offsets(count, list(map(len, names)))),
            _strings(np.ascontiguousarray(values).reshape(-1), _offsets(count, list(map(len, blocks)))),
        )


def _blocks(string: bytes) -> dict[bytes, _Block] | None:
    """The values of a property string; None unless it consists of unique names with values."""
    pairs = PropertyColumns.of([string])
    spans = zip(pairs.begins.tolist(), pairs.name_ends.tolist(), pairs.ends.tolist(), strict=True)
    # In the joined string a separator precedes this one.
    blocks = {string[begin - 1 : mark - 1]: _Block(mark, end - 1) for begin, mark, end in spans}
    # Two separators per pair, but for the last: others are in names or values, or delimit what is no pair.
    separators = 2 * len(pairs.begins) - (not string.endswith(RAW_PROPERTY_SEPARATOR))
    is_regular = string.count(NAME_END) + string.count(PAIR_END) == separators
    return blocks if is_regular and len(blocks) == len(pairs.begins) > 0 else None


def _offsets(count: int, lengths: list[int]) -> NDArray[np.int32]:
    """The offsets of strings, where each row has strings of these lengths."""
    ends = np.cumsum(lengths, dtype=np.int32)
    starts = np.arange(count, dtype=np.int32)[:, None] * ends[-1]
    found: NDArray[np.int32] = np.append(np.int32(0), (starts + ends).reshape(-1)).astype(np.int32)
    return found


def _strings(data: Bytes, offsets: NDArray[np.int32]) -> Any:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
