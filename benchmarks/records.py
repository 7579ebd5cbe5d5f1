"""What messages cost as bytes: records, properties, batches, ids. `python -m benchmarks.records`."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from timeit import repeat

from kourou.protocol.batch import encode_batch, split_batch
from kourou.protocol.message import Message
from kourou.protocol.message_id import UniqueIdGenerator, encode_host
from kourou.protocol.properties import (
    PropertyScanner,
    decode_properties,
    encode_properties,
    join_properties,
    properties_to_bytes,
    remove_property,
)
from kourou.protocol.record import RecordEncoder, body_crc, decode_record, decode_records
from kourou.protocol.record_fields import record_positions
from kourou.protocol.tags import java_hash_code, tags_code

BODY = bytes(range(256)) * 4
PROPERTIES = {
    "KEYS": "order-1 order-2",
    "UNIQ_KEY": "7F00000150805FFD2B2748C054510000",
    "WAIT": "true",
    "TAGS": "TagA",
}
TEXT = encode_properties(PROPERTIES)
STORED = properties_to_bytes(join_properties(TEXT, "CLUSTER\x01DefaultCluster\x02"))
BORN_HOST = encode_host("127.0.0.1", 47834)
STORE_HOST = encode_host("127.0.0.1", 10911)
PER_PULL = 32


def measure(name: str, step: Callable[[], object], *, messages: int = 1) -> None:
    """Print the best time per message: on a shared machine only the best says something."""
    number = max(1, 5000 // messages)
    best = min(repeat(step, number=number, repeat=20)) / number / messages
    print(f"{best * 1e6:8.2f} µs  {name}")


def record_parts(encoder: RecordEncoder) -> tuple[bytes, ...]:
    """One record as the store's hot path makes it."""
    return encoder.parts(
        BODY,
        STORED,
        queue_offset=7,
        phy_offset=123_456_789,
        store_timestamp=1_794_711_764_287,
        born_timestamp=1_794_711_764_050,
        born_host=BORN_HOST,
    )


def measure_records() -> None:
    """Encoding and decoding of 1 KiB records."""
    encoder = RecordEncoder("TopicTest", 2, STORE_HOST)
    record = b"".join(record_parts(encoder))
    pull = record * PER_PULL
    measure("CRC of the body alone", lambda: body_crc(BODY))
    measure("encode a record into parts (CRC included)", lambda: record_parts(encoder))
    measure("the same, joined", lambda: b"".join(record_parts(encoder)))
    measure("decode a record", lambda: decode_record(record))
    measure("decode a record, properties too", lambda: decode_record(record).properties)
    measure(f"decode a pull of {PER_PULL}", lambda: decode_records(pull), messages=PER_PULL)
    measure(f"boundaries of a pull of {PER_PULL}", lambda: record_positions(pull), messages=PER_PULL)


def measure_properties() -> None:
    """Reading, searching and rewriting of property strings."""
    usual = PropertyScanner("TAGS", "KEYS", "UNIQ_KEY", "WAIT")
    rare = PropertyScanner("DELAY", "TRAN_MSG", "POP_CK", "TIMER_DELIVER_MS")
    measure("properties to dictionary", lambda: decode_properties(TEXT))
    measure("dictionary to properties", lambda: encode_properties(PROPERTIES))
    measure("scan for four names that are there", lambda: usual.values(TEXT))
    measure("scan for four names that are not", lambda: rare.values(TEXT))
    measure("remove one", lambda: remove_property(TEXT, "WAIT"))
    measure("append a prepared one", lambda: join_properties(TEXT, "CLUSTER\x01DefaultCluster\x02"))


def measure_rest() -> None:
    """Messages, batches, ids and hashes."""
    next_id = UniqueIdGenerator(
        ip="127.0.0.1", pid=1, class_loader_hash=2, now_ms=lambda: time.time_ns() // 1_000_000
    )
    messages = [Message("TopicTest", BODY, tags="TagA", keys=["order-1"]) for _ in range(PER_PULL)]
    batch = encode_batch(messages)
    measure("make a Message", lambda: Message("TopicTest", BODY, tags="TagA", keys=["order-1"]))
    measure(f"encode a batch of {PER_PULL}", lambda: encode_batch(messages), messages=PER_PULL)
    measure(f"split a batch of {PER_PULL}", lambda: split_batch(batch), messages=PER_PULL)
    measure("make a unique id", next_id)
    measure("tags code, seen before", lambda: tags_code("TagA"))
    measure("hash of a key of 32 characters", lambda: java_hash_code(PROPERTIES["UNIQ_KEY"]))


def main() -> None:
    """Measure everything here."""
    print(f"Python {platform.python_version()}, {platform.machine()}, body {len(BODY)} bytes")
    measure_records()
    measure_properties()
    measure_rest()


if __name__ == "__main__":
    main()
