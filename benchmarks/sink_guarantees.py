"""The sink's guarantees beside each other, without Spark: what a row costs the worker and the broker.

    python -m benchmarks sink_guarantees [--rounds 7] [--rows 200000] [--python-alone] [--checkout DIR …]

Arrow batches from memory are written to one broker with 8 queues as a task of Spark writes them, at least
once and exactly once in turn; exactly once is the task, the commit, and the wait until all is published. The
least of all rounds counts: processor time in µs a row, and elapsed time. With `--checkout`, the brokers of
these checkouts, by the Python of their `.venv`, take turns.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks._broker_peers import STORE, WITHOUT_KERNEL
from benchmarks._broker_report import machine
from benchmarks._sink_peers import QUEUES, TOPIC, SinkPeer, start_peers
from kourou.spark.sink.exactly_once import ExactlyOnce
from kourou.spark.sink.sending import RowSender
from kourou.spark.sink.sink_columns import SinkColumns
from kourou.spark.sink.sink_commit import SinkTask
from kourou.spark.sink.sink_options import EXACTLY_ONCE, SinkOptions
from kourou.spark.sink.sink_plan import plan_batch
from kourou.spark.sink.sink_producer import stop_worker_producers, worker_producer

SIZES_BYTES = (128, 1024)
BATCH_ROWS = 10_000
KINDS = {
    "value": (),
    "value, key, tags": ("keys", "tags"),
    "value, sharding_key": ("sharding_key",),
}
"""Columns beside the value."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one write: µs a row."""

    elapsed: float
    worker: float
    broker: float

    def __and__(self, other: Cost) -> Cost:
        """The least of both."""
        return Cost(*(min(pair) for pair in zip(self._all, other._all, strict=True)))

    @property
    def _all(self) -> tuple[float, float, float]:
        return self.elapsed, self.worker, self.broker


Costs = dict[tuple[str, int, str, str], Cost]
"""By columns, bytes of a value, broker, and the function that writes."""


def batches(kind: str, size_bytes: int, rows: int) -> tuple[SinkColumns, list[pa.RecordBatch]]:
    """The rows of a task."""
    makers: dict[str, Callable[[int], str]] = {
        "value": lambda number: str(number).ljust(size_bytes, "x"),
        "keys": lambda number: f"key-{number}",
        "tags": lambda number: "TagA",
        "sharding_key": lambda number: f"order-{number % 1000}",
    }
    names = ["value", *KINDS[kind]]
    made = []
    for first in range(0, rows, BATCH_ROWS):
        numbers = range(first, min(rows, first + BATCH_ROWS))
        columns = [pa.array([makers[name](number) for number in numbers]) for name in names]
        made.append(pa.record_batch(columns, names))
    return SinkColumns({name: at for at, name in enumerate(names)}), made


def cpu_ns(pid: int) -> int:
    """What all threads of a process have used."""
    return sum(
        int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


def measured(pid: int, rows: int, write: Callable[[], None]) -> Cost:
    """What a write costs."""
    before = time.perf_counter_ns(), cpu_ns(os.getpid()), cpu_ns(pid)
    write()
    after = time.perf_counter_ns(), cpu_ns(os.getpid()), cpu_ns(pid)
    return Cost(*((end - begin) / 1000 / rows for begin, end in zip(before, after, strict=True)))


def write_plain(peer: SinkPeer, columns: SinkColumns, rows: list[pa.RecordBatch]) -> None:
    """As a task at least once."""
    options = SinkOptions(namesrv=peer.namesrv, topic=TOPIC)
    RowSender(options, columns, worker_producer(options), 0).send(iter(rows))


def write_once(peer: SinkPeer, columns: SinkColumns, rows: list[pa.RecordBatch]) -> None:
    """As driver and task exactly once."""
    options = SinkOptions(namesrv=peer.namesrv, topic=TOPIC, guarantee=EXACTLY_ONCE, sink_id="bench")
    batch_id = next(peer.writes)
    once = ExactlyOnce(options, columns, plan_batch(worker_producer(options), options))
    task = SinkTask(0, query_id="bench", batch_id=batch_id)
    once.commit([once.write(iter(rows), task)], batch_id)


def measure(peers: list[SinkPeer], options: argparse.Namespace) -> Costs:
    """All kinds of rows, in turn."""
    costs: Costs = {}
    for size_bytes, kind in itertools.product(SIZES_BYTES, KINDS):
        columns, rows = batches(kind, size_bytes, options.rows)
        turns = itertools.product(range(options.rounds), peers, (write_plain, write_once))
        for _, peer, write in turns:
            found = measured(peer.pid, options.rows, partial(write, peer, columns, rows))
            key = kind, size_bytes, peer.name, write.__name__
            costs[key] = costs.get(key, found) & found
        print(f"{kind}, {size_bytes} B", file=sys.stderr, flush=True)
    return costs


def report(costs: Costs) -> list[str]:
    """The table."""
    lines = [
        "| broker | columns | bytes of a value | elapsed, plain → once | ratio | worker | broker |",
        "|---" * 7 + "|",
    ]
    for kind, size_bytes, name, way in costs:
        if way == write_once.__name__:
            plain = costs[kind, size_bytes, name, write_plain.__name__]
            once = costs[kind, size_bytes, name, way]
            lines.append(
                f"| {name} | {kind} | {size_bytes:,} | {plain.elapsed:.2f} → {once.elapsed:.2f} | "
                f"{plain.elapsed / once.elapsed:.2f} | {plain.worker:.2f} → {once.worker:.2f} | "
                f"{plain.broker:.2f} → {once.broker:.2f} |"
            )
    return lines


def run(options: argparse.Namespace, folder: Path) -> str:
    """Start everything, measure everything; the report."""
    settings = {**STORE, **(WITHOUT_KERNEL if options.python_alone else {})}
    with ExitStack() as stack:
        costs = measure(start_peers(options.checkout, settings, folder, stack), options)
        stop_worker_producers()
    return "\n".join(
        [
            f"`{' '.join(['python -m benchmarks sink_guarantees', *sys.argv[1:]])}`",
            "",
            f"{machine()}. {options.rows:,} rows a write, {QUEUES} queues, asynchronous flush; µs a row, the "
            f"least of {options.rounds} rounds.",
            "",
            *report(costs),
            "",
        ]
    )


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="the least counts (7)")
    parser.add_argument("--rows", type=int, default=200_000, help="of each write (200,000)")
    parser.add_argument("--python-alone", action="store_true", help="brokers without the compiled kernel")
    parser.add_argument("--checkout", action="append", default=[], help="the broker of this checkout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(run(options, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
