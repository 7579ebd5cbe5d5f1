"""`kourou quickstart`: the first two programs, as a new user runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.testing import LocalCluster
from tests.e2e.server_process import START_SECONDS, ServerProcess

pytestmark = pytest.mark.e2e

MODULE = "kourou.cli.main"
SENT = re.compile(
    r"SendResult \[sendStatus=SEND_OK, msgId=([0-9A-F]{32}), offsetMsgId=([0-9A-F]{32}), "
    r"messageQueue=MessageQueue \[topic=(\w+), brokerName=broker-a, queueId=(\d)\], queueOffset=(\d+)\]"
)
RECEIVED = re.compile(
    r"\S+ Receive New Messages: \[MessageExt \[brokerName=broker-a, queueId=(\d), storeSize=\d+, "
    r"queueOffset=(\d+), .* msgId=([0-9A-F]{32}), .* toString\(\)=Message\{topic='TopicTest', flag=0, "
    r"properties=\{.*TAGS=TagA.*\}, body=\[72, 101, 108, 108, 111, .*\], transactionId='null'\}\]\]"
)


@pytest.fixture
def mq() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def quickstart(*arguments: str, namesrv: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {key: text for key, text in os.environ.items() if key != "NAMESRV_ADDR"}
    if namesrv is not None:
        environ["NAMESRV_ADDR"] = namesrv
    command = [sys.executable, "-m", MODULE, "quickstart", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


def wait_lines(process: ServerProcess, count: int) -> list[str]:
    deadline = time.monotonic() + START_SECONDS
    while len(lines := process.output.splitlines()) < count:
        assert process.process.poll() is None, process.errors
        assert time.monotonic() < deadline, lines
        time.sleep(0.01)
    return lines


@pytest.mark.parametrize("consumer_first", [False, True])
def test_what_the_producer_sends_the_consumer_prints(
    mq: LocalCluster, tmp_path: Path, consumer_first: bool
) -> None:
    environ = {**os.environ, "NAMESRV_ADDR": mq.namesrv}
    consumer = None
    if consumer_first:  # before there is such a topic
        consumer = ServerProcess(MODULE, ["quickstart", "consumer"], environ, tmp_path / "out")
        assert wait_lines(consumer, 1) == ["Consumer Started."]
    produced = quickstart("producer", namesrv=mq.namesrv)
    assert (produced.returncode, produced.stderr) == (0, "")
    sent = [SENT.fullmatch(line) for line in produced.stdout.splitlines()]
    assert len(sent) == 1_000 and all(sent)
    stored = {(m.msg_id, m.offset_msg_id, m.topic, str(m.queue_id)) for m in mq.messages("TopicTest")}
    assert {found.group(1, 2, 3, 4) for found in sent if found} == stored
    assert {message.body for message in mq.messages("TopicTest")} == {
        b"Hello RocketMQ %d" % number for number in range(1_000)
    }
    consumer = consumer or ServerProcess(MODULE, ["quickstart", "consumer"], environ, tmp_path / "out")
    try:
        started, *lines = wait_lines(consumer, 1_001)
        assert started == "Consumer Started."
        received = [RECEIVED.fullmatch(line) for line in lines]
        assert all(received), lines[0]
        assert {found[3] for found in received if found} == {each[1] for each in stored}
        assert consumer.stop(signal.SIGINT) == 0
        # Of a topic that is not there yet it says so.
        missing = "no queues of TopicTest for now"
        assert [line for line in consumer.errors.splitlines() if missing not in line] == []
        assert consumer_first or not consumer.errors
    finally:
        consumer.kill()


def test_the_options(mq: LocalCluster) -> None:
    produced = quickstart("producer", "-n", mq.namesrv, "--count", "3", "--topic", "Other")
    assert produced.returncode == 0, produced.stderr
    assert len(mq.messages("Other")) == len(produced.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["producer", "-n", "127.0.0.1:1"], "kourou quickstart producer: no name server can be reached: "),
        (["consumer", "-n", "127.0.0.1:1"], "kourou quickstart consumer: no name server can be reached: "),
        (["producer", "--count", "0"], "kourou quickstart producer: Invalid value for '--count': "),
        (["producer", "--topic", "a b"], "kourou quickstart producer: topic 'a b' "),
        (["consume"], "kourou quickstart: No such command 'consume'"),
    ],
)
def test_a_mistake_is_one_line(mq: LocalCluster, arguments: list[str], problem: str) -> None:
    ran = quickstart(*arguments, namesrv=mq.namesrv)
    is_usage = "Invalid value" in problem or "No such command" in problem
    assert (ran.returncode, ran.stdout) == (2 if is_usage else 1, "")
    assert ran.stderr.startswith(problem) and ran.stderr.count("\n") == 1, ran.stderr
