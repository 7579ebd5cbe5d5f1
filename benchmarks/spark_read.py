"""Spark reads: rows a second out of our broker and a store's folder, beside Spark's own Kafka and Parquet.

    python -m benchmarks.spark_read                 2 million rows of 1 KiB and of 128 B, three rounds
    python -m benchmarks.spark_read --quick         one round of fewer rows

Name server, broker and Kafka run in processes of their own, Spark as `local[2]`, all on the same machine.
Rows go into `noop`, Spark's sink that does nothing. Kafka and Spark's source for it come by Maven.
The result is printed, and written to benchmarks/results/spark-read-DATE.md with `--write`.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._broker_peers import STORE as STORE_SETTINGS
from benchmarks._broker_report import machine
from benchmarks._cpu_time import children_s, own_s
from benchmarks._kafka_peer import (
    KAFKA_VERSION,
    SPARK_KAFKA_VERSION,
    KafkaUnavailable,
    launch_kafka,
    spark_jars,
)
from benchmarks._spark_read_report import CPU_PARTS, Rounds, latency_table, read_table, sink_table
from benchmarks._spark_sources import KAFKA, OURS, SOURCES, Place, Source, make_rows, senders, streams
from benchmarks.spark_sink import rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.interop.kit.process import ServerProcess

RESULTS = Path(__file__).parent / "results"
MASTER = "local[2]"
SIZES_BYTES = (1024, 128)
WARM_UP_BATCHES = 10
STREAM_TIMEOUT_S = 120
POLL_S = 0.05


class Bench:
    """All figures of one run."""

    def __init__(self, spark: SparkSession, options: argparse.Namespace) -> None:
        self.reads: Rounds = Rounds()
        self.sends: Rounds = Rounds()
        self.batches_ms: Rounds = Rounds()
        self.cpu_us: Rounds = Rounds()
        self._spark = spark
        self._jvm_pid: int = spark.sparkContext._gateway.proc.pid
        self._options = options

    def measure(self, place: Place) -> None:
        """Send the rows of one size, read them by every source, and stream some of them."""
        _say(f"{place.size_bytes} B: making {place.rows:,} rows")
        make_rows(self._spark, place)
        self._send(place)
        os.sync()
        self._read(place)
        self._stream(place)

    def _send(self, place: Place) -> None:
        parts = self._options.rounds + 1
        for part in range(parts):
            for name, send in senders(self._spark, place, part, parts).items():
                _say(f"{place.size_bytes} B: {name}, part {part + 1} of {parts}")
                sent = rate(send, place.rows // parts)
                if part:  # the first one warms up
                    self.sends.add((place.size_bytes, name), sent)

    def _read(self, place: Place) -> None:
        for round_number in range(self._options.rounds + 1):
            for source in SOURCES:
                if self._options.only not in f"{source.name} {source.width}":
                    continue
                self._read_once(place, source, is_warm_up=round_number == 0)
        self._check(place)

    def _read_once(self, place: Place, source: Source, *, is_warm_up: bool) -> None:
        writer = source.frame(self._spark, place).write.format("noop").mode("append")
        before = self._cpu_s(place, source)
        found = rate(writer.save, place.rows)
        used_us = [
            # Less than before: idle workers have ended meanwhile, and their counters are gone.
            max(0.0, now - then) / place.rows * 1e6
            for now, then in zip(self._cpu_s(place, source), before, strict=True)
        ]
        parts = " + ".join(f"{part_us:.2f}" for part_us in used_us)
        _say(
            f"{place.size_bytes} B: {source.name} ({source.width}), {found:,.0f} rows/s; CPU {parts} us a row"
        )
        if not is_warm_up:
            key = place.size_bytes, source.name, source.width
            self.reads.add(key, found)
            for name, part_us in zip(CPU_PARTS, used_us, strict=True):
                self.cpu_us.add((*key, name), part_us)

    def _cpu_s(self, place: Place, source: Source) -> tuple[float, float, float]:
        """Spark's JVM, its workers, and the server, if the source has one."""
        server_pid = place.server_pids.get(source.name)
        server_s = own_s(server_pid) if server_pid else 0.0
        return own_s(self._jvm_pid), children_s(self._jvm_pid), server_s

    def _check(self, place: Place) -> None:
        """Whether all sources have all rows: a rate of something else means nothing."""
        for source in SOURCES:
            if source.width == "kafka" and self._options.only in f"{source.name} {source.width}":
                found = source.frame(self._spark, place).selectExpr("sum(length(value))").collect()[0][0]
                if found != place.rows * place.size_bytes:
                    raise RuntimeError(f"{source.name} has {found} bytes of values")

    def _stream(self, place: Place) -> None:
        for name, frame in streams(self._spark, place, self._options.batch_rows).items():
            for took_ms in _batch_times(frame, self._options.batches):
                self.batches_ms.add((place.size_bytes, name), took_ms)
            _say(f"{place.size_bytes} B: {name}, batches done")


