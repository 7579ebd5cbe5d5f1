"""`kourou pipeline sql` as it is typed, under real Spark with a real broker."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from kourou import Message, MessageQueue, Producer
from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
Sql = Callable[..., Result]
COUNT = 40


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        for topic, queues in (("orders", 2), ("kept", 2), ("raw-bytes", 1), ("Case", 1), ("case", 1)):
            cluster.create_topic(topic, queues=queues)
        with Producer("sql-tests", namesrv=cluster.namesrv) as producer:
            for number in range(COUNT):
                producer.send(order("orders", number), queue=MessageQueue("orders", "broker-a", number % 2))
            producer.send(Message("raw-bytes", b"\xff\xfe"))
            producer.send(Message("Case", b"upper"))
            producer.send(Message("case", b"lower"))
        yield cluster


def order(topic: str, number: int) -> Message:
    content = {"id": f"order-{number}", "customer": f"c{number % 4}", "amount": number / 2}
    return Message(
        topic,
        json.dumps(content).encode(),
        keys=[f"order-{number}"],
        tags="ab"[number % 2],
        properties={"region": "north" if number % 4 else "south"},
    )


@pytest.fixture
def sql(spark: SparkSession, mq: LocalCluster) -> Iterator[Sql]:
    from kourou.cli.main import app

    def run(query: str, *words: str) -> Result:
        return CliRunner().invoke(app, ["pipeline", "sql", query, "-n", mq.namesrv, *words])

    yield run
    spark.conf.set("spark.sql.caseSensitive", "false")


def objects(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_topic_is_a_table(sql: Sql) -> None:
    result = sql(
        "SELECT tags, count(*) AS n, max(value) LIKE '{\"id\"%' AS is_text FROM orders GROUP BY 1 ORDER BY 1"
    )
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines() if "─" not in line] == [
        ["tags", "n", "is_text"],
        ["a", "20", "true"],
        ["b", "20", "true"],
    ]


def test_columns_of_the_value_and_properties(sql: Sql) -> None:
    query = (
        "SELECT customer, sum(amount) AS total, max(property_region) AS region, max(key) AS a_key "
        "FROM orders GROUP BY customer ORDER BY customer"
    )
    expected = [
        {
            "customer": f"c{customer}",
            "total": sum(number / 2 for number in range(customer, COUNT, 4)),
            "region": "north" if customer else "south",
            "a_key": max(f"order-{number}" for number in range(customer, COUNT, 4)),
        }
        for customer in range(4)
    ]
    assert objects(sql(query, "--json", "--value", "json")) == expected
    assert objects(sql(query, "--json", "--value", "json:customer string, amount double")) == expected


def test_all_columns_are_there(sql: Sql) -> None:
    (row,) = objects(sql("SELECT * FROM orders WHERE queue_id = 1 AND queue_offset = 3", "--json"))
    assert row["key"] == "order-7"
    assert row["keys"] == ["order-7"]
    properties = row["properties"]
    assert isinstance(properties, dict)
    assert properties["region"] == "north"
    assert str(row["store_timestamp"]).endswith("Z")


def test_csv_and_limit(sql: Sql) -> None:
    result = sql(
        "SELECT queue_offset, key FROM orders WHERE queue_id = 0 ORDER BY 1", "--csv", "--limit", "2"
    )
    assert list(csv.reader(result.stdout.splitlines())) == [
        ["queue_offset", "key"],
        ["0", "order-0"],
        ["1", "order-2"],
    ]
    assert "there are more than 2" in result.stderr


def test_a_topic_that_is_read_twice_keeps_its_conditions_apart(sql: Sql) -> None:
    query = (
        "WITH o AS (SELECT queue_id, queue_offset, key FROM orders) SELECT a.key AS a, b.key AS b FROM o a "
        "JOIN o b ON a.queue_offset = b.queue_offset "
        "WHERE a.queue_id = 0 AND b.queue_id = 1 AND a.queue_offset < 2 ORDER BY 1"
    )
    assert objects(sql(query, "--json")) == [
        {"a": "order-0", "b": "order-1"},
        {"a": "order-2", "b": "order-3"},
    ]


def test_bytes_and_names_with_other_signs(sql: Sql) -> None:
    assert objects(sql("SELECT value FROM `raw-bytes`", "--json", "--value", "binary")) == [
        {"value": "0xFFFE"}
    ]


def test_topics_that_differ_in_case_only(sql: Sql) -> None:
    query = "SELECT a.value AS a, b.value AS b FROM `Case` a CROSS JOIN `case` b"
    assert objects(sql(query, "--json")) == [{"a": "upper", "b": "lower"}]


def test_tables_can_be_listed_and_described(sql: Sql) -> None:
    listed = sql("show tables")
    assert "raw-bytes" in listed.stdout
    assert "%RETRY" not in listed.stdout
    assert "store_timestamp" in sql("DESCRIBE orders").stdout


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT * FROM ordres", "kourou pipeline sql: there is no topic 'ordres'; did you mean `orders`?"),
        ("SELECT * FORM orders", "Syntax error at or near 'orders'"),
        ("SELECT amuont FROM orders", "Did you mean one of the following? [`key`, `keys`"),
        (
            "SELECT cast(tags AS int) FROM orders",
            "the query failed: The value 'a' of the type \"STRING\" cannot",
        ),
        ("SELECT * FROM raw-bytes", "did you mean `raw-bytes`? Quote such names in backticks"),
        ("SELECT * FROM nowhere.orders", "nowhere"),
        ("SELECT * FROM orders__archive", "is not in any archive"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(sql: Sql, query: str, problem: str) -> None:
    result = sql(query)
    assert result.exit_code == 1
    assert problem in result.stderr
    assert "\tat " not in result.stderr and "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_stream_is_followed(sql: Sql) -> None:
    result = sql(
        "SELECT key, tags FROM orders WHERE tags = 'a'",
        "--follow",
        "--from",
        "earliest",
        "--limit",
        "20",
        "--json",
    )
    assert {str(row["key"]) for row in objects(result)} == {
        f"order-{number}" for number in range(0, COUNT, 2)
    }
    assert "stopped" in result.stderr


def test_groups_are_followed_as_they_change(sql: Sql) -> None:
    query = "SELECT tags, count(*) AS n FROM orders GROUP BY tags"
    result = sql(query, "--follow", "--from", "earliest", "--limit", "2", "--csv")
    assert sorted(result.stdout.splitlines()) == ["a,20", "b,20", "tags,n"]


def test_a_batch_of_groups_may_be_left_in_the_middle(sql: Sql) -> None:
    """By default Spark takes that for a failure of the state."""
    query = "SELECT queue_offset, count(*) AS n FROM orders GROUP BY queue_offset"
    result = sql(query, "--follow", "--from", "earliest", "--limit", "1", "--csv")
    assert len(result.stdout.splitlines()) == 2
    assert result.exit_code == 0 and "stopped" in result.stderr


def test_what_cannot_be_followed_is_reported(sql: Sql) -> None:
    assert "Sorting is not supported" in sql("SELECT key FROM orders ORDER BY key", "--follow").stderr
    assert "--follow requires a topic" in sql("SELECT 1", "--follow").stderr


# -- archives --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(spark: SparkSession, mq: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten archived messages of `kept`; twenty are live."""
    from kourou.spark.pipelines.archive.archive import ArchiveRequest, run_archive

    folder = str(tmp_path_factory.mktemp("lake") / "archive")
    send_kept(mq, 0, 10)
    run_archive(ArchiveRequest(to=folder, topics=("kept",), namesrv=mq.namesrv))
    send_kept(mq, 10, 20)
    return folder


