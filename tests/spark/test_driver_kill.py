"""A driver that is killed, with its JVM, at every step of a batch: what it wrote is there exactly once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.crash.rounds import NIGHTLY
from tests.spark.conftest import need_spark
from tests.spark.kit import driver_main
from tests.spark.kit.driver_process import DriverProcess, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]
COUNT = 30_000
MESSAGES_A_BATCH = 3_000
SETTINGS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "500"}


def fill(mq: LocalCluster, topic: str, count: int) -> None:
    with Producer("driver-kill", namesrv=mq.namesrv) as producer:
        for begin in range(0, count, 1_000):
            producer.send_many([Message(topic, b"%d" % each) for each in range(begin, begin + 1_000)])


class Checkpoint:
    """What the files of a query into Parquet say about how far it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _last(self, log: str) -> int:
        return max(
            (int(path.name) for path in (self._folder / log).glob("[0-9]*") if path.name.isdigit()),
            default=-1,
        )

    def wait_planned(self) -> None:
        """A batch is planned, and its tasks begin."""
        before = self._last("checkpoint/offsets")
        wait_for(lambda: self._last("checkpoint/offsets") > before, "a batch that is planned")

    def wait_written(self) -> None:
        """The sink has noted a batch, and Spark has not yet."""
        before = self._last("rows/_spark_metadata")
        wait_for(lambda: self._last("rows/_spark_metadata") > before, "a batch that is written", 0.001)

    def wait_paused(self) -> None:
        """A task has read some rows of its range, and waits."""
        wait_for((self._folder / "paused").exists, "a task in its middle")


def test_a_driver_that_is_killed_at_every_step(tmp_path: Path) -> None:
    need_spark()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    checkpoint = Checkpoint(tmp_path)
    steps: list[Callable[[], None]] = [checkpoint.wait_planned, checkpoint.wait_written]
    random.Random(seed).shuffle(steps)
    if not NIGHTLY:
        del steps[1:]  # each takes a driver of its own
    with LocalCluster() as mq:
        mq.create_topic("numbers", queues=3)
        fill(mq, "numbers", COUNT)
        query = {
            "folder": str(tmp_path),
            "namesrv": mq.namesrv,
            "subscribe": "numbers",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(MESSAGES_A_BATCH),
            "minPartitions": "4",
        }
        for step in (checkpoint.wait_paused, *steps):
            with DriverProcess(tmp_path, **SETTINGS) as driver:
                driver.begin(driver_main.stream_to_parquet, **query, for_ever=True, pause=str(tmp_path))
                step()
                driver.kill()
        with DriverProcess(tmp_path, **SETTINGS) as driver:
            driver.ask(driver_main.stream_to_parquet, **query)
            found = driver.ask(driver_main.count_parquet, folder=str(tmp_path))
    assert found == [COUNT, COUNT, 0, COUNT - 1, COUNT]
