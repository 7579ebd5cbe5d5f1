"""Batches from real brokers in this process, read without Spark: what Spark would do is done by hand."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import EqualTo, GreaterThan, In, InputPartition  # noqa: E402

from kourou import Message, TransactionProducer, TransactionState  # noqa: E402
from kourou.errors import ConfigError, KourouError, NoNameServerError  # noqa: E402
from kourou.protocol.bodies import MessageQueue  # noqa: E402
from kourou.spark.pipelines.sql.tables import TableOptions, connection_client  # noqa: E402
from kourou.spark.source.data_loss import DataLossError  # noqa: E402
from kourou.spark.source.data_source import FilteringReader, RocketmqDataSource  # noqa: E402
from kourou.spark.source.options import PUSH_FILTERS_OPTION  # noqa: E402
from kourou.spark.source.source_client import close_shared_clients  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from tests.spark.kit.reference_rows import reference_row  # noqa: E402
from tests.spark.kit.source_kit import ALL, PLACE, places, read_batch, schema_of, send, source  # noqa: E402


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster
        close_shared_clients()


def bodies(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


@pytest.fixture(scope="module")
def numbers(mq: LocalCluster) -> LocalCluster:
    """Topic `numbers`: 30 messages in each of four queues."""
    mq.create_topic("numbers", queues=2)
    for broker in ("broker-a", "broker-b"):
        for queue_id in range(2):
            send(mq, "numbers", bodies(30), queue_id=queue_id, broker=broker, tags="even", keys="a b")
    return mq


WHOLE = [
    ("numbers", broker, queue_id, at)
    for broker in ("broker-a", "broker-b")
    for queue_id in (0, 1)
    for at in range(30)
]


def test_rows_are_those_of_the_messages(numbers: LocalCluster) -> None:
    rows = read_batch(source(numbers, subscribe="numbers"), ALL)
    messages = {message.msg_id: message for message in numbers.messages("numbers")}
    assert len(rows) == len(messages) == 120
    for row in rows:
        expected = reference_row(messages[row["msg_id"]], "numbers", row["broker"])
        assert row == {name: expected[name] for name in row}


def test_every_message_once_and_in_the_order_of_its_queue(numbers: LocalCluster) -> None:
    assert places(read_batch(source(numbers, subscribe="numbers"))) == WHOLE


@pytest.mark.parametrize("min_partitions", [1, 3, 7, 200])
def test_split_queues_give_the_same(numbers: LocalCluster, min_partitions: int) -> None:
    data_source = source(numbers, subscribe="numbers", minPartitions=min_partitions)
    assert len(data_source.reader(PLACE).partitions()) >= min(min_partitions, 120)
    assert sorted(places(read_batch(data_source))) == WHOLE


def test_from_and_to_by_queue(numbers: LocalCluster) -> None:
    rows = read_batch(
        source(
            numbers,
            assign='{"numbers": {"broker-a": [0, 1]}}',
            startingOffsets='{"numbers": {"broker-a": {"0": 28, "1": "latest"}}}',
            endingOffsets='{"numbers": {"broker-a": {"0": 29}}}',
        )
    )
    assert places(rows) == [("numbers", "broker-a", 0, 28)]


def test_from_and_to_by_time(mq: LocalCluster) -> None:
    mq.create_topic("timed", queues=1)
    send(mq, "timed", bodies(5))
    last_ms = max(message.store_timestamp for message in mq.messages("timed"))
    while time.time_ns() // 1_000_000 <= last_ms + 1:
        pass
    middle_ms = last_ms + 1
    send(mq, "timed", bodies(5, 5))
    where = {"assign": '{"timed": {"broker-a": [0]}}'}
    behind = read_batch(source(mq, **where, startingTimestamp=middle_ms))
    before = read_batch(source(mq, **where, endingTimestamp=middle_ms))
    assert [row["value"] for row in behind] == bodies(5, 5)
    assert [row["value"] for row in before] == bodies(5)
    assert read_batch(source(mq, **where, startingTimestamp=middle_ms + 3_600_000)) == []


def test_from_and_to_by_the_time_of_each_queue(mq: LocalCluster) -> None:
    mq.create_topic("each-timed", queues=3)
    for queue_id in range(3):
        send(mq, "each-timed", bodies(5), queue_id=queue_id)
    last_ms = max(message.store_timestamp for message in mq.messages("each-timed"))
    while time.time_ns() // 1_000_000 <= last_ms + 1:
        pass
    middle_ms = last_ms + 1
    for queue_id in range(3):
        send(mq, "each-timed", bodies(5, 5), queue_id=queue_id)
    where = {"assign": '{"each-timed": {"broker-a": [0, 1, 2]}}'}
    late = datetime.fromtimestamp(middle_ms / 1000 + 3_600, UTC).isoformat()
    text = json.dumps({"each-timed": {"broker-a": {"0": middle_ms, "1": late}}})
    behind = Counter(
        row["queue_id"] for row in read_batch(source(mq, **where, startingOffsetsByTimestamp=text))
    )
    assert behind == {0: 5, 2: 10}
    before = Counter(
        row["queue_id"] for row in read_batch(source(mq, **where, endingOffsetsByTimestamp=text))
    )
    assert before == {0: 5, 1: 10, 2: 10}
    other = text.replace('"1"', '"7"')
    with pytest.raises(ConfigError, match="option startingOffsetsByTimestamp: there is no queue 7 of broker"):
        read_batch(source(mq, **where, startingOffsetsByTimestamp=other))


def test_several_topics_and_a_pattern(mq: LocalCluster) -> None:
    for topic in ("pattern-a", "pattern-b", "%RETRY%pattern-c"):
        mq.create_topic(topic, queues=1)
        send_raw(mq, topic)
    by_names = read_batch(source(mq, subscribe="pattern-a,pattern-b"))
    by_pattern = read_batch(source(mq, subscribePattern=".*pattern-.*"))
    with_retry = read_batch(source(mq, subscribePattern=".*pattern-.*", includeSystemTopics="true"))
    assert {row["topic"] for row in by_names} == {"pattern-a", "pattern-b"}
    assert places(by_pattern) == places(by_names)
    assert {row["topic"] for row in with_retry} == {"pattern-a", "pattern-b", "%RETRY%pattern-c"}
    assert {row["topic"] for row in read_batch(source(mq, subscribe="%RETRY%pattern-c"))} == {
        "%RETRY%pattern-c"
    }


def test_names_of_clusters_and_brokers_are_no_topics_to_read(mq: LocalCluster) -> None:
    """The name server lists them among the topics."""
    mq.create_topic("listed", queues=1)
    with connection_client(TableOptions(source={"namesrv": mq.namesrv})) as client:
        names = set(client.topic_names())
    assert {"listed", "TBW102"} <= names and not names & {
        "DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
        "broker-a",
    }


def send_raw(mq: LocalCluster, topic: str) -> None:
    send(mq, topic, [b"x"])


def test_compressed_bodies_and_columns_left_out(mq: LocalCluster) -> None:
    mq.create_topic("large", queues=1)
    send(mq, "large", [b"a" * 20_000] * 3)
    where = {"assign": '{"large": {"broker-a": [0]}}'}
    assert [row["value"] for row in read_batch(source(mq, **where))] == [b"a" * 20_000] * 3
    assert read_batch(source(mq, **where), schema_of("queue_offset")) == [
        {"queue_offset": at} for at in range(3)
    ]


def test_tags_are_filtered_by_the_broker(mq: LocalCluster) -> None:
    mq.create_topic("tagged", queues=1)
    for number in range(20):
        send(mq, "tagged", [b"%d" % number], tags="AaBBxy"[number % 3 * 2 :][:2])
    found = read_batch(source(mq, subscribe="tagged", subExpression="Aa"))
    # "BB" has the hash of "Aa": the broker lets it through.
    assert [row["queue_offset"] for row in found] == list(range(0, 20, 3))


def test_small_batches_and_fetches(numbers: LocalCluster) -> None:
    rows = read_batch(
        source(numbers, subscribe="numbers", fetchBytes=500, batchBytes=1000, fetchesInFlight=3)
    )
    assert places(rows) == WHOLE


def test_kafka_rows(numbers: LocalCluster) -> None:
    data_source = source(numbers, subscribe="numbers", rowFormat="kafka")
    schema = schema_of(
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", row_format="kafka"
    )
    rows = read_batch(data_source, schema)
    assert {(row["key"], row["topic"], row["timestampType"]) for row in rows} == {(b"a b", "numbers", 1)}
    assert data_source.schema() == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int"
    )


# -- filters of the query --------------------------------------------------------------------------


def filtering(
    mq: LocalCluster, filters: list[Any], **options: Any
) -> tuple[FilteringReader, list[InputPartition]]:
    reader = source(mq, **{PUSH_FILTERS_OPTION: "true"}, **options).reader(schema_of(*ALL.names))
    assert isinstance(reader, FilteringReader)
    assert reader.pushFilters(filters) == filters  # Spark looks again
    return reader, reader.partitions()


def test_filters_choose_queues_ranges_and_rows(numbers: LocalCluster) -> None:
    filters = [
        EqualTo(("broker",), "broker-a"),
        In(("queue_id",), (1, 7)),
        GreaterThan(("queue_offset",), 25),
    ]
    reader, partitions = filtering(numbers, filters, subscribe="numbers")
    ranges = [each for partition in partitions for each in partition.ranges]  # type: ignore[attr-defined]
    assert [(each.queue, each.begin, each.end) for each in ranges] == [
        (MessageQueue("numbers", "broker-a", 1), 25, 30)
    ]
    rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    assert [row["queue_offset"] for row in rows] == [26, 27, 28, 29]


def test_filters_by_key_and_tag_leave_rows_out(mq: LocalCluster) -> None:
    mq.create_topic("chosen", queues=1)
    for number in range(6):
        send(mq, "chosen", [b"%d" % number], keys=f"k{number % 2}", tags=f"t{number % 3}")
    reader, partitions = filtering(
        mq, [EqualTo(("key",), "k0"), EqualTo(("tags",), "t0")], subscribe="chosen"
    )
    rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [b"0"]


# -- what is wrong ---------------------------------------------------------------------------------


def test_a_topic_that_is_missing(mq: LocalCluster) -> None:
    with pytest.raises(KourouError, match="nowhere.*the name server does not know it"):
        read_batch(source(mq, subscribe="nowhere"))


def test_a_name_server_that_does_not_answer() -> None:
    data_source = RocketmqDataSource({"namesrv": "127.0.0.1:1", "subscribe": "numbers"})
    with pytest.raises(NoNameServerError, match="127.0.0.1:1"):
        data_source.reader(PLACE).partitions()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"startingOffsets": "latest"}, "leaves a batch nothing to read"),
        ({"endingOffsets": "earliest"}, "leaves nothing to read"),
        ({"startingOffsets": '{"numbers": {"broker-x": {"0": 1}}}'}, "no queue 0 of broker 'broker-x'"),
        (
            {"assign": '{"numbers": [9]}', "subscribe": None},
            "there is no queue 9, topic 'numbers'; the topic has",
        ),
    ],
)
def test_options_that_do_not_fit_the_cluster(
    numbers: LocalCluster, options: dict[str, Any], part: str
) -> None:
    given = {name: value for name, value in {"subscribe": "numbers", **options}.items() if value is not None}
    with pytest.raises(ConfigError, match=part):
        read_batch(source(numbers, **given))


def test_offsets_behind_the_end(numbers: LocalCluster) -> None:
    text = '{"numbers": {"broker-a": {"0": 40}}}'
    with pytest.raises(DataLossError, match="startingOffsets is 40, but the queue ends at 30"):
        read_batch(source(numbers, subscribe="numbers", startingOffsets=text))
    rows = read_batch(source(numbers, subscribe="numbers", startingOffsets=text, failOnDataLoss="false"))
    assert sorted(places(rows)) == WHOLE[30:]


def test_a_partition_of_nothing(numbers: LocalCluster) -> None:
    reader = source(numbers, subscribe="numbers").reader(PLACE)
    assert list(reader.read(InputPartition(None))) == []


def test_delayed_and_half_messages_are_read_when_asked_for(mq: LocalCluster) -> None:
    mq.create_topic("waiting", queues=1)
    send(mq, "waiting", [b"later"], delay_time_level=18)
    with TransactionProducer(
        "halves", check=lambda _: TransactionState.UNKNOWN, namesrv=mq.namesrv
    ) as producer:
        producer.send_in_transaction(Message("waiting", b"half"), lambda _: TransactionState.UNKNOWN)
    assert read_batch(source(mq, subscribe="waiting")) == []
    columns = schema_of("topic", "value", "properties")
    delayed = read_batch(source(mq, subscribe="SCHEDULE_TOPIC_XXXX"), columns)
    assert [(row["value"], row["properties"]["REAL_TOPIC"]) for row in delayed] == [(b"later", "waiting")]
    halves = read_batch(source(mq, subscribe="RMQ_SYS_TRANS_HALF_TOPIC"), columns)
    assert [(row["value"], row["properties"]["REAL_TOPIC"]) for row in halves] == [(b"half", "waiting")]
