"""The sink without a JVM: rows written by the writer's own methods, read back from a real broker."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from kourou.client.producer.queue_choice import select_by_hash
from kourou.errors import NoNameServerError, NoRouteError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt
from kourou.testing import LocalCluster, UnknownTopicError
from tests.spark.kit.sink_kit import BINARY, STRING, write

from kourou.spark.sink.invalid_rows import KEPT_BYTES  # isort: skip (the kit skips where there is no pyarrow)
from kourou.spark.sink.sink_errors import RowRefusedError, SinkRowError  # isort: skip
from kourou.spark.sink.sink_producer import stop_worker_producers  # isort: skip


@pytest.fixture(autouse=True)
def stopped_producers() -> Iterator[None]:
    yield
    stop_worker_producers()


def options(cluster: LocalCluster, topic: str | None = None, **more: str) -> dict[str, str]:
    found = {"namesrv": cluster.namesrv, "retryIntervalMs": "20", **more}
    return found if topic is None else {**found, "topic": topic}


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return sorted(message.body for message in messages)


def test_every_part_of_a_row_arrives(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    rows: list[dict[str, Any]] = [
        {"value": b"one", "key": "k1", "tags": "TagA", "properties": {"price": "12", "städt": "Köln"}},
        {"value": b"two", "key": "a b", "tags": None, "properties": {}},
        {"value": b"three", "key": None, "tags": "", "properties": None},
    ]
    commit = write(rows, options(rocketmq, rocketmq_topic))
    assert (commit.counts.rows, commit.counts.refused_rows) == (3, 0)
    one, three, two = sorted(rocketmq.messages(rocketmq_topic), key=lambda message: message.body)
    assert (one.keys, one.tags) == (("k1",), "TagA")
    assert (one.get_property("price"), one.get_property("städt")) == ("12", "Köln")
    assert (two.keys, two.tags) == (("a", "b"), None)
    assert (three.keys, three.tags, set(three.properties) & {"KEYS", "TAGS"}) == ((), None, set())
    assert len({message.msg_id for message in (one, two, three)}) == 3


def test_many_rows_arrive_once_each_in_all_queues(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    rows = [{"value": b"%d" % number, "key": f"k{number}"} for number in range(25_000)]
    commit = write(rows, options(rocketmq, rocketmq_topic), batch_rows=10_000)
    messages = rocketmq.messages(rocketmq_topic)
    assert commit.counts.rows == len(messages) == 25_000
    assert Counter(message.body for message in messages) == Counter(row["value"] for row in rows)
    assert all(message.keys == (f"k{message.body.decode()}",) for message in messages)
    assert len({message.msg_id for message in messages}) == 25_000
    assert {message.queue_id for message in messages} == {0, 1, 2, 3}


def test_text_values_and_lists_of_keys(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    rows = [{"value": "Grüße", "keys": ["a", "b"]}, {"value": "x", "keys": []}, {"value": "y", "keys": None}]
    write(rows, options(rocketmq, rocketmq_topic), kinds={"value": STRING})
    found = {message.body.decode(): message.keys for message in rocketmq.messages(rocketmq_topic)}
    assert found == {"Grüße": ("a", "b"), "x": (), "y": ()}


def test_rows_go_to_the_topics_they_name(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    other = f"{rocketmq_topic}-other"
    rocketmq.create_topic(other)
    rows = [{"topic": (rocketmq_topic, other)[number % 2], "body": b"%d" % number} for number in range(100)]
    assert write(rows, options(rocketmq)).counts.rows == 100
    assert bodies(rocketmq.messages(rocketmq_topic)) == sorted(b"%d" % number for number in range(0, 100, 2))
    assert bodies(rocketmq.messages(other)) == sorted(b"%d" % number for number in range(1, 100, 2))


def test_the_option_topic_counts_more_than_the_column(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    write([{"topic": "Elsewhere", "value": b"here"}], options(rocketmq, rocketmq_topic))
    assert bodies(rocketmq.messages(rocketmq_topic)) == [b"here"]
    with pytest.raises(UnknownTopicError):
        rocketmq.messages("Elsewhere")


def test_rows_of_a_sharding_key_share_the_queue_of_other_clients_and_keep_their_order(
    rocketmq: LocalCluster, rocketmq_topic: str
) -> None:
    rows = [{"value": b"%d" % number, "sharding_key": f"order-{number % 7}"} for number in range(3_000)]
    # Large and delayed rows travel alone, and yet in their place.
    rows[1_500]["value"] = b"1500" + b" " * 100_000
    write(rows, options(rocketmq, rocketmq_topic, batchRows="50"), batch_rows=700)
    by_key: dict[str, list[MessageExt]] = defaultdict(list)
    for message in sorted(rocketmq.messages(rocketmq_topic), key=lambda message: message.queue_offset):
        by_key[message.properties["__SHARDINGKEY"]].append(message)
    queues = [MessageQueue(rocketmq_topic, "broker-a", number) for number in range(4)]
    for key, messages in by_key.items():
        expected = select_by_hash(queues, Message("T", b"-"), key).queue_id
        assert {message.queue_id for message in messages} == {expected}
        numbers = [int(message.body) for message in messages]
        assert numbers == sorted(numbers) == list(range(int(key[-1]), 3_000, 7))


def test_rows_go_to_the_queue_they_name(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    rows = [{"value": b"%d" % number, "queue_id": number % 4} for number in range(200)]
    rows.append({"value": b"anywhere", "queue_id": None})
    assert write(rows, options(rocketmq, rocketmq_topic)).counts.rows == 201
    for message in rocketmq.messages(rocketmq_topic):
        if message.body != b"anywhere":
            assert message.queue_id == int(message.body) % 4


def test_a_queue_that_is_not_there_is_named(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    rows = [{"value": b"a", "queue_id": 0, "key": "k0"}, {"value": b"b", "queue_id": 9, "key": "k1"}]
    with pytest.raises(RowRefusedError, match=r"partition 0, row 1, .*, keys 'k1': .* no writable queue 9"):
        write(rows, options(rocketmq, rocketmq_topic))


def test_a_delayed_row_waits(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    rows = [{"value": b"now", "delay_ms": None}, {"value": b"later", "delay_ms": 3_600_000}]
    assert write(rows, options(rocketmq, rocketmq_topic)).counts.rows == 2
    assert bodies(rocketmq.messages(rocketmq_topic)) == [b"now"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"value": None}, "the value is null"),
        ({"value": b""}, "the body is empty"),
        ({"value": b"x", "properties": {"KEYS": "k"}}, "'KEYS' is reserved"),
        ({"value": b"x", "properties": {"price": " "}}, "neither name nor value may be blank"),
        ({"value": b"x", "properties": {"price": None}}, "property 'price' is null"),
        ({"value": b"x", "properties": {"price": "1\x022"}}, "separate properties"),
        ({"value": b"x", "properties": {"long": "x" * 40_000}}, "the properties have"),
        ({"value": b"x", "keys": ["a b"]}, "contains a blank"),
        ({"value": b"x", "keys": ["a", None]}, "one of the keys is null"),
        ({"value": b"x", "tags": "a\x01b"}, "separate properties|\\\\x01"),
        ({"value": b"x", "sharding_key": " "}, "blank"),
        ({"value": b"x", "delay_ms": -5}, "the delay is negative"),
        ({"value": b"x" * 2_000}, "the value has 2000 bytes, more than the limit of 1000: .*maxMessageBytes"),
    ],
)
def test_a_bad_row_is_named_with_the_reason(
    rocketmq: LocalCluster, rocketmq_topic: str, row: dict[str, Any], reason: str
) -> None:
    rows = [{"value": b"good"}, row, {"value": b"good too"}]
    where = options(rocketmq, rocketmq_topic, maxMessageBytes="1000")
    with pytest.raises(RowRefusedError, match=reason) as caught:
        write(rows, where)
    assert (caught.value.location.partition, caught.value.location.row) == (0, 1)
    assert f"partition 0, row 1, topic '{rocketmq_topic}'" in str(caught.value)


def test_bad_rows_go_to_the_error_topic_and_the_others_where_they_belong(
    rocketmq: LocalCluster, rocketmq_topic: str
) -> None:
    errors = f"{rocketmq_topic}-errors"
    rocketmq.create_topic(errors)
    rows = [{"value": b"%d" % number, "key": f"k{number}", "tags": "T"} for number in range(500)]
    rows[17]["value"] = b"x" * 100_000
    rows[333]["value"] = b""
    where = options(rocketmq, rocketmq_topic, maxMessageBytes="70000", errorTopic=errors)
    commit = write(rows, where, batch_rows=100)
    assert (commit.counts.rows, commit.counts.refused_rows) == (498, 2)
    assert len(rocketmq.messages(rocketmq_topic)) == 498
    stories = {report["row"]: report for report in map(json.loads, _texts(rocketmq.messages(errors)))}
    assert set(stories) == {17, 333}
    large = stories[17]
    assert (large["topic"], large["keys"], large["tags"]) == (rocketmq_topic, "k17", "T")
    assert (large["size_bytes"], large["partition"]) == (100_000, 0)
    assert base64.b64decode(large["value_base64"]) == b"x" * KEPT_BYTES
    assert "the limit of 70000" in large["error"]
    assert "empty" in stories[333]["error"]


def _texts(messages: list[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


def test_a_row_that_only_the_broker_finds_too_large_is_found_among_those_it_travelled_with() -> None:
    with LocalCluster(max_message_size=40_000) as cluster:
        cluster.create_topic("Orders", queues=1)
        rows = [{"value": b"%04d" % number, "key": f"k{number}"} for number in range(300)]
        rows[123]["value"] = b"0123" + b"x" * 50_000
        with pytest.raises(RowRefusedError, match="topic 'Orders', keys 'k123': rejected by the broker"):
            write(rows, options(cluster, "Orders"))
        cluster.create_topic("Errors")
        where = options(cluster, "Orders", errorTopic="Errors", batchBytes="60000")
        commit = write(rows, where)
        assert (commit.counts.rows, commit.counts.refused_rows) == (299, 1)
        assert json.loads(cluster.messages("Errors")[0].body)["row"] == 123


def test_reserved_properties_are_left_out_where_that_is_asked_for(
    rocketmq: LocalCluster, rocketmq_topic: str
) -> None:
    old = {"UNIQ_KEY": "1", "KEYS": "old", "price": "3", "MIN_OFFSET": "0"}
    rows = [{"value": b"x", "key": "new", "properties": old}, {"value": b"", "key": None, "properties": {}}]
    rows[1]["value"] = b"y" * 80_000  # alone
    rows[1]["properties"] = {"TAGS": "old", "price": "4"}
    write(rows, options(rocketmq, rocketmq_topic, dropReservedProperties="true"))
    small, large = sorted(rocketmq.messages(rocketmq_topic), key=lambda message: len(message.body))
    assert (small.keys, small.get_property("price"), small.msg_id != "1") == (("new",), "3", True)
    assert (large.tags, large.get_property("price"), large.body) == (None, "4", b"y" * 80_000)


def test_keys_that_are_no_text(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    rows = [{"value": b"x", "key": b"fine"}, {"value": b"x", "key": b"\xff\xfe"}]
    with pytest.raises(RowRefusedError, match="row 1.*keys: not valid UTF-8"):
        write(rows, options(rocketmq, rocketmq_topic), kinds={"key": BINARY})


def test_no_rows_are_no_trouble(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    assert write([], options(rocketmq, rocketmq_topic), names=["value"]).counts.rows == 0


def test_rows_arrive_although_the_broker_is_away_for_a_while() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("Orders")
        rows = [{"value": b"%d" % number, "sharding_key": f"{number % 3}"} for number in range(4_000)]
        back = threading.Thread(target=cluster.start_broker)
        commit = write(
            rows,
            options(cluster, "Orders", batchRows="20"),
            batch_rows=100,
            before={20: cluster.stop_broker, 22: back.start},
        )
        back.join()
        assert (commit.counts.rows, commit.counts.retries > 0) == (4_000, True)
        by_key: dict[str, list[int]] = defaultdict(list)
        for message in sorted(cluster.messages("Orders"), key=lambda message: message.queue_offset):
            numbers = by_key[message.properties["__SHARDINGKEY"]]
            number = int(message.body)
            if number not in numbers:  # a lost answer makes it come twice
                numbers.append(number)
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
        assert sum(map(len, by_key.values())) == 4_000


def test_a_broker_that_stays_away_is_given_up_with_the_rows_named() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("Orders")
        where = options(cluster, "Orders", retryTimes="2", sendTimeoutMs="500")
        write([{"value": b"x", "key": "k"}], where)
        cluster.stop_broker()
        from kourou.spark.sink.data_sink import AtLeastOnce, SinkTask
        from kourou.spark.sink.sink_columns import SinkColumns
        from kourou.spark.sink.sink_options import SinkOptions
        from tests.spark.kit.sink_kit import record_batch, schema_of

        schema = schema_of(["value", "key"])
        delivery = AtLeastOnce(SinkOptions.parse(where), SinkColumns.of(schema, "Orders"))
        batch = record_batch(schema, [{"value": b"x", "key": "k0"}, {"value": b"y", "key": "k1"}])
        with pytest.raises(SinkRowError, match="partition 3, rows 0 to 1, topic 'Orders', keys 'k0'.*3 att"):
            delivery.write(iter([batch]), SinkTask(3))


def test_no_name_server_is_an_error_at_the_start() -> None:
    with pytest.raises(NoNameServerError, match="127.0.0.1:1"):
        write([{"value": b"x"}], {"namesrv": "127.0.0.1:1", "topic": "Orders"})


def test_a_stream_looks_for_its_name_server_once_and_waits_a_little() -> None:
    from kourou.spark.sink.sink_options import SinkOptions
    from kourou.spark.sink.sink_start import check_reachable_once

    nowhere = SinkOptions(namesrv="127.0.0.1:1", topic="Orders")
    with pytest.raises(NoNameServerError, match="127.0.0.1:1"):
        check_reachable_once(nowhere, timeout_s=0.3)
    with LocalCluster() as cluster:
        cluster.create_topic("Orders")
        there = SinkOptions(namesrv=cluster.namesrv, topic="Orders")
        check_reachable_once(there)
    check_reachable_once(there)  # gone, and not looked for again


def test_a_task_waits_for_a_name_server_that_is_away() -> None:
    from kourou.spark.sink.sink_options import SinkOptions
    from kourou.spark.sink.sink_producer import wait_worker_producer

    began = time.monotonic()
    with pytest.raises(NoNameServerError):
        wait_worker_producer(SinkOptions(namesrv="127.0.0.1:1", retry_times=3, retry_interval_ms=50))
    assert time.monotonic() - began >= 0.05 + 0.1 + 0.2


def test_writes_of_a_sink_share_a_producer(rocketmq: LocalCluster) -> None:
    """Each has a writeId of its own, and a worker serves one after the other."""
    from kourou.spark.sink.sink_options import SinkOptions
    from kourou.spark.sink.sink_producer import worker_producer

    first, second = (
        worker_producer(SinkOptions(namesrv=rocketmq.namesrv, sink_id="loader", write_id=write_id))
        for write_id in ("1", "2")
    )
    assert first is second


def test_a_missing_topic_is_an_error_at_the_start() -> None:
    with LocalCluster(auto_create_topic_enable=False) as cluster:
        with pytest.raises(NoRouteError, match="'Orders'"):
            write([{"value": b"x"}], options(cluster, "Orders"))


def test_a_missing_topic_is_not_created_by_a_misspelled_option() -> None:
    with LocalCluster(auto_create_topic_enable=True) as cluster:
        cluster.create_topic("Ordered")
        words = r"'Ordrs'.* \(did you mean Ordered\?\).*`kourou topic create`, or set .* createTopic"
        with pytest.raises(NoRouteError, match=words):
            write([{"value": b"x"}], options(cluster, "Ordrs"))
        with pytest.raises(NoRouteError, match="'Errors'"):
            write([{"value": b"x"}], options(cluster, "Ordered", errorTopic="Errors"))
        write([{"value": b"x"}], options(cluster, "Orders", createTopic="true"))
        assert bodies(cluster.messages("Orders")) == [b"x"]
