"""Spark Connect: a client without a JVM reads and writes topics through a server, batch and stream.

The server is of the pip-installed PySpark, started as docs/spark-cluster.md says.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou import Message, Producer
from kourou.spark.java import find_java
from kourou.spark.session import quick_python
from kourou.testing import LocalCluster
from tests.interop.kit.ports import free_port
from tests.interop.kit.process import ServerProcess
from tests.needed import need_module
from tests.spark.conftest import need_spark
from tests.spark.kit import driver_main
from tests.spark.kit.driver_process import SMALL, DriverProcess

pytestmark = pytest.mark.slow
COUNT = 4_000
DOCUMENT = (Path(__file__).parents[2] / "docs" / "spark-cluster.md").read_text()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server."""
    need_spark()
    need_module("grpc")
    with connect_server(tmp_path_factory.mktemp("server")) as server:
        server.wait_ready()
        yield f"sc://{server.address}"


@pytest.fixture(scope="module")
def client(remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverProcess]:
    """A client in a process of its own."""
    with DriverProcess(tmp_path_factory.mktemp("client"), remote=remote) as running:
        yield running


def connect_server(folder: Path) -> ServerProcess:
    from pyspark.find_spark_home import _find_spark_home

    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        **SMALL,
    }
    program, *arguments = shlex.split(documented_command())
    assert program == "spark-submit"
    more = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return ServerProcess(
        "Spark Connect",
        [f"{_find_spark_home()}/bin/spark-submit", *arguments, *more],
        port=port,
        log_path=folder / "server.log",
        environment={
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": quick_python(sys.executable, os.environ),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )


def documented_command() -> str:
    """How the document starts the server; its port and the like are set anew behind it."""
    (command,) = re.findall(r"^spark-submit --class .*\\\n.*$", DOCUMENT, re.M)
    return str(command)


@pytest.fixture(scope="module")
def mq(client: DriverProcess) -> Iterator[LocalCluster]:
    """Topic `numbers`, written by the client."""
    with LocalCluster() as running:
        running.create_topic("numbers", queues=2)
        where = {"namesrv": running.namesrv, "topic": "numbers"}
        client.ask(driver_main.write_batch, count=COUNT, partitions=2, **where)
        yield running


def test_it_is_a_client_without_a_jvm(client: DriverProcess) -> None:
    assert client.ask(driver_main.session_class) == "pyspark.sql.connect.session"


def test_a_batch_is_written_and_read(client: DriverProcess, mq: LocalCluster) -> None:
    assert sorted(int(message.body) for message in mq.messages("numbers")) == list(range(COUNT))
    found = client.ask(driver_main.read_batch, namesrv=mq.namesrv, subscribe="numbers", minPartitions="3")
    assert found == [COUNT, COUNT, 0, COUNT - 1, COUNT]


def test_a_stream_goes_on_from_its_checkpoint(
    client: DriverProcess, mq: LocalCluster, tmp_path: Path
) -> None:
    mq.create_topic("growing", queues=2)
    growing = {"namesrv": mq.namesrv, "topic": "growing"}
    query = {"folder": str(tmp_path), "namesrv": mq.namesrv, "subscribe": "growing"}
    for part in (1, 2):
        rows = {"count": part * 500, "begin": (part - 1) * 500, "partitions": 2}
        client.ask(driver_main.write_batch, **rows, **growing)
        client.ask(driver_main.stream_to_parquet, startingOffsets="earliest", **query)
        found = client.ask(driver_main.count_parquet, folder=str(tmp_path))
        assert found == [part * 500, part * 500, 0, part * 500 - 1, part * 500]


def test_a_stream_from_topic_to_topic(client: DriverProcess, mq: LocalCluster, tmp_path: Path) -> None:
    mq.create_topic("copied", queues=2)
    where = {"namesrv": mq.namesrv, "subscribe": "numbers", "startingOffsets": "earliest"}
    client.ask(driver_main.stream_to_topic, folder=str(tmp_path), topic="copied", **where)
    assert sorted(int(message.body) for message in mq.messages("copied")) == list(range(COUNT))


def test_the_documents_program(client: DriverProcess, remote: str, mq: LocalCluster) -> None:
    (program,) = re.findall(r"^```py connect\n(.*?)^```", DOCUMENT, re.S | re.M)
    mq.create_topic("orders", queues=1)
    with Producer("connect-tests", namesrv=mq.namesrv) as producer:
        producer.send(Message("orders", b"one book"))
    names = {"remote": remote, "namesrv": mq.namesrv}
    assert "one book" in client.ask(driver_main.run_program, program=program, **names)


def test_a_mistake_is_reported_to_the_client(client: DriverProcess, mq: LocalCluster) -> None:
    with pytest.raises(AssertionError, match=r"did you mean startingOffsets\?"):
        client.ask(driver_main.read_batch, namesrv=mq.namesrv, subscribe="numbers", startingOfsets="latest")
