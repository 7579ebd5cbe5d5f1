"""How many tasks of a batch job are done."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.spark.pipelines.job_watch import describe_tasks


@dataclass
class Stage:
    """What Spark says of a stage."""

    numTasks: int
    numCompletedTasks: int


class Tracker:
    """Spark's StatusTracker, with stages that are known or gone."""

    def __init__(self, stages: dict[int, Stage | None]) -> None:
        self._stages = stages

    def getActiveStageIds(self) -> list[int]:
        return list(self._stages)

    def getStageInfo(self, stage_id: int) -> Stage | None:
        return self._stages[stage_id]


def test_tasks_of_all_stages_that_run() -> None:
    assert describe_tasks(Tracker({1: Stage(8, 3), 2: Stage(2, 2), 3: None})) == "5 of 10 tasks"


def test_nothing_runs() -> None:
    assert describe_tasks(Tracker({})) == ""
    assert describe_tasks(Tracker({1: None})) == ""
