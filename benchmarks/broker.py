"""Broker: ours, Apache 5.5.0 and 4.9.7 side by side, one lean load generator, rounds in turn.

    python -m benchmarks.broker                     all rows, three rounds, ours beside both of Apache's
    python -m benchmarks.broker --quick             one short round of each row
    python -m benchmarks.broker --peers none        ours alone
    python -m benchmarks.broker --rows "async"      only rows whose name holds this text

All brokers run at the same time, idle but for the one that is measured; each round of a row goes over all of
them, so that each ratio compares what ran within the same minute. The result is printed, and written to
benchmarks/results/broker-DATE.md with `--write`. Needs a C compiler for loadgen.c.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks._broker_loadgen import LoadgenError, Measured, build
from benchmarks._broker_peers import JVM_OPTIONS, RunningPeer, available, launch
from benchmarks._broker_report import Figure, machine, table

RESULTS = Path(__file__).parent / "results"
TOPIC = "BenchmarkTopic"
QUEUES = 8
# Connections and requests in flight on each, as DESIGN has them.
ASYNC_SENDS = ((1, 1), (1, 32), (8, 32), (16, 64), (64, 1))
SYNC_SENDS = ((1, 1), (1, 32), (8, 32), (16, 64))
PULLS = ((1, 1), (4, 8))
RATES = (1_000, 5_000)
MANY_TOPICS = 2_000


@dataclass(frozen=True)
class Row:
    """One kind of load: how it is asked for, and whether its rate or its latency counts."""

    name: str
    mode: str
    arguments: tuple[object, ...]
    is_latency: bool = False

    def run(self, peer: RunningPeer, seconds: float) -> Measured:
        """Measure it at one broker."""
        return peer.load.run(self.mode, *self.arguments, "-d", seconds, "-W", min(1.0, seconds / 2))


def send_row(flush: str, conns: int, window: int) -> Row:
    """Sends of 1 KiB, closed loop."""
    name = f"send, {flush} flush, {conns}×{window}"
    return Row(name, "send", ("-t", TOPIC, "-q", QUEUES, "-c", conns, "-w", window))


def async_rows() -> list[Row]:
    """What is measured with asynchronous flush; pulls read what the sends before them have stored."""
    pulls = [
        Row(f"pull of 32, {conns}×{window}", "pull", ("-t", TOPIC, "-q", QUEUES, "-c", conns, "-w", window))
        for conns, window in PULLS
    ]
    latencies = [
        Row(f"end to end at {rate:,}/s", "e2e", ("-t", "Latency", "-q", 4, "-C", "-c", 2, "-r", rate), True)
        for rate in RATES
    ]
    many = ("-t", "Many", "-T", MANY_TOPICS, "-q", 8, "-C", "-c", 8, "-w", 32)
    return [
        *(send_row("async", conns, window) for conns, window in ASYNC_SENDS),
        *pulls,
        *latencies,
        Row(f"send, async flush, {MANY_TOPICS:,} topics × 8 queues, 8×32", "send", many),
    ]


def sync_rows() -> list[Row]:
    """What is measured with synchronous flush."""
    return [send_row("sync", conns, window) for conns, window in SYNC_SENDS]


class Bench:
    """All figures of one run."""

    def __init__(self, names: list[str], options: argparse.Namespace, program: Path, namesrv: str) -> None:
        self.names = names
        self.figures: list[Figure] = []
        self.troubles: list[str] = []
        self.other_cores: list[float] = []
        self._options = options
        self._program = program
        self._namesrv = namesrv

    def measure_flush(self, flush: str, rows: list[Row]) -> None:
        """Every wanted row with one kind of flush, at brokers that are started for it."""
        wanted = [row for row in rows if self._options.rows in row.name]
        if not wanted:
            return
        with self._running(flush) as peers:
            for peer in peers:
                _say(f"{peer.name}: warming up")
                self._warm_up(peer)
            for row in wanted:
                self._measure_row(row, peers)

    def measure_starts(self) -> None:
        """Start to first accepted send, memory idle, and memory after many messages."""
        if self._options.rows not in "start, memory":
            return
        start = self._figure("start to first accepted send", "s", more=False)
        idle = self._figure("anonymous memory, idle", "MB", more=False)
        full = self._figure(f"anonymous memory after {self._options.messages:,} messages", "MB", more=False)
        for round_number in range(self._options.rounds):
            for name in self.names:
                _say(f"{name}: start, round {round_number + 1}")
                is_last = round_number == self._options.rounds - 1
                self._measure_start(name, start, idle, full if is_last else None)

    def _measure_start(self, name: str, start: Figure, idle: Figure, full: Figure | None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            peer = launch(name, Path(folder), self._namesrv, self._program, "async")
            try:
                peer.wait_first_send()
                start.add(name, time.monotonic() - began)
                time.sleep(self._options.seconds)
                idle.add(name, peer.anonymous_mb)
                if full is not None:
                    fill = ("-t", TOPIC, "-q", QUEUES, "-C", "-c", 8, "-w", 32)
                    peer.load.run("send", *fill, "-N", self._options.messages)
                    full.add(name, peer.anonymous_mb)
            finally:
                peer.kill()

    def _measure_row(self, row: Row, peers: list[RunningPeer]) -> None:
        figures = self._figures_of(row)
        for round_number in range(self._options.rounds):
            for peer in peers:
                _say(f"{peer.name}: {row.name}, round {round_number + 1}")
                # What the one before has written is not to cost this one.
                os.sync()
                measured = row.run(peer, self._options.seconds)
                for figure, value in figures:
                    figure.add(peer.name, value(measured))
                self.other_cores.append(measured.other_cores)
                self.troubles += [f"{peer.name}, {row.name}: {trouble}" for trouble in measured.troubles]

    def _figures_of(self, row: Row) -> list[tuple[Figure, Callable[[Measured], float]]]:
        if row.is_latency:
            shown = [
                (self._figure(f"{row.name}, p50", "ms", more=False), _p50_ms),
                (self._figure(f"{row.name}, p99", "ms", more=False), _p99_ms),
            ]
        else:
            shown = [(self._figure(row.name, "1/s", more=True), _rate)]
        return [*shown, (self._figure(f"{row.name}: server CPU a message", "µs", more=False), _cpu_us)]

    def _figure(self, row: str, unit: str, *, more: bool) -> Figure:
        figure = Figure(row, unit, more)
        self.figures.append(figure)
        return figure

    def _warm_up(self, peer: RunningPeer) -> None:
        """Messages to pull, and for the JVM time to compile what it runs."""
        fill = ("-t", TOPIC, "-q", QUEUES, "-C", "-c", 8, "-w", 32)
        peer.load.run("send", *fill, "-N", self._options.warm_up)
        peer.load.run("pull", "-t", TOPIC, "-q", QUEUES, "-c", 4, "-w", 8, "-d", 2)

    @contextmanager
    def _running(self, flush: str) -> Iterator[list[RunningPeer]]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            peers = []
            for name in self.names:
                peer = launch(name, folder, self._namesrv, self._program, flush)
                stack.callback(peer.kill)
                peers.append(peer)
            for peer in peers:
                peer.wait_first_send()
            yield peers


def _rate(measured: Measured) -> float:
    return measured.messages_per_s


def _cpu_us(measured: Measured) -> float:
    return measured.cpu_us


def _p50_ms(measured: Measured) -> float:
    return measured.p50_us / 1000


def _p99_ms(measured: Measured) -> float:
    return measured.p99_us / 1000


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def report(bench: Bench, options: argparse.Namespace) -> str:
    """The whole result, with date, machine and command."""
    command = " ".join(["python -m benchmarks.broker", *sys.argv[1:]])
    lines = [
        "# Brokers under load",
        "",
        f"`{command}`",
        "",
        f"{machine()}. Bodies of 1 KiB, {QUEUES} queues, headers as the Java client's, index on; load from "
        f"loadgen.c on the same machine; c×w: connections and requests in flight on each. "
        f"Apache's with {' '.join(JVM_OPTIONS)}.",
        "",
        f"Median of {options.rounds} rounds of {options.seconds:g} s, the brokers in turn within each round. "
        "In the last columns more than 1 means that ours is better: more messages, less CPU, time or memory; "
        f"in brackets the smallest and the largest of the rounds. {_others(bench.other_cores)}",
        "",
        table(bench.figures, bench.names),
        "",
    ]
    if bench.troubles:
        lines += ["Messages that did not get through:", "", *(f"- {line}" for line in bench.troubles), ""]
    return "\n".join(lines)


def _others(other_cores: list[float]) -> str:
    if not other_cores:
        return ""
    return (
        f"Everything else on the machine used {statistics.median(other_cores):.2f} cores meanwhile, at most "
        f"{max(other_cores):.2f}; much above 0.1 the rates mean little, and the CPU rows are the fairer ones."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="each broker in turn; medians count (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    parser.add_argument("--peers", default="5.5.0,4.9.7", help="versions of Apache's, or none")
    parser.add_argument("--rows", default="", help="only rows whose name holds this text")
    parser.add_argument(
        "--messages", type=int, default=5_000_000, help="before memory is looked at (5 million)"
    )
    parser.add_argument("--warm-up", type=int, default=600_000, help="messages before the first row")
    parser.add_argument("--quick", action="store_true", help="one round of 2 s each, few messages")
    parser.add_argument("--write", action="store_true", help="write results/broker-DATE.md too")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.messages, options.warm_up = 1, 2.0, 200_000, 100_000
    return options


def main() -> int:
    """Measure and print; the exit status."""
    from tests.interop.kourou_namesrv import launch_kourou_namesrv

    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = build(Path(folder))
        except LoadgenError as error:
            print(f"benchmarks.broker: {error}", file=sys.stderr)
            return 1
        with launch_kourou_namesrv(Path(folder)) as namesrv:
            bench = Bench(available(options.peers), options, program, namesrv.wait_ready().address)
            bench.measure_flush("async", async_rows())
            bench.measure_flush("sync", sync_rows())
            bench.measure_starts()
    text = report(bench, options)
    print(text)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"broker-{datetime.date.today()}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
