"""job_progress: shows how many tasks of a batch job are done, while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kourou.spark.pipelines.progress import PipelineProgress, ProgressOutput, Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S: Final = 0.5


@contextmanager
def job_progress(spark: SparkSession, title: str, output: ProgressOutput) -> Iterator[None]:
    """For terminals and logs only: with JSON nothing is shown, as the result rows are objects themselves."""
    if output.as_json:
        yield
        return
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()
    with PipelineProgress(title, output) as progress:
        watcher = threading.Thread(target=_watch, args=(tracker, progress, ended), name="job-progress")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(tracker: Any, progress: PipelineProgress, ended: threading.Event) -> None:
    while not ended.wait(_POLL_S):
        note = describe_tasks(tracker)
        if note:
            progress.show(Reading(note=note))


def describe_tasks(tracker: Any) -> str:
    """The progress of the running stages; empty if there are none."""
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    if not known:
        return ""
    done = sum(stage.numCompletedTasks for stage in known)
    return f"{done} of {sum(stage.numTasks for stage in known)} tasks"
