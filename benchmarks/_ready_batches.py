"""ReadyBatches: a data source of Spark whose batches are ready: the ceiling of any source written in Python.

Each of its tasks makes one Arrow batch of about 4 MiB, as large as ours, and yields it again and again. So
the rest is what no source in Python can avoid: Spark's worker process, the socket to the JVM, the JVM's rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kourou.spark.source.columns import default_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_BYTES = 4 * 1024 * 1024
_KEY = b"key-1234567"
_RECORD_EXTRA_BYTES = 200
"""What a record has beside its body, so that a batch has about as many rows as ours."""


class ReadyBatches(DataSource):
    """Options: `rows`, `queues` (as many tasks), `valueBytes`, `topic`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        """The columns of Spark's Kafka source."""
        return default_schema("kafka")

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ReadyReader(schema, self.options)


class _Task(InputPartition):
    def __init__(self, queue_id: int, rows: int) -> None:
        super().__init__(queue_id)
        self.queue_id = queue_id
        self.rows = rows


class _ReadyReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._topic = options["topic"]
        self._rows = int(options["rows"])
        self._queues = int(options["queues"])
        self._value_bytes = int(options["valueBytes"])

    def partitions(self) -> Sequence[InputPartition]:
        return [_Task(queue_id, self._rows // self._queues) for queue_id in range(self._queues)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        task = cast(_Task, partition)
        left = task.rows
        batch = self._batch(task.queue_id, min(left, self._rows_per_batch))
        while left > 0:
            part = batch if left >= len(batch) else batch.slice(0, left)
            left -= len(part)
            yield part

    @property
    def _rows_per_batch(self) -> int:
        return max(1, BATCH_BYTES // (self._value_bytes + _RECORD_EXTRA_BYTES))

    def _batch(self, queue_id: int, rows: int) -> Any:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        values = {
            "key": [_KEY] * rows,
            # Letters, as in the rows of the other sources: each row has bytes of its own.
            "value": [random.randbytes(self._value_bytes // 2).hex().encode() for _ in range(rows)],
            "topic": [self._topic] * rows,
            "partition": [queue_id] * rows,
            "offset": list(range(rows)),
            "timestamp": [1_700_000_000_000_000] * rows,
            "timestampType": [1] * rows,
        }
        schema = to_arrow_schema(self._schema, timezone="UTC")
        arrays = [pa.array(values[field.name], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
