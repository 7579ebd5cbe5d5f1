"""Spark for the tests of this folder: one session for all of them, on two cores.

Tests that use the fixture `spark` start a JVM and are `slow`; all tests here are `spark`, so that one run has
them all. Without PySpark or Java they are skipped, with KOUROU_REQUIRE_SPARK=1 they fail.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.needed import need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def steps_of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget the modules beside a pipeline's file: the next file may have others of the same name."""
    modules, path = set(sys.modules), list(sys.path)
    folder = str(tmp_path_factory.getbasetemp())
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
            del sys.modules[name]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with the format `rocketmq`."""
    need_spark()
    from kourou.spark.session import local_session

    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "kourou-tests",
        master="local[2]",
        settings={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.session.timeZone": "UTC",
        },
        fast_start=True,
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def need_spark() -> None:
    """Skip where there is no PySpark, or no Java for it."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        need(f"the extra `spark` ({error.name} is missing)", None)
    from kourou.errors import ConfigError
    from kourou.spark.java import find_java

    try:
        find_java()
    except ConfigError as error:
        need(str(error), None)
