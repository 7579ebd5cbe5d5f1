"""`kourou pipeline` as a process of its own: what a user sees of Spark's words, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.needed import need_module
from tests.spark.conftest import need_spark
from tests.spark.kit.driver_process import wait_for

need_module("pyspark")

pytestmark = pytest.mark.slow
TIMEOUT_S = 300
QUICK_JVM = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"}


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    need_spark()
    with LocalCluster() as cluster:
        cluster.create_topic("orders", queues=2)
        with Producer("process-tests", namesrv=cluster.namesrv) as producer:
            for number in range(5):
                producer.send(Message("orders", b"order %d" % number, tags="a"))
        yield cluster


def start(mq: LocalCluster, folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "kourou.cli.main",
            "pipeline",
            *words,
            "--master",
            "local[2]",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **QUICK_JVM, "TMPDIR": str(folder / "tmp"), "NAMESRV_ADDR": mq.namesrv},
        start_new_session=True,  # a Ctrl-C of a terminal is for all processes of a group
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path


def logs(folder: Path) -> list[Path]:
    return list((folder / "tmp").glob("kourou-spark-*/*"))


def test_a_failure_is_reported_in_two_lines_and_sparks_text_is_in_its_log(
    mq: LocalCluster, folder: Path
) -> None:
    process = start(mq, folder, "sql", "SELECT cast(tags AS int) FROM orders")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (1, "")
    reported = [line for line in err.splitlines() if not line.startswith("sql: ")]  # but for progress
    assert len(reported) == 2, err
    assert reported[0].startswith("kourou pipeline sql: the query failed: The value 'a' of the type")
    (log,) = logs(folder)
    assert reported[1] == f"kourou pipeline sql: Spark's log: {log}"
    assert "CAST_INVALID_INPUT" in log.read_text()
    assert [path.name for path in folder.iterdir()] == ["tmp"]


def test_ctrl_c_while_spark_starts_ends_in_one_line_and_leaves_no_process(
    mq: LocalCluster, folder: Path
) -> None:
    process = start(mq, folder, "stats", "-t", "orders")
    wait_for(lambda: processes_of_group(process.pid) - {process.pid}, "the start of the JVM")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (130, "", "kourou pipeline stats: interrupted\n")
    wait_for(lambda: not processes_of_group(process.pid), "the end of the JVM")


def processes_of_group(group: int) -> set[int]:
    """Running processes, without zombies."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            found.add(int(path.parent.name))
    return found


def test_ctrl_c_ends_a_pipeline_in_order(mq: LocalCluster, folder: Path) -> None:
    """Its step has a UDF at module level, which needs a session when it is imported."""
    (folder / "steps.py").write_text(
        "from pyspark.sql.functions import udf\n\n\n@udf('string')\ndef shouted(value):\n"
        "    return value.upper()\n\n\ndef shout(frame):\n"
        "    return frame.select(shouted('value').alias('v'))\n"
    )
    (folder / "p.yaml").write_text(
        "sources: {orders: {topic: orders, value: string}}\ncheckpoint: state\n"
        "steps: [{name: loud, python: 'steps:shout'}]\nsinks: [{console: true}]\n"
    )
    process = start(mq, folder, "run", "p.yaml", "--json")
    guard = threading.Timer(TIMEOUT_S, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        lines = []
        for text in process.stdout:
            lines.append(json.loads(text))
            if lines[-1]["type"] == "progress":
                break
        os.killpg(process.pid, signal.SIGINT)
        rest, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        guard.cancel()
        process.kill()
    lines += [json.loads(text) for text in rest.splitlines()]
    assert process.returncode == 0, err
    assert (lines[-1]["type"], lines[-1]["ended"], lines[-1]["rows"]) == ("summary", "stopped", 5)
    rows = sorted(line["row"]["v"] for line in lines if line["type"] == "row")
    assert rows == [f"ORDER {number}" for number in range(5)]
    assert logs(folder) == []
