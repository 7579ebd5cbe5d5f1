"""Streams from real brokers, without Spark: offsets travel as JSON text, as in a checkpoint."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.cloudpickle import dumps, loads  # noqa: E402
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows  # noqa: E402

from kourou import MessageQueue, PullConsumer  # noqa: E402
from kourou.admin.session import Admin  # noqa: E402
from kourou.admin.topics import create_topic, delete_topic, topic_names  # noqa: E402
from kourou.errors import ConfigError, NoNameServerError  # noqa: E402
from kourou.protocol.bodies import TopicConfig  # noqa: E402
from kourou.spark.source.data_loss import DataLossError  # noqa: E402
from kourou.spark.source.data_source import RocketmqStreamReader  # noqa: E402
from kourou.spark.source.queue_lookup import QueueLookup  # noqa: E402
from kourou.spark.source.source_client import close_shared_clients  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from tests.spark.kit.source_kit import PLACE, StreamRun, places, send, source  # noqa: E402

LOG_FILE_BYTES = 64 * 1024
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster
        close_shared_clients()


def bodies(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


def values(batches: list[list[dict[str, Any]]]) -> list[bytes]:
    return [row["value"] for batch in batches for row in batch]


def test_batches_follow_each_other(mq: LocalCluster) -> None:
    mq.create_topic("follow", queues=2)
    send(mq, "follow", bodies(5))
    run = StreamRun(mq, subscribe="follow", startingOffsets="earliest")
    assert values(run.drain()) == bodies(5)
    assert not run.plan()
    send(mq, "follow", bodies(5, 5))
    send(mq, "follow", bodies(3, 10), queue_id=1, broker="broker-b")
    assert values(run.drain()) == bodies(8, 5)


def test_a_stream_begins_at_the_end_without_a_word(mq: LocalCluster) -> None:
    mq.create_topic("late", queues=1)
    send(mq, "late", bodies(5))
    run = StreamRun(mq, subscribe="late")
    assert run.reader.initialOffset() == run.reader.initialOffset()
    assert run.drain() == []
    send(mq, "late", bodies(2, 5))
    assert values(run.drain()) == bodies(2, 5)


def test_a_restart_goes_on_from_the_text_of_the_checkpoint(mq: LocalCluster) -> None:
    mq.create_topic("restart", queues=2)
    send(mq, "restart", bodies(40))
    read: Counter[bytes] = Counter()
    ends: list[str] = []
    for _ in range(20):  # a new reader for each batch
        run = StreamRun(mq, ends, subscribe="restart", startingOffsets="earliest", maxOffsetsPerTrigger=7)
        for batch in run.drain(max_batches=1):
            assert len(batch) <= 7
            read += Counter(row["value"] for row in batch)
    assert read == Counter(bodies(40))


def test_the_first_batch_planned_again_is_the_same_though_it_began_at_the_end(mq: LocalCluster) -> None:
    mq.create_topic("again", queues=1)
    run = StreamRun(mq, subscribe="again")
    assert run.drain() == []
    send(mq, "again", bodies(3))
    assert run.plan()
    send(mq, "again", bodies(3, 3))
    # The driver dies before the batch is done; the next one finds the end in its checkpoint, and for the
    # start of a first batch Spark asks for the initial offset again, which is another one by now.
    second = StreamRun(mq, list(run.ends), subscribe="again")
    assert [row["value"] for row in second.read()] == bodies(3)
    assert values(second.drain()) == bodies(3, 3)


def test_new_queues_are_read_from_their_first_message(mq: LocalCluster) -> None:
    mq.create_topic("grows", queues=1)
    run = StreamRun(mq, subscribe="grows")
    assert run.drain() == []
    mq.create_topic("grows", queues=3)
    assert run.drain() == []  # nothing in them: no batch
    send(mq, "grows", bodies(4), queue_id=2)
    assert run.plan()
    assert [row["value"] for row in run.read()] == bodies(4)
    send(mq, "grows", bodies(2, 4), queue_id=2)
    assert values(run.drain()) == bodies(2, 4)
    # Planned again by another driver it is the same batch.
    assert [row["value"] for row in StreamRun(mq, run.ends[:1], subscribe="grows").read()] == bodies(4)


def test_new_topics_of_a_pattern_are_found(mq: LocalCluster) -> None:
    run = StreamRun(mq, subscribePattern="born-.*")
    assert run.drain() == []
    mq.create_topic("born-later", queues=1)
    send(mq, "born-later", bodies(3))
    assert values(run.drain()) == bodies(3)


def test_limits(mq: LocalCluster) -> None:
    mq.create_topic("limits", queues=1)
    send(mq, "limits", [b"x" * 1_000] * 100)
    where = {"subscribe": "limits", "startingOffsets": "earliest"}
    by_rows = StreamRun(mq, **where, maxOffsetsPerTrigger=30)
    assert by_rows.limit == ReadMaxRows(30)
    assert [len(batch) for batch in by_rows.drain()] == [30, 30, 30, 10]
    by_bytes = StreamRun(mq, **where, maxBytesPerTrigger="25k")
    assert by_bytes.limit == ReadMaxBytes(25 * 1024)
    sizes = [len(batch) for batch in by_bytes.drain()]
    assert sum(sizes) == 100 and 15 <= max(sizes) <= 25
    both = StreamRun(mq, **where, maxOffsetsPerTrigger=5, maxBytesPerTrigger="25k")
    assert {len(batch) for batch in both.drain()} == {5}
    everything = StreamRun(mq, **where, maxOffsetsPerTrigger=5)
    everything.limit = ReadAllAvailable()  # Trigger.Once
    assert [len(batch) for batch in everything.drain()] == [100]


def test_available_now_ends(mq: LocalCluster) -> None:
    mq.create_topic("now", queues=1)
    send(mq, "now", bodies(10))
    run = StreamRun(mq, subscribe="now", startingOffsets="earliest", maxOffsetsPerTrigger=4)
    run.reader.prepareForTriggerAvailableNow()
    send(mq, "now", bodies(10, 10))
    mq.create_topic("now", queues=2)
    send(mq, "now", bodies(1, 20), queue_id=1)
    assert values(run.drain()) == bodies(10)
    following = StreamRun(mq, run.ends, subscribe="now")
    following.reader.prepareForTriggerAvailableNow()
    assert sorted(values(following.drain())) == sorted(bodies(11, 10))


def test_it_waits_a_little_for_messages(mq: LocalCluster) -> None:
    mq.create_topic("waits", queues=1)
    reader = source(mq, subscribe="waits", pollTimeoutMs=20_000).streamReader(PLACE)
    start = reader.initialOffset()
    sender = threading.Timer(0.2, send, (mq, "waits", bodies(1)))
    sender.start()
    end = reader.latestOffset(start, ReadAllAvailable())
    sender.join()
    assert end["offsets"]["waits"]["broker-a"]["0"] == 1


def test_lag_and_the_groups_progress(mq: LocalCluster) -> None:
    mq.create_topic("lags", queues=1)
    send(mq, "lags", bodies(10))
    run = StreamRun(
        mq, subscribe="lags", startingOffsets="earliest", maxOffsetsPerTrigger=4, groupId="spark-lags"
    )
    assert run.reader.reportLatestOffset() is None
    run.drain(max_batches=1)
    report = run.reader.reportLatestOffset()
    assert report is not None
    queue_lag = report["lag"]["queues"]["lags"]["broker-a"]["0"]
    assert report["offsets"]["lags"]["broker-a"]["0"] == 10
    assert report["lag"]["messages"] == queue_lag["messages"] == 6
    assert 0 < report["lag"]["seconds"] == queue_lag["seconds"] < 60
    stored_bytes = [message.store_size for message in mq.messages("lags")]
    assert report["lag"]["bytes"] == queue_lag["bytes"] == 6 * stored_bytes[0] == sum(stored_bytes[4:])
    run.drain()
    report = run.reader.reportLatestOffset()
    assert report is not None and report["lag"]["messages"] == 0 and report["lag"]["seconds"] == 0
    with PullConsumer("spark-lags", namesrv=mq.namesrv) as consumer:
        assert consumer.committed(MessageQueue("lags", "broker-a", 0)) == 10


def test_readers_are_pickled_without_their_connections(mq: LocalCluster) -> None:
    mq.create_topic("pickled", queues=1)
    run = StreamRun(mq, subscribe="pickled")
    run.reader.initialOffset()
    copy = loads(dumps(run.reader))
    assert copy.options == run.reader.options and copy._driver is None


def test_a_broker_that_is_away_has_nothing_new_and_comes_back(mq: LocalCluster) -> None:
    mq.create_topic("away", queues=1)
    run = StreamRun(mq, subscribe="away")
    assert run.drain() == []
    mq.stop_broker(1)
    try:
        send(mq, "away", bodies(2))
        assert values(run.drain()) == bodies(2)
    finally:
        mq.start_broker(1)
    send(mq, "away", bodies(2, 2), broker="broker-b")
    assert values(run.drain()) == bodies(2, 2)


def test_a_broker_that_is_restarted_while_a_task_reads(mq: LocalCluster) -> None:
    mq.create_topic("restarted", queues=1)
    send(mq, "restarted", [b"x" * 1_000] * 300)
    run = StreamRun(mq, subscribe="restarted", startingOffsets="earliest", fetchBytes="4k", batchBytes="4k")
    assert run.plan()
    partitions = run.reader.partitions(run.reader.initialOffset(), json.loads(run.ends[-1]))
    offsets: list[int] = []
    for number, batch in enumerate(run.reader.read(partitions[0])):
        offsets += batch.column("queue_offset").to_pylist()
        if number == 5:
            mq.restart_broker(0)
    assert offsets == list(range(300))


# -- data that is gone -----------------------------------------------------------------------------


@pytest.fixture
def cluster_with_retention(tmp_path: Path) -> Iterator[LocalCluster]:
    """200 messages of topic `old` in a few log files."""
    with LocalCluster(store=tmp_path, mapped_file_size_commit_log=LOG_FILE_BYTES) as cluster:
        cluster.create_topic("old", queues=1)
        send(cluster, "old", [b"x" * 1_000] * 200, tags="t")
        yield cluster
        close_shared_clients()


def lose_the_first_log_file(cluster: LocalCluster) -> int:
    """How the queue begins afterwards."""
    cluster.stop_broker()
    log_files = sorted(cluster.store.glob("*/commitlog/*")) or sorted(cluster.store.glob("commitlog/*"))
    log_files[0].unlink()
    cluster.start_broker()
    with PullConsumer("look", namesrv=cluster.namesrv) as consumer:
        return consumer.min_offset(MessageQueue("old", "broker-a", 0))


@pytest.mark.parametrize("expression", ["*", "t"])
def test_retention_that_overtakes_the_reader(cluster_with_retention: LocalCluster, expression: str) -> None:
    mq = cluster_with_retention
    where = {
        "subscribe": "old",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 10,
        "subExpression": expression,
    }
    run = StreamRun(mq, **where)
    assert len(run.drain(max_batches=1)[0]) == 10
    low = lose_the_first_log_file(mq)
    assert 20 < low < 190
    assert run.plan()
    with pytest.raises(DataLossError) as caught:
        run.read()
    text = str(caught.value)
    assert "topic 'old', broker 'broker-a', queue 0" in text and "offsets 10 to 19" in text
    assert "Retention deleted them before they were read" in text and f"begins at {low} now" in text
    assert text.endswith("set failOnDataLoss=false to continue without them")
    going_on = StreamRun(mq, run.ends[:1], **where, failOnDataLoss="false")
    found = [row["queue_offset"] for batch in going_on.drain() for row in batch]
    assert found == list(range(low, 200))


def test_a_gap_in_the_middle_of_a_batch(cluster_with_retention: LocalCluster) -> None:
    mq = cluster_with_retention
    low = lose_the_first_log_file(mq)
    where = {"subscribe": "old", "startingOffsets": '{"old": {"broker-a": {"0": 5}}}'}
    run = StreamRun(mq, **where)
    assert run.plan()
    with pytest.raises(DataLossError, match=f"offsets 5 to {low - 1}[.] Retention"):
        run.read()
    assert loads(dumps(DataLossError(MessageQueue("t", "b", 0), 1, 2, "Why"))).end == 2


def test_a_topic_that_was_made_anew(mq: LocalCluster) -> None:
    mq.create_topic("anew", queues=1)
    send(mq, "anew", bodies(10))
    ends: list[str] = []
    assert len(StreamRun(mq, ends, subscribe="anew", startingOffsets="earliest").drain()[0]) == 10

    async def remove() -> None:
        async with Admin(namesrv=mq.namesrv) as admin:
            await delete_topic(admin, "anew", "DefaultCluster")

    asyncio.run(remove())
    mq.create_topic("anew", queues=1)
    send(mq, "anew", bodies(3, 100))
    with pytest.raises(DataLossError, match="at offset 10, but the queue ends at 3: the topic was deleted"):
        StreamRun(mq, list(ends), subscribe="anew").plan()
    now = StreamRun(mq, list(ends), subscribe="anew", failOnDataLoss="false")
    now.reader.prepareForTriggerAvailableNow()
    assert values(now.drain()) == bodies(3, 100)
    going_on = StreamRun(mq, list(ends), subscribe="anew", failOnDataLoss="false")
    assert values(going_on.drain()) == bodies(3, 100)


def test_a_restart_with_fewer_topics_reads_those_alone_and_one_with_all_goes_on(mq: LocalCluster) -> None:
    for topic in ("kept", "dropped"):
        mq.create_topic(topic, queues=1)
        send(mq, topic, bodies(2))
    ends: list[str] = []
    both = StreamRun(mq, ends, subscribe="kept,dropped", startingOffsets="earliest")
    assert len(values(both.drain())) == 4
    for topic in ("kept", "dropped"):
        send(mq, topic, bodies(3, 2))
    fewer = StreamRun(mq, ends, subscribe="kept")
    assert [row["topic"] for batch in fewer.drain() for row in batch] == ["kept"] * 3
    assert not fewer.plan()
    again = StreamRun(mq, ends, subscribe="kept,dropped")
    (batch,) = again.drain()
    assert places(batch) == [("dropped", "broker-a", 0, offset) for offset in (2, 3, 4)]


def test_a_checkpoint_of_another_source(mq: LocalCluster) -> None:
    mq.create_topic("foreign", queues=1)
    run = StreamRun(mq, ['{"foreign": {"0": 5}}'], subscribe="foreign")
    with pytest.raises(ConfigError, match="not those of a rocketmq source"):
        run.plan()


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"store": "somewhere"}, PLACE, "for batches"),
        ({"subscribe": "orders", "endingTimestamp": "1000"}, PLACE, "endingTimestamp is for batches"),
        ({"subscribe": "orders", "pushFilters": "true"}, PLACE, "unknown option 'pushfilters'"),
        ({"subscribe": "orders", "topik": "x"}, PLACE, "unknown option 'topik'"),
        ({"subscribe": "orders", "rowFormat": "kafka"}, PLACE, "unknown column 'queue_id'"),
    ],
)
def test_problems_are_raised_by_the_methods_of_the_reader(
    mq: LocalCluster, options: dict[str, str], schema: Any, words: str
) -> None:
    """Errors of `streamReader` itself are lost in Spark."""
    reader = source(mq, **options).streamReader(schema)
    start: dict[str, Any] = {}
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset(start, ReadAllAvailable()),
        lambda: reader.partitions(start, start),
    ):
        with pytest.raises(ConfigError, match=words):
            ask()


def test_small_batches_wait_for_more_and_not_for_ever(mq: LocalCluster) -> None:
    mq.create_topic("smalls", queues=2)
    where = {"subscribe": "smalls", "startingOffsets": "earliest", "minOffsetsPerTrigger": 6}
    run = StreamRun(mq, **where)
    send(mq, "smalls", bodies(5))
    assert not run.plan()
    send(mq, "smalls", bodies(1, 5), queue_id=1)
    assert sorted(values(run.drain())) == bodies(6)
    send(mq, "smalls", bodies(1, 6))
    assert not run.plan()
    impatient = StreamRun(mq, list(run.ends), **where, maxTriggerDelay="0s")
    assert values(impatient.drain()) == bodies(1, 6)
    last = StreamRun(mq, list(run.ends), **where)
    last.reader.prepareForTriggerAvailableNow()
    assert values(last.drain()) == bodies(1, 6)


def test_progress_that_did_not_reach_a_broker_is_reported_again(mq: LocalCluster) -> None:
    mq.create_topic("unheard", queues=1)
    queues = [MessageQueue("unheard", broker, 0) for broker in ("broker-a", "broker-b")]
    for queue in queues:
        send(mq, "unheard", bodies(3), broker=queue.broker_name)
    run = StreamRun(
        mq, subscribe="unheard", startingOffsets="earliest", groupId="unheard", requestTimeoutMs=500
    )
    assert isinstance(run.reader, RocketmqStreamReader)
    driver = run.reader.driver
    now_s = 0.0
    driver._clock = lambda: now_s
    assert run.plan()
    mq.stop_broker(1)
    try:
        run.plan()
        assert set(driver._published) == {queues[0]}
    finally:
        mq.start_broker(1)
    run.plan()
    assert set(driver._published) == {queues[0]}  # not at every look
    now_s = 60.0
    run.plan()
    with PullConsumer("unheard", namesrv=mq.namesrv) as consumer:
        assert [consumer.committed(queue) for queue in queues] == [3, 3]


def test_a_name_server_that_is_away_is_not_asked_at_every_look(
    mq: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.create_topic("looks", queues=1)
    reader = source(mq, subscribe="looks", pollTimeoutMs=300).streamReader(PLACE)
    assert isinstance(reader, RocketmqStreamReader)
    start = reader.initialOffset()
    looks = 0

    def away(self: QueueLookup) -> list[MessageQueue]:
        nonlocal looks
        looks += 1
        raise NoNameServerError("away")

    monkeypatch.setattr(QueueLookup, "queues", away)
    reader.driver._discovered_at = float("-inf")
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert looks == 1


async def create_on_the_first(mq: LocalCluster, topic: str) -> None:
    """Make a topic on the first broker alone."""
    async with Admin(namesrv=mq.namesrv) as admin:
        await create_topic(admin, mq.broker_addresses[0], TopicConfig(topic, 1, 1))
        async with asyncio.timeout(TIMEOUT_S):
            while topic not in await topic_names(admin):  # noqa: ASYNC110 (the name server does not notify)
                await asyncio.sleep(0.01)


def test_a_broker_that_is_new_is_found_while_running(mq: LocalCluster) -> None:
    mq.stop_broker(1)
    try:
        asyncio.run(create_on_the_first(mq, "joined"))
        send(mq, "joined", bodies(2))
        run = StreamRun(mq, subscribe="joined", startingOffsets="earliest")
        assert values(run.drain()) == bodies(2)
    finally:
        mq.start_broker(1)
    mq.create_topic("joined", queues=1)
    send(mq, "joined", bodies(3, 2), broker="broker-b")
    (batch,) = run.drain()
    assert places(batch) == [("joined", "broker-b", 0, offset) for offset in range(3)]


def test_places(mq: LocalCluster) -> None:
    mq.create_topic("placed", queues=1)
    send(mq, "placed", bodies(1), broker="broker-b")
    run = StreamRun(mq, subscribe="placed", startingOffsets="earliest")
    assert places(run.drain()[0]) == [("placed", "broker-b", 0, 0)]
