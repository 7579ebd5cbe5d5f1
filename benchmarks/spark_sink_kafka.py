"""Spark's sinks side by side: rows a second into a topic of our broker and into one of Kafka's.

    python -m benchmarks.spark_sink_kafka                 1 KiB and 128 B values, five rounds
    python -m benchmarks.spark_sink_kafka --quick         one round of fewer rows

Name server, broker and Kafka run in processes of their own, Spark as `local[2]`, all on the same machine.
Rows come from Parquet files in the page cache, made once; within a round the sinks take turns. Two of them
store nothing: Spark's `noop` shows what reading costs, and a Python sink that drops its Arrow batches shows
what their way to a Python process costs.
The result is printed, and written to benchmarks/results/spark-sink-kafka-DATE.md with `--write`.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from benchmarks._broker_peers import STORE
from benchmarks._broker_report import machine
from benchmarks._cpu_time import children_s, own_s
from benchmarks._kafka_peer import (
    KAFKA_VERSION,
    SPARK_KAFKA_VERSION,
    KafkaUnavailable,
    launch_kafka,
    spark_jars,
)
from benchmarks._spark_read_report import CPU_PARTS, Rounds, table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

RESULTS = Path(__file__).parent / "results"
MASTER = "local[2]"
SIZES_BYTES = (1024, 128)
COLUMNS = ("key, value, partition", "key, value")
OURS, KAFKA, DROPS, NOOP = "Kourou's sink", "Kafka's sink", "Python, drops its batches", "`noop`"


class DropSource(DataSource):
    """A sink that does nothing with the Arrow batches it gets."""

    @classmethod
    def name(cls) -> str:
        return "drops"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return DropWriter()


class DropWriter(DataSourceArrowWriter):
    """The lower bound of a sink in Python."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


@dataclass(frozen=True)
class Servers:
    """Where rows go."""

    namesrv: str
    kafka: str
    pids: dict[str, int]
    """By the name of the sink."""


class Bench:
    """All figures of one run."""

    def __init__(self, spark: SparkSession, servers: Servers, options: argparse.Namespace) -> None:
        self.rates: Rounds = Rounds()
        self.cpu_us: Rounds = Rounds()
        self._spark = spark
        self._jvm_pid: int = spark.sparkContext._gateway.proc.pid
        self._servers = servers
        self._options = options

    def measure(self, size_bytes: int, folder: Path) -> None:
        """All sinks with values of one size, in turn."""
        rows, files = self._options.rows, self._options.queues
        _say(f"{size_bytes} B: making {rows:,} rows")
        self._spark.range(0, rows, 1, files).selectExpr(
            "cast(concat('key-', id) AS binary) AS key",
            f"cast(randstr({size_bytes}, 7) AS binary) AS value",
            f"cast(id % {files} AS int) AS partition",
        ).write.parquet(str(folder))
        frame = self._spark.read.parquet(str(folder))
        for round_number in range(self._options.rounds + 1):
            for columns in self._options.columns:
                for name, write in self._sinks(frame.selectExpr(*columns.split(", "))).items():
                    if self._options.only in name:
                        self._write_once((size_bytes, columns, name), write, is_warm_up=round_number == 0)

    def _sinks(self, rows: DataFrame) -> dict[str, Callable[[], None]]:
        """In this order: what is compared runs one after the other."""
        ours = rows.write.format("rocketmq").option("namesrv", self._servers.namesrv)
        kafka = rows.write.format("kafka").option("kafka.bootstrap.servers", self._servers.kafka)
        return {
            OURS: ours.options(**self._options.option).option("topic", "Sinks").mode("append").save,
            KAFKA: kafka.option("topic", "Sinks").mode("append").save,
            DROPS: rows.write.format("drops").mode("append").save,
            NOOP: rows.write.format("noop").mode("append").save,
        }

    def _write_once(self, key: tuple[int, str, str], write: Callable[[], None], *, is_warm_up: bool) -> None:
        rows = self._options.rows
        os.sync()  # what the sink before left to the disk is not this one's
        before, began = self._cpu_s(key[-1]), time.perf_counter()
        write()
        rate = rows / (time.perf_counter() - began)
        used_us = [
            # Less than before: idle workers have ended meanwhile, and their counters are gone.
            max(0.0, now - then) / rows * 1e6
            for now, then in zip(self._cpu_s(key[-1]), before, strict=True)
        ]
        _say(f"{key}: {rate:,.0f} rows/s; CPU {' + '.join(f'{part_us:.2f}' for part_us in used_us)} us a row")
        if not is_warm_up:
            self.rates.add(key, rate)
            for name, part_us in zip(CPU_PARTS, used_us, strict=True):
                self.cpu_us.add((*key, name), part_us)

    def _cpu_s(self, name: str) -> tuple[float, float, float]:
        """Spark's JVM, its workers, and the server, if the sink has one."""
        server_pid = self._servers.pids.get(name)
        return (
            own_s(self._jvm_pid),
            children_s(self._jvm_pid),
            own_s(server_pid) if server_pid else 0.0,
        )


