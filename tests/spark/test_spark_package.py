"""`kourou.spark` is light, and says what it offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kourou.spark

LIGHT = """
import sys
import kourou.spark
heavy = {"pyspark", "pyarrow", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""


def test_importing_it_imports_neither_spark_nor_arrow() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True, timeout=60)


def test_the_public_names() -> None:
    assert dir(kourou.spark) == [
        "DataLossError",
        "LagListener",
        "ProgressPublisher",
        "RocketmqDataSource",
        "StreamLag",
        "StreamMetrics",
        "local_session",
        "open_archive",
        "parquet_files",
        "read_lake",
        "register",
        "stream_lag",
    ]
    assert kourou.spark.DataLossError.__module__ == "kourou.spark.source.data_loss"
    with pytest.raises(AttributeError, match="it offers DataLossError"):
        _ = kourou.spark.Nothing
