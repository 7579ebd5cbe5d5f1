"""What tests of archive and replay share: messages with everything, children, what an archive has."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kourou import Message, MessageQueue, Producer
from kourou.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[3]
CHILD_TIMEOUT_S = 400
# Spark gives a Python process ten seconds to start, which is not enough where many tests run at once.
TOO_SLOW = "Python worker failed to connect back"
STARTS = 4
Place = tuple[str, int, int]


def fill(mq: LocalCluster, topic: str, numbers: range, *, queues: int = 2, broker: str = "broker-a") -> None:
    """Messages `number`, to the queue `number % queues`, with keys, tag and properties."""
    with Producer("archive-tests", namesrv=mq.namesrv) as producer:
        for number in numbers:
            message = Message(
                topic,
                b"body %d" % number,
                keys=(f"k{number}", "shared"),
                tags=f"T{number % 3}",
                properties={"number": str(number), "odd sign": "ü=1;"},
            )
            producer.send(message, queue=MessageQueue(topic, broker, number % queues))


def child(kind: str, request: dict[str, Any], *moment: str) -> subprocess.Popen[str]:
    """Start a process that archives or replays."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.kit.archive_child", kind, json.dumps(request), *moment],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_child(kind: str, request: dict[str, Any], *moment: str) -> list[dict[str, Any]]:
    """Run one to its end, which is a kill where a moment is given; gives what it printed."""
    for _ in range(STARTS):
        with child(kind, request, *moment) as process:
            out, errors = process.communicate(timeout=CHILD_TIMEOUT_S)
        if process.returncode != 1 or TOO_SLOW not in errors:
            break
    expected = -signal.SIGKILL if moment else 0
    assert process.returncode == expected, f"{process.returncode}: {errors[-3_000:]}"
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def archived(spark: SparkSession, folder: Path) -> DataFrame:
    """The rows of an archive."""
    from kourou.spark.pipelines.archive.archive_folder import open_archive
    from kourou.spark.pipelines.lake.lake import read_lake

    return read_lake(spark, open_archive(folder).table)


def places(frame: DataFrame) -> Counter[Place]:
    """How often each message is there."""
    rows = frame.select("topic", "queue_id", "queue_offset").collect()
    return Counter((row[0], row[1], row[2]) for row in rows)


def archived_places(folder: Path) -> Counter[Place]:
    """The same without Spark, by the files that the table has."""
    import pyarrow.parquet as pq

    from kourou.spark.pipelines.archive.archive_folder import open_archive
    from kourou.spark.pipelines.lake.lake import open_backend

    backend = open_backend(open_archive(folder).table)
    snapshot = backend.snapshot()
    assert snapshot is not None
    found: Counter[Place] = Counter()
    for file in snapshot.files:
        rows = pq.ParquetFile(backend.data_folder / file.path).read(columns=["queue_id", "queue_offset"])
        topic = dict(file.partition)["topic"]
        found.update((str(topic), row["queue_id"], row["queue_offset"]) for row in rows.to_pylist())
    return found


def sent_places(mq: LocalCluster, *topics: str) -> Counter[Place]:
    """Each message of the topics, once."""
    return Counter(
        (topic, message.queue_id, message.queue_offset) for topic in topics for message in mq.messages(topic)
    )
