"""`kourou pipeline replay` with real Spark: messages come again, whole, in order, at the pace asked."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kourou.errors import ConfigError
from kourou.testing import LocalCluster
from tests.needed import need_module
from tests.spark.kit.archive_kit import child, fill, run_child

need_module("pyspark")
need_module("deltalake")
need_module("pyiceberg")

from kourou.spark.pipelines.archive.archive import ArchiveRequest, run_archive  # noqa: E402
from kourou.spark.pipelines.archive.archive_folder import open_archive  # noqa: E402
from kourou.spark.pipelines.progress import ProgressOutput  # noqa: E402
from kourou.spark.pipelines.replay import replay  # noqa: E402
from kourou.spark.pipelines.replay.replay import ReplayRequest, run_replay  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kourou.spark.pipelines.progress import Summary

COUNT = 120


@pytest.fixture(scope="module")
def mq() -> Any:
    with LocalCluster() as cluster:
        cluster.create_topic("orders", queues=4)
        cluster.create_topic("payments", queues=1)
        yield cluster


@pytest.fixture(scope="module")
def archive(spark: SparkSession, mq: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of two topics, half of orders a moment after the others."""
    folder = tmp_path_factory.mktemp("replay") / "archive"
    fill(mq, "orders", range(COUNT // 2), queues=4)
    last_ms = max(message.store_timestamp for message in mq.messages("orders"))
    while time.time() * 1000 <= last_ms + 10:
        time.sleep(0.01)
    fill(mq, "orders", range(COUNT // 2, COUNT), queues=4)
    fill(mq, "payments", range(10), queues=1)
    request = ArchiveRequest(
        to=str(folder), topics=("orders", "payments"), namesrv=mq.namesrv, batch_messages=50
    )
    run_archive(request, ProgressOutput(True, io.StringIO(), False))
    return folder


def run(archive: Path, mq: LocalCluster, **options: Any) -> tuple[Summary, list[dict[str, Any]]]:
    stream = io.StringIO()
    request = ReplayRequest(archive=str(archive), namesrv=mq.namesrv, **options)
    summary = run_replay(request, ProgressOutput(True, stream, False))
    return summary, [json.loads(line) for line in stream.getvalue().splitlines()]


def numbers_by_queue(mq: LocalCluster, topic: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for message in sorted(mq.messages(topic), key=lambda each: each.queue_offset):
        found.setdefault(message.queue_id, []).append(int(message.properties["number"]))
    return found


def test_messages_come_again_whole_and_in_order(archive: Path, mq: LocalCluster) -> None:
    mq.create_topic("copy", queues=4)
    summary, lines = run(archive, mq, to="copy", topics=("orders",), origin="ORIGIN")
    assert (summary.rows, summary.ended) == (COUNT, "finished")
    assert lines[0]["type"] == "plan" and lines[0]["rows"] == COUNT
    assert numbers_by_queue(mq, "copy") == numbers_by_queue(mq, "orders")
    originals = {message.body: message for message in mq.messages("orders")}
    for message in mq.messages("copy"):
        original = originals[message.body]
        assert (message.keys, message.tags) == (original.keys, original.tags)
        assert message.properties["odd sign"] == "ü=1;"
        place = f"orders/broker-a/{original.queue_id}/{original.queue_offset}"
        assert message.properties["ORIGIN"] == place
    assert not list((open_archive(archive).hidden / "replays").glob("*.json"))


def test_by_time_and_into_fewer_queues(archive: Path, mq: LocalCluster) -> None:
    mq.create_topic("late", queues=1)
    begin_ms = min(
        message.store_timestamp
        for message in mq.messages("orders")
        if int(message.properties["number"]) >= COUNT // 2
    )
    summary, _ = run(archive, mq, to="late", topics=("orders",), from_ms=begin_ms)
    assert summary.rows == COUNT // 2
    found = [int(message.properties["number"]) for message in mq.messages("late")]
    assert sorted(found) == list(range(COUNT // 2, COUNT))
    for queue_id in range(4):
        own = [number for number in found if number % 4 == queue_id]
        assert own == sorted(own)
    summary, _ = run(archive, mq, to="late", topics=("orders",), until_ms=begin_ms)
    assert summary.rows == COUNT // 2


def test_each_to_its_own_topic_and_dry_run_sends_nothing(archive: Path, mq: LocalCluster) -> None:
    summary, lines = run(archive, mq, same_topics=True, dry_run=True, rate=10.0)
    assert summary.rows == 0
    assert lines[0]["dry_run"] and lines[0]["rows"] == COUNT + 10
    assert lines[0]["seconds"] == (COUNT + 10) / 10
    assert len(mq.messages("payments")) == 10
    summary, _ = run(archive, mq, same_topics=True, topics=("payments",))
    assert summary.rows == 10
    assert Counter(message.body for message in mq.messages("payments")) == {
        b"body %d" % number: 2 for number in range(10)
    }


def test_the_rate_is_kept(archive: Path, mq: LocalCluster) -> None:
    mq.create_topic("slow", queues=4)
    summary, _ = run(archive, mq, to="slow", topics=("orders",), rate=40.0)
    assert summary.rows == COUNT
    stored = sorted(message.store_timestamp for message in mq.messages("slow"))
    for first, at_ms in enumerate(stored):
        within = sum(1 for other in stored[first:] if other < at_ms + 1_000)
        # A piece of a tenth of a second may be late and the next in time.
        assert within <= 40 + 2 * 4, f"{within} messages within a second"
    assert stored[-1] - stored[0] >= 1000 * (COUNT - 4) / 40 - 300


def test_a_range_without_messages_is_reported(archive: Path, mq: LocalCluster) -> None:
    mq.create_topic("nothing", queues=1)
    with pytest.raises(ConfigError, match="no messages of orders in the requested range; the archive's were"):
        run(archive, mq, to="nothing", topics=("orders",), until_ms=1_000)
    with pytest.raises(ConfigError, match="the archive has no topic 'order'; did you mean orders"):
        run(archive, mq, to="nothing", topics=("order",))
    assert mq.messages("nothing") == []


def test_a_missing_topic_is_reported_and_not_created(archive: Path, mq: LocalCluster) -> None:
    mq.create_topic("restored", queues=1)
    with pytest.raises(ConfigError, match="'restord' to send to does not exist; did you mean restored?"):
        run(archive, mq, to="restord", topics=("orders",))
    with pytest.raises(ConfigError, match="the topic 'restord' to send to does not exist"):
        run(archive, mq, to="restord", topics=("orders",), dry_run=True)


@pytest.mark.nightly
@pytest.mark.crash
@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_without_loss(archive: Path, mq: LocalCluster) -> None:
    mq.create_topic("killed", queues=4)
    request = {
        "archive": str(archive),
        "to": "killed",
        "namesrv": mq.namesrv,
        "topics": ["orders"],
        "rate": 15.0,
    }
    replays = open_archive(archive).hidden / "replays"
    with child("replay", request) as process:
        deadline = time.monotonic() + 200
        while not list(replays.glob("*.json")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.communicate()
    noted = json.loads(next(replays.glob("*.json")).read_text())["rows"]
    assert 0 < noted < COUNT
    lines = run_child("replay", request)
    assert lines[0]["type"] == "plan" and lines[0]["resumed_behind_rows"] >= noted
    assert lines[0]["rows"] == COUNT - lines[0]["resumed_behind_rows"]
    found = Counter(int(message.properties["number"]) for message in mq.messages("killed"))
    assert set(found) == set(range(COUNT))
    # What was sent and not noted comes again: a slice at most.
    assert sum(found.values()) <= COUNT + 15
    assert not list(replays.glob("*.json"))
    for own in numbers_by_queue(mq, "killed").values():
        assert list(dict.fromkeys(own)) == sorted(set(own))
    assert replay._SLICE_S == 30
