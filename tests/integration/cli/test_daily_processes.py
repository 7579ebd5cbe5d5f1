"""`kourou tail` and `send` as processes: Ctrl-C, a pipe that is closed, a question on a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.integration.admin.on_terminal import KOUROU, run_on_terminal

LIMIT_S = 30


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


@pytest.fixture(scope="module")
def producer(mq: LocalCluster) -> Iterator[Producer]:
    with Producer("shop", namesrv=mq.namesrv) as running:
        yield running


@contextmanager
def started(mq: LocalCluster, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "kourou.cli.main", *words, "-n", mq.namesrv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


def test_ctrl_c_and_a_closed_pipe_end_a_tail_well(mq: LocalCluster, producer: Producer) -> None:
    mq.create_topic("Live")
    producer.send(Message("Live", b"stored"))
    with started(mq, "tail", "Live") as interrupted, started(mq, "tail", "Live", "--raw") as piped:
        for process in (interrupted, piped):
            assert line(process).endswith("stored\n")
        producer.send(Message("Live", b"comes later"))
        for process in (interrupted, piped):
            assert line(process).endswith("comes later\n")
        interrupted.send_signal(signal.SIGINT)
        assert (interrupted.wait(LIMIT_S), interrupted.communicate()) == (0, (b"", b""))
        # No other message comes, so that no write fails: the closed pipe itself has to be seen.
        assert piped.stdout is not None and piped.stderr is not None
        piped.stdout.close()
        assert (piped.wait(LIMIT_S), piped.stderr.read()) == (0, b"")


def test_lines_are_sent_as_they_are_typed_and_ctrl_c_ends_it(mq: LocalCluster) -> None:
    mq.create_topic("Typed")
    with started(mq, "send", "Typed", "--lines") as process:
        assert process.stdin is not None and process.stderr is not None
        for text in (b"one\n", b"two\n"):
            process.stdin.write(text)
            process.stdin.flush()
            assert "  broker-a/" in line(process)  # its input is still open
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert process.stderr.read() == b"kourou send: interrupted\n"
    assert [message.body for message in mq.messages("Typed")] == [b"one", b"two"]


def test_a_closed_pipe_ends_the_sending_of_lines_with_a_count(mq: LocalCluster) -> None:
    mq.create_topic("Piped")
    with started(mq, "send", "Piped", "--lines") as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert "  broker-a/" in line(process)
        process.stdout.close()
        process.stdin.write(b"two\n")
        process.stdin.flush()
        assert process.wait(LIMIT_S) == 1
        assert process.stderr.read() == (
            b"kourou send: standard output was closed after 2 messages; stopped sending, except for messages "
            b"in flight (at most 32)\n"
        )
    assert [message.body for message in mq.messages("Piped")] == [b"one", b"two"]


@pytest.mark.parametrize(
    "words",
    [
        ["kourou.cli.main", "quickstart", "producer", "--count", "2"],
        ["kourou.cli.main", "topic", "list", "--all"],
        ["kourou.cli.mqadmin", "printMsg", "-t", "Printed"],
    ],
)
def test_a_command_whose_output_is_closed_ends_with_0(
    words: list[str], mq: LocalCluster, producer: Producer
) -> None:
    mq.create_topic("Printed")
    mq.create_topic("TopicTest")
    producer.send(Message("Printed", b"x"))
    module, *rest = words
    assert ended_with_closed_output(module, *rest, "-n", mq.namesrv) == (0, b"")


def test_an_inspection_whose_output_is_closed_ends_with_0(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for form in ([], ["--json"]):
        assert ended_with_closed_output("kourou.cli.main", "store", "inspect", str(tmp_path), *form) == (
            0,
            b"",
        )


def ended_with_closed_output(module: str, *words: str) -> tuple[int, bytes]:
    """The exit code and stderr of a command whose output nothing reads."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", module, *words]
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=LIMIT_S)
    finally:
        os.close(writing)
    return ended.returncode, ended.stderr


@pytest.mark.slow
def test_a_broker_that_hangs_is_one_line_of_each_command(mq: LocalCluster) -> None:
    mq.create_topic("Hanging", queues=1)
    (address,) = mq.broker_addresses
    with (
        mq.pause(),
        started(mq, "send", "Hanging", "x", "--timeout", "500") as send,
        started(mq, "tail", "Hanging", "--no-follow", "--timeout", "500") as tail,
    ):
        assert tail.communicate(timeout=LIMIT_S) == (
            b"",
            f"kourou tail: broker-a: no answer from {address} within 500 ms\n".encode(),
        )
        _, said = send.communicate(timeout=LIMIT_S)
    (problem,) = said.decode().splitlines()
    assert problem.startswith("kourou send: topic 'Hanging': not sent after ")
    assert problem.endswith("; the broker may still have stored it")
    assert (send.returncode, tail.returncode) == (1, 1)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo terminals")
def test_a_terminal_is_asked_before_a_topic_is_deleted(mq: LocalCluster, tmp_path: Path) -> None:
    mq.create_topic("Asked")
    words = ["topic", "delete", "Asked", "-n", mq.namesrv]
    for answer, exit_code, ending in (
        (b"n\n", 1, "nothing was changed"),
        (b"\x03", 130, "interrupted"),
        (b"y\n", 0, "deleted topic Asked from DefaultCluster"),
    ):
        shown, code = run_on_terminal(words, lambda text: "[y/N]" in text, answer, program=KOUROU)
        assert (code, ending in shown) == (exit_code, True), shown
