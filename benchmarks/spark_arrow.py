"""What Spark's rows cost in Python: pull bodies to Arrow batches. `python -m benchmarks.spark_arrow`.

Rows a second on one core, of batches of 4 MiB, without a broker and without Spark.
"""

from __future__ import annotations

import platform
from timeit import repeat

import pyarrow as pa

from kourou.protocol.message_id import encode_host
from kourou.protocol.record import RecordEncoder
from kourou.protocol.record_spans import RecordSpans, record_bounds
from kourou.spark.source.arrow_batches import BatchBuilder
from kourou.spark.source.columns import ROCKETMQ_COLUMNS

BATCH_BYTES = 4 * 1024 * 1024
HOST = encode_host("127.0.0.1", 10911)
ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<string>": pa.list_(pa.field("element", pa.string())),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
TYPES = {name: ARROW[column.types[0]] for name, column in ROCKETMQ_COLUMNS.items()}
NARROW = ("value", "queue_offset")
KAFKA = ("key", "value", "topic", "queue_id", "queue_offset", "store_timestamp")


def pull_body(body_bytes: int, *, is_varied: bool) -> bytes:
    """About 4 MiB of records, of one size or of many."""
    encoder = RecordEncoder("TopicTest", 2, HOST)
    body = bytes(range(256)) * (body_bytes // 256 + 1)
    records = []
    size = number = 0
    while size < BATCH_BYTES:
        length = body_bytes - number * 37 % (body_bytes // 4) if is_varied else body_bytes
        properties = (
            f"KEYS\x01order-{100_000 + number}\x02UNIQ_KEY\x017F00000150805FFD2B2748C0{number:08X}\x02"
            "WAIT\x01true\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster\x02"
        ).encode()
        parts = encoder.parts(body[:length], properties, number, number, 1_794_711_764_287, 0, HOST)
        records.append(b"".join(parts))
        size += len(records[-1])
        number += 1
    return b"".join(records)


def measure(name: str, raw: bytes, columns: tuple[str, ...]) -> None:
    """Print the best rate: on a shared machine only the best says something."""
    builder = BatchBuilder(pa.schema([(column, TYPES[column]) for column in columns]))
    rows = len(record_bounds(raw)) - 1

    def step() -> None:
        for _ in builder.batches(RecordSpans.of(raw), topic="TopicTest", broker="broker-a"):
            pass

    best_s = min(repeat(step, number=1, repeat=30))
    print(f"{rows / best_s / 1e6:8.2f}M rows/s  {len(raw) / best_s / 1e9:5.1f} GB/s  {name}")


def main() -> None:
    """Measure both sizes with few columns and with all."""
    print(f"Python {platform.python_version()}, pyarrow {pa.__version__}, {platform.machine()}")
    for body_bytes in (1024, 128):
        for is_varied in (False, True):
            raw = pull_body(body_bytes, is_varied=is_varied)
            kind = f"{body_bytes} B{' and less' if is_varied else ''}"
            measure(f"{kind}: without the value (queue_offset)", raw, ("queue_offset",))
            measure(f"{kind}: {', '.join(NARROW)}", raw, NARROW)
            measure(f"{kind}: Kafka's columns", raw, KAFKA)
            measure(f"{kind}: all columns but properties", raw, tuple(TYPES)[:-1])
            measure(f"{kind}: all columns", raw, tuple(TYPES))


if __name__ == "__main__":
    main()
