"""Topic to Spark to topic with guarantee=exactly-once, while everything that can die does: each row is there
once, and none is visible before its batch is committed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.rounds import NIGHTLY
from tests.spark.conftest import need_spark
from tests.spark.kit.exactly_once_run import BROKER, COMMITS, DRIVER, LOCAL, TASKS, Plan, check_each_row_once

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.mark.parametrize("number", range(9 if NIGHTLY else 1))
def test_each_row_once_whatever_dies(tmp_path: Path, number: int) -> None:
    """Twelve starts of the query, and two of its driver: nine rounds are a hundred restarts."""
    need_spark()
    driver = DRIVER[number % len(DRIVER)] if NIGHTLY else random.choice(DRIVER)
    check_each_row_once(tmp_path, Plan([*TASKS, *COMMITS, *BROKER], [driver]), LOCAL)
