"""`kourou pipeline` as a process of its own: what a user sees of Spark's words, and Ctrl-C."""

from __future__ import annotations

import os
import re
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

need_module("pyspark")

pytestmark = pytest.mark.slow
TIMEOUT_S = 300


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
            "-n",
            mq.namesrv,
            "--master",
            "local[2]",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        start_new_session=True,  # a Ctrl-C of a terminal is for all processes of a group
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path


def logs(folder: Path) -> list[Path]:
    return list((folder / "tmp").glob("kourou-spark-*/*"))


def test_a_failure_is_told_in_two_lines_and_sparks_words_are_in_its_log(
    mq: LocalCluster, folder: Path
) -> None:
    process = start(mq, folder, "sql", "SELECT cast(tags AS int) FROM orders")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (1, "")
    told = [line for line in err.splitlines() if not line.startswith("sql: ")]  # but for progress
    assert len(told) == 2, err
    assert told[0].startswith("kourou pipeline sql: the query failed: The value 'a' of the type")
    (log,) = logs(folder)
    assert told[1] == f"kourou pipeline sql: Spark's log: {log}"
    assert "CAST_INVALID_INPUT" in log.read_text()
    assert [path.name for path in folder.iterdir()] == ["tmp"]


def test_ctrl_c_ends_a_stream_in_order(mq: LocalCluster, folder: Path) -> None:
    process = start(mq, folder, "sql", "SELECT value FROM orders", "--follow", "--from", "earliest", "--csv")
    guard = threading.Timer(TIMEOUT_S, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        rows = sorted(process.stdout.readline().strip() for _ in range(6))
        os.killpg(process.pid, signal.SIGINT)
        rest, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        guard.cancel()
    assert rows == [*(f"order {number}" for number in range(5)), "value"]
    assert (process.returncode, rest) == (0, "")
    assert re.fullmatch(r"sql: 5 rows in 1 batch, .* s \(\d+ rows/s\); no lag; stopped\n", err)
    assert logs(folder) == []
