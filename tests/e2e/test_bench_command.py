"""`kourou bench` as users run it, against a broker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client.kit.pull_kit import ClusterThread, cluster_thread
from tests.e2e.server_process import START_SECONDS, ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MODULE = "kourou.cli.main"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path_factory.mktemp("bench")) as cluster:
        yield cluster


def bench(running: ClusterThread, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", MODULE, "bench", *arguments, "-n", running.namesrv_addr]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done


def result_of(running: ClusterThread, *arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(bench(running, *arguments, "--json").stdout)
    return result


def test_the_producer_sends_the_quantity_and_reports_as_apaches_does(running: ClusterThread) -> None:
    done = bench(running, "producer", "-w", "7", "-q", "500", "-ri", "100")
    first, second, *lines, last = done.stdout.splitlines()
    assert first.startswith("topic: BenchmarkTest, threadCount: 7, ")
    assert second == " compressEnable: false, reportInterval: 100"
    figures = r"Send TPS: \d+ \| Max RT\(ms\): \d+ \| Average RT\(ms\): +[\d.]+ \| Send Failed: 0 \| "
    assert lines and all(re.search(figures + "Response Failed: 0", line) for line in lines)
    assert re.match(r"\[Complete\] Send Total: 500 \| " + figures, last)
    assert done.stderr == ""


def test_what_producers_send_a_consumer_gets(running: ClusterThread) -> None:
    topic = "SentAndConsumed"
    sent = result_of(running, "producer", "-t", topic, "-q", "400", "-y", "true", "--in-flight", "32")
    assert (sent["counts"]["messages"], sent["options"]["inFlight"]) == (400, 32)
    assert 0 < sent["times_ms"]["rt"]["p50"] <= sent["times_ms"]["rt"]["max"]
    batches = result_of(running, "batch", "-t", topic, "-w", "3", "-b", "16", "-q", "100", "-p", "30")
    assert (batches["counts"]["messages"], batches["counts"]["messages_failed"]) == (100, 0)
    assert batches["counts"]["batches"] == 9  # 34, 33 and 33 messages
    for more in ([], ["--in-threads"]):
        group = f"consumers{len(more)}"
        got = result_of(
            running, "consumer", "-t", topic, "-g", group, "-q", "500", "--consume-from", "first", *more
        )
        assert got["counts"] == {"messages": 500, "failed": 0}
        assert got["cpu_us_per_message"] > 0


def test_transactions_end_as_planned(running: ClusterThread) -> None:
    result = result_of(running, "transaction", "-t", "Ended", "-w", "4", "-q", "60", "-sr", "0.5", "-s", "64")
    assert result["counts"]["messages"] == 60
    assert result["counts"]["send_failed"] == result["counts"]["unexpected_checks"] == 0
    # Only what was not rolled back is there.
    got = result_of(running, "consumer", "-t", "Ended", "--consume-from", "first", "--seconds", "2")
    assert 0 < got["counts"]["messages"] < 60


def test_latency_counts_each_message_from_end_to_end(running: ClusterThread) -> None:
    result = result_of(running, "latency", "-t", "Late", "-r", "200", "-q", "100")
    assert result["counts"]["sent"] == result["counts"]["messages"] == 100
    times = result["times_ms"]["end_to_end"]
    assert 0 < times["p50"] <= times["p99"] <= times["max"]
    assert result["seconds"] >= 0.49  # a hundred at 200 a second


def wait_output(process: ServerProcess, text: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while text not in process.output:
        assert process.process.poll() is None and time.monotonic() < deadline, process.errors
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sums_up(running: ClusterThread, tmp_path: Path, number: signal.Signals) -> None:
    arguments = ["bench", "producer", "-w", "2", "-ri", "100", "-n", running.namesrv_addr]
    process = ServerProcess(MODULE, arguments, {"HOME": str(tmp_path)}, tmp_path / "bench")
    wait_output(process, "Send TPS: ")
    assert process.stop(number) == 0
    assert "[Complete] Send Total: " in process.output.splitlines()[-1]
    assert process.errors == ""
