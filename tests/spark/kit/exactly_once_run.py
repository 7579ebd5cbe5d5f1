"""Runs of a query from topic to topic with guarantee=exactly-once, in which everything that can die does.

What dies when is decided by crashing_sink.py, not by luck: the batches of a query are as large as the plan
says, and each of them has its point.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kourou import Message, Producer, PullConsumer
from kourou.admin.session import Admin
from kourou.admin.topics import create_topic
from kourou.errors import KourouError
from kourou.protocol.bodies import TopicConfig
from tests.crash.killed_broker import KilledBroker
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.spark.kit import driver_main
from tests.spark.kit.driver_process import DriverProcess, wait_for

ROWS_A_BATCH = 300
TASKS = ["task", "worker"]
COMMITS = ["before", "lost", "decided", "after", "failed"]
BROKER = ["hold-staged", "hold-before", "hold-decided"]
DRIVER = ["hold-staged", "hold-before", "hold-decided", "hold-after"]
LOCAL = {"master": "local[2,4]"}
"""Tasks are tried again."""


class Reader:
    """Reads a topic all along. Rows are numbers, and those of one batch follow each other."""

    def __init__(self, namesrv: str, topic: str, folder: Path) -> None:
        self._namesrv, self._topic, self._folder = namesrv, topic, folder
        self.found: Counter[int] = Counter()
        self.too_early: list[int] = []
        self._is_over = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._reading = self._threads.submit(self._run)

    def _run(self) -> None:
        with PullConsumer("readers", namesrv=self._namesrv) as consumer:
            queues = consumer.fetch_queues(self._topic)
            offsets = dict.fromkeys(queues, 0)
            is_last = False
            while not is_last:
                is_last = self._is_over.is_set()
                for queue in queues:
                    try:
                        while found := consumer.pull(
                            queue, queue_offset=offsets[queue], max_messages=999
                        ).messages():
                            offsets[queue] += len(found)
                            self._note([int(message.body) for message in found])
                    except KourouError:
                        pass  # the broker is away
                time.sleep(0.01)

    def _note(self, numbers: list[int]) -> None:
        self.found.update(numbers)
        for batch in {number // ROWS_A_BATCH for number in numbers}:
            if not (self._folder / f"committing-{batch}").exists():
                self.too_early.append(batch)

    def close(self) -> None:
        """Read to the end."""
        self._is_over.set()
        self._threads.shutdown()
        self._reading.result()

    def has(self, rows: int) -> bool:
        """Whether it has so many rows."""
        if self._reading.done():
            self._reading.result()
        return self.found.total() >= rows


class Run:
    """One query from topic to topic, started again whenever it, or its driver, dies."""

    def __init__(
        self,
        folder: Path,
        namesrv: str,
        broker: KilledBroker,
        threads: ThreadPoolExecutor,
        plan: Plan,
        how: dict[str, str],
    ) -> None:
        """`threads` has one thread, in which the broker is started again: it lives as long as that."""
        self._folder, self._namesrv, self._broker = folder, namesrv, broker
        self._threads, self._plan, self._how = threads, plan, how

    def to_the_end(self) -> None:
        is_over = threading.Event()
        killing = self._threads.submit(self._kill_broker_at_its_points, is_over)
        try:
            for point in self._plan.driver_points:
                driver = self._begin()
                wait_for(partial(self._is_held, point), f"a batch at {point}", 0.05)
                driver.kill()
                (self._folder / point).unlink()
            driver = self._begin()
            try:
                driver.result()
            finally:
                driver.kill()
        finally:
            is_over.set()
            killing.result()

    def _is_held(self, point: str) -> bool:
        errors = self._folder / driver_main.ERRORS
        assert not errors.exists(), errors.read_text()
        return (self._folder / point).exists()

    def _begin(self) -> DriverProcess:
        driver = DriverProcess(self._folder, **self._how).wait_ready()
        driver.begin(
            driver_main.stream_exactly_once,
            folder=str(self._folder),
            namesrv=self._namesrv,
            subscribe="Numbers",
            topic="Copies",
            plan=json.dumps(self._plan.points),
            source={"maxOffsetsPerTrigger": str(ROWS_A_BATCH), "minPartitions": "3"},
            times=len(self._plan.points) + 1,
        )
        return driver

    def _kill_broker_at_its_points(self, is_over: threading.Event) -> None:
        waiting = set(self._plan.broker_points)
        while waiting and not is_over.wait(0.01):
            for point in [each for each in waiting if (self._folder / each).exists()]:
                self._broker.kill()
                self._broker.start()
                (self._folder / point).unlink()
                waiting.remove(point)


class Plan:
    """Which batch dies how. Those of the driver come last: each takes a new driver."""

    def __init__(self, others: list[str], drivers: list[str]) -> None:
        random.shuffle(others)
        self.points = dict(enumerate([*others, *drivers]))
        held = [f"held-{batch}-{point}" for batch, point in self.points.items() if point in DRIVER]
        self.broker_points = held[: len(held) - len(drivers)]
        self.driver_points = held[len(held) - len(drivers) :]
        self.rows = (len(self.points) + 1) * ROWS_A_BATCH


async def create_topics(namesrv: str, address: str, **queues: int) -> None:
    async with Admin(namesrv=namesrv) as admin:
        for topic, count in queues.items():
            config = TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
            await create_topic(admin, address, config)


def fill(namesrv: str, count: int) -> None:
    with Producer("numbers", namesrv=namesrv) as producer:
        (queue,) = producer.queues("Numbers")
        producer.send_many([Message("Numbers", b"%d" % each) for each in range(count)], queue=queue)


def check_each_row_once(folder: Path, plan: Plan, how: dict[str, str]) -> None:
    """Each row is there once, and none was visible before the commit of its batch."""
    print(f"points: {plan.points}")
    with ThreadPoolExecutor(1) as threads, launch_kourou_namesrv(folder / "namesrv") as process:
        namesrv = process.wait_ready().address
        broker = KilledBroker(folder, namesrvAddr=namesrv, mappedFileSizeCommitLog=16 << 20)
        broker.start()
        try:
            asyncio.run(create_topics(namesrv, broker.address, Numbers=1, Copies=3))
            fill(namesrv, plan.rows)
            reader = Reader(namesrv, "Copies", folder)
            try:
                Run(folder, namesrv, broker, threads, plan, how).to_the_end()
                wait_for(lambda: reader.has(plan.rows), "all rows", 0.05)
            finally:
                reader.close()
        finally:
            broker.kill()
    reached = {path.name for path in folder.glob("reached-*")}
    assert reached == {f"reached-{batch}-{point}" for batch, point in plan.points.items()}
    assert reader.found == Counter(range(plan.rows))
    assert not reader.too_early
