"""docs/spark.md: its programs run, and its table has every option with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kourou.spark.sink import sink_options
from kourou.spark.source import options
from kourou.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
PROGRAMS = re.findall(r"^```py\n(.*?)^```", DOCUMENT, re.S | re.M)


def table_rows() -> dict[str, str]:
    """First cell and default of every row of the table of options."""
    table = DOCUMENT.partition("| option | default | meaning |\n")[2].partition("\n\n")[0]
    return {row.split("|")[1]: row.split("|")[2].strip() for row in table.splitlines()[1:]}


def test_every_option_is_in_the_table_and_nothing_else() -> None:
    named = {name for cell in table_rows() for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(options.SOURCE_OPTION_NAMES) - {"nameServer"}


def test_every_option_of_the_sink_is_in_its_table() -> None:
    table = DOCUMENT.partition("| option of the sink | default | meaning |\n")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(sink_options.SINK_OPTION_NAMES) - {"nameServer"}


def test_defaults_are_those_of_the_table() -> None:
    parsed = options.SourceOptions.parse({"namesrv": "n:1", "subscribe": "t"}, {})
    defaults = {cell.strip(" `"): default.strip("`") for cell, default in table_rows().items()}
    assert defaults["pollTimeoutMs"] == str(parsed.poll_timeout_ms)
    assert defaults["discoveryIntervalMs"] == str(parsed.discovery_interval_ms)
    assert defaults["fetchesInFlight"] == str(parsed.fetches_in_flight)
    assert defaults["fetchRetries"] == str(parsed.fetch_retries)
    assert defaults["fetchBytes"] == defaults["batchBytes"] == f"{parsed.fetch_bytes >> 20}m"
    assert parsed.fetch_bytes == parsed.batch_bytes
    assert defaults["requestTimeoutMs"] == str(parsed.connection.request_timeout_ms)
    assert defaults["failOnDataLoss"] == str(parsed.fail_on_data_loss).lower()
    assert defaults["verifyCrc"] == str(parsed.verify_crc).lower()
    assert defaults["rowFormat"] == parsed.row_format
    assert defaults["propertyErrors"] == parsed.property_errors


@pytest.mark.slow
def test_the_programs_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.spark.kit.source_kit import send

    assert len(PROGRAMS) >= 5
    with LocalCluster(store=tmp_path / "mq") as mq:
        for topic in ("orders", "shouted", "copied", "invoiced"):
            mq.create_topic(topic, queues=2)
        send(mq, "orders", [b"one book"], tags="books", properties={"amount": "12.5"})
        send(mq, "orders", [b"two pens"], tags="pens", queue_id=1, properties={"amount": "3"})
        store = next(iter((tmp_path / "mq").rglob("commitlog"))).parent
        names = {"spark": spark, "namesrv": mq.namesrv, "folder": str(tmp_path), "store": str(store)}
        beginning, *programs = PROGRAMS
        given = {**names}
        exec(beginning, given)
        assert given["spark"] is spark and given["namesrv"] == "127.0.0.1:9876"
        try:
            for program in programs:
                exec(program, names)
        finally:
            spark.sql("DROP TABLE IF EXISTS received")
        assert sorted(message.body for message in mq.messages("shouted")) == [b"ONE BOOK", b"TWO PENS"]
        assert sorted(message.body for message in mq.messages("copied")) == [
            b"one book",
            b"three cups",  # by INSERT
            b"two pens",
        ]
        invoiced = sorted(message.body for message in mq.messages("invoiced"))
        # By a stream, and by one batch write.
        assert invoiced == [b"one book"] * 2 + [b"three cups"] + [b"two pens"] * 2
    shown = capsys.readouterr().out
    assert "one book" in shown and "12.5" in shown and "orders" in shown
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 2
