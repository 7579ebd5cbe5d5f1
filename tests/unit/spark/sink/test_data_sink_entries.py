"""Batch bodies made of columns are those that messages made of rows would be."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.producer.queue_choice import select_by_hash
from kourou.errors import MessageRefusedError
from kourou.protocol.batch import BatchEntry, encode_batch_entries, split_batch
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message
from kourou.protocol.properties import decode_properties
from kourou.protocol.properties import encode_properties as encode_row_properties
from tests.spark.kit.sink_kit import STRING, pa, record_batch, schema_of

from kourou.spark.sink.batch_entries import (  # isort: skip (the kit skips without pyarrow)
    ByteRows,
    Entries,
    Piece,
    encode_entries,
    encode_properties,
    single_values,
)
from kourou.spark.sink.invalid_rows import row_message  # isort: skip
from kourou.spark.sink.sink_batches import BatchPlan, RowBatch, RejectedRow, BatchOrigin, SingleRow  # isort: skip
from kourou.spark.sink.row_ids import RowIds  # isort: skip
from kourou.spark.sink.sink_columns import Rows, SinkColumns  # isort: skip
from kourou.spark.sink.sink_errors import RowLocation, RowRefusedError  # isort: skip
from kourou.spark.sink.sink_options import SinkOptions  # isort: skip

NAMES = ["topic", "value", "keys", "tags", "properties", "sharding_key", "delay_ms"]
OPTIONS = SinkOptions(namesrv="127.0.0.1:1", max_message_bytes=300, batch_bytes=1_000, batch_rows=7)

texts = st.text(max_size=6) | st.sampled_from(
    ["", " ", "*", "a||b", "a b", "x\x01y", "x\x02y", "KEYS", "日本", "x" * 300]
)
rows_of = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["A", "B", "%RETRY%g", "no good", "SCHEDULE_TOPIC_XXXX", None]),
        "value": st.none() | st.binary(max_size=12) | st.just(b"x" * 250) | st.just(b"x" * 400),
        "keys": st.none() | st.lists(texts | st.none(), max_size=3),
        "tags": st.none() | texts,
        "properties": st.none() | st.dictionaries(texts, texts | st.none(), max_size=3),
        "sharding_key": st.none(),
        "delay_ms": st.none() | st.sampled_from([0, 5, -5]),
    }
)
many = st.lists(rows_of, min_size=1, max_size=12)


def columns(rows: list[dict[str, Any]]) -> Rows:
    schema = schema_of(NAMES)
    return SinkColumns.of(schema, None).rows(record_batch(schema, rows))


def reference(row: dict[str, Any], *, drop: bool = False) -> Message | None:
    """The message that a row is, made part by part; None for one that no broker takes."""
    options = SinkOptions(namesrv="-", max_message_bytes=300, drop_reserved_properties=drop)
    try:
        return row_message(columns([row]), 0, options, RowLocation(0, 0, None))
    except RowRefusedError:
        return None


def id_rows(count: int) -> ByteRows:
    return RowIds("127.0.0.1").next_ids(count)


def encoded(arrays: Rows) -> Entries:
    """The entries of rows that are all ordinary."""
    properties = encode_properties(arrays, id_rows(arrays.count), drop_reserved=False)
    assert not (properties.is_single | single_values(arrays, alone_bytes=301)).any()
    return encode_entries(arrays.value, properties)


def bytes_of(message: Message, uniq_key: str, **more: str) -> bytes:
    """The entry of one message, as the encoder of rows makes it."""
    own = dict(message.properties)
    firsts = {name: own.pop(name) for name in ("KEYS", "TAGS", "__SHARDINGKEY") if name in own}
    properties = encode_row_properties({"UNIQ_KEY": uniq_key, **firsts, **own, **more})
    return encode_batch_entries([BatchEntry(0, message.body, properties.encode())])


def content(entry: BatchEntry) -> tuple[bytes, dict[str, str]]:
    properties = decode_properties(entry.raw_properties.decode())
    properties.pop("UNIQ_KEY")
    return entry.body, properties


@given(many, st.booleans(), st.randoms(use_true_random=False), st.integers(0, 2**63 - 1))
def test_ordinary_rows_are_encoded_like_their_messages(
    rows: list[dict[str, Any]], drop: bool, random: Random, first_number: int
) -> None:
    """Byte for byte, in any order, with further properties behind their own."""
    arrays, count = columns(rows), len(rows)
    ids = id_rows(count)
    properties = encode_properties(arrays, ids, drop_reserved=drop)
    is_single = single_values(arrays, alone_bytes=301) | properties.is_single
    order = random.sample(range(count), count)
    numbers = [str(first_number - at) for at in range(count)]
    more: list[Piece] = [b"EPOCH\x013\x02SEQ\x01", pa.array(numbers).cast(pa.large_binary()), b"\x02"]
    entries = encode_entries(arrays.value, properties)
    shuffled = encode_entries(arrays.value, properties, np.array(order), more)
    for at, number in enumerate(order):
        row = rows[number]
        expected = reference({**row, "topic": "A"}, drop=drop)
        if not is_single[number]:
            assert expected is not None, row
            uniq_key = ids[number].tobytes().decode()
            assert entries.body(number, number + 1) == bytes_of(expected, uniq_key)
            stamped = bytes_of(expected, uniq_key, EPOCH="3", SEQ=numbers[at])
            assert shuffled.body(at, at + 1) == stamped
        elif expected is not None:
            assert row["delay_ms"], row  # only what travels alone is odd and right


@given(st.lists(many, min_size=1, max_size=3))
def test_every_row_is_in_one_batch_and_no_batch_is_too_large(batches: list[list[dict[str, Any]]]) -> None:
    plan = BatchPlan(OPTIONS, lambda topic: [], RowIds())
    first_row = 0
    for rows in batches:
        seen: list[int] = []
        for sink_batch in plan.sink_batches(BatchOrigin(columns(rows), 4, first_row)):
            if isinstance(sink_batch, RowBatch):
                numbers = [int(number) for number in sink_batch.numbers[sink_batch.first : sink_batch.end]]
                assert {rows[number]["topic"] for number in numbers} == {sink_batch.topic}
                assert sink_batch.count <= 7 and (sink_batch.size_bytes <= 1_000 or sink_batch.count == 1)
                bodies = [entry.body for entry in split_batch(bytes(sink_batch.body()))]
                assert bodies == [rows[number]["value"] for number in numbers]
                assert sink_batch.location().row == first_row + numbers[0]
            else:
                numbers = [sink_batch.row]
                if isinstance(sink_batch, SingleRow):
                    assert sink_batch.message == reference(rows[sink_batch.row])
                else:
                    assert isinstance(sink_batch, RejectedRow)
                    assert sink_batch.error.location.row == first_row + sink_batch.row
                    assert reference(rows[sink_batch.row]) is None
            seen += numbers
        assert sorted(seen) == list(range(len(rows)))
        first_row += len(rows)


QUEUES = [MessageQueue("A", broker, number) for broker in ("b", "a") for number in (0, 1)]


def asked_queue(row: dict[str, Any]) -> MessageQueue | None:
    """The queue that a row with an id asks for, by looking at all of them."""
    found = [queue for queue in QUEUES if queue.queue_id == row["queue_id"]]
    return min((q for q in found if row["broker"] in (None, q.broker_name)), key=str, default=None)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "value": st.just(b"x"),
                "queue_id": st.sampled_from([0, 1, 9, -1, None]),
                "broker": st.sampled_from(["a", "b", "c", None]),
            }
        ),
        min_size=1,
        max_size=12,
    )
)
def test_rows_go_to_the_queue_they_ask_for_in_their_order(rows: list[dict[str, Any]]) -> None:
    schema = schema_of(["value", "queue_id", "broker"])
    arrays = SinkColumns.of(schema, "A").rows(record_batch(schema, rows))
    options = SinkOptions(namesrv="-", topic="A")
    got: dict[int, MessageQueue | None] = {}
    refused: set[int] = set()
    for sink_batch in BatchPlan(options, lambda topic: QUEUES, RowIds()).sink_batches(
        BatchOrigin(arrays, 0, 0)
    ):
        if isinstance(sink_batch, RejectedRow):
            refused.add(sink_batch.row)
        else:
            assert isinstance(sink_batch, RowBatch)
            numbers = [int(number) for number in sink_batch.numbers[sink_batch.first : sink_batch.end]]
            assert numbers == sorted(numbers)
            got |= dict.fromkeys(numbers, sink_batch.queue)
    assert {number for number, row in enumerate(rows) if row["queue_id"] in (9, -1)} <= refused
    for number, row in enumerate(rows):
        expected = None if row["queue_id"] is None else asked_queue(row)
        assert (number in refused) is (row["queue_id"] is not None and expected is None)
        assert number in refused or got[number] == expected


@given(st.lists(st.none() | st.sampled_from(["a", "b", "c", "order-1", "日本"]), min_size=1, max_size=12))
def test_rows_with_a_sharding_key_go_where_other_clients_send_it(keys: list[str | None]) -> None:
    schema = schema_of(["value", "sharding_key"])
    rows = [{"value": b"%d" % number, "sharding_key": key} for number, key in enumerate(keys)]
    arrays = SinkColumns.of(schema, "A").rows(record_batch(schema, rows))
    plan = BatchPlan(SinkOptions(namesrv="-", topic="A"), lambda topic: QUEUES, RowIds())
    for sink_batch in plan.sink_batches(BatchOrigin(arrays, 0, 0)):
        assert isinstance(sink_batch, RowBatch)
        for number in sink_batch.numbers[sink_batch.first : sink_batch.end]:
            key = keys[int(number)]
            expected = None if key is None else select_by_hash(QUEUES, Message("A", b"-"), key)
            assert sink_batch.queue == expected


@pytest.mark.parametrize(("first", "count"), [(3, 4), (9, 1), (0, 1)])
def test_slices_of_larger_batches(first: int, count: int) -> None:
    schema = schema_of(NAMES)
    rows = [
        {"topic": "A", "value": b"%d" % number, "keys": [f"k{number}"], "properties": {"n": str(number)}}
        for number in range(10)
    ]
    rows[2]["properties"] = {"x\x01": "outside of the slices"}
    rows[8]["keys"] = [None]
    arrays = SinkColumns.of(schema, None).rows(record_batch(schema, rows).slice(first, count))
    assert [content(entry) for entry in split_batch(bytes(encoded(arrays).body(0, count)))] == [
        (b"%d" % number, {"KEYS": f"k{number}", "n": str(number)}) for number in range(first, first + count)
    ]


VALUES = [b"x", "Grüße".encode(), b"x" * 200, b"y"]
KEYS = ["k", None, "", "日本"]


@pytest.mark.parametrize(
    "value_type",
    [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.binary())],
    ids=str,
)
@pytest.mark.parametrize(
    "key_type", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
@pytest.mark.parametrize("first", [0, 1, 3])
def test_every_type_of_arrow_gives_the_same_bytes(value_type: Any, key_type: Any, first: int) -> None:
    schema = schema_of(["value", "key"], {"value": STRING})
    values = pa.array(VALUES, pa.binary()).cast(pa.string()).dictionary_encode().cast(value_type)
    arrays = [values, pa.array(KEYS).dictionary_encode().cast(key_type)]
    batch = pa.RecordBatch.from_arrays(arrays, ["value", "key"]).slice(first)
    rows = SinkColumns.of(schema, "A").rows(batch)
    expected = [(value, {"KEYS": key} if key else {}) for value, key in zip(VALUES, KEYS, strict=True)]
    entries = encoded(rows)
    assert [content(entry) for entry in split_batch(bytes(entries.body(0, rows.count)))] == expected[first:]


def test_items_of_a_null_map_or_list_do_not_count() -> None:
    """Arrow allows them: a null is marked in a bitmap of its own."""
    is_null = pa.array([True, False])
    offsets = pa.array([0, 1, 2], pa.int32())
    maps = pa.MapArray.from_arrays(offsets, pa.array(["KEYS", "n"]), pa.array(["k", "1"]), mask=is_null)
    lists = pa.ListArray.from_arrays(offsets, pa.array(["a b", "k"]), mask=is_null)
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"]), lists, maps], ["value", "keys", "properties"])
    rows = SinkColumns.of(schema_of(["value", "keys", "properties"]), "A").rows(batch)
    entries = split_batch(bytes(encoded(rows).body(0, 2)))
    assert [content(entry) for entry in entries] == [(b"x", {}), (b"y", {"KEYS": "k", "n": "1"})]


def test_a_batch_without_rows_is_nothing_to_send() -> None:
    schema = schema_of(NAMES)
    arrays = SinkColumns.of(schema, None).rows(record_batch(schema, []))
    plan = BatchPlan(OPTIONS, lambda topic: [], RowIds())
    assert list(plan.sink_batches(BatchOrigin(arrays, 0, 0))) == []


def test_a_batch_fits_into_the_largest_message() -> None:
    """A broker's limit is one of the whole request."""
    options = SinkOptions(namesrv="-", topic="A", max_message_bytes=500)
    schema = schema_of(["value"])
    arrays = SinkColumns.of(schema, "A").rows(record_batch(schema, [{"value": b"x" * 100}] * 20))
    batches = list(BatchPlan(options, lambda topic: [], RowIds()).sink_batches(BatchOrigin(arrays, 0, 0)))
    found = [(each.count, each.size_bytes <= 500) for each in batches if isinstance(each, RowBatch)]
    assert found == [(3, True)] * 6 + [(2, True)]


def test_a_refusal_keeps_its_words_through_pickle() -> None:
    import pickle

    error = RowRefusedError(RowLocation(1, 7, "A", "k", 9), "it is too long")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (
        RowRefusedError,
        "partition 1, rows 7 to 9, topic 'A', keys 'k': it is too long",
    )
    assert not isinstance(again, MessageRefusedError)
