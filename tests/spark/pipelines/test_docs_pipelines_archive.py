"""docs/pipelines/archive.md and replay.md: commands and programs run, tables have every option."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kourou.testing import LocalCluster
from tests.needed import need_module
from tests.spark.kit.archive_kit import fill

need_module("pyspark")
need_module("deltalake")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[3] / "docs" / "pipelines"
TIMEOUT_S = 400


def text(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def blocks(name: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text(name), re.S | re.M)


def documented(name: str) -> set[str]:
    """The options in the first cells of the table."""
    table = text(name).partition("| option |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    return {option for cell in cells for option in re.findall(r"(--[a-zA-Z-]+)", cell)}


def offered(name: str) -> set[str]:
    from kourou.cli.pipeline.command import pipeline_app

    command = pipeline_app.commands[name]
    return {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }


@pytest.mark.parametrize("name", ["archive", "replay"])
def test_every_option_is_in_the_table_and_nothing_else(name: str) -> None:
    assert documented(name) == offered(name) - {"--help"}


@pytest.mark.nightly
@pytest.mark.slow
def test_commands_and_programs_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with LocalCluster() as mq:
        for topic in ("orders", "payments", "orders-again"):
            mq.create_topic(topic, queues=2)
        fill(mq, "orders", range(10))
        fill(mq, "payments", range(5))
        for command in blocks("archive", "sh"):
            run(command, mq.namesrv)
        for program in blocks("archive", "py"):
            exec(program, {"spark": spark})
        dry, real = blocks("replay", "sh")[0].splitlines()
        assert "10 messages would be sent to orders-again" in run(dry, mq.namesrv)
        assert mq.messages("orders-again") == []
        assert "replay: 10 rows" in run(real, mq.namesrv)
        assert len(mq.messages("orders-again")) == 10
    shown = capsys.readouterr().out
    assert re.search(r"orders\|\S+\| +10\|", shown) and re.search(r"payments\|\S+\| +5\|", shown)


def run(command: str, namesrv: str) -> str:
    """Run a command of the document as a user does; gives what it says."""
    words = shlex.split(command.replace("127.0.0.1:9876", namesrv))
    assert words.pop(0) == "kourou"
    result = subprocess.run(
        [sys.executable, "-m", "kourou.cli.main", *words], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr
