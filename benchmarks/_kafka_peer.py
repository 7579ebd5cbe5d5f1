"""Kafka beside us: a broker of it as a process of its own, and the jars of Spark's Kafka source.

Jars come by Maven into the cache folder of the interop tests, once; nothing of them is in this repository.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.interop.kit.process import ServerProcess

KAFKA_VERSION = "4.1.0"
SPARK_KAFKA_VERSION = "4.1.1"
BROKER_JARS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
)
SPARK_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_KAFKA_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
# The heap of Kafka's own start script.
JVM_OPTIONS = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
MAVEN_TIMEOUT_S = 600
MAVEN_ATTEMPTS = 3
FORMAT_TIMEOUT_S = 120
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class KafkaUnavailable(RuntimeError):
    """Kafka's jars cannot be had, or its broker does not start."""


def spark_jars() -> str:
    """The jars of Spark's Kafka source, as `spark.jars` takes them."""
    # What these depend on, Spark has: only they themselves are brought.
    folder = _resolved("spark-kafka", SPARK_JARS, is_alone=True)
    return ",".join(map(str, sorted(folder.glob("*.jar"))))


def launch_kafka(work_dir: Path, partitions: int) -> ServerProcess:
    """Launch a broker that is its own controller; topics are made at their first use. All that it writes
    stays below work_dir."""
    from tests.interop.kit import artifacts
    from tests.interop.kit.ports import free_port
    from tests.interop.kit.process import ServerProcess

    java = artifacts.java_tool("java")
    if java is None:
        raise KafkaUnavailable("Kafka needs java, by JAVA_HOME or on PATH")
    home = Path(tempfile.mkdtemp(prefix="kafka-", dir=work_dir.absolute()))
    port = free_port()
    conf = home / "server.properties"
    conf.write_text(_settings(home, port, free_port(), partitions))
    command = [java, *JVM_OPTIONS, "-cp", f"{_resolved('kafka', BROKER_JARS)}/*"]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    _run(
        [*command, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(conf)],
        FORMAT_TIMEOUT_S,
        "Kafka cannot format its folder",
    )
    return ServerProcess(
        "Kafka",
        [*command, "kafka.Kafka", str(conf)],
        port=port,
        log_path=home / "console.log",
    )


def _settings(home: Path, port: int, controller_port: int, partitions: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "logs"),
        "num.partitions": str(partitions),
        # On a busy machine it is not to be taken for dead by itself.
        "broker.session.timeout.ms": "120000",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _resolved(name: str, artifacts_wanted: tuple[str, ...], *, is_alone: bool = False) -> Path:
    """The folder with these jars; Maven is called only the first time."""
    from tests.interop.kit import artifacts

    pom = _pom(artifacts_wanted, is_alone=is_alone)
    folder = artifacts.cache_dir() / f"{name}-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"
    target = folder / "jars"
    if target.is_dir():
        return target
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("Kafka's jars come by Maven: mvn is not on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(pom)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder))
    command = ["mvn", "-B", "-q", "-f", str(folder / "pom.xml"), COPY_GOAL, f"-DoutputDirectory={partial}"]
    _run(command, MAVEN_TIMEOUT_S, f"Maven cannot resolve {', '.join(artifacts_wanted)}", MAVEN_ATTEMPTS)
    # Renamed last: a folder under its final name is complete.
    partial.rename(target)
    return target


def _pom(artifacts_wanted: tuple[str, ...], *, is_alone: bool) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{_ALONE if is_alone else ''}</dependency>\n"
        for group, artifact, version in (wanted.split(":") for wanted in artifacts_wanted)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>\n"
        "<groupId>kourou.benchmarks</groupId><artifactId>kafka-peer</artifactId><version>1</version>"
        f"<packaging>pom</packaging>\n<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def _run(command: list[str], timeout_s: float, failure: str, attempts: int = 1) -> None:
    output = ""
    for _ in range(attempts):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
        except (OSError, subprocess.TimeoutExpired) as error:
            output = str(error)
            continue
        if done.returncode == 0:
            return
        output = f"{done.stdout}{done.stderr}"[-2000:]
    raise KafkaUnavailable(f"{failure}:\n{output}")
