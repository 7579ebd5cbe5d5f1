"""docs/pipelines/sql.md and stats.md: their commands run as they stand, but for address and folders."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[3] / "docs" / "pipelines"
ADDRESS = "127.0.0.1:9876"
ORDERS = [("o1", "ada", 12.5, "placed"), ("o2", "bob", 3.0, "placed"), ("o1", "ada", 12.5, "billed")]


def commands(name: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (DOCS / name).read_text(), re.S | re.M)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("kourou pipeline")]


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.create_topic("orders", queues=2)
        with Producer("docs", namesrv=cluster.namesrv) as producer:
            for number, customer, amount, tag in ORDERS:
                body = json.dumps({"id": number, "customer": customer, "amount": amount}).encode()
                producer.send(Message("orders", body, keys=[number], tags=tag, properties={"region": "eu"}))
        yield cluster


@pytest.fixture
def outputs(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """Runs the commands of a document, and gives what they print."""
    from kourou.cli.main import app
    from kourou.spark.pipelines.archive.archive import ArchiveRequest, run_archive

    monkeypatch.chdir(tmp_path)
    spark.catalog.dropTempView("orders")  # of another test: views count more than topics
    run_archive(ArchiveRequest(to="lake/orders", topics=("orders",), namesrv=mq.namesrv))

    class Outputs(dict[str, str]):
        def __missing__(self, line: str) -> str:
            words = shlex.split(line.replace(ADDRESS, mq.namesrv))[1:]
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, f"{line}\n{result.output}"
            return result.stdout

    yield Outputs()


def test_the_commands_of_sql(outputs: dict[str, str]) -> None:
    lines = commands("sql.md")
    printed = [outputs[line] for line in lines]
    assert len(lines) == 8
    table = re.search(r"^```text\n(.*?)^```", (DOCS / "sql.md").read_text(), re.S | re.M)
    assert table is not None
    assert sorted(printed[1].splitlines()) == sorted(table[1].splitlines())
    assert printed[2].splitlines()[2].split() == ["ada", "25.0"]
    assert [json.loads(line)["property_region"] for line in printed[3].splitlines()] == ["eu", "eu"]
    assert [json.loads(line)["tags"] for line in printed[4].splitlines()] == ["placed", "billed"]
    assert printed[5].splitlines()[2].strip() == printed[6].splitlines()[2].strip() == "3"


def test_the_commands_of_stats(outputs: dict[str, str], tmp_path: Path) -> None:
    lines = commands("stats.md")
    printed = [outputs[line] for line in lines]
    assert len(lines) == 3
    document = (DOCS / "stats.md").read_text()
    for name in printed[0].splitlines()[0].split():
        assert f"`{name}`" in document
    assert sum(json.loads(line)["messages"] for line in printed[1].splitlines()) >= 3
    assert (tmp_path / "lake" / "minutes" / "_checkpoint").is_dir()


def test_options_of_the_documents_are_those_of_the_commands() -> None:
    from kourou.cli.main import app

    for name in ("sql", "stats"):
        shown = CliRunner().invoke(app, ["pipeline", name, "--help"], env={"COLUMNS": "200"}).output
        for option in set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", (DOCS / f"{name}.md").read_text())):
            assert option in shown, f"{name}.md: {option}"