def _batch_times(frame: DataFrame, batches: int) -> list[float]:
    """How long the batches of a stream took, in milliseconds, without the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        query = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
        try:
            deadline = time.monotonic() + STREAM_TIMEOUT_S
            # Spark keeps the last hundred reports.
            while len(query.recentProgress) < WARM_UP_BATCHES + batches and time.monotonic() < deadline:
                if not query.isActive:
                    raise RuntimeError(f"the stream ended: {query.exception()}")
                time.sleep(POLL_S)
            reports = query.recentProgress
        finally:
            query.stop()
    return [
        float(report["durationMs"]["triggerExecution"]) for report in reports if report["numInputRows"] > 0
    ][WARM_UP_BATCHES:]


def run(options: argparse.Namespace, folder: Path) -> str:
    """Start everything, measure everything; the report."""
    from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

    from kourou.spark.session import local_session

    with ExitStack() as stack:
        jars = spark_jars()
        kafka = stack.enter_context(launch_kafka(folder, options.queues))
        namesrv = stack.enter_context(launch_kourou_namesrv(folder)).wait_ready().address
        settings = {
            "spark.ui.showConsoleProgress": "false",
            "spark.jars": jars,
            "spark.driver.memory": "2g",
            "spark.local.dir": str(folder / "spark"),
        }
        spark = local_session("spark-read", master=MASTER, settings=settings)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        bench = Bench(spark, options)
        kafka.wait_ready()
        for size_bytes in options.sizes:
            with tempfile.TemporaryDirectory(dir=folder) as place_folder:
                _measure_size(bench, options, Path(place_folder), size_bytes, namesrv, kafka)
    return report(bench, options)


def _measure_size(
    bench: Bench,
    options: argparse.Namespace,
    folder: Path,
    size_bytes: int,
    namesrv: str,
    kafka: ServerProcess,
) -> None:
    """With a broker of its own: its store's folder has these rows and no others."""
    from tests.interop.kit.kourou_broker import launch_kourou_broker

    topic = f"SparkRead{size_bytes}"
    store = folder / "store"
    settings = {
        **STORE_SETTINGS,
        "brokerName": f"broker-{size_bytes}",
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    with launch_kourou_broker(folder, [namesrv], settings) as broker:
        broker.wait_ready()
        asyncio.run(_make_topic(namesrv, broker.address, topic, options.queues))
        rows = options.rows - options.rows % options.queues
        place = Place(
            topic=topic,
            size_bytes=size_bytes,
            rows=rows,
            queues=options.queues,
            namesrv=namesrv,
            store=store,
            kafka=kafka.address,
            parquet=folder / "parquet",
            options=dict(text.split("=", 1) for text in options.option),
            server_pids={OURS.name: broker.pid, KAFKA.name: kafka.pid},
        )
        bench.measure(place)
        broker.kill()


async def _make_topic(namesrv: str, broker: str, topic: str, queues: int) -> None:
    from kourou.admin.session import Admin
    from kourou.admin.topics import create_topic
    from kourou.protocol.bodies import TopicConfig

    async with Admin(namesrv=namesrv) as admin:
        config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        await create_topic(admin, broker, config)


def report(bench: Bench, options: argparse.Namespace) -> str:
    """The whole result, with date, machine and command."""
    import pyspark

    command = " ".join(["python -m benchmarks.spark_read", *sys.argv[1:]])
    return "\n".join(
        [
            "# Reading with Spark",
            "",
            f"`{command}`",
            "",
            f"{machine()}. PySpark {pyspark.__version__}, `{MASTER}`, {options.rows:,} rows of each size in "
            f"{options.queues} queues, partitions or files, into `noop`. Kafka {KAFKA_VERSION} (KRaft, one "
            f"process) with spark-sql-kafka-0-10 {SPARK_KAFKA_VERSION}; our broker with asynchronous flush; "
            "all on the same machine. Everything is in the page cache.",
            "",
            f"Median of {options.rounds} rounds after one that warms up, all sources in turn within each "
            "round. In the last columns: how many times as fast as Kafka and as Parquet with the same "
            "columns, in brackets the smallest and the largest of the rounds.",
            "",
            read_table(bench.reads, bench.cpu_us, options.sizes),
            "",
            "Sending the same rows (key, value, partition) from Parquet files, in parts, both sinks in turn:",
            "",
            sink_table(bench.sends, options.sizes),
            "",
            f"Streaming, batches of {options.batch_rows} rows one after the other, `rowFormat=kafka`; how "
            "long one took:",
            "",
            latency_table(bench.batches_ms, options.sizes),
            "",
        ]
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="each source in turn; medians count (3)")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of each size (2 million)")
    parser.add_argument("--queues", type=int, default=4, help="and partitions, and files (4)")
    parser.add_argument("--sizes", default=SIZES_BYTES, type=_sizes, help="of values, in bytes (1024,128)")
    parser.add_argument("--batches", type=int, default=40, help="of each stream (40)")
    parser.add_argument("--batch-rows", type=int, default=100, help="of one batch of a stream (100)")
    parser.add_argument("--only", default="", help="only sources whose name or columns hold this text")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of our sources, such as batchBytes=1m",
    )
    parser.add_argument("--quick", action="store_true", help="one round of 200,000 rows")
    parser.add_argument("--write", action="store_true", help="write results/spark-read-DATE.md too")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.rows, options.batches = 1, 200_000, 10
    return options


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> int:
    """Measure and print; the exit status."""
    options = _options()
    # So that servers end and folders go, however this one is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = run(options, Path(folder))
        except KafkaUnavailable as error:
            print(f"benchmarks.spark_read: {error}", file=sys.stderr)
            return 1
    _say(f"took {time.monotonic() - began:.0f} s")
    print(text)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"spark-read-{datetime.date.today()}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
