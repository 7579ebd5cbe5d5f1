"""The sink under real Spark: batch and streaming writes, read back from the broker by Kourou's client."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kourou import Message, Producer, PullConsumer
from kourou.protocol.record import decode_records
from kourou.testing import LocalCluster
from tests.crash.killed_broker import KilledBroker
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.needed import need_module

need_module("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

QUERY_TIMEOUT_S = 120


def save(data: DataFrame, namesrv: str, topic: str | None = None, **options: str) -> None:
    writer = data.write.format("rocketmq").option("namesrv", namesrv).options(**options)
    (writer if topic is None else writer.option("topic", topic)).mode("append").save()


def numbers(spark: SparkSession, count: int, *columns: str, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id AS string) AS value", *columns)


def test_a_batch_with_every_column(spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    data = numbers(
        spark,
        3_000,
        f"'{rocketmq_topic}' AS topic",
        "concat('k', id) AS key",
        "if(id % 2 = 0, 'Even', null) AS tags",
        "map('n', cast(id AS string)) AS properties",
        "concat('order-', id % 5) AS sharding_key",
        "cast(null AS bigint) AS delay_ms",
    )
    save(data, rocketmq.namesrv)
    messages = rocketmq.messages(rocketmq_topic)
    assert len(messages) == 3_000
    queue_of: dict[str, int] = {}
    for message in messages:
        number = message.body.decode()
        assert message.keys == (f"k{number}",)
        assert message.tags == ("Even" if int(number) % 2 == 0 else None)
        assert message.get_property("n") == number
        sharding_key = message.properties["__SHARDINGKEY"]
        assert sharding_key == f"order-{int(number) % 5}"
        assert queue_of.setdefault(sharding_key, message.queue_id) == message.queue_id


def test_what_was_read_is_written_to_another_topic(
    spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str
) -> None:
    copies = f"{rocketmq_topic}-copies"
    rocketmq.create_topic(copies)
    save(numbers(spark, 100, "concat('k', id) AS key", "'T' AS tags"), rocketmq.namesrv, rocketmq_topic)
    reader = spark.read.format("rocketmq").option("namesrv", rocketmq.namesrv)
    read = reader.option("subscribe", rocketmq_topic).load()
    data = read.select("value", "keys", "tags", "properties", "queue_id")
    save(data, rocketmq.namesrv, copies, dropReservedProperties="true")
    originals = {message.body: message for message in rocketmq.messages(rocketmq_topic)}
    copied = rocketmq.messages(copies)
    assert len(copied) == len(originals) == 100
    for message in copied:
        original = originals[message.body]
        assert (message.keys, message.tags) == (original.keys, original.tags)
        assert message.queue_id == original.queue_id


def test_trace_context_passes_through(
    spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str
) -> None:
    """W3C context in a message's properties is a column of the source too, and the same in the copy."""
    context = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7;p:1~2/3@x, vendor@sys=a%20b=c",
    }
    copies = f"{rocketmq_topic}-copies"
    rocketmq.create_topic(copies)
    with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        producer.send_many(
            [Message(rocketmq_topic, b"%d" % number, properties=context) for number in range(3)]
        )
        producer.send(Message(rocketmq_topic, b"without"))
    reader = spark.read.format("rocketmq").option("namesrv", rocketmq.namesrv)
    read = reader.option("subscribe", rocketmq_topic).load()
    assert read.filter(read.properties["traceparent"] == context["traceparent"]).count() == 3
    data = read.select("value", "keys", "properties")
    save(data, rocketmq.namesrv, copies, dropReservedProperties="true")
    copied = {message.body: message.properties for message in rocketmq.messages(copies)}
    assert set(copied) == {b"0", b"1", b"2", b"without"}
    for body, properties in copied.items():
        found = {name: value for name, value in properties.items() if name in context}
        assert found == ({} if body == b"without" else context)


def test_a_bad_row_is_named_in_sparks_error(
    spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str
) -> None:
    from pyspark.errors import PySparkException

    data = numbers(spark, 1_000, "concat('k', id) AS key")
    data = data.selectExpr("if(value = '777', '', value) AS value", "key")
    words = f"partition 1, row 277, topic '{rocketmq_topic}', keys 'k777': .*the body is empty"
    with pytest.raises(PySparkException, match=words):
        save(data, rocketmq.namesrv, rocketmq_topic)


