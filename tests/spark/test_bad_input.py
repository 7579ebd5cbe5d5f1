"""What users do wrong, under a real Spark: they get one clear paragraph, and no stack of Python's or Java's.

Spark adds its own description of a streaming query behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")

from tests.spark.kit.source_kit import send  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 60
NOWHERE = "127.0.0.1:1"
NO_NAME_SERVER = "no name server can be reached: cannot connect to 127.0.0.1:1: connection refused"
NOT_FITTING = (
    "topic 'orders', broker 'broker-a', queue 0, offset 1: the property 'amount' is 'twelve', not a valid"
)


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    """Topic `orders`, whose second message has a property that is no number."""
    with LocalCluster(auto_create_topic_enable=False) as cluster:
        cluster.create_topic("orders", queues=1)
        for amount in ("1", "twelve", "3"):
            send(cluster, "orders", [b"order"], properties={"amount": amount})
        yield cluster


def check_paragraph(text: str, words: str) -> None:
    """Whether an error is clear."""
    paragraph = text.partition("=== Streaming Query ===")[0]
    assert words in paragraph
    assert "Traceback" not in text and "\tat " not in text and "UnboundLocalError" not in text
    assert len(paragraph.strip().splitlines()) <= 3


SOURCES = [
    pytest.param({"startingOfsets": "latest"}, None, "did you mean startingOffsets?", id="option"),
    pytest.param({"namesrv": NOWHERE}, None, NO_NAME_SERVER, id="name server"),
    pytest.param({"subscribe": "ordrs"}, None, "not know it (did you mean orders?); create it", id="topic"),
    pytest.param({"startingOffsets": "{oops"}, None, "startingOffsets='{oops': not valid JSON", id="json"),
    pytest.param({}, "value int", "column 'value' cannot be int: use binary or string", id="schema"),
    pytest.param({"topik": "x"}, "value string", "unknown option 'topik'", id="option beside a schema"),
    pytest.param({}, "value string, property_amount int", NOT_FITTING, id="value"),
]


@pytest.mark.parametrize(("options", "schema", "words"), SOURCES)
def test_a_batch_that_is_read(
    spark: SparkSession, mq: LocalCluster, options: dict[str, str], schema: str | None, words: str
) -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format("rocketmq").options(
        **{"namesrv": mq.namesrv, "subscribe": "orders", **options}
    )
    with pytest.raises(PySparkException) as caught:
        (reader.schema(schema) if schema else reader).load().collect()
    check_paragraph(str(caught.value), words)


@pytest.mark.parametrize(("options", "schema", "words"), SOURCES)
def test_a_stream_that_is_read(
    spark: SparkSession,
    mq: LocalCluster,
    tmp_path: Path,
    options: dict[str, str],
    schema: str | None,
    words: str,
) -> None:
    from pyspark.errors import PySparkException

    given = {"namesrv": mq.namesrv, "subscribe": "orders", "startingOffsets": "earliest", **options}
    reader = spark.readStream.format("rocketmq").options(**given)
    with pytest.raises(PySparkException) as caught:
        data = (reader.schema(schema) if schema else reader).load()
        writer = data.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)
    check_paragraph(str(caught.value), words)


SINKS = [
    pytest.param({"toppic": "x"}, "value", "did you mean topic?", id="option"),
    pytest.param({"namesrv": NOWHERE}, "value", NO_NAME_SERVER, id="name server"),
    pytest.param({"topic": "ordrs"}, "value", "not know it (did you mean orders?); create it", id="topic"),
    pytest.param({"errorTopic": "missing"}, "value", "no route to topic 'missing'", id="error topic"),
    pytest.param({}, "length(value) AS value", "its type is int, but must be string", id="type"),
    pytest.param(
        {}, "value AS text", "column text: not part of a message; use one of topic, value", id="column"
    ),
    pytest.param({}, "'' AS value", "row 0, topic 'orders': the body is empty", id="row"),
]


@pytest.mark.parametrize(("options", "column", "words"), SINKS)
def test_a_batch_that_is_written(
    spark: SparkSession, mq: LocalCluster, options: dict[str, str], column: str, words: str
) -> None:
    from pyspark.errors import PySparkException

    data = spark.createDataFrame([("a",)], "value string").selectExpr(column)
    writer = data.write.format("rocketmq").options(**{"namesrv": mq.namesrv, "topic": "orders", **options})
    with pytest.raises(PySparkException) as caught:
        writer.mode("append").save()
    check_paragraph(str(caught.value), words)


@pytest.mark.parametrize(("options", "column", "words"), SINKS)
def test_a_stream_that_is_written(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path, options: dict[str, str], column: str, words: str
) -> None:
    from pyspark.errors import PySparkException

    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.txt").write_text("a\n")
    data = spark.readStream.text(str(tmp_path / "lines")).selectExpr(column)
    given = {"namesrv": mq.namesrv, "topic": "orders", **options}
    writer = data.writeStream.format("rocketmq").options(**given)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(PySparkException) as caught:
        query.start().awaitTermination(TIMEOUT_S)
    check_paragraph(str(caught.value), words)
