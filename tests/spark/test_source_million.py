"""A million messages are in Parquet exactly once, however often the driver and its JVM are killed."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.spark.conftest import need_spark
from tests.spark.kit import driver_main
from tests.spark.kit.driver_process import DriverProcess, wait_for

# test_driver_kill.py has the steps of a batch; this one has the numbers.
pytestmark = [pytest.mark.nightly, pytest.mark.slow]
COUNT = int(os.environ.get("KOUROU_SPARK_MESSAGES", "1000000"))
QUEUES = 4
# A driver takes twenty seconds from its start to its first batch.
KILLS = 10
MESSAGES_A_SEND = 2_000


def fill(mq: LocalCluster) -> None:
    with Producer("million", namesrv=mq.namesrv) as producer:
        for begin in range(0, COUNT, MESSAGES_A_SEND):
            numbers = range(begin, min(begin + MESSAGES_A_SEND, COUNT))
            producer.send_many([Message("million", b"%d" % number) for number in numbers])


def wait_for_another(folder: Path, pattern: str) -> None:
    before = len(list(folder.glob(pattern)))
    wait_for(lambda: len(list(folder.glob(pattern))) > before, f"another {pattern} in {folder.name}")


def wait_for_the_kill(folder: Path, number: int, chance: random.Random) -> None:
    """By turns a task writes its rows, or a batch is done; and then a moment, so that it may be any step."""
    if number % 2:
        wait_for_another(folder / "rows", "part-*")
    else:
        wait_for_another(folder / "checkpoint" / "commits", "[0-9]*")
    time.sleep(chance.random() * 0.5)


def test_a_million_messages_over_kills(tmp_path: Path) -> None:
    need_spark()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with LocalCluster() as mq, ThreadPoolExecutor(1) as threads:
        mq.create_topic("million", queues=QUEUES)
        sent = threads.submit(fill, mq)
        query = {
            "folder": str(tmp_path),
            "namesrv": mq.namesrv,
            "subscribe": "million",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(COUNT // 20),
            "minPartitions": "6",
        }
        for number in range(KILLS):
            with DriverProcess(tmp_path) as driver:
                driver.begin(driver_main.stream_to_parquet, **query, for_ever=True)
                wait_for_the_kill(tmp_path, number, chance)
                driver.kill()
        sent.result()
        with DriverProcess(tmp_path) as driver:
            driver.ask(driver_main.stream_to_parquet, **query)
            found = driver.ask(driver_main.count_parquet, folder=str(tmp_path))
    assert found == [COUNT, COUNT, 0, COUNT - 1, COUNT]
