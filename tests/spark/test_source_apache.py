"""Source and sink at Apache RocketMQ's brokers: rows, limits and times are as at ours.

First without Spark, then under real Spark: batch, a stream over a restart, the sink.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kourou import Message, MessageQueue, Producer, PullConsumer  # noqa: E402
from kourou.admin.brokers import broker_runtime  # noqa: E402
from kourou.admin.session import Admin  # noqa: E402
from kourou.admin.topics import create_topic, topic_names  # noqa: E402
from kourou.errors import ConfigError, ResponseError  # noqa: E402
from kourou.protocol.bodies import TopicConfig  # noqa: E402
from kourou.spark.sink.data_sink import batch_writer  # noqa: E402
from kourou.spark.sink.sink_producer import stop_worker_producers  # noqa: E402
from kourou.spark.source.source_client import close_shared_clients  # noqa: E402
from tests.interop.kit import apache, artifacts  # noqa: E402
from tests.spark.kit.sink_kit import schema_of  # noqa: E402
from tests.spark.kit.source_kit import ALL, StreamRun, read_batch, source  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.slow]
COUNT = 3_000
ROUTE_TIMEOUT_S = 30
QUERY_TIMEOUT_S = 120


@dataclass(frozen=True)
class ApacheCluster:
    """Enough of a LocalCluster for the helpers."""

    namesrv: str
    broker: str


@pytest.fixture(scope="module", params=apache.VERSIONS)
def mq(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """A broker of Apache's with 3,000 messages of topic `orders` in two queues."""
    missing = artifacts.missing_tools()
    if missing and os.environ.get("KOUROU_REQUIRE_INTEROP") == "1":
        pytest.fail(f"KOUROU_REQUIRE_INTEROP=1, but the suite {missing}")
    if missing:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(f"apache-{request.param}")
    with apache.start_namesrv(request.param, folder) as namesrv:
        with apache.start_broker(request.param, folder, [namesrv.address]) as broker:
            asyncio.run(make_topic(namesrv.address, broker.address, "orders"))
            cluster = ApacheCluster(namesrv.address, broker.address)
            fill(cluster, range(COUNT))
            yield cluster
            close_shared_clients()


async def make_topic(namesrv: str, broker: str, topic: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        config = TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=2, perm=6)
        await create_topic(admin, broker, config)
        async with asyncio.timeout(ROUTE_TIMEOUT_S):
            while topic not in await topic_names(admin):  # noqa: ASYNC110 (the name server does not notify)
                await asyncio.sleep(0.05)


async def wait_listed(broker: str) -> None:
    """Apache's acknowledges a message first, and lists it in its queue a moment later."""
    async with Admin() as admin, asyncio.timeout(QUERY_TIMEOUT_S):
        while await is_behind(admin, broker):  # noqa: ASYNC110 (there is no notification)
            await asyncio.sleep(0.05)


async def is_behind(admin: Admin, broker: str) -> bool:
    """Whether messages are not listed yet, as far as the broker can say."""
    try:
        runtime = await broker_runtime(admin, broker)
    except ResponseError as error:
        # 4.9.7's cannot say anything in the second after its start, before it has counted something.
        assert "NoSuchElementException" in error.remark
        return True
    return runtime["dispatchBehindBytes"] != "0"


def fill(mq: ApacheCluster, numbers: range, topic: str = "orders") -> None:
    with Producer("source-tests", namesrv=mq.namesrv) as producer:
        sent = [
            producer.send_nowait(
                Message(
                    topic,
                    b"%d" % number if number % 100 else b"%d " % number * 3_000,  # compressed
                    tags=f"t{number % 3}",
                    keys=[f"k{number}", "order"],
                    properties={"number": str(number)},
                ),
                queue=MessageQueue(topic, "broker-a", number % 2),
            )
            for number in numbers
        ]
        for each in sent:
            each.result(30)
    asyncio.run(wait_listed(mq.broker))


def numbers(values: list[bytes]) -> Counter[int]:
    return Counter(int(value.split()[0]) for value in values)


def test_a_batch(mq: ApacheCluster) -> None:
    rows = read_batch(source(mq, subscribe="orders", minPartitions=5), ALL)  # type: ignore[arg-type]
    assert numbers([row["value"] for row in rows]) == Counter(range(COUNT))
    for row in rows:
        number = int(row["value"].split()[0])
        assert (row["tags"], row["keys"], row["queue_id"]) == (
            f"t{number % 3}",
            [f"k{number}", "order"],
            number % 2,
        )
        assert row["properties"]["number"] == str(number) and row["broker"] == "broker-a"
        assert row["value"] == (b"%d" % number if number % 100 else b"%d " % number * 3_000)


