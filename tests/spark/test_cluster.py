"""A standalone cluster of the pip-installed PySpark: two workers read and write, and executors are killed.

The workers' Python has what Spark needs, and no Kourou: that is shipped, as docs/spark-cluster.md says.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kourou
from kourou import Message, Producer, PullConsumer
from kourou.errors import ConfigError
from kourou.protocol.record import decode_records
from kourou.spark import cluster as cluster_module
from kourou.spark.cluster import StandaloneCluster, standalone_cluster
from kourou.spark.java import find_java
from kourou.testing import LocalCluster
from tests.spark.conftest import need_spark
from tests.spark.kit import driver_main
from tests.spark.kit.driver_process import SMALL, WAIT_S, DriverProcess, wait_for

pytestmark = pytest.mark.slow
SOURCES = Path(kourou.__file__).parents[1]
COUNT = 40_000
ALL_ONCE = [COUNT, COUNT, 0, COUNT - 1, COUNT]
EXECUTORS = {
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    # A task that is killed in its middle has seen some rows, and not all.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.sql.shuffle.partitions": "2",
}


# -- the cluster, messages, and a driver -----------------------------------------------------------


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages of this one, but for those that are here by a link only: Kourou. Packages
    come first, so that PySpark is imported from compiled code and not from Spark's archive."""
    path = tmp_path_factory.mktemp("python") / "python"
    packages = sysconfig.get_paths()["purelib"]
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    bare = {**os.environ, "PYTHONPATH": ""}
    has_spark = subprocess.run([path, "-c", "import pyspark, pyarrow, msgspec"], env=bare)
    has_kourou = subprocess.run([path, "-c", "import kourou"], env=bare, capture_output=True, text=True)
    assert has_spark.returncode == 0 and "No module named 'kourou'" in has_kourou.stderr
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    need_spark()
    with standalone_cluster(workers=2, folder=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    """A topic `orders` of numbers, in four queues."""
    with LocalCluster() as running:
        running.create_topic("orders", queues=4)
        with Producer("cluster-tests", namesrv=running.namesrv) as producer:
            for begin in range(0, COUNT, 2_000):
                producer.send_many([Message("orders", b"%d" % each) for each in range(begin, begin + 2_000)])
        yield running


def how_to_drive(cluster: StandaloneCluster) -> dict[str, str]:
    return {"master": cluster.master, **cluster.settings, **EXECUTORS}


def driver_environ(python: Path) -> dict[str, str]:
    """The driver's own helpers run the bare Python, too, and find Kourou by PYTHONPATH."""
    project = str(Path(__file__).parents[2])
    return {"PYTHONPATH": os.pathsep.join([project, str(SOURCES)]), "PYSPARK_PYTHON": str(python)}


@pytest.fixture(scope="module")
def driver(
    cluster: StandaloneCluster, bare_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DriverProcess]:
    """A driver whose executors get Kourou as an archive."""
    folder = tmp_path_factory.mktemp("driver")
    archive = folder / "deps.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for path in kourou_files():
            tar.add(path, path.relative_to(SOURCES))
    shipped = {"spark.archives": f"{archive}#deps", "spark.executorEnv.PYTHONPATH": "deps"}
    how = {**how_to_drive(cluster), **shipped}
    with DriverProcess(folder, driver_environ(bare_python), **how) as running:
        yield running


def kourou_files() -> list[Path]:
    return [*sorted((SOURCES / "kourou").rglob("*.py")), SOURCES / "pyspark_kourou.py"]


class WorkersAtWork:
    """Which workers did tasks since this was made."""

    def __init__(self, driver: DriverProcess, cluster: StandaloneCluster) -> None:
        self._driver = driver
        self._cluster = cluster
        self._before: dict[str, int] = driver.ask(driver_main.tasks_of_executors)

    def names(self) -> set[str]:
        tasks: dict[str, int] = self._driver.ask(driver_main.tasks_of_executors)
        busy = {executor for executor, done in tasks.items() if done > self._before.get(executor, 0)}
        return {
            worker.name
            for worker in self._cluster.workers
            for executor in busy
            if list((self._cluster.folder / worker.name).glob(f"app-*/{executor}"))
        }


BOTH = {"worker-1", "worker-2"}


def stored(mq: LocalCluster, topic: str) -> Counter[int]:
    """The numbers in a topic, and how often each is there."""
    found: Counter[int] = Counter()
    with PullConsumer("cluster-tests", namesrv=mq.namesrv) as consumer:
        for queue in consumer.fetch_queues(topic):
            end = consumer.max_offset(queue)
            for chunk in consumer.read(queue, begin_offset=0, end_offset=end):
                found.update(int(message.body) for message in decode_records(chunk.body))
    return found


# -- reading and writing ---------------------------------------------------------------------------


def test_kourou_comes_with_the_archive(driver: DriverProcess, cluster: StandaloneCluster) -> None:
    places = driver.ask(driver_main.modules_of_executors)
    assert len(places) == 2
    for place, worker in zip(places, cluster.workers, strict=True):
        assert place.startswith(str(cluster.folder / worker.name)) and "/deps/kourou/" in place


def test_both_workers_read_a_batch(
    driver: DriverProcess, cluster: StandaloneCluster, mq: LocalCluster
) -> None:
    workers = WorkersAtWork(driver, cluster)
    found = driver.ask(driver_main.read_batch, namesrv=mq.namesrv, subscribe="orders", minPartitions="8")
    assert found == ALL_ONCE
    assert workers.names() == BOTH


def test_a_stream_from_topic_to_topic(
    driver: DriverProcess, cluster: StandaloneCluster, mq: LocalCluster, tmp_path: Path
) -> None:
    mq.create_topic("copied", queues=2)
    workers = WorkersAtWork(driver, cluster)
    where = {"namesrv": mq.namesrv, "subscribe": "orders", "startingOffsets": "earliest"}
    driver.ask(driver_main.stream_to_topic, folder=str(tmp_path), topic="copied", **where)
    assert stored(mq, "copied") == Counter(range(COUNT))
    assert workers.names() == BOTH


# -- executors that are killed ---------------------------------------------------------------------


def kill_paused_executor(folder: Path) -> None:
    """kill -9 of the executor whose task waits in its middle."""
    wait_for((folder / "paused").exists, "a task in its middle")
    worker, executor = json.loads((folder / "paused").read_text())
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)
    # Its Python process notices by the end of its input.
    wait_for(lambda: not Path(f"/proc/{worker}").exists(), "the end of the worker's Python")


