"""Arrow batches hold what the slow reference decoder finds: for any records, and for Apache's own."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ConfigError, ProtocolError
from kourou.protocol.compression import CompressionType, compress
from kourou.protocol.layout import BLANK_MAGIC_CODE
from kourou.protocol.record import RecordEncoder, decode_record, decode_records
from kourou.protocol.record_fields import record_mark
from tests.property.test_records import hosts, i32, i64, records

pa = pytest.importorskip("pyarrow")

from kourou.protocol.record_spans import RecordSpans, record_bounds  # noqa: E402
from kourou.spark.source import columns  # noqa: E402
from kourou.spark.source.arrow_batches import BatchBuilder  # noqa: E402
from tests.spark.kit.reference_rows import SCHEMA, reference_row, rows_of  # noqa: E402

GOLDEN = Path(__file__).parents[3] / "golden"
COMPRESSED_BITS = 0x701
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BUILDER = BatchBuilder(SCHEMA)

names = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "a", "amount", "__a_name_that_is_quite_long_1", "__a_name_2", "ü"]
)
values = st.sampled_from(["", " ", "x", "a b", " a  b ", "1", "7F00", "中文", "=", "TAGS"]) | st.text(
    max_size=5
)
pair_text = st.lists(st.tuples(names, values).map("\x01".join), max_size=6).map("\x02".join)
property_bytes = st.one_of(
    pair_text.map(str.encode),
    pair_text.map(lambda text: f"{text}\x02".encode()),
    st.lists(st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b" ", b"a", b"\xff", b"\xe4\xb8\xad"])).map(
        b"".join
    ),
)


@st.composite
def likely_records(draw: st.DrawFn) -> bytes:
    """Records with properties that mean something, compressed or not."""
    encoder = RecordEncoder(
        draw(st.sampled_from(["orders", "t" * 200])), draw(st.integers(0, 9)), draw(hosts)
    )
    body, sys_flag = draw(st.binary(max_size=50)), 0
    if draw(st.booleans()):
        kind = draw(st.sampled_from([CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD]))
        body, sys_flag = compress(body, kind), kind.sys_flag
    parts = encoder.parts(
        body,
        draw(property_bytes),
        queue_offset=draw(i64),
        phy_offset=draw(i64),
        store_timestamp=draw(i64),
        born_timestamp=draw(i64),
        born_host=draw(hosts),
        sys_flag=sys_flag,
        flag=draw(i32),
        reconsume_times=draw(i32),
    )
    return b"".join(parts)


def record(queue_offset: int, body: bytes = b"body", properties: bytes = b"", sys_flag: int = 0) -> bytes:
    encoder = RecordEncoder("orders", 3, HOST)
    return b"".join(encoder.parts(body, properties, queue_offset, 0, 1, 2, HOST, sys_flag))


def check(raw: bytes, topic: str | None = None) -> None:
    found = rows_of(list(BUILDER.batches(RecordSpans.of(raw), topic=topic, broker="broker-a")))
    assert found == [reference_row(message, topic, "broker-a") for message in decode_records(raw)]


@given(st.lists(likely_records(), max_size=8), st.booleans())
def test_rows_are_those_of_the_reference(raws: list[bytes], is_one_topic: bool) -> None:
    check(b"".join(raws), "orders" if is_one_topic else None)


@given(st.lists(records(), max_size=6))
def test_any_records_give_their_rows(raws: list[bytes]) -> None:
    plain = []
    for raw in raws:
        message = decode_record(raw)
        # A body that says it is compressed and is not has its own test.
        flag = (message.sys_flag & ~COMPRESSED_BITS) % (1 << 32)
        plain.append(raw[:36] + flag.to_bytes(4, "big") + raw[40:])
    check(b"".join(plain))


@given(st.lists(likely_records(), min_size=1, max_size=4), st.data())
def test_damage_is_found_exactly_where_decoding_finds_it(raws: list[bytes], data: st.DataObject) -> None:
    broken = bytearray(b"".join(raws))
    for position in data.draw(st.lists(st.integers(0, len(broken) - 1), max_size=3)):
        broken[position] = data.draw(st.integers(0, 255))
    raw = bytes(broken[: data.draw(st.integers(0, len(broken)))])
    try:
        expected = [message.queue_offset for message in decode_records(raw)]
    except ProtocolError:
        with pytest.raises(ProtocolError):
            RecordSpans.of(raw)
    else:
        assert RecordSpans.of(raw).field("queue_offset").tolist() == expected


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 3)), max_size=8))
def test_bounds_of_runs_of_equal_and_different_sizes(runs: list[tuple[int, int]]) -> None:
    raws = [record(7, bytes(size)) for count, size in runs for _ in range(count)]
    expected = [0]
    for raw in raws:
        expected.append(expected[-1] + len(raw))
    assert record_bounds(b"".join(raws)).tolist() == expected


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_records_of_apache(version: str) -> None:
    log = gzip.decompress((GOLDEN / f"records-{version}.log.gz").read_bytes())
    begin = at = count = 0
    while at < len(log):
        size, magic = record_mark(log, at)
        if magic == BLANK_MAGIC_CODE:
            check(log[begin:at])
            begin = at + size
        else:
            count += 1
        at += size
    check(log[begin:at])
    assert count > 50


def test_many_rows_of_one_shape() -> None:
    properties = b"KEYS\x01order-1 shop\x02UNIQ_KEY\x017F000001\x02TAGS\x01TagA\x02WAIT\x01true\x02"
    check(b"".join(record(number, b"x" * 100, properties) for number in range(5_000)))


def test_a_name_that_is_twice_in_some_rows_has_its_last_value() -> None:
    shapes = (b"a\x011\x02a\x012\x02b\x013", b"a\x011\x02b\x012\x02a\x01\x02", b"")
    check(b"".join(record(number, properties=shapes[number % 3]) for number in range(500)))
    check(b"".join(record(number, properties=shapes[0]) for number in range(500)))


def test_many_compressed_bodies_come_in_several_batches() -> None:
    body = compress(b"a" * 1_000)
    raw = b"".join(record(number, body, sys_flag=CompressionType.ZLIB.sys_flag) for number in range(3_000))
    batches = list(BUILDER.batches(RecordSpans.of(raw)))
    assert [batch.num_rows for batch in batches] == [1_024, 1_024, 952]
    assert rows_of(batches) == [reference_row(message, None, None) for message in decode_records(raw)]


def test_a_body_that_does_not_inflate_names_its_row() -> None:
    raw = record(41) + record(42, b"nonsense", sys_flag=CompressionType.ZLIB.sys_flag)
    with pytest.raises(ProtocolError, match="topic 'orders', broker 'b', queue 3, offset 42: .* not a zlib"):
        list(BUILDER.batches(RecordSpans.of(raw), broker="b"))


def test_tags_that_share_a_hash_with_a_wanted_one_are_left_out() -> None:
    # Brokers know tags by Java's hash: "Aa" and "BB" have the same.
    tags = [b"TAGS\x01Aa", b"TAGS\x01BB", b"", b"TAGS\x01Aa"]
    raw = b"".join(record(number, properties=each) for number, each in enumerate(tags))
    batches = list(BUILDER.batches(RecordSpans.of(raw), tags=frozenset({"Aa"})))
    assert [row["queue_offset"] for row in rows_of(batches)] == [0, 3]


# -- schemas of one's own ------------------------------------------------------------------------


def build(raw: bytes, fields: dict[str, Any], **options: str) -> list[dict[str, Any]]:
    builder = BatchBuilder(pa.schema(list(fields.items())), **options)
    return rows_of(list(builder.batches(RecordSpans.of(raw), topic="orders", broker="b")))


def test_only_columns_that_are_asked_for_are_made() -> None:
    # The bodies do not inflate, and the property is no number: neither is read.
    raw = record(5, b"nonsense", b"n\x01x", CompressionType.ZLIB.sys_flag)
    assert build(raw, {"queue_offset": pa.int64()}) == [{"queue_offset": 5}]


def test_columns_in_other_types() -> None:
    raw = record(5, "ü".encode(), b"KEYS\x01k") + record(6, b"\xff")
    kinds = {"value": pa.string(), "key": pa.binary(), "queue_id": pa.int64(), "store_timestamp": pa.int64()}
    assert build(raw, kinds) == [
        {"value": "ü", "key": b"k", "queue_id": 3, "store_timestamp": 1},
        {"value": "\ufffd", "key": None, "queue_id": 3, "store_timestamp": 1},
    ]


def test_typed_properties() -> None:
    raw = b"".join(
        record(at, properties=text.encode())
        for at, text in enumerate(
            [
                "n\x0112\x02x\x011.5\x02b\x01true\x02t\x012026-01-31T08:00:00Z\x02s\x01a",
                "t\x012026-01-31 08:00:00",
            ]
        )
    )
    kinds = {
        "property_n": pa.int64(),
        "property_x": pa.float64(),
        "property_b": pa.bool_(),
        "property_t": pa.timestamp("us", "UTC"),
        "property_s": pa.string(),
    }
    first, second = build(raw, kinds)
    assert first == {
        "property_n": 12,
        "property_x": 1.5,
        "property_b": True,
        "property_t": 1_769_846_400_000_000,
        "property_s": "a",
    }
    assert second == {**dict.fromkeys(first), "property_t": 1_769_846_400_000_000}


def test_a_property_that_does_not_fit_its_type() -> None:
    raw = (
        record(5, properties=b"n\x011") + record(6, properties=b"n\x01one") + record(7, properties=b"n\x012")
    )
    kinds = {"property_n": pa.int64()}
    with pytest.raises(ProtocolError, match="offset 6: the property 'n' is 'one', not a valid bigint"):
        build(raw, kinds)
    assert [row["property_n"] for row in build(raw, kinds, property_errors="null")] == [1, None, 2]


def test_kafka_rows() -> None:
    raw = record(5, b"v", b"KEYS\x01k\x02a\x011")
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
    assert build(raw, kinds, row_format="kafka") == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "orders",
            "partition": 3,
            "offset": 5,
            "timestamp": 1_000,
            "timestampType": 1,
            "headers": [{"key": "KEYS", "value": b"k"}, {"key": "a", "value": b"1"}],
        }
    ]


def test_a_schema_that_does_not_fit() -> None:
    columns.check_schema({"value": "string", "queue_offset": "bigint", "property_n": "double"}, "rocketmq")
    with pytest.raises(ConfigError) as caught:
        columns.check_schema({"valu": "binary", "queue_id": "string", "property_n": "array<int>"}, "rocketmq")
    text = str(caught.value)
    assert "unknown column 'valu'; did you mean value?" in text
    assert "column 'queue_id' cannot be string: use int or bigint" in text
    assert "column 'property_n' cannot be array<int>" in text
    with pytest.raises(ConfigError, match="unknown column 'queue_offset'"):
        columns.check_schema({"queue_offset": "bigint"}, "kafka")