def test_tags_and_times(mq: ApacheCluster) -> None:
    rows = read_batch(source(mq, subscribe="orders", subExpression="t1"), ALL)  # type: ignore[arg-type]
    assert numbers([row["value"] for row in rows]) == Counter(range(1, COUNT, 3))
    everything = read_batch(source(mq, subscribe="orders"), ALL)  # type: ignore[arg-type]
    times = sorted(row["store_timestamp"] // 1000 for row in everything)
    middle_ms = times[len(times) // 2]
    later = read_batch(source(mq, subscribe="orders", startingTimestamp=middle_ms), ALL)  # type: ignore[arg-type]
    assert len(later) == sum(each >= middle_ms for each in times)
    earlier = read_batch(source(mq, subscribe="orders", endingTimestamp=middle_ms), ALL)  # type: ignore[arg-type]
    assert len(earlier) == sum(each < middle_ms for each in times)


def test_a_stream_over_restarts_and_its_group(mq: ApacheCluster) -> None:
    read: Counter[int] = Counter()
    ends: list[str] = []
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 700, "groupId": "spark-apache"}
    for _ in range(10):
        run = StreamRun(mq, ends, subscribe="orders", **options)  # type: ignore[arg-type]
        for batch in run.drain(max_batches=1):
            read += numbers([row["value"] for row in batch])
    assert read == Counter(range(COUNT))
    with PullConsumer("spark-apache", namesrv=mq.namesrv) as consumer:
        progress = [consumer.committed(MessageQueue("orders", "broker-a", queue_id)) for queue_id in (0, 1)]
    assert progress == [COUNT // 2, COUNT // 2]


# -- under real Spark ------------------------------------------------------------------------------


def test_the_sink_says_that_exactly_once_needs_other_brokers(mq: ApacheCluster) -> None:
    options = {"namesrv": mq.namesrv, "topic": "orders", "guarantee": "exactly-once", "sinkId": "copies"}
    with pytest.raises(
        ConfigError, match="needs brokers of Kourou .*broker-a does not; set guarantee=at-least"
    ):
        batch_writer(schema_of(["value"]), {**options, "writeId": "1"}, False)
    stop_worker_producers()


def test_a_batch_under_spark(spark: SparkSession, mq: ApacheCluster) -> None:
    reader = spark.read.format("rocketmq").option("namesrv", mq.namesrv).option("minPartitions", "4")
    rows = reader.option("subscribe", "orders").load().collect()
    assert numbers([bytes(row.value) for row in rows]) == Counter(range(COUNT))
    for row in rows:
        number = int(row.value.split()[0])
        assert (row.key, row.tags, row.queue_id) == (f"k{number} order", f"t{number % 3}", number % 2)
        assert row.properties["number"] == str(number)
        assert bytes(row.value) == (b"%d" % number if number % 100 else b"%d " % number * 3_000)


def test_a_stream_under_spark_goes_on_from_its_checkpoint(
    spark: SparkSession, mq: ApacheCluster, tmp_path: Path
) -> None:
    asyncio.run(make_topic(mq.namesrv, mq.broker, "growing"))
    group = f"spark-{tmp_path.name}"

    def run() -> int:
        """Read what is new; how many batches that took."""
        source = spark.readStream.format("rocketmq").options(namesrv=mq.namesrv, subscribe="growing")
        source = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="700", groupId=group)
        writer = source.schema("value binary, queue_id int, queue_offset bigint").load().writeStream
        writer = writer.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        return len([progress for progress in query.recentProgress if progress["numInputRows"]])

    for begin, end in ((0, 1_000), (1_000, 1_500)):
        fill(mq, range(begin, end), "growing")
        assert run() == (end - begin + 699) // 700
        rows = spark.read.parquet(str(tmp_path / "rows")).collect()
        assert numbers([bytes(row.value) for row in rows]) == Counter(range(end))
    with PullConsumer(group, namesrv=mq.namesrv) as consumer:
        progress = [consumer.committed(MessageQueue("growing", "broker-a", queue_id)) for queue_id in (0, 1)]
    assert progress == [750, 750]


def test_the_sink_under_spark(spark: SparkSession, mq: ApacheCluster, tmp_path: Path) -> None:
    asyncio.run(make_topic(mq.namesrv, mq.broker, "written"))
    rows = spark.range(0, COUNT, 1, 2).selectExpr(
        "concat('value ', id) AS value",
        "concat('k', id) AS key",
        "'T' AS tags",
        "map('number', cast(id AS string)) AS properties",
        "cast(id % 2 AS int) AS queue_id",
        "'broker-a' AS broker",
    )
    sink = rows.write.format("rocketmq").mode("append").option("namesrv", mq.namesrv)
    sink.option("topic", "written").save()
    asyncio.run(wait_listed(mq.broker))
    found = read_batch(source(mq, subscribe="written"), ALL)  # type: ignore[arg-type]
    # Each at least once, no more is promised at Apache's: a broker that is late is sent a message again.
    by_number = {int(row["properties"]["number"]): row for row in found}
    for number in range(COUNT):
        row = by_number[number]
        assert (row["value"], row["keys"], row["tags"]) == (b"value %d" % number, [f"k{number}"], "T")
        assert row["queue_id"] == number % 2
    # And a stream, from topic to topic.
    asyncio.run(make_topic(mq.namesrv, mq.broker, "copied"))
    stream = spark.readStream.format("rocketmq").schema("value binary, key string")
    stream = stream.options(namesrv=mq.namesrv, subscribe="written", startingOffsets="earliest")
    writer = stream.load().writeStream.format("rocketmq").options(namesrv=mq.namesrv, topic="copied")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    asyncio.run(wait_listed(mq.broker))
    copies = read_batch(source(mq, subscribe="copied"), ALL)  # type: ignore[arg-type]
    assert {row["value"] for row in copies} == {row["value"] for row in found}
