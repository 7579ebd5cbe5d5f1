"""What tests of the source share: a cluster, messages in known queues, readers without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType, _parse_datatype_json_string

from kourou import Message, MessageQueue, Producer
from kourou.spark.source.columns import known_columns
from kourou.spark.source.data_source import RocketmqDataSource
from kourou.testing import LocalCluster
from tests.spark.kit.reference_rows import rows_of

TYPES = {
    "map<string,string>": {
        "type": "map",
        "keyType": "string",
        "valueType": "string",
        "valueContainsNull": True,
    },
    "array<string>": {"type": "array", "elementType": "string", "containsNull": True},
    "int": "integer",
    "bigint": "long",
}


def schema_of(*names: str, row_format: str = "rocketmq") -> StructType:
    """A schema of some columns, in their usual types; made without a JVM."""
    columns = known_columns(row_format)
    fields = [
        {
            "name": name,
            "type": TYPES.get(columns[name].types[0], columns[name].types[0]),
            "nullable": True,
            "metadata": {},
        }
        for name in names
    ]
    schema = _parse_datatype_json_string(json.dumps({"type": "struct", "fields": fields}))
    assert isinstance(schema, StructType)
    return schema


ALL = schema_of(
    "key", "value", "topic", "broker", "queue_id", "queue_offset", "msg_id", "tags", "keys", "born_timestamp",
    "store_timestamp", "born_host", "reconsume_times", "properties",
)  # fmt: skip
PLACE = schema_of("topic", "broker", "queue_id", "queue_offset", "value")


def source(mq: LocalCluster, **options: Any) -> RocketmqDataSource:
    """The data source as Spark makes it."""
    given = {"namesrv": mq.namesrv, **{name: str(value) for name, value in options.items()}}
    return RocketmqDataSource(CaseInsensitiveDict(given))


def send(
    mq: LocalCluster,
    topic: str,
    bodies: Iterable[bytes],
    *,
    queue_id: int = 0,
    broker: str = "broker-a",
    **message: Any,
) -> None:
    """Send to one queue, in order."""
    queue = MessageQueue(topic, broker, queue_id)
    with Producer("source-tests", namesrv=mq.namesrv) as producer:
        for body in bodies:
            producer.send(Message(topic, body, **message), queue=queue)


def read_partitions(reader: Any, partitions: list[Any]) -> list[dict[str, Any]]:
    """The rows of all partitions, each read by a copy of the reader as workers have it."""
    rows: list[dict[str, Any]] = []
    for partition in loads(dumps(partitions)):
        rows += rows_of(list(loads(dumps(reader)).read(partition)))
    return rows


def read_batch(data_source: RocketmqDataSource, schema: StructType = PLACE) -> list[dict[str, Any]]:
    """All rows of a batch."""
    reader = data_source.reader(schema)
    return read_partitions(reader, reader.partitions())


def places(rows: list[dict[str, Any]]) -> list[tuple[str, str, int, int]]:
    """Where rows come from."""
    return [(row["topic"], row["broker"], row["queue_id"], row["queue_offset"]) for row in rows]


class StreamRun:
    """A query's batches without Spark: the checkpoint is the list of ends, as JSON text."""

    def __init__(self, mq: LocalCluster, ends: list[str] | None = None, **options: Any) -> None:
        self.data_source = source(mq, pollTimeoutMs=0, discoveryIntervalMs=0, **options)
        self.reader = self.data_source.streamReader(PLACE)
        self.ends = ends if ends is not None else []
        self.limit = self.reader.getDefaultReadLimit()

    @property
    def start(self) -> dict[str, Any]:
        """Where the next batch begins."""
        return json.loads(self.ends[-1]) if self.ends else self._as_text(self.reader.initialOffset())

    @staticmethod
    def _as_text(offset: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(offset))
        return found

    def plan(self) -> bool:
        """Find the end of the next batch and note it; False when there is nothing new."""
        start = self.start
        end = self._as_text(self.reader.latestOffset(start, self.limit))
        if json.dumps(end) == json.dumps(start):
            return False
        self.ends.append(json.dumps(end))
        return True

    def read(self) -> list[dict[str, Any]]:
        """Read the batch that was planned last."""
        before = (
            json.loads(self.ends[-2]) if len(self.ends) > 1 else self._as_text(self.reader.initialOffset())
        )
        partitions = self.reader.partitions(before, json.loads(self.ends[-1]))
        return read_partitions(self.reader, partitions)

    def drain(self, max_batches: int = 1_000) -> list[list[dict[str, Any]]]:
        """Batches until there is nothing new."""
        batches = []
        while len(batches) < max_batches and self.plan():
            batches.append(self.read())
        return batches
