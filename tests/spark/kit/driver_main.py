"""A driver in a process of its own, under the control of a test: driver_process.py starts and asks it.

The first line of its input says how the session is made; each following one calls a function of this file by
name. Answers are lines on the output that begin with ANSWER: Spark may print there, too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ANSWER = "\x02"
SCHEMA = "value string, queue_id int, queue_offset bigint"
QUERY_TIMEOUT_S = 240
PAUSE_S = 120
ERRORS = "errors.txt"


def main() -> None:
    """Serve until the input ends."""
    how = json.loads(sys.stdin.readline())
    spark = make_session(**how)
    answer({"ready": os.getpid()})
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer({"result": globals()[call["function"]](spark, **call["arguments"])})
        except Exception:
            answer({"error": traceback.format_exc()})
    spark.stop()


def answer(reported: dict[str, Any]) -> None:
    print(f"{ANSWER}{json.dumps(reported)}", flush=True)


def make_session(*, remote: str | None = None, master: str = "local[2]", **settings: str) -> SparkSession:
    """A session of Spark Connect at `remote`, else one with a JVM of its own."""
    if remote is not None:
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(remote).getOrCreate()
    from kourou.spark.session import local_session

    spark = local_session("kourou-driver", master=master, settings=settings, fast_start=True)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


# -- what a test may ask ---------------------------------------------------------------------------


def read_batch(spark: SparkSession, **options: str) -> list[int]:
    """What a batch has of a topic of numbers: see `counted`."""
    return counted(spark.read.format("rocketmq").schema(SCHEMA).options(**options).load())


def counted(rows: DataFrame) -> list[int]:
    """Rows, different values, the smallest and the largest of them, and different places."""
    numbers = rows.selectExpr(
        "count(*)",
        "count(distinct value)",
        "min(cast(value as int))",
        "max(cast(value as int))",
        "count(distinct queue_id, queue_offset)",
    )
    return list(numbers.collect()[0])


def count_parquet(spark: SparkSession, *, folder: str) -> list[int]:
    """`counted` for the rows that a stream wrote."""
    return counted(spark.read.parquet(f"{folder}/rows"))


def write_batch(
    spark: SparkSession,
    *,
    count: int,
    partitions: int,
    begin: int = 0,
    pause: str | None = None,
    **options: str,
) -> None:
    """Numbers from `begin` to `count`, into a topic."""
    rows = spark.range(begin, count, 1, partitions).selectExpr("cast(id as string) as value")
    paused(rows, pause).write.format("rocketmq").mode("append").options(**options).save()


def stream_to_parquet(
    spark: SparkSession, *, folder: str, for_ever: bool = False, pause: str | None = None, **options: str
) -> None:
    """A topic's rows into `folder/rows`, with the checkpoint in `folder/checkpoint`."""
    rows = spark.readStream.format("rocketmq").schema(SCHEMA).options(**options).load()
    writer = paused(rows, pause).writeStream.format("parquet").option("path", f"{folder}/rows")
    run(writer.option("checkpointLocation", f"{folder}/checkpoint"), for_ever=for_ever)


def stream_to_topic(
    spark: SparkSession, *, folder: str, namesrv: str, subscribe: str, topic: str, **options: str
) -> None:
    """From one topic to another."""
    source = spark.readStream.format("rocketmq").schema("value string, key string")
    rows = source.options(namesrv=namesrv, subscribe=subscribe, **options).load()
    writer = rows.writeStream.format("rocketmq").options(namesrv=namesrv, topic=topic)
    run(writer.option("checkpointLocation", f"{folder}/checkpoint"), for_ever=False)


def stream_exactly_once(
    spark: SparkSession,
    *,
    folder: str,
    namesrv: str,
    subscribe: str,
    topic: str,
    plan: str,
    source: dict[str, str],
    times: int = 1,
) -> list[str]:
    """From one topic to another, exactly once, through crashing_sink.py; started again while it fails, up to
    `times`. The errors of the starts that failed."""
    from tests.spark.kit.crashing_sink import CrashingSource

    spark.dataSource.register(CrashingSource)
    errors: list[str] = []
    while len(errors) < times:
        reader = spark.readStream.format("rocketmq").schema("value string").options(**source)
        rows = reader.options(namesrv=namesrv, subscribe=subscribe, startingOffsets="earliest").load()
        writer = rows.writeStream.format("crashing").options(namesrv=namesrv, topic=topic)
        writer = writer.options(guarantee="exactly-once", sinkId=topic, retryIntervalMs="100")
        writer = writer.options(plan=plan, folder=folder, driver=os.getpid())
        try:
            run(writer.option("checkpointLocation", f"{folder}/checkpoint"), for_ever=False)
        except Exception as error:
            errors.append(str(error)[:2_000])
        else:
            return errors
    Path(folder, ERRORS).write_text("\n\n".join(errors))
    raise AssertionError(f"it fails again and again: {errors}")


def run(writer: Any, *, for_ever: bool) -> None:
    query: StreamingQuery = (writer if for_ever else writer.trigger(availableNow=True)).start()
    query.awaitTermination(QUERY_TIMEOUT_S)
    assert not query.isActive, "the query did not end in time"


def run_program(spark: SparkSession, *, program: str, **names: str) -> str:
    """What a program prints that makes a session of its own."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, {**names})
    return printed.getvalue()


def session_class(spark: SparkSession) -> str:
    """Where the session's class is from."""
    return type(spark).__module__


def tasks_of_executors(spark: SparkSession) -> dict[str, int]:
    """How many tasks each executor has done, by its id; those that are gone, too."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    found = [executors.apply(number) for number in range(executors.size())]
    return {each.id(): each.completedTasks() for each in found if each.id() != "driver"}


def modules_of_executors(spark: SparkSession) -> list[str]:
    """Where Python on the executors has `kourou` from."""

    def place(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        import kourou

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"place": [str(kourou.__file__)]})

    rows = spark.range(0, 8, 1, 8).mapInArrow(place, "place string").distinct().collect()
    return sorted(row.place for row in rows)


# -- a task that waits in its middle ---------------------------------------------------------------


def paused(rows: DataFrame, folder: str | None) -> DataFrame:
    """The rows as they are; with `folder` the first task that has seen some of them writes the process ids of
    its worker and executor into `folder/paused`, and waits until it is killed."""
    if folder is None:
        return rows
    return rows.mapInArrow(pause_once(folder), rows.schema)


def pause_once(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `paused`, which knows nothing of this file."""
    pause_s = PAUSE_S

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if Path(folder, "paused").exists():
                continue
            daemon = os.getppid()
            executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            Path(folder, f"pausing-{os.getpid()}").write_text(json.dumps([os.getpid(), executor]))
            try:
                os.link(Path(folder, f"pausing-{os.getpid()}"), Path(folder, "paused"))
            except FileExistsError:
                continue
            time.sleep(pause_s)
            raise TimeoutError("nobody ended this task")

    return pass_on


if __name__ == "__main__":
    main()