def test_mistakes_are_reported_at_the_start(spark: SparkSession, rocketmq: LocalCluster) -> None:
    from pyspark.errors import PySparkException

    data = numbers(spark, 10)
    with pytest.raises(PySparkException, match="unknown option 'toppic'; did you mean topic"):
        save(data, rocketmq.namesrv, None, toppic="Orders")
    with pytest.raises(
        PySparkException, match="no name server can be reached: cannot connect to 127.0.0.1:1"
    ):
        save(data, "127.0.0.1:1", "Orders")
    with pytest.raises(PySparkException, match=r"column id: not part of a message"):
        save(spark.range(3), rocketmq.namesrv, "Orders")
    with pytest.raises(PySparkException, match=r"cannot be overwritten; use mode\(\"append\"\)"):
        data.write.format("rocketmq").option("namesrv", rocketmq.namesrv).mode("overwrite").save()


def test_a_broker_that_is_killed_and_comes_back_has_every_row(spark: SparkSession, tmp_path: Path) -> None:
    count = 150_000
    with launch_kourou_namesrv(tmp_path / "namesrv") as namesrv:
        address = namesrv.wait_ready().address
        broker = KilledBroker(tmp_path, namesrvAddr=address, mappedFileSizeCommitLog=64 << 20)
        broker.start()
        try:
            save(numbers(spark, 10), address, "Kills", createTopic="true")
            # The broker lives as long as the thread that starts it, and that as long as the block.
            with ThreadPoolExecutor(1) as threads:
                killing = threads.submit(kill_and_start, broker, address, "Kills")
                save(numbers(spark, count, partitions=4), address, "Kills", batchRows="200")
                assert killing.done(), "everything was written before the broker was killed"
                killing.result()
                found = stored(address, "Kills")
        finally:
            broker.kill()
    assert {int(body) for body in found} == set(range(count))
    assert sum(found.values()) >= count + 10


def kill_and_start(broker: KilledBroker, namesrv: str, topic: str) -> None:
    """Kill a broker once it has some of the rows, and start it again."""
    wait_stored(namesrv, topic, 20_000)
    broker.kill()
    broker.start()


def wait_stored(namesrv: str, topic: str, count: int) -> None:
    """Wait until a topic has so many messages."""
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    with PullConsumer("waiting", namesrv=namesrv) as consumer:
        queues = consumer.fetch_queues(topic)
        while sum(consumer.max_offset(queue) for queue in queues) < count:
            assert time.monotonic() < deadline, "not written in time"
            time.sleep(0.02)


def stored(namesrv: str, topic: str) -> Counter[bytes]:
    """The bodies in a topic, and how often each is there."""
    found: Counter[bytes] = Counter()
    with PullConsumer("readers", namesrv=namesrv) as consumer:
        for queue in consumer.fetch_queues(topic):
            end = consumer.max_offset(queue)
            for chunk in consumer.read(queue, begin_offset=0, end_offset=end):
                found.update(message.body for message in decode_records(chunk.body))
    return found


# -- streams -------------------------------------------------------------------------------------


