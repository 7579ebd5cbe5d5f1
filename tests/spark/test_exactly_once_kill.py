"""Topic to Spark to topic with guarantee=exactly-once, while everything that can die does: each row is there
once, and none is visible before its batch is committed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kourou.spark.cluster import standalone_cluster
from tests.crash.rounds import NIGHTLY
from tests.spark.conftest import need_spark
from tests.spark.kit.driver_process import PROJECT
from tests.spark.kit.exactly_once_run import BROKER, COMMITS, DRIVER, LOCAL, TASKS, Plan, check_each_row_once

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.mark.parametrize("number", range(9 if NIGHTLY else 1))
def test_each_row_once_whatever_dies(tmp_path: Path, number: int) -> None:
    """Twelve starts of the query, and two of its driver: nine rounds are a hundred restarts."""
    need_spark()
    driver = DRIVER[number % len(DRIVER)] if NIGHTLY else random.choice(DRIVER)
    check_each_row_once(tmp_path, Plan([*TASKS, *COMMITS, *BROKER], [driver]), LOCAL)


@pytest.mark.nightly
def test_each_row_once_when_executors_die(tmp_path: Path) -> None:
    """On a cluster: an executor dies with rows that it has staged, and another one does its tasks."""
    need_spark()
    path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with standalone_cluster(workers=2, folder=tmp_path / "cluster") as cluster:
        how = {"master": cluster.master, **cluster.settings, "spark.executorEnv.PYTHONPATH": path}
        folder = tmp_path / "run"
        folder.mkdir()
        check_each_row_once(folder, Plan(["executor", "worker", "after", "executor"], []), how)
