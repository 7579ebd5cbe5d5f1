"""`kourou trace show`, and `kourou trace export` as a process with a collector."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.integration.admin.messages.collector import Collector, collecting
from tests.unit.cli.daily.command_line import run_kourou

LIMIT_S = 30


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(trace_topic_enable=True) as running:
        yield running


@pytest.fixture(scope="module")
def msg_id(mq: LocalCluster) -> str:
    mq.create_topic("Parcels")
    with Producer("shop", namesrv=mq.namesrv, trace=True) as producer:
        return producer.send(Message("Parcels", b"one book", keys=["p-1"])).msg_id


def test_the_trace_of_a_message(mq: LocalCluster, msg_id: str) -> None:
    for words in ((msg_id,), ("p-1", "--key"), ("p-1", "--key", "--topic", "Parcels")):
        shown = run_kourou("trace", "show", *words, "-n", mq.namesrv)
        assert (shown.exit_code, shown.stderr) == (0, "")
        title, head, row = shown.lines
        assert title == f"{msg_id} Parcels"
        assert head.split() == ["TIME", "MS", "EVENT", "GROUP", "CLIENT", "COST", "STATUS"]
        assert row.split()[2:6] == ["+0", "send", "shop", "127.0.0.1"] and row.endswith("success")
    assert run_kourou("trace", "show", msg_id, "-n", mq.namesrv, "--json").json["topic"] == "Parcels"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("show", "7F0000015980"), "no message"),
        (("show", "7F0000015980", "--trace-topic", "Parcel"), "No topic route info"),
        (("export", "--otlp", "localhost:4318"), "'localhost:4318' is not the address of a collector"),
        (("export", "--trace-topic", "Parcel"), "no registered broker has topic Parcel"),
        (("export", "--from", "noon"), "--from noon: must be earliest, latest"),
    ],
)
def test_what_is_wrong_is_named(mq: LocalCluster, msg_id: str, words: tuple[str, ...], problem: str) -> None:
    result = run_kourou("trace", *words, "-n", mq.namesrv)
    assert result.exit_code != 0 and problem in result.stderr and result.stderr.count("\n") == 1


def test_an_export_until_it_is_stopped(mq: LocalCluster, msg_id: str) -> None:
    with collecting() as collector:
        words = ("trace", "export", "--otlp", collector.url, "--from", "earliest", "-n", mq.namesrv)
        process = subprocess.Popen(
            [sys.executable, "-m", "kourou.cli.main", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with process:
            try:
                wait_spans(collector, 1)
                process.send_signal(signal.SIGTERM)
                out, errors = process.communicate(timeout=LIMIT_S)
            finally:
                process.kill()
    assert (process.returncode, out) == (0, b"1 span of 1 record exported\n")
    url = f"{collector.url}/v1/traces"
    expected = f"kourou trace export: exporting RMQ_SYS_TRACE_TOPIC to {url}; stop with Ctrl-C\n"
    assert errors.decode() == expected
    assert collector.span("send Parcels", msg_id)["kind"] == 4


def wait_spans(collector: Collector, count: int) -> None:
    end = time.monotonic() + LIMIT_S
    while len(collector.spans) < count:
        assert time.monotonic() < end, "no span arrived"
        time.sleep(0.01)
