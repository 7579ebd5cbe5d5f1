"""Client: ours beside Apache's Java client 5.5.0, against the same broker of ours, rounds in turn.

    python -m benchmarks.client                     all rows, three rounds
    python -m benchmarks.client --quick             one short round of each row; too short for the JVM
    python -m benchmarks.client --peers none        ours alone
    python -m benchmarks.client --rows "window"     only rows whose name holds this text

Both run the same loads, each in a process of its own: ours by `kourou bench`, Java's by ClientLoad.java. The
warm-up, for the JVM's sake, begins with the first message. The result is printed, and written to
benchmarks/results/client-DATE.md with `--write`. Needs a C compiler (for loadgen.c, which makes topics and
backlog).
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks._broker_loadgen import LoadgenError, build
from benchmarks._broker_peers import OURS, RunningPeer, launch
from benchmarks._broker_report import Figure, machine, table
from benchmarks._client_peers import JVM_OPTIONS, Asked, Client, ClientError, JavaClient, Measured, OurClient

RESULTS = Path(__file__).parent / "results"
QUEUES = 8
SIZE_BYTES = 1024
WINDOWS = (1, 64, 1_000)
THREADS = 64
RATES = (1_000, 5_000)
SEND_TOPIC = "ClientSends"
BACKLOG_TOPIC = "ClientBacklog"
LATENCY_TOPIC = "ClientLatency"


@dataclass(frozen=True)
class Row:
    """One load, and what of its result is shown."""

    name: str
    mode: str
    topic: str
    number: int
    is_latency: bool = False


def rows(backlog: int) -> list[Row]:
    """All that is measured."""
    return [
        *(Row(f"send, window of {window:,}", "window", SEND_TOPIC, window) for window in WINDOWS),
        Row(f"send, {THREADS} threads that wait", "threads", SEND_TOPIC, THREADS),
        Row("consume from backlog", "consume", BACKLOG_TOPIC, backlog),
        *(Row(f"end to end at {rate:,}/s", "latency", LATENCY_TOPIC, rate, True) for rate in RATES),
    ]


class Bench:
    """All figures of one run."""

    def __init__(self, clients: list[Client], options: argparse.Namespace) -> None:
        self.clients = clients
        self.figures: list[Figure] = []
        self.troubles: list[str] = []
        self._options = options

    @property
    def names(self) -> list[str]:
        """The columns."""
        return [client.name for client in self.clients]

    def measure(self, row: Row) -> None:
        """One row: all clients in turn, round by round."""
        figures = self._figures_of(row)
        for number in range(self._options.rounds):
            for client in self.clients:
                _say(f"{client.name}: {row.name}, round {number + 1}")
                # What the one before has made the broker write is not to cost this one.
                os.sync()
                measured = client.measure(self._asked(row, client, number))
                for figure, value in figures:
                    figure.add(client.name, value(measured))
                if measured.failed:
                    self.troubles.append(f"{client.name}, {row.name}: {measured.failed} failed")

    def _asked(self, row: Row, client: Client, round_number: int) -> Asked:
        # A group of its own each time: it begins with all of the backlog before it.
        group = f"{row.mode}-{client.name.split()[0]}-{row.number}-{round_number}"
        options = self._options
        return Asked(row.mode, row.topic, group, row.number, SIZE_BYTES, options.warm_up, options.seconds)

    def _figures_of(self, row: Row) -> list[tuple[Figure, Callable[[Measured], float]]]:
        if row.is_latency:
            shown: list[tuple[Figure, Callable[[Measured], float]]] = [
                (Figure(f"{row.name}, p50", "ms", False), lambda measured: measured.p50_ms),
                (Figure(f"{row.name}, p99", "ms", False), lambda measured: measured.p99_ms),
            ]
        else:
            shown = [(Figure(row.name, "1/s", True), lambda measured: measured.messages_per_s)]
        shown.append((Figure(f"{row.name}: client CPU a message", "µs", False), lambda m: m.cpu_us))
        self.figures += [figure for figure, _ in shown]
        return shown


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def prepare(broker: RunningPeer, wanted: list[Row], backlog: int) -> None:
    """Topics, and what is consumed."""
    for topic in {row.topic for row in wanted}:
        messages = backlog if topic == BACKLOG_TOPIC else 1
        _say(f"{topic}: {messages:,} messages")
        where = ("-t", topic, "-q", QUEUES, "-C", "-c", 8, "-w", 32, "-b", SIZE_BYTES)
        broker.load.run("send", *where, "-N", messages)


def run(options: argparse.Namespace, folder: Path) -> str:
    """Start everything, measure everything; the report."""
    from tests.interop.kit import artifacts
    from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

    with ExitStack() as stack:
        namesrv = stack.enter_context(launch_kourou_namesrv(folder)).wait_ready().address
        broker = launch(OURS, folder, namesrv, build(folder), "async")
        stack.callback(broker.kill)
        broker.wait_first_send()
        wanted = [row for row in rows(options.backlog) if options.rows in row.name]
        prepare(broker, wanted, options.backlog)
        clients: list[Client] = [OurClient(namesrv)]
        missing = artifacts.missing_tools()
        if options.peers != "none" and missing:
            _say(f"without Java: {missing}")
        elif options.peers != "none":
            clients.append(JavaClient(namesrv, folder))
        bench = Bench(clients, options)
        for row in wanted:
            bench.measure(row)
        return report(bench, options)


def report(bench: Bench, options: argparse.Namespace) -> str:
    """The table with date, machine and command."""
    lines = [
        "# Clients under load",
        "",
        f"`{' '.join(['python -m benchmarks.client', *sys.argv[1:]])}`",
        "",
        f"{machine()}. Bodies of 1 KiB, {QUEUES} queues, one broker of ours with asynchronous flush on the "
        "same machine, consumers with a handler for one message at a time. "
        f"Java with {' '.join(JVM_OPTIONS)}.",
        "",
        f"Median of {options.rounds} rounds of {options.seconds:g} s after {options.warm_up:g} s of warm-up, "
        "the clients in turn within each round. CPU is that of the whole client process. In the last column "
        "more than 1 means that ours is better: more messages, less CPU or time; in brackets the smallest "
        "and the largest of the rounds.",
        "",
        table(bench.figures, bench.names),
        "",
    ]
    if bench.troubles:
        lines += ["Messages that did not get through:", "", *(f"- {line}" for line in bench.troubles), ""]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="each client in turn; medians count (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    parser.add_argument("--warm-up", type=float, default=8.0, help="seconds before each measurement (8)")
    parser.add_argument("--peers", default="java", help="java, or none")
    parser.add_argument("--rows", default="", help="only rows whose name holds this text")
    parser.add_argument("--backlog", type=int, default=1_500_000, help="messages to consume (1.5 million)")
    parser.add_argument("--quick", action="store_true", help="one round of 2 s each, small backlog")
    parser.add_argument("--write", action="store_true", help="write results/client-DATE.md too")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.warm_up, options.backlog = 1, 2.0, 4.0, 500_000
    return options


def main() -> int:
    """Measure and print; the exit status."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = run(options, Path(folder))
        except (LoadgenError, ClientError) as error:
            print(f"benchmarks.client: {error}", file=sys.stderr)
            return 1
    print(text)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"client-{datetime.date.today()}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
