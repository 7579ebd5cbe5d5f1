"""Topics as tables and views of Spark's catalog, by SQL alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")

from tests.spark.kit.source_kit import send  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    """Topics `orders` and `bills`, with 20 and 3 messages."""
    with LocalCluster() as cluster:
        for topic, count in (("orders", 20), ("bills", 3)):
            cluster.create_topic(topic, queues=2)
            send(cluster, topic, [b"%d" % number for number in range(count)], tags="old", keys="k")
        yield cluster


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[SparkSession]:
    """The session; tables and views are dropped afterwards."""
    yield spark
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} IF EXISTS {table.name}")


def options(mq: LocalCluster, topic: str, **more: str) -> str:
    given = {"namesrv": mq.namesrv, "subscribe": topic, **more}
    return ", ".join(f"{name} '{value}'" for name, value in given.items())


def rows_of_stream(spark: SparkSession, frame: Any, folder: Path) -> int:
    """How many rows a stream has from the beginning to now."""
    found: list[int] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.append(batch.count()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S)
    return sum(found)


def test_a_table_is_created_read_described_and_created_again(tables: SparkSession, mq: LocalCluster) -> None:
    tables.sql(
        f"CREATE TABLE orders USING rocketmq OPTIONS ({options(mq, 'orders')}) COMMENT 'all orders' "
        "TBLPROPERTIES ('team' = 'sales')"
    )
    assert tables.sql("SELECT tags, count(*) FROM orders GROUP BY tags").collect() == [("old", 20)]
    twice = "SELECT value FROM orders WHERE queue_id = 0 UNION ALL SELECT value FROM orders WHERE key = 'k'"
    assert len(tables.sql(twice).collect()) == 40
    statement = tables.sql("SHOW CREATE TABLE orders").collect()[0][0]
    assert '"subscribe": "orders"' in statement
    # Spark (4.3) prints neither the format nor options of such a table; the columns' comment has them.
    tables.sql(statement.replace("default.orders", "default.again") + " USING rocketmq")
    assert tables.table("again").count() == 20


def test_a_table_of_some_columns_is_written_to_and_streamed(
    tables: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    given = options(mq, "bills", columns="key, value string, tags", startingOffsets="earliest")
    tables.sql(f"CREATE TABLE bills USING rocketmq OPTIONS ({given})")
    tables.sql("INSERT INTO bills VALUES ('a', 'one', 'new'), ('b', 'two', 'new')")
    tables.sql("INSERT INTO bills (value) SELECT 'three'")
    rows = tables.sql("SELECT * FROM bills WHERE tags IS DISTINCT FROM 'old'").collect()
    assert sorted(rows, key=str) == [("a", "one", "new"), ("b", "two", "new"), (None, "three", None)]
    assert rows_of_stream(tables, tables.readStream.table("bills"), tmp_path) == 6


def test_a_wrong_option_of_a_table_is_one_clear_paragraph(tables: SparkSession, mq: LocalCluster) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="did you mean startingOffsets") as caught:
        tables.sql(f"CREATE TABLE bad USING rocketmq OPTIONS ({options(mq, 'orders', startingOfsets='x')})")
    assert "Traceback" not in str(caught.value)
    tables.sql(f"CREATE TABLE lost (value string) USING rocketmq OPTIONS ({options(mq, 'orders')})")
    with pytest.raises(PySparkException, match="created with a list of columns"):
        tables.table("lost").collect()
