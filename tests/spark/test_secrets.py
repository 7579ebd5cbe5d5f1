"""Keys in options: not in plans, the Spark UI, checkpoints, errors or output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kourou import Message, Producer
from kourou.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow

SECRET, TOKEN = "a-secret-of-the-test", "a-token-of-the-test"
KEYS = {"accessKey": "ann", "secretKey": SECRET, "securityToken": TOKEN}


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.create_topic("SecretOrders", queues=1)
        with Producer("g", namesrv=cluster.namesrv) as producer:
            producer.send(Message("SecretOrders", b"one"))
        yield cluster


def given(mq: LocalCluster, **options: str) -> dict[str, str]:
    return {
        "namesrv": mq.namesrv,
        "subscribe": "SecretOrders",
        "startingOffsets": "earliest",
        **KEYS,
        **options,
    }


def hides_keys(text: str) -> bool:
    return SECRET not in text and TOKEN not in text


def shown_by_the_ui(spark: SparkSession) -> str:
    """What the page `SQL` of the Spark UI has of each query: description, details, plan."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    found = [executions.apply(number) for number in range(executions.size())]
    assert found
    return "\n".join(
        f"{each.description()}\n{each.details()}\n{each.physicalPlanDescription()}\n{each.modifiedConfigs()}"
        for each in found
    )


def test_plans_and_the_ui(spark: SparkSession, mq: LocalCluster, capfd: pytest.CaptureFixture[str]) -> None:
    frame = spark.read.format("rocketmq").options(**given(mq)).load().select("value")
    for mode in ("simple", "extended", "formatted", "cost", "codegen"):
        frame.explain(mode)
    assert [bytes(row.value) for row in frame.collect()] == [b"one"]
    execution = frame._jdf.queryExecution()
    plans = (execution.toString(), execution.analyzed().toJSON(), execution.optimizedPlan().toJSON())
    assert all(map(hides_keys, plans))
    output = capfd.readouterr()
    assert "rocketmq" in output.out.lower()
    assert hides_keys(output.out + output.err)
    assert hides_keys(shown_by_the_ui(spark))


def test_sql(spark: SparkSession, mq: LocalCluster) -> None:
    options = ", ".join(f"{name} '{value}'" for name, value in given(mq).items())
    create = f"CREATE TEMPORARY VIEW secret_orders USING rocketmq OPTIONS ({options})"
    assert hides_keys(spark.sql(f"EXPLAIN EXTENDED {create}").collect()[0][0])
    spark.sql(create)
    try:
        assert spark.sql("SELECT count(*) FROM secret_orders").collect()[0][0] == 1
        for statement in ("EXPLAIN EXTENDED SELECT * FROM secret_orders", "DESCRIBE EXTENDED secret_orders"):
            assert hides_keys(str(spark.sql(statement).collect()))
    finally:
        spark.catalog.dropTempView("secret_orders")
    assert hides_keys(shown_by_the_ui(spark))


@pytest.mark.parametrize("sink", ["SecretCopies", "none of this name"])
def test_streams_and_their_checkpoints(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path, sink: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that ends well, and one that fails."""
    is_good = sink == "SecretCopies"
    stream = spark.readStream.format("rocketmq").options(**given(mq)).load().select("value")
    query: StreamingQuery = (
        stream.writeStream.format("rocketmq")
        .options(namesrv=mq.namesrv, topic=sink.replace(" ", "_"), createTopic=str(is_good), **KEYS)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    texts: list[Any] = []
    try:
        query.awaitTermination(60)
    except Exception as error:
        texts += [error]
    assert bool(texts) is not is_good
    query.explain(extended=True)
    texts += [query.lastProgress, query.recentProgress, query.exception(), query.status]
    output = capfd.readouterr()
    assert hides_keys(output.out + output.err + "\n".join(map(str, texts)))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if not hides_keys(path.read_text("latin-1"))] == []


MISTAKES: dict[str, Callable[[SparkSession, LocalCluster], Any]] = {
    "unknown option": lambda spark, mq: spark.read.format("rocketmq").options(**given(mq, secretKeys=SECRET)),
    "secret as another option": lambda spark, mq: spark.read.format("rocketmq").options(
        **given(mq, fetchRetries=SECRET, startingOffsets=TOKEN)
    ),
    "no access key": lambda spark, mq: spark.read.format("rocketmq").options(**given(mq, accessKey="")),
    "no server": lambda spark, mq: spark.read.format("rocketmq").options(**given(mq, namesrv="127.0.0.1:1")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors(
    spark: SparkSession, mq: LocalCluster, mistake: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as raised:
        MISTAKES[mistake](spark, mq).load().collect()
    assert "rocketmq" in str(raised.value) or "name server" in str(raised.value)
    output = capfd.readouterr()
    assert hides_keys(f"{raised.value}{raised.value!r}{output.out}{output.err}")
