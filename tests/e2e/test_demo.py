"""`kourou demo`: a tour of two brokers that leaves nothing behind and ends by itself."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import need_spark

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

COMMAND = [sys.executable, "-m", "kourou.cli.main", "demo", "--no-spark"]
LIMIT_S = 180
SPARK_LIMIT_S = 400
STEPS = ["Order", "Delay", "Transactions", "Retry, dead letters", "Redrive", "Replay by time"]


def environ(home: Path) -> dict[str, str]:
    (home / "tmp").mkdir()
    return {**os.environ, "HOME": str(home), "TMPDIR": str(home / "tmp"), "TERM": "xterm", "COLUMNS": "120"}


def test_into_a_file_it_prints_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND, env=environ(tmp_path), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    reported = [found[1] for found in re.finditer(r"^ *[\d.]+ s  ([A-Z][^:]+): ", done.stdout, re.M)]
    assert reported == [step for step in STEPS for _ in range(2)]
    assert "topic Parcels: 6 messages, group couriers: lag 0, retries 5, dead letters 2" in done.stdout
    assert re.search(r"^Orders +8 +100 ", done.stdout, re.M)
    assert re.search(r"messages; every step succeeded, in \d+ seconds", done.stdout)
    assert "kourou standalone" in done.stdout and "docs/quickstart.md" in done.stdout
    assert "Spark" not in done.stdout
    assert list(tmp_path.rglob("*")) == [tmp_path / "tmp"]


def test_on_a_terminal_it_is_tables_that_change(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(COMMAND, env=environ(tmp_path), stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        shown = _read_all(ours)
        assert process.wait(LIMIT_S) == 0
        assert process.stderr is not None and process.stderr.read() == b""
    assert shown.count("bookkeeping") > len(STEPS)
    for text in (*STEPS, "Topic", "In/s", "Out/s", "Lag", "Retries", "every step succeeded"):
        assert text in shown


@pytest.mark.spark
def test_it_ends_with_spark(tmp_path: Path) -> None:
    """A topic, windowed by SQL; the table and Parquet. What Java prints is not seen, and nothing is left."""
    need_spark()
    # The limit is for people who wait, on a machine of their own.
    program = (
        "import kourou.cli.demo.spark as spark, kourou.cli.main as main\n"
        f"spark._LIMIT_S = {SPARK_LIMIT_S}\n"
        "main.app(['demo'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S + SPARK_LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    table = re.search(r"^Since +Orders +Amount +Most sold *\n((?:\d\d:\d0 .*\n)+)", done.stdout, re.M)
    assert table is not None
    rows = [line.split() for line in table[1].splitlines()]
    assert len(rows) in (6, 7) and sum(int(row[1]) for row in rows) == 360
    assert (
        f"Spark: 360 orders in {len(rows)} windows, by SQL; written as Parquet and read back" in done.stdout
    )
    assert "every step succeeded" in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_step_that_does_not_happen_is_one_line(tmp_path: Path) -> None:
    """Brokers whose timers are stopped: a message that is due does not come."""
    program = (
        "import kourou.cli.demo.tour as tour, kourou.cli.main as main\n"
        "tour.BROKER_KEYS['timerStopDequeue'] = 'true'\n"
        "tour._TIMEOUT_S = 4.0\n"
        "main.app(['demo', '--no-spark'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "kourou demo: Delay: timed out after 4 seconds; expected: both delayed messages were delivered\n",
    )


def test_a_broker_that_dies_ends_it_with_one_line(tmp_path: Path) -> None:
    with subprocess.Popen(
        COMMAND, env=environ(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "started in" in process.stdout.readline()
        brokers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(brokers) == 2
        os.kill(int(brokers[0]), signal.SIGKILL)
        _, errors = process.communicate(timeout=LIMIT_S)
    died = "kourou demo: broker-a ended by itself (killed by SIGKILL); stopping all\n"
    assert (process.returncode, errors) == (1, died)
    assert not any(Path(f"/proc/{broker}").exists() for broker in brokers)
    assert list((tmp_path / "tmp").iterdir()) == []


def _read_all(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 65_536):
            parts.append(part)
    except OSError:
        pass  # Linux says EIO when the other side has gone
    finally:
        os.close(terminal)
    return b"".join(parts).decode(errors="replace")
