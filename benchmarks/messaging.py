"""Messaging: SQL filters, delays and transactions, ours and Apache's in turn.

    python -m benchmarks.messaging                     ours beside Apache 5.5.0, three rounds
    python -m benchmarks.messaging --peers none        ours alone

Filtered pulls count the messages that were looked at. How late a delayed message is, is what its way takes
beyond the delay. Transactions come from Apache's own benchmark program. Printed, and written to
benchmarks/results/messaging-DATE.md with `--write`.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import _official
from benchmarks._broker_loadgen import LoadgenError, Measured, build
from benchmarks._broker_peers import RunningPeer, available, launch
from benchmarks._broker_report import Figure, machine, table

RESULTS = Path(__file__).parent / "results"
QUEUES = 8
DELAY_MS = 1_000
SQL_TOPIC = "Filtered"
SQL_ROWS = (("1 %", "a = 7"), ("50 %", "a < 50"))


@dataclass(frozen=True)
class Peer:
    """A broker with a name server of its own."""

    broker: RunningPeer
    namesrv: str

    @property
    def name(self) -> str:
        """What the table calls it."""
        return self.broker.name


@dataclass(frozen=True)
class Reading:
    """One number of a load's result."""

    name: str
    unit: str
    more_is_better: bool
    value: Callable[[Measured], float]


@dataclass(frozen=True)
class Row:
    """One load, and what is read from its result."""

    arguments: tuple[object, ...]
    readings: tuple[Reading, ...]


def rows() -> list[Row]:
    """All loads of loadgen.c."""
    delayed = ("send", "-t", "Delayed", "-q", QUEUES, "-C", "-c", 8, "-w", 32, "-L", 1)
    late = ("e2e", "-t", "Late", "-q", 4, "-C", "-c", 2, "-r", 5_000, "-L", 1)
    return [
        *(_sql_row(share, expression) for share, expression in SQL_ROWS),
        Row(delayed, (Reading("send with a delay of 1 s, 8×32", "1/s", True, lambda m: m.messages_per_s),)),
        Row(
            late,
            (
                Reading("late, delay of 1 s at 5,000/s, p50", "ms", False, lambda m: _late_ms(m.p50_us)),
                Reading("late, delay of 1 s at 5,000/s, p99", "ms", False, lambda m: _late_ms(m.p99_us)),
            ),
        ),
    ]


def _sql_row(share: str, expression: str) -> Row:
    reading = Reading(f"SQL pull, {share} match, 4×8: looked at", "1/s", True, _scanned)
    return Row(_sql_pull(expression), (reading,))


def _sql_pull(expression: str) -> tuple[object, ...]:
    return ("pull", "-t", SQL_TOPIC, "-q", QUEUES, "-c", 4, "-w", 8, "-x", expression)


def _scanned(measured: Measured) -> float:
    return float(measured.raw["scanned_per_s"])


def _late_ms(latency_us: float) -> float:
    return latency_us / 1000 - DELAY_MS


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(row: Row, peers: list[Peer], rounds: int, seconds: float) -> list[Figure]:
    """One row at all brokers in turn."""
    figures = [Figure(reading.name, reading.unit, reading.more_is_better) for reading in row.readings]
    for number in range(rounds):
        for peer in peers:
            _say(f"{peer.name}: {row.readings[0].name}, round {number + 1}")
            os.sync()
            mode, *arguments = row.arguments
            measured = peer.broker.load.run(str(mode), *arguments, "-d", seconds, "-W", min(1.0, seconds / 2))
            for figure, reading in zip(figures, row.readings, strict=True):
                figure.add(peer.name, reading.value(measured))
    return figures


def measure_transactions(peers: list[Peer], rounds: int, seconds: float) -> Figure:
    """Apache's TransactionProducer, 32 threads, 2 KiB, everything committed."""
    figure = Figure("TransactionProducer, 32 threads, 2 KiB", "1/s", True)
    for number in range(rounds):
        for peer in peers:
            _say(f"{peer.name}: transactions, round {number + 1}")
            figure.add(peer.name, _transactions_per_s(peer, seconds))
    return figure


def _transactions_per_s(peer: Peer, seconds: float) -> float:
    words = ["-n", peer.namesrv, "-t", "Transactions", "-ri", "1000"]
    with _official.running("TransactionProducer", words) as program:
        program.wait_report("Send TPS")
        time.sleep(seconds)
        return program.latest("Send TPS")


def run(options: argparse.Namespace, folder: Path) -> str:
    """Start everything, measure everything; the report."""
    from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

    program = build(folder)
    with ExitStack() as stack:
        peers = []
        for name in available(options.peers):
            namesrv = stack.enter_context(launch_kourou_namesrv(folder)).wait_ready().address
            broker = launch(name, folder, namesrv, program, "async")
            stack.callback(broker.kill)
            peers.append(Peer(broker, namesrv))
        for peer in peers:
            peer.broker.wait_first_send()
            _say(f"{peer.name}: filling")
            fill = ("-t", SQL_TOPIC, "-q", QUEUES, "-C", "-c", 8, "-w", 32, "-s", 100)
            peer.broker.load.run("send", *fill, "-N", options.messages)
        figures = []
        for row in rows():
            figures += measure(row, peers, options.rounds, options.seconds)
        if len(peers) > 1:
            figures.append(measure_transactions(peers, options.rounds, options.seconds))
        return report(figures, [peer.name for peer in peers], options)


def report(figures: list[Figure], names: list[str], options: argparse.Namespace) -> str:
    """The table with date, machine and command."""
    return "\n".join(
        [
            "# SQL filters, delays, transactions",
            "",
            f"`{' '.join(['python -m benchmarks.messaging', *sys.argv[1:]])}`",
            "",
            f"{machine()}. Bodies of 1 KiB, {QUEUES} queues, asynchronous flush. "
            f"Median of {options.rounds} rounds of {options.seconds:g} s, the brokers in turn. "
            "In the last column more than 1 means that ours is better.",
            "",
            table(figures, names),
            "",
        ]
    )


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="each broker in turn; medians count (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    parser.add_argument("--peers", default="5.5.0", help="versions of Apache's, or none")
    parser.add_argument("--messages", type=int, default=300_000, help="that filters look through")
    parser.add_argument("--write", action="store_true", help="write results/messaging-DATE.md too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = run(options, Path(folder))
        except (LoadgenError, _official.OfficialError) as error:
            print(f"benchmarks.messaging: {error}", file=sys.stderr)
            return 1
    print(text)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"messaging-{datetime.date.today()}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
