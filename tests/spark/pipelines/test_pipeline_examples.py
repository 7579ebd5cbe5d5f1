"""examples/pipelines: each of them runs, over what seed.py sends, and says what it should."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Iterator
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
EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"
FILES = sorted(path.name for path in EXAMPLES.glob("*.yaml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy, as a user would make it: runs leave state and rows beside the files."""
    copy = tmp_path_factory.mktemp("examples") / "pipelines"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__", "data", "out", "state"))
    yield copy
    sys.modules.pop("steps", None)
    sys.path[:] = [path for path in sys.path if path != str(copy)]


@pytest.fixture(scope="module")
def mq(folder: Path) -> Iterator[LocalCluster]:
    """A cluster with what seed.py sends."""
    spec = importlib.util.spec_from_file_location("seed", folder / "seed.py")
    assert spec is not None and spec.loader is not None
    seed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(seed)
    with LocalCluster() as cluster:
        for topic in ("orders", "clicks", "invoices"):
            cluster.create_topic(topic, queues=2)
        seed.main(cluster.namesrv, folder)
        yield cluster


@pytest.fixture
def run(
    spark: SparkSession, mq: LocalCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    from kourou.cli.main import app

    monkeypatch.setenv("NAMESRV_ADDR", mq.namesrv)

    def run_file(name: str, *words: str) -> Result:
        result = CliRunner().invoke(app, ["pipeline", "run", str(folder / name), *words])
        assert result.exit_code == 0, result.output
        return result

    yield run_file
    # What an example sets stays in a session that goes on.
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


def values(mq: LocalCluster, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.body) for message in mq.messages(topic)]


def test_orders_are_enriched_and_counted_by_minute(
    run: Any, spark: SparkSession, mq: LocalCluster, folder: Path
) -> None:
    run("orders.yaml")
    enriched = values(mq, "orders-enriched")
    # Six orders, three of them sent twice.
    assert len(enriched) == 9
    assert {(row["id"], row["name"], row["region"]) for row in enriched} >= {
        ("order-0", "Ada", "north"),
        ("order-2", "Linus", "south"),
    }
    assert [message.body for message in mq.messages("orders-bad")] == [b"what is this?"]
    rows = spark.read.parquet(str(folder / "out" / "orders_per_minute")).collect()
    # 12:04 is not over.
    assert {(row["minute"].minute, row["region"], row["orders"], row["amount"]) for row in rows} == {
        (0, "north", 3, 50.0),
        (0, "south", 1, 5.0),
        (1, "north", 2, 15.0),
        (1, "south", 1, 2.5),
    }
    run("orders.yaml")
    assert len(values(mq, "orders-enriched")) == 9


def test_repeated_orders_are_left_out(run: Any, mq: LocalCluster) -> None:
    run("unique_orders.yaml")
    keys = sorted(message.keys[0] for message in mq.messages("orders-unique"))
    assert keys == ["odd", *(f"order-{number}" for number in range(6))]
    with Producer("examples", namesrv=mq.namesrv) as producer:
        producer.send(Message("orders", mq.messages("orders")[0].body, keys=["order-0"]))
    # Keys are remembered over restarts.
    run("unique_orders.yaml")
    assert len(mq.messages("orders-unique")) == 7


def test_sessions_are_written_once_they_are_over(run: Any, mq: LocalCluster) -> None:
    run("sessions.yaml")
    found = {
        (row["visitor"], row["began"][11:19], row["ended"][11:19], row["clicks"])
        for row in values(mq, "sessions")
    }
    # Eve's goes on.
    assert found == {
        ("ada", "12:00:00", "12:00:25", 3),
        ("bob", "12:00:12", "12:00:12", 1),
        ("bob", "12:01:40", "12:01:40", 1),
    }
    late = {"visitor": "zoe", "page": "/", "at": "2026-01-01T13:00:00+00:00"}
    with Producer("examples", namesrv=mq.namesrv) as producer:
        producer.send(Message("clicks", json.dumps(late).encode()))
    run("sessions.yaml")
    assert [(row["visitor"], row["pages"]) for row in values(mq, "sessions")][3:] == [("eve", ["/"])]


def test_dead_letters_are_analysed(run: Any) -> None:
    result = run("dead_letters.yaml", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    causes = [row for row in rows if "consumer_group" in json.dumps(row)]
    assert len(causes) == 1
    text = json.dumps(causes[0])
    assert all(word in text for word in ("printing", "invoices", "paper", "invoice-0", "invoice-2"))


def test_every_example_is_in_the_readme_and_tested(spark: SparkSession) -> None:
    readme = (EXAMPLES / "README.md").read_text()
    assert sorted(re.findall(r"\(([\w]+\.yaml)\)", readme)) == FILES
    tested = Path(__file__).read_text()
    assert all(f'run("{name}"' in tested for name in FILES)
