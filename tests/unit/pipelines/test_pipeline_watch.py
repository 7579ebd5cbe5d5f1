"""Queries of a pipeline watched: ends, failures, stop requests; with fake queries."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.needed import need_module

need_module("pyspark")

from kourou.spark.pipelines.pipeline_errors import PipelineError  # noqa: E402
from kourou.spark.pipelines.pipeline_watch import (  # noqa: E402
    PipelineWatch,
    TotalProgress,
    together,
)
from kourou.spark.pipelines.progress import ProgressOutput, Reading  # noqa: E402
from kourou.spark.pipelines.query_watch import StopRequest  # noqa: E402

LATE = "Python worker failed to connect back."


class FakeQuery:
    """Runs for so many looks, then ends or fails."""

    def __init__(self, looks: int = 1, error: str | None = None) -> None:
        self.looks = looks
        self.error = error
        self.stopped = False
        self.on_look: Callable[[], None] = lambda: None
        self.lastProgress = None
        self.recentProgress: list[Any] = []
        self.status = {"message": "Waiting for data to arrive", "isDataAvailable": False}

    @property
    def isActive(self) -> bool:
        return self.looks > 0 and not self.stopped

    def exception(self) -> str | None:
        return self.error if self.looks <= 0 and not self.stopped else None

    def awaitTermination(self, timeout_s: float) -> bool:
        self.looks -= 1
        self.on_look()
        return not self.isActive

    def stop(self) -> None:
        self.stopped = self.stopped or self.isActive


def watch(*queries: FakeQuery, as_json: bool = True) -> tuple[PipelineWatch, io.StringIO]:
    stream = io.StringIO()
    progress = TotalProgress("orders", ProgressOutput(as_json, stream, False))
    starts = {f"sink-{at}": (lambda query=query: query) for at, query in enumerate(queries)}
    made = PipelineWatch(starts, (), progress)  # type: ignore[arg-type]
    made.start()
    return made, stream


def test_it_ends_when_all_have_ended() -> None:
    first, second = FakeQuery(looks=2), FakeQuery(looks=5)
    made, stream = watch(first, second)
    summary = made.wait()
    assert summary.ended == "finished" and not first.isActive and not second.isActive
    assert json.loads(stream.getvalue().splitlines()[-1])["type"] == "summary"


def test_one_that_dies_stops_the_others() -> None:
    good, bad = FakeQuery(looks=1_000), FakeQuery(looks=1, error="[X] boom")
    made, _ = watch(good, bad)
    good.on_look = lambda: setattr(bad, "looks", 0)
    with pytest.raises(PipelineError, match="sink-1 failed: boom; the other sinks were stopped"):
        made.wait()
    assert good.stopped


def test_a_stop_request_stops_all_in_order() -> None:
    first, second = FakeQuery(looks=1_000), FakeQuery(looks=1_000)
    made, stream = watch(first, second, as_json=False)
    stop_request = StopRequest()
    stop_request.note()
    assert made.wait(stop_request).ended == "stopped"
    assert first.stopped and second.stopped
    assert "stopping after this batch" in stream.getvalue()


def test_a_query_whose_python_process_was_late_is_started_again() -> None:
    queries = [FakeQuery(looks=0, error=LATE), FakeQuery(looks=0, error=LATE), FakeQuery(looks=2)]
    progress = TotalProgress("orders", ProgressOutput(True, io.StringIO(), False))
    rest = iter(queries)
    made = PipelineWatch({"out": lambda: next(rest)}, (), progress)  # type: ignore[arg-type,return-value]
    made.start()
    assert made.wait().ended == "finished"
    assert next(rest, None) is None


def test_it_is_not_started_again_for_ever() -> None:
    progress = TotalProgress("orders", ProgressOutput(True, io.StringIO(), False))
    start = lambda: FakeQuery(looks=0, error=LATE)  # noqa: E731
    made = PipelineWatch({"out": start}, (), progress)  # type: ignore[dict-item]
    made.start()
    with pytest.raises(PipelineError, match="out failed: Python worker failed to connect back"):
        made.wait()


def test_leaving_the_block_stops_what_runs() -> None:
    query = FakeQuery(looks=1_000)
    made, _ = watch(query)
    with pytest.raises(KeyboardInterrupt), made:
        raise KeyboardInterrupt
    assert query.stopped


def test_readings_together() -> None:
    total = together(
        [Reading(rows=3, batches=1, batch_ms=5, lag_messages=7, lag_seconds=1.0), Reading(rows=2)]
    )
    assert total == Reading(rows=5, batches=1, batch_ms=5, lag_messages=7, lag_seconds=1.0)
    assert together([]) == Reading()


def test_rows_written_together_are_known_if_those_of_all_are() -> None:
    first, second = Reading(rows=9, rows_written=4), Reading(rows=9, rows_written=0)
    assert together([first, second]).rows_written == 4
    # One that has read nothing has written nothing.
    assert together([first, Reading()]).rows_written == 4
    assert together([first, Reading(rows=3)]).rows_written is None
