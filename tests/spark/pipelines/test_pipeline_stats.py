"""`kourou pipeline stats` as it is typed, under real Spark with a real broker."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
Stats = Callable[..., Result]


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.create_topic("plain", queues=1)
        send(cluster, "orders", 30)
        with Producer("stats-tests", namesrv=cluster.namesrv) as producer:
            producer.send(Message("plain", b"no key"))
        yield cluster


def send(mq: LocalCluster, topic: str, count: int) -> None:
    with Producer("stats-tests", namesrv=mq.namesrv) as producer:
        for number in range(count):
            producer.send(Message(topic, b"x" * (number + 1), keys=[f"k{number % 3}"] if number % 5 else []))


@pytest.fixture
def stats(spark: SparkSession, mq: LocalCluster) -> Stats:
    from kourou.cli.main import app

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["pipeline", "stats", "-n", mq.namesrv, *words])

    return run


def rows_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def wait_next_second() -> None:
    """Until the clock of brokers, which is ours, has another second."""
    now = int(time.time())
    while int(time.time()) == now:
        time.sleep(0.01)


def expected(mq: LocalCluster, topic: str, window_seconds: int = 60) -> dict[int, dict[str, Any]]:
    """The numbers of each window, counted in Python."""
    windows: dict[int, list[Any]] = {}
    for message in mq.messages(topic):
        begin = message.store_timestamp // 1000 // window_seconds * window_seconds
        windows.setdefault(begin, []).append(message)
    return {
        begin: {
            "messages": len(messages),
            "bytes": sum(len(message.body) for message in messages),
            "latency_max_ms": max(message.store_timestamp - message.born_timestamp for message in messages),
            "keys": Counter(key for message in messages for key in message.keys),
        }
        for begin, messages in windows.items()
    }


def check(row: dict[str, Any], numbers: dict[str, Any], window_seconds: int = 60) -> None:
    assert row["messages"] == numbers["messages"]
    assert row["bytes"] == numbers["bytes"]
    assert row["messages_per_second"] == pytest.approx(numbers["messages"] / window_seconds, abs=0.01)
    assert row["latency_max_ms"] == numbers["latency_max_ms"]
    assert 0 <= row["latency_p50_ms"] <= row["latency_p99_ms"] <= row["latency_max_ms"]
    assert {each["key"]: each["messages"] for each in row["top_keys"]} == dict(numbers["keys"])


def begin_of(row: dict[str, Any]) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(row["minute"]).timestamp())


def test_a_look_at_what_is_there(stats: Stats, mq: LocalCluster) -> None:
    rows = rows_of(stats("-t", "orders", "--json"))
    numbers = expected(mq, "orders")
    assert {begin_of(row) for row in rows} == set(numbers)
    for row in rows:
        check(row, numbers[begin_of(row)])


def test_all_topics_and_messages_without_keys(stats: Stats) -> None:
    rows = rows_of(stats("--json"))
    assert {row["topic"] for row in rows} == {"orders", "plain"}
    plain = next(row for row in rows if row["topic"] == "plain")
    assert (plain["top_keys"], plain["top_keys_approximate"]) == ([], False)


def test_a_minute_with_many_keys_has_approximate_top_keys(spark: SparkSession) -> None:
    """More keys than the sketch tracks: all alike, and with one that stands out."""
    from kourou.spark.pipelines.sql.stats import per_minute

    times = "'x' AS value, timestamp'2026-01-01' AS born_timestamp, timestamp'2026-01-01' AS store_timestamp"
    even = f"SELECT concat('k', id) AS key, topic, {times} FROM range(40000)"
    hot = f"SELECT 'hot' AS key, 'uneven' AS topic, {times} FROM range(3000)"
    topics = "LATERAL VIEW explode(array('even', 'uneven')) AS topic"
    messages = spark.sql(f"{even} {topics} UNION ALL {hot}")
    rows = {row["topic"]: row for row in per_minute(messages, top=2).collect()}
    assert all(row["top_keys_approximate"] for row in rows.values())
    assert len(rows["even"]["top_keys"]) == 2
    (first, second) = rows["uneven"]["top_keys"]
    # A lower bound: 43,000 messages, and no more than about 3.5 / 16,384 of them may be missing.
    assert first["key"] == "hot" and 2_980 <= first["messages"] <= 3_000
    assert second["messages"] == 1


def test_a_table_for_people(stats: Stats) -> None:
    result = stats("-t", "plain")
    assert result.exit_code == 0, result.output
    head, _, row = result.stdout.splitlines()
    assert head.split()[:4] == ["minute", "topic", "messages", "bytes"]
    assert row.split()[2:5] == ["plain", "1", "6"]


def test_since(stats: Stats) -> None:
    assert rows_of(stats("-t", "orders", "--since", "1h", "--json"))
    assert rows_of(stats("-t", "orders", "--since", "2099-01-01T00:00:00", "--json")) == []


def test_minutes_are_kept_once_they_are_over(
    stats: Stats, spark: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    mq.create_topic("kept", queues=2)
    folder = str(tmp_path / "minutes")
    words = ["-t", "kept", "--window", "1", "--late", "0", "--to-topic", "kept-stats", "--parquet", folder]
    for _ in range(3):
        send(mq, "kept", 10)
        wait_next_second()
        result = stats(*words)
        assert result.exit_code == 0, result.output
    assert "complete minutes" in result.stderr
    over = result.stderr.partition(" complete minutes")[0].rpartition(" ")[2]
    assert re.search(rf"stats: {over} rows? written, 10 read", result.stderr), result.stderr

    numbers = expected(mq, "kept", 1)
    last = max(numbers)
    sent = [json.loads(message.body) for message in mq.messages("kept-stats")]
    # The last second is not over: nothing newer has come.
    assert {begin_of(row) for row in sent} == set(numbers) - {last}
    assert len(sent) == len(numbers) - 1
    for row in sent:
        check(row, numbers[begin_of(row)], 1)
    assert [message.keys for message in mq.messages("kept-stats")] == [("kept",)] * len(sent)
    table = spark.read.parquet(folder)
    assert sorted(row["messages"] for row in table.collect()) == sorted(row["messages"] for row in sent)


def test_with_json_progress_and_a_summary_are_lines(stats: Stats, tmp_path: Path) -> None:
    *progress, summary = rows_of(stats("-t", "orders", "--parquet", str(tmp_path / "minutes"), "--json"))
    assert {each["type"] for each in progress} == {"progress"}
    assert summary["type"] == "summary"
    assert (summary["rows"], summary["ended"], summary["lag_messages"]) == (30, "finished", 0)


def test_minutes_are_followed_as_they_grow(stats: Stats, mq: LocalCluster) -> None:
    result = stats(
        "-t",
        "orders",
        "--follow",
        "--limit",
        "1",
        "--json",
        "-o",
        "startingOffsets=earliest",
        "--interval",
        "0",
    )
    (row,) = rows_of(result)
    assert row["messages"] <= 30


def test_a_topic_that_is_not_there(stats: Stats) -> None:
    result = stats("-t", "nope")
    assert result.exit_code == 1
    assert "no route to topic 'nope'" in result.stderr
    assert "(did you mean orders?)" in stats("-t", "ordrs").stderr