def send_kept(mq: LocalCluster, begin: int, end: int) -> None:
    with Producer("sql-tests", namesrv=mq.namesrv) as producer:
        for number in range(begin, end):
            producer.send(order("kept", number), queue=MessageQueue("kept", "broker-a", number % 2))


ALL_KEYS = "SELECT count(*) AS n, count(DISTINCT key) AS keys FROM {} WHERE value IS NOT NULL"


def test_live_and_archived_messages_are_one_table(sql: Sql, archive: str) -> None:
    for table, count in (("kept", 20), ("kept__live", 20), ("kept__archive", 10)):
        result = sql(ALL_KEYS.format(table), "--json", "--archive", archive)
        assert objects(result) == [{"n": count, "keys": count}], table
    query = "SELECT customer, sum(amount) AS s, max(property_region) AS r FROM kept GROUP BY 1"
    rows = objects(sql(query, "--json", "--archive", archive, "--value", "json"))
    assert {"customer": "c1", "s": sum(number / 2 for number in range(1, 20, 4)), "r": "north"} in rows


def test_an_archive_needs_no_name_server(
    spark: SparkSession, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kourou.cli.main import app

    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    query = "SELECT min(key) AS first FROM kept"
    result = CliRunner().invoke(app, ["pipeline", "sql", query, "--archive", archive, "--json"])
    assert objects(result) == [{"first": "order-0"}]


def test_an_archive_with_gaps_is_filled_from_the_topic(
    sql: Sql, spark: SparkSession, archive: str, tmp_path: Path
) -> None:
    from kourou.spark.pipelines.archive.archive_folder import ensure_archive, open_archive
    from kourou.spark.pipelines.lake.lake import read_lake, write_batch

    rows = read_lake(spark, open_archive(archive).table).where("queue_offset IN (1, 3)")
    with_gaps = ensure_archive(tmp_path / "gaps", topics=["kept"])
    with_gaps.save()
    assert write_batch(with_gaps.table, rows, app_id="test", batch_id=0) == 4
    result = sql(ALL_KEYS.format("kept"), "--json", "--archive", with_gaps.path)
    assert objects(result) == [{"n": 20, "keys": 20}]


def test_a_message_that_is_in_two_archives_is_there_once(sql: Sql, archive: str, tmp_path: Path) -> None:
    result = sql(ALL_KEYS.format("kept__archive"), "--json", "--archive", archive, "--archive", archive)
    assert objects(result) == [{"n": 10, "keys": 10}]
