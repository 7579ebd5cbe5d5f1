"""Every number and every length of a record at its bounds and just outside, from the table of layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.batch import BatchEntry, encode_batch_entries, split_batch
from kourou.protocol.layout import (
    HOST_V4,
    HOSTS_V6,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MAX_TOPIC_BYTES_V2,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    RECORD,
    Field,
)
from kourou.protocol.record import RecordEncoder, decode_record
from kourou.protocol.record_spans import RecordSpans

HOST = bytes(HOST_V4.size)
# The encoder makes these itself.
MADE = {"total_size", "magic", "body_crc", "body_length", "born_host", "store_host"}
GIVEN = [field for field in RECORD.fields if field.name not in MADE]


def record(
    topic: str = "t", properties: bytes = b"", *, magic: int | None = None, **values: int | bytes
) -> bytes:
    arguments: dict[str, Any] = {
        "body": b"",
        "queue_offset": 0,
        "phy_offset": 0,
        "store_timestamp": 0,
        "born_timestamp": 0,
        **values,
    }
    encoder = RecordEncoder(topic, arguments.pop("queue_id", 0), HOST, magic=magic)
    return b"".join(encoder.parts(properties=properties, born_host=HOST, **arguments))


def numbers(*, is_inside: bool) -> Iterator[tuple[Field, int]]:
    for field in GIVEN:
        low, high = field.kind.low, field.kind.high
        for number in (low, low + 1, high - 1, high) if is_inside else (low - 1, high + 1):
            yield field, number


def name_of(case: object) -> str:
    return case.name if isinstance(case, Field) else str(case)


@pytest.mark.parametrize(("field", "number"), list(numbers(is_inside=True)), ids=name_of)
def test_a_number_inside_comes_back(field: Field, number: int) -> None:
    raw = record(**{field.name: number})
    # The bits for IPv6 hosts follow the hosts.
    wanted = number & ~HOSTS_V6 if field.name == "sys_flag" else number
    assert getattr(decode_record(raw), field.name) == wanted
    assert RecordSpans.of(raw).field(field.name).tolist() == [wanted]


@pytest.mark.parametrize(("field", "number"), list(numbers(is_inside=False)), ids=name_of)
def test_a_number_outside_is_refused(field: Field, number: int) -> None:
    with pytest.raises(ProtocolError, match="does not fit"):
        record(**{field.name: number})


@pytest.mark.parametrize("size", [0, 1, MAX_PROPERTIES_BYTES - 1, MAX_PROPERTIES_BYTES])
def test_properties_inside_come_back(size: int) -> None:
    raw = record(properties=b"x" * size)
    assert decode_record(raw).raw_properties == b"x" * size
    assert RecordSpans.of(raw).property_begins.tolist() == [len(raw) - size]
    (entry,) = split_batch(encode_batch_entries([BatchEntry(0, b"", b"x" * size)]))
    assert entry.raw_properties == b"x" * size


def test_longer_properties_are_refused() -> None:
    properties = b"x" * (MAX_PROPERTIES_BYTES + 1)
    with pytest.raises(ProtocolError, match="properties of 32768 bytes do not fit"):
        record(properties=properties)
    with pytest.raises(ValueError, match="properties of 32768 bytes do not fit"):
        encode_batch_entries([BatchEntry(0, b"", properties)])


TOPIC_LENGTHS = [
    *((size, MESSAGE_MAGIC_CODE) for size in (0, 1, MAX_TOPIC_BYTES_V1 - 1, MAX_TOPIC_BYTES_V1)),
    *((size, MESSAGE_MAGIC_CODE_V2) for size in (0, 1, MAX_TOPIC_BYTES_V2 - 1, MAX_TOPIC_BYTES_V2)),
]


@pytest.mark.parametrize(("size", "magic"), TOPIC_LENGTHS)
def test_a_topic_inside_comes_back(size: int, magic: int) -> None:
    raw = record("t" * size, magic=magic)
    assert decode_record(raw).topic == "t" * size
    spans = RecordSpans.of(raw)
    assert (spans.topic_ends - spans.topic_begins).tolist() == [size]


@pytest.mark.parametrize(
    ("size", "magic"),
    [(MAX_TOPIC_BYTES_V1 + 1, MESSAGE_MAGIC_CODE), (MAX_TOPIC_BYTES_V2 + 1, MESSAGE_MAGIC_CODE_V2)],
)
def test_a_longer_topic_is_refused(size: int, magic: int) -> None:
    with pytest.raises(ProtocolError, match=f"a topic of {size} bytes does not fit"):
        record("t" * size, magic=magic)


def test_the_form_of_a_record_follows_the_length_of_its_topic() -> None:
    sizes = MAX_TOPIC_BYTES_V1, MAX_TOPIC_BYTES_V1 + 1
    magics = [decode_record(record("t" * size)).magic for size in sizes]
    assert magics == [MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2]


def test_the_shortest_record() -> None:
    raw = record("")
    assert len(raw) == MIN_RECORD_BYTES
    assert decode_record(raw).topic == ""
    with pytest.raises(ProtocolError, match="90 bytes are left"):
        decode_record(raw[:-1])
