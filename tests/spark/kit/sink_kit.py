"""For tests of the sink without a JVM: DataFrames as Arrow batches, and a writer called as Spark calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.needed import need_module

pa = need_module("pyarrow")
pickles = need_module("pyspark.cloudpickle")
types = need_module("pyspark.sql.types")

if TYPE_CHECKING:
    from kourou.spark.sink.data_sink import SinkCommit

STRING, BINARY, INT, LONG = types.StringType(), types.BinaryType(), types.IntegerType(), types.LongType()
MAP = types.MapType(STRING, STRING)
ARRAY = types.ArrayType(STRING)
KINDS = {
    "topic": STRING,
    "value": BINARY,
    "body": BINARY,
    "key": STRING,
    "keys": ARRAY,
    "tags": STRING,
    "properties": MAP,
    "sharding_key": STRING,
    "queue_id": INT,
    "broker": STRING,
    "delay_ms": LONG,
}
ARROW = {
    STRING: pa.string(),
    BINARY: pa.binary(),
    INT: pa.int32(),
    LONG: pa.int64(),
    MAP: pa.map_(pa.string(), pa.string()),
    ARRAY: pa.list_(pa.string()),
}


def schema_of(names: Sequence[str], kinds: Mapping[str, Any] | None = None) -> Any:
    """A StructType of columns with their usual types, or those of `kinds`."""
    found = {**KINDS, **(kinds or {})}
    return types.StructType([types.StructField(name, found[name]) for name in names])


def record_batch(schema: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """The rows as Spark gives them to a writer."""
    fields = [pa.field(field.name, ARROW[field.dataType]) for field in schema.fields]
    columns = [
        pa.array([_cell(row.get(field.name)) for row in rows], field.type) for field in pa.schema(fields)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _cell(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def write(
    rows: Sequence[Mapping[str, Any]],
    options: Mapping[str, str],
    *,
    names: Sequence[str] | None = None,
    kinds: Mapping[str, Any] | None = None,
    batch_rows: int = 1_000,
    before: Mapping[int, Callable[[], object]] | None = None,
) -> SinkCommit:
    """Write rows as one task does: the writer goes through pickle, on the way to the worker. `before` is
    what happens before the batch with that number is given to it."""
    from kourou.spark.sink.data_sink import SinkCommit, batch_writer

    schema = schema_of(names or list(dict.fromkeys(name for row in rows for name in row)), kinds)
    writer = pickles.loads(pickles.dumps(batch_writer(schema, options, False)))

    def batches() -> Iterator[Any]:
        for first in range(0, len(rows), batch_rows):
            (before or {}).get(first // batch_rows, lambda: None)()
            yield record_batch(schema, rows[first : first + batch_rows])

    commit = writer.write(batches())
    assert isinstance(commit, SinkCommit)
    commit = pickles.loads(pickles.dumps(commit))
    writer.commit([commit])
    return commit