class Lines:
    """A folder of text files as a stream: one file is one micro-batch, and `value` is a line."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder / "lines"
        self.checkpoint = folder / "checkpoint"
        self.folder.mkdir()
        self._files = 0

    def add(self, *lines: str) -> None:
        """Another file. Files of one second would have no order: they are made a minute apart."""
        self._files += 1
        path = self.folder / f"{self._files:04d}.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        stamp = 1_700_000_000 + 60 * self._files
        os.utime(path, (stamp, stamp))

    def write(self, namesrv: str, topic: str, **options: str) -> StreamingQuery:
        """Write what is there and not written yet, and end."""
        data = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder))
        writer = data.writeStream.format("rocketmq").options(namesrv=namesrv, topic=topic, **options)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        return query


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str, tmp_path: Path
) -> None:
    lines = Lines(spark, tmp_path)
    for number in range(3):
        lines.add(*(f"{number}-{line}" for line in range(50)))
    lines.write(rocketmq.namesrv, rocketmq_topic)
    expected = Counter(f"{number}-{line}".encode() for number in range(3) for line in range(50))
    assert stored(rocketmq.namesrv, rocketmq_topic) == expected
    lines.add("after", "the", "restart")
    query = lines.write(rocketmq.namesrv, rocketmq_topic)
    expected.update([b"after", b"the", b"restart"])
    assert stored(rocketmq.namesrv, rocketmq_topic) == expected
    last = query.lastProgress
    assert last is not None and last["numInputRows"] == 3
    lines.write(rocketmq.namesrv, rocketmq_topic)
    assert stored(rocketmq.namesrv, rocketmq_topic) == expected


def test_a_batch_that_spark_did_not_note_as_done_is_written_again(
    spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str, tmp_path: Path
) -> None:
    """At least once: the rows are there before Spark writes down that they are."""
    lines = Lines(spark, tmp_path)
    lines.add("a", "b")
    lines.add("c", "d")
    lines.write(rocketmq.namesrv, rocketmq_topic)
    for path in (lines.checkpoint / "commits").glob("*1*"):
        path.unlink()
    lines.write(rocketmq.namesrv, rocketmq_topic)
    assert stored(rocketmq.namesrv, rocketmq_topic) == Counter({b"a": 1, b"b": 1, b"c": 2, b"d": 2})


def test_exactly_once_a_batch_that_spark_did_not_note_as_done_is_skipped(
    spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    lines = Lines(spark, tmp_path)
    lines.add("a", "b")
    lines.add("c", "d")
    once = {"guarantee": "exactly-once", "sinkId": "lines"}
    lines.write(rocketmq.namesrv, rocketmq_topic, **once)
    for path in (lines.checkpoint / "commits").glob("*1*"):
        path.unlink()
    lines.add("e")
    lines.write(rocketmq.namesrv, rocketmq_topic, **once)
    assert stored(rocketmq.namesrv, rocketmq_topic) == Counter([b"a", b"b", b"c", b"d", b"e"])
    lines.checkpoint = tmp_path / "new"
    with pytest.raises(PySparkException, match="which has committed batch 2; this is query .* at batch 0"):
        lines.write(rocketmq.namesrv, rocketmq_topic, **once)
    assert stored(rocketmq.namesrv, rocketmq_topic).total() == 5


def test_a_stream_outlives_a_restart_of_the_broker(
    spark: SparkSession, tmp_path: Path, rocketmq_settings: dict[str, Any]
) -> None:
    with LocalCluster(**rocketmq_settings) as cluster:
        cluster.create_topic("Lines")
        lines = Lines(spark, tmp_path)
        for number in range(12):
            lines.add(*(f"{number}-{line}" for line in range(20)))
        back = threading.Thread(target=_restart_at, args=(cluster, "Lines", 40))
        back.start()
        lines.write(cluster.namesrv, "Lines")
        back.join()
        found = stored(cluster.namesrv, "Lines")
    assert set(found) == {f"{number}-{line}".encode() for number in range(12) for line in range(20)}


def _restart_at(cluster: LocalCluster, topic: str, rows: int) -> None:
    wait_stored(cluster.namesrv, topic, rows)
    cluster.restart_broker()


def test_bad_rows_of_a_stream_go_to_the_error_topic(
    spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str, tmp_path: Path
) -> None:
    errors = f"{rocketmq_topic}-errors"
    rocketmq.create_topic(errors)
    lines = Lines(spark, tmp_path)
    lines.add("good", "", "x" * 2_000, "good too")
    lines.write(rocketmq.namesrv, rocketmq_topic, errorTopic=errors, maxMessageBytes="1000")
    assert stored(rocketmq.namesrv, rocketmq_topic) == Counter([b"good", b"good too"])
    stories = [json.loads(body) for body in stored(rocketmq.namesrv, errors)]
    assert {story["size_bytes"] for story in stories} == {0, 2_000}


def test_a_stream_with_bad_options_ends_with_a_clear_word(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    lines = Lines(spark, tmp_path)
    lines.add("a")
    with pytest.raises(PySparkException, match="unknown option 'retrytime'; did you mean retryTimes"):
        lines.write(rocketmq.namesrv, "Orders", retryTime="3")


def test_tasks_know_query_and_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Names private to Spark, which `write` does not get: this fails when they change."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

    class Probe(DataSourceStreamArrowWriter):
        def __init__(self, folder: str) -> None:
            self._folder = folder

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            from kourou.spark.sink.data_sink import SinkTask

            rows = sum(batch.num_rows for batch in iterator)
            task = SinkTask.current()
            if rows:
                reported = json.dumps([task.query_id, task.batch_id, task.partition, task.attempt])
                Path(self._folder, f"task-{task.batch_id}").write_text(reported)
            return WriterCommitMessage()

    class ProbeSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "probe"

        def streamWriter(self, schema: Any, overwrite: bool) -> Probe:
            return Probe(self.options["folder"])

    spark.dataSource.register(ProbeSource)
    lines = Lines(spark, tmp_path)
    lines.add("a")
    lines.add("b")
    data = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines.folder))
    writer = data.writeStream.format("probe").option("folder", str(tmp_path))
    query = writer.option("checkpointLocation", str(lines.checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    reported = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("task-*"))]
    assert reported == [[str(query.id), 0, 0, 0], [str(query.id), 1, 0, 0]]
