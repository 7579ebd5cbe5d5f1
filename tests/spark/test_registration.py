"""The format `rocketmq` is known: by its module's name, by `register`, and in the wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import pytest

from tests.needed import need_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

need_module("pyspark")
ROOT = Path(__file__).parents[2]


def test_spark_finds_the_module_by_its_name() -> None:
    assert "pyspark_kourou" in {module.name for module in iter_modules()}
    import pyspark_kourou
    from kourou.spark import RocketmqDataSource

    assert pyspark_kourou.DefaultSource is RocketmqDataSource
    assert RocketmqDataSource.name() == "rocketmq"


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "kourou.spark.source.data_source"])
def test_the_module_never_raises(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import pyspark_kourou; print(hasattr(pyspark_kourou, 'DefaultSource'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in {"False", "True"}
    assert done.stderr == ""


def test_without_pyspark_register_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from kourou.spark import register\n"
        "try: register(None)\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'kourou[spark]'" in done.stdout


def test_a_session_of_its_own_knows_the_format(spark: SparkSession) -> None:
    """Without `register`: another session shares the JVM and not what was registered in the first."""
    from pyspark.errors import PySparkException

    own = spark.newSession()
    data = own.range(1).selectExpr("cast(id AS string) AS value")
    with pytest.raises(PySparkException, match="unknown option 'topik'; did you mean topic"):
        data.write.format("rocketmq").option("topik", "Orders").mode("append").save()
