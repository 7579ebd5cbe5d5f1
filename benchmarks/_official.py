"""Apache's own benchmark programs, of rocketmq-example, and its push consumer, at any broker.

They report every second the figures of about the last ten: what they say in the end counts.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks._broker_peers import RunningPeer
from benchmarks._client_peers import JVM_OPTIONS, Asked, JavaClient
from benchmarks._compare_rows import QUEUES, TOPIC, Outcome, Reading, RowLeftOut, Scale

PACKAGE = "org.apache.rocketmq.example.benchmark"
# The first report needs ten snapshots, one each second, and a JVM before them.
FIRST_REPORT_TIMEOUT_S = 60.0
FIRST_REPORT_S = 13.0
REPORTS_THAT_COUNT = 3
POLL_S = 0.1
_NUMBER = r"\s*:\s*([\d.]+)"


class OfficialError(RuntimeError):
    """A program of Apache's said nothing of a rate."""


class OfficialProgram:
    """One of Apache's benchmark programs that runs."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path

    def values(self, word: str) -> list[float]:
        """Every value so far of `word: VALUE` in its report lines."""
        return reported(self._log_path.read_text(errors="replace"), word)

    def wait_report(self, word: str) -> None:
        """Return when it has said something of `word`."""
        deadline = time.monotonic() + FIRST_REPORT_TIMEOUT_S
        while not self.values(word):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise OfficialError(f"no {word}:\n{self._log_path.read_text(errors='replace')[-2000:]}")
            time.sleep(POLL_S)

    def latest(self, word: str) -> float:
        """What it says in the end."""
        return statistics.median(self.values(word)[-REPORTS_THAT_COUNT:])

    def kill(self) -> None:
        """End it: by itself it goes on for ever."""
        self._process.kill()
        self._process.wait()


def check_java() -> None:
    """RowLeftOut where these programs cannot run."""
    from tests.interop.kit import artifacts

    missing = artifacts.missing_tools()
    if missing:
        raise RowLeftOut(missing)


def reported(text: str, word: str) -> list[float]:
    """The values of `word: VALUE` in report lines, in order."""
    return [float(value) for value in re.findall(re.escape(word) + _NUMBER, text)]


@contextmanager
def running(program: str, words: list[str]) -> Iterator[OfficialProgram]:
    """Start a program of the package; the end of the `with` kills it."""
    from tests.interop.kit import apache

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        command = [*apache.java_command("server-5.5.0", folder, JVM_OPTIONS), f"{PACKAGE}.{program}"]
        log_path = folder / "output"
        with open(log_path, "wb") as log:
            process = subprocess.Popen([*command, *words], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        official = OfficialProgram(process, log_path)
        try:
            yield official
        finally:
            official.kill()


@dataclass(frozen=True)
class OfficialRow:
    """A program that sends."""

    program: str
    detail: str
    words: tuple[str, ...]
    rate_word: str = "Send TPS"
    latency_word: str = "Average RT(ms)"
    has_consumer: bool = False
    is_quick: bool = False

    @property
    def name(self) -> str:
        """Its line in the table."""
        return f"official {self.program}, {self.detail}"

    def rounds(self, scale: Scale) -> int:
        """Few: each takes a quarter of a minute."""
        return max(1, scale.rounds - 1)

    def cost_s(self, scale: Scale) -> float:
        """Until it reports, and a few reports more."""
        return FIRST_REPORT_S + 2 + scale.seconds

    def run(self, peer: RunningPeer, scale: Scale) -> Outcome:
        """One round at one broker."""
        check_java()
        topic = f"Official{self.program}"
        peer.load.run("send", "-t", topic, "-q", QUEUES, "-C", "-N", 1, timeout_s=30)
        where = ["-n", peer.namesrv, "-t", topic, "-ri", "1000"]
        if not self.has_consumer:
            return self._run(peer, where, scale, None)
        with running("Consumer", where) as consumer:
            return self._run(peer, where, scale, consumer)

    def _run(
        self, peer: RunningPeer, where: list[str], scale: Scale, consumer: OfficialProgram | None
    ) -> Outcome:
        with running(self.program, [*where, *self.words]) as program:
            program.wait_report(self.rate_word)
            began, cpu_s = time.monotonic(), peer.cpu_s
            time.sleep(2 + scale.seconds)
            took_s, cpu_s = time.monotonic() - began, peer.cpu_s - cpu_s
            rate = program.latest(self.rate_word)
            readings = [
                Reading(self.name, "rate", rate),
                Reading(f"{self.name}, average", "latency", program.latest(self.latency_word)),
                Reading(f"{self.name}: server CPU a message", "cpu", cpu_s * 1e6 / max(1.0, rate * took_s)),
            ]
        if consumer is not None:
            readings += [
                Reading("official Consumer beside it", "rate", consumer.latest("Consume TPS")),
                Reading(
                    "official Consumer beside it, average age of a message",
                    "latency",
                    consumer.latest("AVG(B2C) RT(ms)"),
                ),
            ]
        return Outcome(tuple(readings))


@dataclass(frozen=True)
class JavaPushRow:
    """Apache's push consumer, which takes what is there already."""

    name: str = "push consumption from a backlog, Java client"
    is_quick: bool = False

    def rounds(self, scale: Scale) -> int:
        """As many as the form has."""
        return scale.rounds

    def cost_s(self, scale: Scale) -> float:
        """javac, a JVM, and the backlog."""
        return 8.0 + scale.seconds

    def run(self, peer: RunningPeer, scale: Scale) -> Outcome:
        """One round at one broker, by a group of its own."""
        check_java()
        with tempfile.TemporaryDirectory() as folder:
            client = JavaClient(peer.namesrv, Path(folder))
            group = f"push-{os.getpid()}-{time.monotonic_ns()}"
            asked = Asked("consume", TOPIC, group, scale.fill, 1024, min(1.0, scale.seconds), scale.seconds)
            measured = client.measure(asked)
        return Outcome((Reading(self.name, "rate", measured.messages_per_s),))


def official_rows() -> list[OfficialRow | JavaPushRow]:
    """All of them, with the sizes that the programs have by default where they have one."""
    return [
        OfficialRow(
            "Producer",
            "64 threads, 1 KiB, with a Consumer",
            ("-w", "64", "-s", "1024"),
            has_consumer=True,
            is_quick=True,
        ),
        JavaPushRow(),
        OfficialRow(
            "BatchProducer",
            "64 threads, 16 × 128 B",
            ("-w", "64", "-s", "128", "-b", "16"),
            rate_word="Send MPS",
        ),
        OfficialRow(
            "TransactionProducer", "32 threads, 2 KiB", ("-w", "32", "-s", "2048"), latency_word="AVG RT(ms)"
        ),
    ]
