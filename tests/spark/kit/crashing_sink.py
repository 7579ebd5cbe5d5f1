"""`format("crashing")`: the sink, with points at which a test stops or ends one of its processes.

`plan` is JSON: the point of each batch. Every point is reached once: a file in `folder` says so.

    task, worker, executor   partition 0 fails after it has staged its rows: an error, or a process that dies
    before, lost, decided, after    the process that commits dies: before it, when the request has left, when
                             the coordinator has answered, when the commit is done
    failed                   the commit reports an error, though it is done: Spark aborts
    hold-staged, hold-before, hold-decided, hold-after    waits until the test has removed the file
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kourou.client.producer.atomic_publish import AtomicPublish
from kourou.protocol.codes import RequestCode
from kourou.spark.sink.sink_commit import SinkTask
from kourou.spark.source.data_source import RocketmqDataSource

HOLD_S = 120
KILLED_TASKS = ("worker", "executor")


class CrashingSource(RocketmqDataSource):
    """Has options of its own: `plan`, `folder`, and `driver`, the process id of the driver."""

    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        own = {name: self.options.pop(name) for name in ("plan", "folder", "driver")}
        inner = super().streamWriter(schema, overwrite)
        return CrashingWriter(inner, json.loads(own["plan"]), Path(own["folder"]), int(own["driver"]))


class CrashingWriter(DataSourceStreamArrowWriter):
    """Around the writer of the sink."""

    def __init__(
        self, inner: DataSourceStreamArrowWriter, plan: dict[str, str], folder: Path, driver: int
    ) -> None:
        self._inner = inner
        self._plan = plan
        self._folder = folder
        self._driver = driver

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = SinkTask.current()
        staged = self._inner.write(iterator)
        assert task.batch_id is not None
        if task.partition == 0:
            self._after_staging(task.batch_id)
        return staged

    def _after_staging(self, batch_id: int) -> None:
        point = self._plan.get(str(batch_id))
        if point == "hold-staged":
            self._hold(batch_id, point)
        elif point in ("task", *KILLED_TASKS) and self._is_first(batch_id, point):
            if point == "task":
                raise RuntimeError("a task that fails after it has staged its rows")
            if point == "executor":
                daemon = os.getppid()
                os.kill(
                    int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]),
                    signal.SIGKILL,
                )
                time.sleep(HOLD_S)
            else:
                die()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        point = self._plan.get(str(batchId))
        if point == "hold-before":
            self._hold(batchId, point)
        if point == "before" and self._is_first(batchId, point):
            die()
        (self._folder / f"committing-{batchId}").touch()
        if point in ("lost", "decided", "hold-decided") and not self._reached(batchId, point).exists():
            AtomicPublish._attempt = self._watched(batchId, point)  # type: ignore[method-assign]
        self._inner.commit(messages, batchId)
        if point == "hold-after":
            self._hold(batchId, point)
        if point in ("after", "failed") and self._is_first(batchId, point):
            if point == "after":
                die()
            raise RuntimeError("a commit that is done, and reports an error")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._inner.abort(messages, batchId)

    def _watched(self, batch_id: int, point: str) -> Any:
        attempt = AtomicPublish._attempt

        async def watched(publish: AtomicPublish, broker_name: str, code: RequestCode, *rest: Any) -> Any:
            request = asyncio.ensure_future(attempt(publish, broker_name, code, *rest))
            if code == RequestCode.DECIDE_KOUROU_ATOMIC:
                if point == "lost":
                    await asyncio.sleep(0.002)
                else:
                    await asyncio.wait([request])
                if point == "hold-decided":
                    self._hold(batch_id, point)
                elif self._is_first(batch_id, point):
                    die()
            return await request

        return watched

    # -- points ------------------------------------------------------------------------------------

    def _reached(self, batch_id: int, point: str) -> Path:
        return self._folder / f"reached-{batch_id}-{point}"

    def _is_first(self, batch_id: int, point: str) -> bool:
        try:
            self._reached(batch_id, point).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _hold(self, batch_id: int, point: str) -> None:
        if not self._is_first(batch_id, point):
            return
        held = self._folder / f"held-{batch_id}-{point}"
        held.touch()
        deadline = time.monotonic() + HOLD_S
        while held.exists() and time.monotonic() < deadline:
            if not Path(f"/proc/{self._driver}").exists():
                die()
            time.sleep(0.01)


def die() -> None:
    """As by kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(HOLD_S)
