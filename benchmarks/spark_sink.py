"""Spark's sink: rows a second into a topic of our broker, by `df.write.format("rocketmq")`.

    python -m benchmarks.spark_sink                 128 B and 1 KiB values, three rounds
    python -m benchmarks.spark_sink --quick         one round of fewer rows

Name server and broker run in processes of their own, Spark as `local[2]`, all on the same machine. Rows are
made by `spark.range` while they are written; `noop`, Spark's sink that does nothing, shows what that costs.
Writes at least once and exactly once take turns, and with `--checkout` brokers of these checkouts, by the
Python of their `.venv`.
The result is printed, and written to benchmarks/results/spark-sink-DATE.md with `--write`.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._broker_peers import STORE
from benchmarks._broker_report import machine
from benchmarks._sink_peers import QUEUES, TOPIC, SinkPeer, start_peers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

RESULTS = Path(__file__).parent / "results"
MASTER = "local[2]"
SIZES_BYTES = (128, 1024)


@dataclass(frozen=True)
class Row:
    """One kind of rows; `columns` are SQL, beside the value."""

    name: str
    columns: tuple[str, ...] = ()
    part: float = 1.0
    """Of the rows asked for."""


ROWS = (
    Row("value"),
    Row("value, key, tags", ("concat('key-', id) AS key", "'TagA' AS tags")),
    Row("value, key, two properties", ("concat('key-', id) AS key", "map('a', '1', 'b', '2') AS properties")),
    Row("value, sharding_key", ("concat('order-', id % 1000) AS sharding_key",)),
    Row("value, delay_ms (each alone)", ("3600000L AS delay_ms",), part=0.1),
)


def frame(spark: SparkSession, row: Row, rows: int, size_bytes: int) -> DataFrame:
    """Rows, made when they are asked for."""
    value = f"rpad(cast(id AS string), {size_bytes}, 'x') AS value"
    return spark.range(int(rows * row.part)).selectExpr(value, *row.columns)


def rate(write: Callable[[], None], rows: int) -> float:
    """Rows a second."""
    began = time.perf_counter()
    write()
    return rows / (time.perf_counter() - began)


def writer(peer: SinkPeer, data: DataFrame) -> DataFrameWriter:
    """A write at least once."""
    written = data.write.format("rocketmq").option("namesrv", peer.namesrv).option("topic", TOPIC)
    return written.mode("append")


def write_once(peer: SinkPeer, data: DataFrame) -> None:
    """Write exactly once."""
    once = writer(peer, data).option("guarantee", "exactly-once").option("sinkId", "bench")
    once.option("writeId", str(next(peer.writes))).save()


def measure(spark: SparkSession, peers: list[SinkPeer], options: argparse.Namespace) -> list[str]:
    """The lines of the table."""
    lines = [
        "| broker | columns | bytes | rows | rows/s | MB/s | exactly once | ratio | `noop`, rows/s |",
        "|---" * 9 + "|",
    ]
    for size_bytes in options.sizes:
        for row in ROWS:
            print(f"{row.name}, {size_bytes} B", file=sys.stderr, flush=True)
            data, warm_up = (frame(spark, row, rows, size_bytes) for rows in (options.rows, 20_000))
            count = int(options.rows * row.part)
            is_possible = not any("delay_ms" in column for column in row.columns)
            rates: dict[str, list[float]] = defaultdict(list)
            once_rates: dict[str, list[float]] = defaultdict(list)
            for peer in peers:
                writer(peer, warm_up).save()
            for _, peer in itertools.product(range(options.rounds), peers):
                rates[peer.name].append(rate(writer(peer, data).save, count))
                if is_possible:
                    once_rates[peer.name].append(rate(partial(write_once, peer, data), count))
            noop = data.write.format("noop").mode("append")
            bare = statistics.median(rate(noop.save, count) for _ in range(options.rounds))
            for peer in peers:
                middle = statistics.median(rates[peer.name])
                cells = [peer.name, row.name, f"{size_bytes:,}", f"{count:,}", f"{middle:,.0f}"]
                cells.append(f"{middle * size_bytes / 1e6:.1f}")
                exact = statistics.median(once_rates[peer.name]) if is_possible else None
                cells += ["", ""] if exact is None else [f"{exact:,.0f}", f"{exact / middle:.2f}"]
                cells.append(f"{bare:,.0f}")
                lines.append("| " + " | ".join(cells) + " |")
    return lines


def run(options: argparse.Namespace, folder: Path) -> str:
    """Start everything, measure everything; the report."""
    from kourou.spark.session import local_session

    with ExitStack() as stack:
        peers = start_peers(options.checkout, STORE, folder, stack)
        spark = local_session("spark-sink", master=MASTER)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        lines = measure(spark, peers, options)
    return "\n".join(
        [
            "# Spark's sink",
            "",
            f"`{' '.join(['python -m benchmarks.spark_sink', *sys.argv[1:]])}`",
            "",
            f"{machine()}. Spark `{MASTER}`, one broker of ours with asynchronous flush and {QUEUES} queues "
            f"on the same machine. Median of {options.rounds} rounds.",
            "",
            *lines,
            "",
        ]
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="medians count (3)")
    parser.add_argument("--rows", type=int, default=500_000, help="of each write (500,000)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES_BYTES, help="bytes of a value")
    parser.add_argument("--checkout", action="append", default=[], help="the broker of this checkout")
    parser.add_argument("--quick", action="store_true", help="one round of 100,000 rows")
    parser.add_argument("--write", action="store_true", help="write results/spark-sink-DATE.md too")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.rows = 1, 100_000
    return options


def main() -> int:
    """Measure and print; the exit status."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        text = run(options, Path(folder))
    print(text)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"spark-sink-{datetime.date.today()}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
