"""docs/pipelines/run.md: its example runs, and its tables have every key that there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kourou import Message, Producer
from kourou.cli.main import app
from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")
need_module("yaml")

from kourou.spark.pipelines.check import check_sinks, check_sources, checking  # noqa: E402
from kourou.spark.pipelines.run import BAD_RECORD_PROPERTIES  # noqa: E402
from kourou.spark.pipelines.sql.values import USUAL_COLUMNS  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = (Path(__file__).parents[3] / "docs" / "pipelines" / "run.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", DOCUMENT, re.S | re.M)
    assert found is not None
    return found[1]


def cells(heading: str) -> list[list[str]]:
    """The rows of the table whose heading begins so."""
    table = DOCUMENT.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return [re.split(r"(?<!\\)\|", row)[1:-1] for row in table.splitlines()[2:]]


def names(heading: str, column: int = 0) -> set[str]:
    """The words in backquotes in a column of a table."""
    return {name for row in cells(heading) for name in re.findall(r"`(\w+)", row[column])}


def test_every_key_of_the_file_is_there() -> None:
    assert names("key | default | meaning") == set(checking.KEYS)
    triggers = {name for row in cells("trigger | meaning") for name in re.findall(r"`\{?(\w+)", row[0])}
    assert triggers == set(checking._TRIGGERS)


def test_every_key_of_sources_is_there() -> None:
    kinds = names("key | what it reads")
    assert kinds == {*check_sources._TOPIC_KEYS, *check_sources._OTHER_KEYS}
    reported = DOCUMENT.partition("Keys of topics, in addition to all")[2].partition("| key of `value`")[0]
    keys = {name for name in re.findall(r"^\| `(\w+)` ", reported, re.M)}
    assert keys == set(check_sources.TOPIC_KEYS) - set(check_sources.SOURCE_OPTIONS) - {"topic"} | {
        "startingOffsets"
    }
    assert names("key of `value` | meaning") == set(check_sources.VALUE_KEYS)
    assert names("key of tables | meaning") == {*check_sources.ICEBERG_KEYS, "dbtable", "query"}
    usual = next(
        row[1] for row in re.findall(r"^\| `(columns)` \| (.*?) \|", reported, re.M) for row in [row]
    )
    assert re.findall(r"`(\w+)`", usual) == [column.name for column in USUAL_COLUMNS]


def test_every_key_of_steps_and_sinks_is_there() -> None:
    reported = DOCUMENT.partition("### Steps")[2].partition("### Sinks")[0]
    assert set(re.findall(r"^\| `(\w+)` ", reported, re.M)) == set(checking.STEP_KEYS)
    reported = DOCUMENT.partition("### Sinks")[2].partition("### Triggers")[0]
    named = set(re.findall(r"`(\w+)", reported))
    keys = {
        *check_sinks.COMMON_KEYS,
        *(set(check_sinks.TOPIC_SINK_KEYS) - set(check_sinks.SINK_OPTIONS)),
        *check_sinks.LAKE_SINK_KEYS,
        *check_sinks.CONSOLE_KEYS,
        *check_sinks.JDBC_KEYS,
        *check_sinks._KINDS,
        *check_sources.ICEBERG_KEYS,
    }
    assert keys <= named
    assert set(BAD_RECORD_PROPERTIES) <= set(re.findall(r"`(bad_\w+)`", DOCUMENT))


@pytest.mark.slow
def test_the_example_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders.yaml").write_text(block("yaml"))
    (tmp_path / "order_steps.py").write_text(block("py"))
    monkeypatch.delitem(__import__("sys").modules, "order_steps", raising=False)
    customers = spark.createDataFrame([("c1", "Ada")], "customer string, name string")
    customers.write.parquet(str(tmp_path / "data" / "customers"))
    with LocalCluster(store=tmp_path / "mq") as mq:
        monkeypatch.setenv("NAMESRV_ADDR", mq.namesrv)
        for topic in ("orders", "orders-enriched", "orders-bad"):
            mq.create_topic(topic, queues=1)
        with Producer("documents", namesrv=mq.namesrv) as producer:
            for number, amount in enumerate((5.0, 500.0)):
                body = json.dumps({"id": f"o{number}", "customer": "c1", "amount": amount})
                producer.send(Message("orders", body.encode()))
            producer.send(Message("orders", b"what is this?"))
        result = CliRunner().invoke(app, ["pipeline", "run", str(tmp_path / "orders.yaml")])
        assert result.exit_code == 0, result.output
        enriched = [json.loads(message.body) for message in mq.messages("orders-enriched")]
        assert [message.body for message in mq.messages("orders-bad")] == [b"what is this?"]
    assert enriched == [
        {"id": "o0", "amount": 5.0, "name": "Ada"},
        {"id": "o1", "amount": 500.0, "name": "Ada"},
    ]
    assert spark.read.parquet(str(tmp_path / "out" / "large")).count() == 1
    assert "console, batch 0" in result.stdout and "| o1 |  500.0 | Ada  |" in result.stdout