def test_an_executor_that_is_killed_in_the_middle_of_a_stream(
    driver: DriverProcess, mq: LocalCluster, tmp_path: Path
) -> None:
    before = driver.ask(driver_main.tasks_of_executors)
    where = {"namesrv": mq.namesrv, "subscribe": "orders", "startingOffsets": "earliest"}
    driver.begin(
        driver_main.stream_to_parquet,
        folder=str(tmp_path),
        pause=str(tmp_path),
        maxOffsetsPerTrigger=str(COUNT // 2),
        **where,
    )
    kill_paused_executor(tmp_path)
    driver.result()
    assert driver.ask(driver_main.count_parquet, folder=str(tmp_path)) == ALL_ONCE
    wait_for(
        lambda: len(driver.ask(driver_main.tasks_of_executors)) > len(before), "an executor in its place", 0.2
    )


def test_an_executor_that_is_killed_in_the_middle_of_a_write(
    driver: DriverProcess, mq: LocalCluster, tmp_path: Path
) -> None:
    """The sink sends at least once: what the dead task sent is there, and all that the next one sends."""
    mq.create_topic("survived", queues=2)
    driver.begin(
        driver_main.write_batch,
        count=10_000,
        partitions=4,
        pause=str(tmp_path),
        namesrv=mq.namesrv,
        topic="survived",
    )
    kill_paused_executor(tmp_path)
    driver.result()
    found = stored(mq, "survived")
    assert set(found) == set(range(10_000))
    # Only rows of the one partition may be there again.
    assert set(found.values()) <= {1, 2} and sum(found.values()) <= 12_500


# -- as the document says --------------------------------------------------------------------------

DOCUMENT = (Path(__file__).parents[2] / "docs" / "spark-cluster.md").read_text()


def program(name: str) -> str:
    """A program of the document, by the name on its first line."""
    found = re.search(rf"^```py {name}\n(.*?)^```", DOCUMENT, re.S | re.M)
    assert found is not None, f"the document has no {name}"
    return found[1]


def command(word: str) -> str:
    """The command of the document that has a word."""
    (found,) = [line for line in DOCUMENT.splitlines() if line.startswith("spark-submit ") and word in line]
    return found


def submit(line: str, cluster: StandaloneCluster, mq: LocalCluster, python: Path, folder: Path) -> str:
    """Run a command in `folder`, with job.py in it; what it printed."""
    (folder / "job.py").write_text(program("job.py"))
    small = {"spark.ui.enabled": "false", **SMALL, **cluster.settings, **EXECUTORS}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {small[name]}\n" for name in small))
    words = {"MASTER": cluster.master, "NAMESRV": mq.namesrv, "FOLDER": str(folder)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    spark = {"PATH": path, "SPARK_CONF_DIR": str(folder)}
    java = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ = {**os.environ, **words, **spark, **java, **driver_environ(python)}
    environ.pop("PYSPARK_DRIVER_PYTHON", None)  # a session of this process leaves it behind
    done = subprocess.run(
        ["bash", "-ec", line], cwd=folder, env=environ, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


@pytest.mark.nightly
def test_py_files_are_enough_where_the_driver_has_kourou(
    cluster: StandaloneCluster, driver: DriverProcess, bare_python: Path, mq: LocalCluster, tmp_path: Path
) -> None:
    driver.close()  # it holds the cores
    with zipfile.ZipFile(tmp_path / "kourou.zip", "w") as file:
        for path in kourou_files():
            file.write(path, path.relative_to(SOURCES))
    printed = submit(command("--py-files"), cluster, mq, bare_python, tmp_path)
    assert f"{COUNT} messages" in printed
    rows = pyarrow_rows(tmp_path / "orders")
    assert Counter(int(value) for value in rows) == Counter(range(COUNT))


def pyarrow_rows(folder: Path) -> list[bytes]:
    """The values of a table that nothing disturbed: all of its files count."""
    from pyarrow import parquet

    values: list[bytes] = parquet.read_table(folder, columns=["value"]).column("value").to_pylist()
    return values


def test_the_document_ships_the_archive_as_these_tests_do() -> None:
    assert "--archives deps.tar.gz#deps --conf spark.executorEnv.PYTHONPATH=deps" in command("--archives")
    assert "python -m kourou.spark.cluster --workers 2 --cores 1 --memory 1g" in DOCUMENT
    assert f"spark-class {cluster_module._MASTER_CLASS} --host" in DOCUMENT
    assert f"spark-class {cluster_module._WORKER_CLASS} spark://" in DOCUMENT


# -- the cluster itself ----------------------------------------------------------------------------


def test_the_masters_page_has_the_workers(cluster: StandaloneCluster) -> None:
    with urllib.request.urlopen(f"{cluster.ui}/json/", timeout=10) as answer:
        state = json.load(answer)
    assert state["url"] == cluster.master
    assert [worker["state"] for worker in state["workers"]] == ["ALIVE", "ALIVE"]


def test_as_a_program_it_runs_until_it_is_stopped(tmp_path: Path) -> None:
    need_spark()
    command = [sys.executable, "-m", "kourou.spark.cluster", "--workers", "1", "--folder", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline().startswith("master spark://127.0.0.1:")
            assert program.stdout.readline().startswith("page   http://127.0.0.1:")
            program.terminate()
            assert program.wait(30) == 0
        finally:
            program.kill()
    assert "registered with master" in (tmp_path / "worker-1.log").read_text()


def test_problems_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_spark()
    with pytest.raises(ConfigError, match="at least one worker"), standalone_cluster(workers=0):
        pass
    assert cluster_module.main(["--memory", "much"]) == 1
    assert capsys.readouterr().err == "memory must be a number with m or g, such as 512m, not 'much'\n"


def test_a_master_that_does_not_start(tmp_path: Path) -> None:
    need_spark()
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho no memory left\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17"\nMODULES="jdk.incubator.vector"\n')
    environ = {**os.environ, "JAVA_HOME": str(tmp_path / "jdk")}
    with (
        pytest.raises(ConfigError, match=r"Spark's master exited; its log ends with:\n(.*\n)*no memory left"),
        standalone_cluster(folder=tmp_path, environ=environ),
    ):
        pass
