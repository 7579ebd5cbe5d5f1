"""BatchBuilder: stored records as Arrow batches, with exactly the columns of a schema.

Not here: how columns are built (columns.py), reading (reading.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kourou.errors import ProtocolError
from kourou.protocol.properties import MessageConst
from kourou.protocol.record_spans import Bools, RecordSpans
from kourou.spark.source.columns import PROPERTY_PREFIX, Rows, as_text, known_columns

_COMPRESSED: Final = 1
_MAX_COMPRESSED: Final = 1_024
"""Compressed bodies in one batch: their inflated size is known only afterwards."""


class BatchBuilder:
    """Builds batches of one Arrow schema, with the column names of columns.py."""

    def __init__(self, schema: Any, *, row_format: str = "rocketmq", property_errors: str = "fail") -> None:
        self.schema = schema
        self._columns = known_columns(row_format)
        self._property_errors = property_errors

    def batches(
        self,
        records: RecordSpans,
        *,
        topic: str | None = None,
        broker: str | None = None,
        tags: frozenset[str] = frozenset(),
    ) -> Iterator[Any]:
        """Batches of these records, in order. With `tags` only records with one of them: brokers filter tags
        by hash, so others may get through."""
        if tags:
            records = records.select(_with_tags(Rows(records, topic=topic, broker=broker), tags))
        for part in _parts(records):
            yield self.batch(Rows(part, topic=topic, broker=broker))

    def batch(self, rows: Rows) -> Any:
        """One batch of all rows."""
        if not len(self.schema):
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        arrays = [self._array(rows, field) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, rows: Rows, field: Any) -> Any:
        column = self._columns.get(field.name)
        if column is not None:
            return _as_type(column.build(rows), field.type)
        name = field.name.removeprefix(PROPERTY_PREFIX)
        return self._typed(rows, name, rows.properties.column(name), field.type)

    def _typed(self, rows: Rows, name: str, texts: Any, kind: Any) -> Any:
        try:
            return _parsed(texts, kind)
        except pa.ArrowInvalid:
            is_bad = pc.is_in(texts, value_set=_unparsable(texts, kind))
        if self._property_errors == "null":
            return _parsed(pc.if_else(is_bad, pa.scalar(None, pa.string()), texts), kind)
        row = is_bad.index(True).as_py()
        raise ProtocolError(
            f"{rows.place(row)}: the property {name!r} is {texts[row].as_py()!r:.100}, "
            f"not a valid {_sql_name(kind)}; read it as string, or set propertyErrors=null to get null "
            "for such values"
        )


def _sql_name(kind: Any) -> str:
    """A type as users write it: bigint for Arrow's int64."""
    from pyspark.sql.pandas.types import from_arrow_type

    name: str = from_arrow_type(kind).simpleString()
    return name


def _with_tags(rows: Rows, tags: frozenset[str]) -> Bools:
    wanted = pa.array(sorted(tags), pa.string())
    found = pc.is_in(rows.properties.column(MessageConst.PROPERTY_TAGS), value_set=wanted)
    is_wanted: Bools = found.to_numpy(zero_copy_only=False).astype(np.bool_)
    return is_wanted


def _parts(records: RecordSpans) -> Iterator[RecordSpans]:
    """All records at once, unless many bodies are compressed."""
    compressed = np.flatnonzero(records.sys_flags & _COMPRESSED)
    begin = 0
    for end in [*compressed[_MAX_COMPRESSED::_MAX_COMPRESSED].tolist(), len(records)]:
        if begin < end:
            yield records if end - begin == len(records) else records.select(slice(begin, end))
        begin = end


def _as_type(array: Any, kind: Any) -> Any:
    if array.type == kind:
        return array
    if pa.types.is_string(kind) and pa.types.is_binary(array.type):
        return as_text(array)
    if pa.types.is_int64(kind) and pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("ms", "UTC")).cast(kind)
    return array.cast(kind)


def _parsed(texts: Any, kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        # UTC if there is no zone, as everywhere here.
        has_zone = pc.match_substring_regex(texts, r"(Z|[+-]\d\d:?\d\d)$")
        texts = pc.if_else(has_zone, texts, pc.binary_join_element_wise(texts, "Z", ""))
    return texts if texts.type == kind else texts.cast(kind)


def _unparsable(texts: Any, kind: Any) -> Any:
    """The values that cannot be parsed as this type."""
    unfit = []
    for value in pc.unique(texts.drop_null()):
        try:
            _parsed(pa.array([value.as_py()], pa.string()), kind)
        except pa.ArrowInvalid:
            unfit.append(value.as_py())
    return pa.array(unfit, pa.string())