def run(options: argparse.Namespace, folder: Path) -> str:
    """Start everything, measure everything; the report."""
    from tests.interop.kit.kourou_broker import launch_kourou_broker
    from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

    from kourou import Message, Producer
    from kourou.spark.session import local_session

    with ExitStack() as stack:
        jars = spark_jars()
        kafka = stack.enter_context(launch_kafka(folder, options.queues))
        namesrv = stack.enter_context(launch_kourou_namesrv(folder)).wait_ready().address
        broker = stack.enter_context(launch_kourou_broker(folder, [namesrv], STORE))
        broker.wait_ready()
        with Producer("bench", namesrv=namesrv, default_topic_queue_nums=options.queues) as producer:
            producer.send(Message("Sinks", b"makes the topic"))
        settings = {
            "spark.ui.showConsoleProgress": "false",
            "spark.jars": jars,
            "spark.driver.memory": "2g",
            "spark.local.dir": str(folder / "spark"),
            **options.conf,
        }
        spark = local_session("spark-sinks", master=MASTER, settings=settings)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(DropSource)
        kafka.wait_ready()
        servers = Servers(namesrv, kafka.address, {OURS: broker.pid, KAFKA: kafka.pid})
        bench = Bench(spark, servers, options)
        for size_bytes in options.sizes:
            bench.measure(size_bytes, folder / f"parquet-{size_bytes}")
    return report(bench, options)


def report(bench: Bench, options: argparse.Namespace) -> str:
    """The whole result, with date, machine and command."""
    import pyspark

    return "\n".join(
        [
            "# Spark's sinks: Kourou beside Kafka",
            "",
            f"`{' '.join(['python -m benchmarks.spark_sink_kafka', *sys.argv[1:]])}`",
            "",
            f"{machine()}. PySpark {pyspark.__version__}, `{MASTER}`, {options.rows:,} rows for each write, "
            f"{options.queues} queues, partitions and Parquet files. Kafka {KAFKA_VERSION} (KRaft, one "
            f"process) with spark-sql-kafka-0-10 {SPARK_KAFKA_VERSION}; our broker with asynchronous flush; "
            "all on the same machine.",
            "",
            f"Median of {options.rounds} rounds after one that warms up, all sinks in turn within each "
            "round, and the best round. The ratio is to Kafka's sink, round by round, with the smallest and "
            "the largest in brackets. Processor time is of Spark's JVM + its Python workers + the server.",
            "",
            _sinks_table(bench),
            "",
        ]
    )


def _sinks_table(bench: Bench) -> str:
    rows = []
    for key, rates in bench.rates.values.items():
        size_bytes, columns, name = key
        parts = [bench.cpu_us.median((*key, part)) for part in CPU_PARTS]
        cells = [f"{size_bytes:,}", str(columns), str(name), f"{bench.rates.median(key):,.0f}"]
        cells += [f"{max(rates):,.0f}", bench.rates.ratio(key, (size_bytes, columns, KAFKA))]
        cells.append(f"{sum(parts):.2f} ({' + '.join(f'{part:.2f}' for part in parts)})")
        rows.append(cells)
    heads = ["bytes of a value", "columns", "sink", "rows/s", "best", ": Kafka's sink", "CPU µs a row"]
    return table(heads, rows)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="each sink in turn; medians count (5)")
    parser.add_argument("--rows", type=int, default=500_000, help="of each write (500,000)")
    parser.add_argument("--queues", type=int, default=4, help="and partitions, and files (4)")
    parser.add_argument("--sizes", default=SIZES_BYTES, type=_sizes, help="of values, in bytes (1024,128)")
    parser.add_argument(
        "--columns", action="append", help=f"of the rows ({' and '.join(map(repr, COLUMNS))})"
    )
    parser.add_argument("--only", default="", help="only sinks whose name holds this text")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of our sink")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="of Spark")
    parser.add_argument("--quick", action="store_true", help="one round of 100,000 rows")
    parser.add_argument("--write", action="store_true", help="write results/spark-sink-kafka-DATE.md too")
    options = parser.parse_args()
    options.columns = options.columns or COLUMNS
    options.option = dict(text.split("=", 1) for text in options.option)
    options.conf = dict(text.split("=", 1) for text in options.conf)
    if options.quick:
        options.rounds, options.rows = 1, 100_000
    return options


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> int:
    """Measure and print; the exit status."""
    options = _options()
    # So that servers end and folders go, however this one is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = run(options, Path(folder))
        except KafkaUnavailable as error:
            print(f"benchmarks.spark_sink_kafka: {error}", file=sys.stderr)
            return 1
    print(text)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"spark-sink-kafka-{datetime.date.today()}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
