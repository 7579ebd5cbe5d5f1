"""The sink with guarantee=exactly-once, without a JVM: planned, staged and committed as Spark does."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from kourou.admin.atomic import list_atomic
from kourou.admin.session import Admin
from kourou.errors import ConfigError
from kourou.protocol.bodies.atomic_list import AtomicState
from kourou.testing import LocalCluster
from tests.spark.kit.exactly_once_kit import Sink, wait_for, wait_stored
from tests.spark.kit.sink_kit import schema_of, write

from kourou.spark.sink.data_sink import batch_writer, stream_writer  # isort: skip (the kit skips without pyarrow)
from kourou.spark.sink.sink_errors import RowRefusedError, SinkBatchError, SinkRowError  # isort: skip
from kourou.spark.sink.sink_producer import stop_worker_producers  # isort: skip


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster
    stop_worker_producers()


@pytest.fixture
def topic(mq: LocalCluster) -> str:
    name = f"Rows-{uuid.uuid4().hex[:8]}"
    mq.create_topic(name, queues=2)
    return name


def test_rows_are_visible_after_the_commit(mq: LocalCluster, topic: str) -> None:
    sink = Sink(mq, topic)
    done = sink.stage(0, [b"0"] * 3, [b"1"] * 3, [])
    assert not sink.stored()
    sink.commit(done, 0)
    sink.wait(*[b"0"] * 3, *[b"1"] * 3)


def test_a_batch_that_runs_again_is_skipped(mq: LocalCluster, topic: str) -> None:
    sink = Sink(mq, topic)
    sink.run(0, [b"a"], [b"b"])
    sink.run(1, [b"c", b"d"])
    again = sink.run(1, [b"c"], [b"d"])
    assert all(each.is_repeat and not each.parts for each in again)
    sink.run(2, [b"e"])
    sink.wait(b"a", b"b", b"c", b"d", b"e")


def test_a_batch_that_is_committed_while_it_runs_again_is_dropped(mq: LocalCluster, topic: str) -> None:
    """The coordinator decides, whatever the plan has seen; what was staged again is rolled back."""
    sink = Sink(mq, topic)
    planned = sink.plan()
    first, again = (sink.stage(0, [b"a"], planned=planned) for _ in range(2))
    sink.commit(first, 0)
    newer = sink.plan()
    object.__setattr__(newer.plan, "last_query", None)
    sink.commit(sink.stage(0, [b"a"], planned=newer), 0)
    assert again[0].parts != first[0].parts
    sink.run(1, [b"b"])
    sink.wait(b"a", b"b")
    wait_for(lambda: topic not in open_topics(mq))


def open_topics(mq: LocalCluster) -> set[str]:
    """The topics of publishes that are not over."""

    async def ask() -> set[str]:
        async with Admin(namesrv=mq.namesrv) as admin:
            found = [entry for broker in await list_atomic(admin) for entry in broker.publishes]
        return {topic for entry in found if entry.state == AtomicState.UNDECIDED for topic in entry.topics}

    return asyncio.run(ask())


def test_parts_of_other_attempts_are_not_published(mq: LocalCluster, topic: str) -> None:
    """Task retries and speculation: only what the commit messages name counts."""
    sink = Sink(mq, topic)
    planned = sink.plan()
    for _ in range(3):  # failed, or overtaken
        sink.stage(0, [b"a"] * 5, [b"b"] * 5, planned=planned)
    sink.commit(sink.stage(0, [b"a"] * 5, [b"b"] * 5, planned=planned), 0)
    wait_for(lambda: topic not in open_topics(mq))
    sink.run(1, [b"c"])
    sink.wait(*[b"a"] * 5, *[b"b"] * 5, b"c")


def test_an_abort_after_a_commit_changes_nothing(mq: LocalCluster, topic: str) -> None:
    """Spark calls it with the same messages if a commit has failed, as far as it knows."""
    sink = Sink(mq, topic)
    done = sink.run(0, [b"a"])
    sink.abort(done, 0)
    sink.run(1, [b"b"])
    sink.wait(b"a", b"b")


def test_an_aborted_batch_is_not_committed_later(mq: LocalCluster, topic: str) -> None:
    sink = Sink(mq, topic)
    done = sink.stage(0, [b"a"])
    sink.abort(done, 0)
    with pytest.raises(SinkBatchError, match="the batch is rolled back, and nothing of it is visible"):
        sink.commit(done, 0)
    sink.run(0, [b"a"])
    sink.wait(b"a")


def test_a_driver_that_is_not_the_newest_cannot_commit(mq: LocalCluster, topic: str) -> None:
    sink = Sink(mq, topic)
    late = sink.stage(0, [b"late"])
    sink.run(0, [b"a"])
    with pytest.raises(SinkBatchError, match="another query or write with this sinkId has begun a batch"):
        sink.commit(late, 0)
    sink.run(1, [b"b"])
    sink.wait(b"a", b"b")


def test_a_new_checkpoint_is_an_error_until_the_old_query_is_named(mq: LocalCluster, topic: str) -> None:
    Sink(mq, topic, "old").run(3, [b"a"])
    with pytest.raises(
        SinkBatchError, match="belongs to query old, which has committed batch 3; this is query new"
    ):
        Sink(mq, topic, "new").run(0, [b"b"])
    with pytest.raises(SinkBatchError, match="set the option replaceQuery=old"):
        Sink(mq, topic, "new", replaceQuery="older").run(0, [b"b"])
    replacing = Sink(mq, topic, "new", replaceQuery="old")
    replacing.run(0, [b"b"])
    replacing.run(0, [b"b"])
    replacing.run(1, [b"c"])
    with pytest.raises(SinkBatchError, match="belongs to query new, which has committed batch 1"):
        Sink(mq, topic, "old").run(4, [b"d"])
    replacing.wait(b"a", b"b", b"c")


def test_an_old_checkpoint_is_an_error(mq: LocalCluster, topic: str) -> None:
    """Its batches may have other rows than those that were committed: they cannot be skipped."""
    sink = Sink(mq, topic)
    sink.run(5, [b"a"])
    with pytest.raises(SinkBatchError, match="at batch 4, but batch 5 has been committed"):
        sink.run(4, [b"b"])


def test_rows_of_every_kind_are_staged(mq: LocalCluster, topic: str) -> None:
    errors = f"{topic}-errors"
    mq.create_topic(errors)
    sink = Sink(mq, topic, errorTopic=errors)
    names = ["value", "key", "tags", "properties", "sharding_key"]
    rows = [
        {
            "value": b"%d" % n,
            "key": f"k{n}",
            "tags": "T",
            "properties": {"n": str(n)},
            "sharding_key": f"s{n % 7}",
        }
        for n in range(500)
    ]
    rows.append({**rows[0], "value": b"x" * 70_000})
    rows.append({**rows[0], "value": b""})
    sink.commit([sink.task(sink.plan(names), 0, 0, rows)], 0)
    sink.wait(*(row["value"] for row in rows if row["value"]))  # type: ignore[misc]
    places: dict[str, set[tuple[str, int]]] = {}
    ordered: dict[str, list[int]] = {}
    for message in mq.messages(topic):
        if len(message.body) < 10:
            number = int(message.body)
            assert (message.keys, message.tags, message.get_property("n")) == (
                (f"k{number}",),
                "T",
                str(number),
            )
            places.setdefault(f"s{number % 7}", set()).add((message.store_host, message.queue_id))
            ordered.setdefault(f"s{number % 7}", []).append(number)
    assert all(len(found) == 1 for found in places.values())
    assert all(found == sorted(found) for found in ordered.values())
    (report,) = mq.messages(errors)
    assert json.loads(report.body)["size_bytes"] == 0


def test_a_bad_row_fails_its_task(mq: LocalCluster, topic: str) -> None:
    sink = Sink(mq, topic)
    with pytest.raises(RowRefusedError, match="partition 0, row 1, .*the body is empty"):
        sink.run(0, [b"a", b""])
    with pytest.raises(SinkRowError, match="row 0, .*the value has 4190000 bytes, more than the limit"):
        sink.run(0, [b"a" * 4_190_000])
    sink.run(0, [b"a"])
    sink.wait(b"a")


def test_many_rows(mq: LocalCluster, topic: str) -> None:
    sink = Sink(mq, topic, batchBytes="64k", maxInFlightBytes="256k")
    values = [b"%06d" % number + b"-" * 200 for number in range(20_000)]
    sink.run(0, values[:9_000], values[9_000:])
    sink.wait(*values)


# -- batch writes ----------------------------------------------------------------------------------


def test_a_batch_write_with_the_same_id_is_skipped(mq: LocalCluster, topic: str) -> None:
    options = Sink(mq, topic).options
    for write_id in ("2026-11-17", "2026-11-17", "2026-11-18", "2026-11-18"):
        write([{"value": write_id.encode()}], {**options, "writeId": write_id})
    with pytest.raises(SinkBatchError, match="'2026-11-17' is not behind '2026-11-18'"):
        write([{"value": b"again"}], {**options, "writeId": "2026-11-17"})
    write([{"value": b"again"}], {**options, "writeId": "2026-11-17", "replaceQuery": "2026-11-18"})
    wait_stored(
        lambda: Counter(message.body for message in mq.messages(topic)),
        Counter([b"2026-11-17", b"2026-11-18", b"again"]),
    )
    with pytest.raises(SinkBatchError, match="a stream and batch writes need a sinkId of their own each"):
        Sink(mq, topic).run(0, [b"a"])


def test_numbers_as_write_ids_are_compared_as_numbers(mq: LocalCluster, topic: str) -> None:
    options = Sink(mq, topic).options
    for number in range(8, 12):
        write([{"value": b"%d" % number}], {**options, "writeId": str(number)})
    wait_stored(
        lambda: Counter(message.body for message in mq.messages(topic)), Counter([b"8", b"9", b"10", b"11"])
    )


# -- mistakes --------------------------------------------------------------------------------------


def test_what_is_missing_is_named(mq: LocalCluster, topic: str) -> None:
    options, schema = Sink(mq, topic).options, schema_of(["value"])
    without = {name: value for name, value in options.items() if name != "sinkId"}
    with pytest.raises(ConfigError, match="option sinkId: needed for guarantee=exactly-once"):
        stream_writer(schema, without, False)
    with pytest.raises(ConfigError, match="option writeId: needed for a batch write"):
        batch_writer(schema, options, False)
    with pytest.raises(ConfigError, match="option writeId: for batch writes only"):
        stream_writer(schema, {**options, "writeId": "1"}, False)
    with pytest.raises(ConfigError, match="option sinkId: only with guarantee=exactly-once"):
        batch_writer(schema, {**options, "guarantee": "at-least-once"}, False)
    with pytest.raises(ConfigError, match="asyncProgressTrackingEnabled: not with guarantee"):
        stream_writer(schema, {**options, "asyncProgressTrackingEnabled": "true"}, False)
    with pytest.raises(ConfigError, match="column delay_ms: delayed messages cannot be written"):
        stream_writer(schema_of(["value", "delay_ms"]), options, False)
    with pytest.raises(ConfigError, match="sinkId='a b': must be 1 to 40 letters"):
        stream_writer(schema, {**options, "sinkId": "a b"}, False)


# -- brokers away ----------------------------------------------------------------------------------


def test_brokers_that_restart_between_all_steps() -> None:
    with LocalCluster(brokers=2) as mq:
        mq.create_topic("Rows", queues=2)
        sink = Sink(mq, "Rows", retryIntervalMs="200")
        planned = sink.plan()
        restart(mq)
        done = sink.stage(0, [b"a"] * 3, [b"b"] * 3, planned=planned)
        restart(mq)
        sink.commit(done, 0)
        restart(mq)
        sink.run(0, [b"a"] * 3)
        sink.run(1, [b"c"])
        sink.wait(*[b"a"] * 3, *[b"b"] * 3, b"c")
        stop_worker_producers()


def restart(mq: LocalCluster) -> None:
    for index in range(2):
        mq.restart_broker(index)


def test_a_coordinator_that_is_away_fails_the_batch() -> None:
    with LocalCluster() as mq:
        mq.create_topic("Rows", queues=2)
        sink = Sink(mq, "Rows", retryTimes="2", sendTimeoutMs="500")
        done = sink.stage(0, [b"a"])
        mq.stop_broker()
        with pytest.raises(SinkBatchError, match="its coordinator, broker .* did not answer for"):
            sink.commit(done, 0)
        sink.abort(done, 0)
        with pytest.raises(SinkBatchError, match="a batch cannot begin"):
            sink.plan()
        back = threading.Timer(0.5, mq.start_broker)
        back.start()
        patient = Sink(mq, "Rows")
        patient.run(0, [b"a"])
        back.join()
        patient.wait(b"a")
        stop_worker_producers()
