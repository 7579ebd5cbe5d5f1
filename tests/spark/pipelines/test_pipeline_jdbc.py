"""Pipelines with a database (H2), and with Avro: jars of others, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kourou import Message, Producer
from kourou.spark.pipelines.jdbc import with_driver
from kourou.testing import LocalCluster
from tests.child_process import dies_with_parent
from tests.needed import need_module
from tests.spark.conftest import need_spark
from tests.spark.kit.spark_jars import AVRO, H2, jar

need_module("pyspark")
need_module("yaml")

RUN_TIMEOUT_S = 300
SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
}
PIPELINE = """\
name: priced
sources:
  orders:
    topic: orders
    value: {format: avro, schemaFile: order.avsc}
    maxOffsetsPerTrigger: 4
  prices: {jdbc: "jdbc:h2:file:${DB}", dbtable: prices}
steps:
  - {name: priced, sql: "SELECT o.id, o.name, p.price FROM orders o JOIN prices p ON o.name = p.name"}
sinks:
  - {jdbc: "jdbc:h2:file:${DB}", dbtable: priced}
badRecords: {topic: bad}
trigger: availableNow
checkpoint: state
jars: ["${H2}", "${AVRO}"]
"""


def avro(number: int, name: str) -> bytes:
    """A record of the schema: numbers are zigzag, and small here."""
    return bytes([number << 1, len(name) << 1]) + name.encode()


def h2(folder: Path, sql: str) -> str:
    """The output of H2's own shell, while the database is not open elsewhere."""
    command = ["java", "-cp", str(jar(H2)), "org.h2.tools.Shell", "-url", f"jdbc:h2:file:{folder / 'db'}"]
    done = subprocess.run([*command, "-sql", sql], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def run(folder: Path, namesrv: str) -> subprocess.CompletedProcess[str]:
    command = [*dies_with_parent(), sys.executable, "-m", "kourou.cli.main", "pipeline", "run"]
    environ = {"NAMESRV_ADDR": namesrv, "DB": str(folder / "db"), "H2": str(jar(H2)), "AVRO": str(jar(AVRO))}
    return subprocess.run(
        [*command, str(folder / "p.yaml"), "--json", "--master", "local[2]"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.interop
def test_a_database_has_each_row_once(tmp_path: Path) -> None:
    need_spark()
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    h2(tmp_path, "CREATE TABLE prices(name VARCHAR(9), price DOUBLE); INSERT INTO prices VALUES ('pen', 2.5)")
    with LocalCluster(store=tmp_path / "mq") as mq:
        for topic in ("orders", "bad"):
            mq.create_topic(topic, queues=1)
        with Producer("pipelines", namesrv=mq.namesrv) as producer:
            for number in range(10):
                producer.send(Message("orders", avro(number, "pen")))
            producer.send(Message("orders", b"\x02"))
        first = run(tmp_path, mq.namesrv)
        assert first.returncode == 0, first.stderr
        assert json.loads(first.stdout.splitlines()[-1])["rows"] == 11
        # The last batch is in the database, and Spark does not know it.
        for entry in (tmp_path / "state" / "jdbc-priced" / "commits").glob("*2*"):
            entry.unlink()
        again = run(tmp_path, mq.namesrv)
        assert again.returncode == 0, again.stderr
        assert [message.body for message in mq.messages("bad")] == [b"\x02"]
    reported = h2(tmp_path, 'SELECT count(*), count(DISTINCT "id"), sum("price") FROM priced; SHOW TABLES')
    assert re.search(r"^10 +\| 10 +\| 25\b", reported, re.M), reported
    assert set(re.findall(r"^(\w+) +\| PUBLIC", reported, re.M)) == {"KOUROU_BATCHES", "PRICED", "PRICES"}


@pytest.mark.interop
def test_the_drivers_class_comes_from_the_jar() -> None:
    url = {"url": "jdbc:h2:mem:x", "dbtable": "t"}
    assert with_driver(url, [str(jar(H2))])["driver"] == "org.h2.Driver"
    assert with_driver({**url, "Driver": "mine"}, [str(jar(H2))])["Driver"] == "mine"
    assert "driver" not in with_driver(url, [])
