"""The source under real Spark with real brokers: batches, streams, restarts, lost data, errors."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kourou import Message, MessageQueue, Producer, PullConsumer
from kourou.admin.session import Admin
from kourou.admin.topics import delete_topic
from kourou.cli.ready import wait_ready
from kourou.testing import LocalCluster
from tests.crash.killed_broker import KilledBroker
from tests.golden.stores import extract_store, manifest
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.spark.kit.driver_process import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


def send(mq: LocalCluster, topic: str, bodies: list[bytes], **where: Any) -> None:
    from tests.spark.kit.source_kit import send as send_to_queue

    send_to_queue(mq, topic, bodies, **where)


def bodies(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


def batch(spark: SparkSession, mq: LocalCluster, **options: Any) -> DataFrame:
    return spark.read.format("rocketmq").options(**{"namesrv": mq.namesrv, **options}).load()


def stream_to_parquet(
    spark: SparkSession, mq: LocalCluster | Address, folder: Path, **options: Any
) -> StreamingQuery:
    """Everything that is there, into `folder/rows`, with a checkpoint in `folder/checkpoint`."""
    frame = spark.readStream.format("rocketmq").options(namesrv=mq.namesrv, **options).load()
    query = (
        frame.selectExpr("topic", "broker", "queue_id", "queue_offset", "cast(value as string) as text")
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(TIMEOUT_S)
    assert not query.isActive
    return query


def texts(spark: SparkSession, folder: Path) -> list[str]:
    rows = spark.read.parquet(str(folder / "rows")).collect()
    return sorted((row.text for row in rows), key=int)


def as_texts(numbers: int) -> list[str]:
    return [str(number) for number in range(numbers)]


def test_a_batch(spark: SparkSession, mq: LocalCluster) -> None:
    mq.create_topic("orders", queues=2)
    send(mq, "orders", bodies(50), keys="a b", tags="t", properties={"amount": "12"})
    send(mq, "orders", bodies(50, 50), broker="broker-b", queue_id=1)
    frame = batch(spark, mq, subscribe="orders")
    assert frame.schema.simpleString() == (
        "struct<key:string,value:binary,topic:string,broker:string,queue_id:int,queue_offset:bigint,"
        "msg_id:string,tags:string,keys:array<string>,born_timestamp:timestamp,store_timestamp:timestamp,"
        "born_host:string,reconsume_times:int,properties:map<string,string>>"
    )
    rows = frame.collect()
    assert sorted(int(row.value) for row in rows) == list(range(100))
    first = next(row for row in rows if row.value == b"0")
    assert (first.key, first.keys, first.tags, first.broker) == ("a b", ["a", "b"], "t", "broker-a")
    assert first.properties["amount"] == "12"
    frame.createOrReplaceTempView("orders")
    counted = spark.sql("select broker, queue_id, count(*) n from orders group by all order by all").collect()
    assert [tuple(row) for row in counted] == [("broker-a", 0, 50), ("broker-b", 1, 50)]


def test_a_schema_of_ones_own(spark: SparkSession, mq: LocalCluster) -> None:
    mq.create_topic("typed", queues=1)
    send(mq, "typed", [b"caf\xc3\xa9"], properties={"amount": "12.5"})
    reader = spark.read.format("rocketmq").schema("value string, property_amount double, queue_id bigint")
    rows = reader.options(namesrv=mq.namesrv, subscribe="typed").load().collect()
    assert [tuple(row) for row in rows] == [("café", 12.5, 0)]


def test_one_dataframe_used_twice_in_a_query_has_all_rows(spark: SparkSession, mq: LocalCluster) -> None:
    from pyspark.errors import PySparkException

    mq.create_topic("twice", queues=1)
    for tag in "ab":
        send(mq, "twice", bodies(20), tags=tag)
    frame = batch(spark, mq, subscribe="twice")
    a, b = frame.where("tags = 'a'"), frame.where("tags = 'b'")
    assert a.union(b).count() == 40
    assert a.alias("a").join(b.alias("b"), "value").count() == 20
    assert (b.count(), frame.count()) == (20, 40)
    with pytest.raises(PySparkException, match="Spark applies the filters .* subExpression"):
        batch(spark, mq, subscribe="twice", pushFilters="true")


def test_filters_of_a_query_that_reads_once_are_pushed(spark: SparkSession, mq: LocalCluster) -> None:
    from kourou.spark.source.options import PUSH_FILTERS_OPTION

    mq.create_topic("filtered", queues=2)
    send(mq, "filtered", bodies(20), tags="a")
    send(mq, "filtered", bodies(20, 20), tags="b", queue_id=1, broker="broker-b")
    condition = "tags = 'b' and queue_offset >= 15 and store_timestamp > '2020-01-01'"

    def frame(**options: str) -> DataFrame:
        # A new one each time: Spark keeps the filters of a query for the next one of the same DataFrame.
        # The option is that of `kourou pipeline sql`, not for users.
        return batch(spark, mq, subscribe="filtered", minPartitions="40", **options).where(condition)

    pushing = {PUSH_FILTERS_OPTION: "true"}
    assert sorted(int(row.value) for row in frame(**pushing).collect()) == list(range(35, 40))
    # A partition for each row that may be wanted: the tag cannot choose a queue, the offset can.
    partitions = frame().rdd.getNumPartitions(), frame(**pushing).rdd.getNumPartitions()
    assert partitions == (40, 10)


def test_a_stream_over_restarts_has_every_message_once(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    mq.create_topic("restarts", queues=2)
    options = {"subscribe": "restarts", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"}
    for round_number in range(3):
        send(mq, "restarts", bodies(60, round_number * 100))
        send(mq, "restarts", bodies(40, round_number * 100 + 60), queue_id=1, broker="broker-b")
        query = stream_to_parquet(spark, mq, tmp_path, **options)
        assert len(query.recentProgress) >= 2
        assert texts(spark, tmp_path) == as_texts((round_number + 1) * 100)


def test_a_batch_that_was_not_committed_is_read_again_and_not_twice(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    mq.create_topic("uncommitted", queues=1)
    send(mq, "uncommitted", bodies(30))
    options = {"subscribe": "uncommitted", "startingOffsets": "earliest", "minPartitions": "3"}
    stream_to_parquet(spark, mq, tmp_path, **options)
    # The driver died between the sink's commit and Spark's.
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    send(mq, "uncommitted", bodies(10, 30))
    stream_to_parquet(spark, mq, tmp_path, **options)
    assert texts(spark, tmp_path) == as_texts(40)


def test_progress_has_the_lag_and_the_group_has_its_offsets(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    from kourou.spark.source.lag_listener import stream_lag

    mq.create_topic("progress", queues=1)
    send(mq, "progress", bodies(30))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20", "groupId": "spark-progress"}
    query = stream_to_parquet(spark, mq, tmp_path, subscribe="progress", **options)
    lags = [
        stream_lag(progress["sources"][0]) for progress in query.recentProgress if progress["numInputRows"]
    ]
    assert [lag.messages for lag in lags if lag is not None] == [10, 0]
    assert lags[0] is not None and lags[0].seconds > 0
    with PullConsumer("spark-progress", namesrv=mq.namesrv) as consumer:
        assert consumer.committed(MessageQueue("progress", "broker-a", 0)) == 30


def test_a_running_stream_sees_new_messages_new_queues_and_a_restarted_broker(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    from pyspark.sql import functions as sql

    mq.create_topic("running", queues=1)
    frame = (
        spark.readStream.format("rocketmq")
        .options(
            namesrv=mq.namesrv, subscribe="running", startingOffsets="earliest", discoveryIntervalMs="100"
        )
        .load()
    )
    query = (
        frame.select(sql.col("value").cast("string").alias("text"))
        .writeStream.format("memory")
        .queryName("running")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        send(mq, "running", bodies(5))
        wait_for_rows(spark, query, 5)
        mq.restart_broker(0)
        send(mq, "running", bodies(5, 5))
        wait_for_rows(spark, query, 10)
        mq.create_topic("running", queues=2)
        send(mq, "running", bodies(5, 10), queue_id=1, broker="broker-b")
        wait_for_rows(spark, query, 15)
    finally:
        query.stop()
    assert sorted(int(row.text) for row in spark.table("running").collect()) == list(range(15))


def wait_for_rows(spark: SparkSession, query: StreamingQuery, count: int) -> None:
    """Until the table of the query has so many rows."""
    deadline = time.monotonic() + TIMEOUT_S
    while spark.table("running").count() < count:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, f"{spark.table('running').count()} rows instead of {count}"
        query.processAllAvailable()


def test_a_broker_that_is_killed_while_a_stream_reads(spark: SparkSession, tmp_path: Path) -> None:
    with launch_kourou_namesrv(tmp_path / "namesrv") as namesrv:
        mq = Address(namesrv.wait_ready().address)
        broker = KilledBroker(tmp_path, namesrvAddr=mq.namesrv, mappedFileSizeCommitLog=16 << 20)
        broker.start()

        def restart() -> None:
            broker.kill()
            broker.start()

        try:
            stream_through(spark, mq, tmp_path, restart)
        finally:
            broker.kill()


def test_a_stream_goes_on_at_the_slave_when_the_master_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """The master stays dead: all that was acknowledged is on the slave."""
    with launch_kourou_namesrv(tmp_path / "namesrv") as namesrv, ExitStack() as brokers:
        mq = Address(namesrv.wait_ready().address)
        keys = {"namesrvAddr": mq.namesrv, "mappedFileSizeCommitLog": 16 << 20}
        master = KilledBroker(tmp_path / "master", brokerRole="SYNC_MASTER", inSyncReplicas=2, **keys)
        slave = KilledBroker(tmp_path / "slave", brokerRole="SLAVE", brokerId=1, **keys)
        for name, broker in (("master", master), ("slave", slave)):
            (tmp_path / name).mkdir()
            broker.start()
            brokers.callback(broker.kill)
        assert asyncio.run(wait_ready([slave.address], [], [], TIMEOUT_S))[0].is_ready
        stream_through(spark, mq, tmp_path, master.kill)


def stream_through(spark: SparkSession, mq: Address, folder: Path, outage: Callable[[], None]) -> None:
    """Send messages, and have a stream read them; the outage comes after its second batch."""
    with Producer("source-tests", namesrv=mq.namesrv) as producer:
        for begin in range(0, 20_000, 1_000):
            producer.send_many([Message("outage", body) for body in bodies(1_000, begin)])
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(
            stream_to_parquet,
            spark,
            mq,
            folder,
            subscribe="outage",
            startingOffsets="earliest",
            maxOffsetsPerTrigger="3000",
            fetchBytes="8k",
        )
        second = folder / "checkpoint" / "commits" / "1"
        wait_for(lambda: second.exists() or reading.done(), "the second batch")
        assert not reading.done(), f"it ended before the outage: {reading.exception()}"
        outage()
        query = reading.result()
    assert query.exception() is None
    assert texts(spark, folder) == as_texts(20_000)


@dataclass(frozen=True)
class Address:
    """Enough of a LocalCluster for the helpers."""

    namesrv: str


def test_retention_that_overtakes_the_reader(spark: SparkSession, tmp_path: Path) -> None:
    """The checkpoint is at offset 10 when what follows is deleted."""
    from pyspark.errors import StreamingQueryException

    from tests.spark.test_stream_source import lose_the_first_log_file

    with LocalCluster(store=tmp_path / "store", mapped_file_size_commit_log=64 * 1024) as mq:
        mq.create_topic("old", queues=1)
        options = {"subscribe": "old", "startingOffsets": "earliest"}
        send(mq, "old", [b"%-1000d" % number for number in range(10)])
        stream_to_parquet(spark, mq, tmp_path / "stream", **options)
        send(mq, "old", [b"%-1000d" % number for number in range(10, 200)])
        low = lose_the_first_log_file(mq)
        with pytest.raises(StreamingQueryException) as caught:
            stream_to_parquet(spark, mq, tmp_path / "stream", **options)
        assert f"queue 0 cannot be read: offsets 10 to {low - 1}. Retention deleted them" in str(caught.value)
        stream_to_parquet(spark, mq, tmp_path / "stream", **options, failOnDataLoss="false")
    rows = spark.read.parquet(str(tmp_path / "stream" / "rows")).collect()
    assert sorted(row.queue_offset for row in rows) == [*range(10), *range(low, 200)]
    assert all(int(row.text) == row.queue_offset for row in rows)


async def remove(mq: LocalCluster, topic: str) -> None:
    async with Admin(namesrv=mq.namesrv) as admin:
        await delete_topic(admin, topic, "DefaultCluster")


def test_a_topic_made_anew_is_read_whole_though_a_run_found_it_empty(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    """That run notes where the topic is now, by a batch of nothing."""
    where = {"subscribe": "renewed", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    mq.create_topic("renewed", queues=1)
    send(mq, "renewed", bodies(10))
    stream_to_parquet(spark, mq, tmp_path, **where)
    asyncio.run(remove(mq, "renewed"))
    mq.create_topic("renewed", queues=1)
    query = stream_to_parquet(spark, mq, tmp_path, **where)
    assert query.exception() is None
    send(mq, "renewed", bodies(20, 10))
    stream_to_parquet(spark, mq, tmp_path, **where)
    assert texts(spark, tmp_path) == as_texts(30)


def test_the_store_source(spark: SparkSession, tmp_path: Path) -> None:
    root = extract_store("5.5.0", tmp_path)
    frame = (
        spark.read.format("rocketmq").option("store", str(root)).option("includeSystemTopics", "true").load()
    )
    counted = {
        row.topic: row.n for row in frame.groupBy("topic").agg({"*": "count"}).toDF("topic", "n").collect()
    }
    assert counted == manifest("5.5.0")["counts"]["byTopic"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"subscribe": "orders", "startingOfsets": "latest"}, "did you mean startingOffsets?"),
        ({"subscribe": "missing-topic"}, "the name server does not know it; create it with"),
        ({"subscribe": "orders", "namesrv": "127.0.0.1:1"}, "127.0.0.1:1"),
        ({"subscribe": "orders", "startingOffsets": '{"orders": 5}'}, "the format is"),
        ({}, "nothing to read"),
    ],
)
def test_bad_input_is_one_clear_paragraph(
    spark: SparkSession, mq: LocalCluster, options: dict[str, str], part: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        batch(spark, mq, **options).collect()
    text = str(caught.value)
    assert part in text
    assert "Traceback" not in text and "\tat org.apache" not in text
    assert len(text.splitlines()) <= 4


# -- checkpoints of earlier versions ---------------------------------------------------------------

GOLDEN_CHECKPOINT = Path(__file__).parent / "checkpoint-v1"


def kept_rows(spark: SparkSession, mq: LocalCluster, checkpoint: Path) -> list[str]:
    """What a query with this checkpoint reads of topic `kept`. It made the fixture, too."""
    found: list[str] = []
    query = (
        spark.readStream.format("rocketmq")
        .options(namesrv=mq.namesrv, subscribe="kept", startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(
            lambda frame, _: found.extend(row.value.decode() for row in frame.collect())
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(TIMEOUT_S)
    return sorted(found)


def test_a_checkpoint_of_version_1_is_resumed(spark: SparkSession, tmp_path: Path) -> None:
    """The fixture is of a query that had read 4 messages of queue 0 and 2 of queue 1 of `kept`; it has to be
    readable for ever."""
    shutil.copytree(GOLDEN_CHECKPOINT, tmp_path / "checkpoint")
    with LocalCluster() as mq:
        mq.create_topic("kept", queues=2)
        send(mq, "kept", bodies(5))
        send(mq, "kept", bodies(5, 5), queue_id=1)
        assert kept_rows(spark, mq, tmp_path / "checkpoint") == ["4", "7", "8", "9"]


def test_the_fixture_has_the_offsets_of_version_1() -> None:
    offsets = (GOLDEN_CHECKPOINT / "offsets" / "0").read_text().splitlines()
    assert json.loads(offsets[-1])["offsets"] == {"kept": {"broker-a": {"0": 4, "1": 2}}}
