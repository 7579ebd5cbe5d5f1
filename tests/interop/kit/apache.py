"""Apache's own name server and broker, of a chosen version, as processes on free loopback ports.

    with start_namesrv("5.5.0", work_dir) as namesrv:
        with start_broker("5.5.0", work_dir, [namesrv.address]) as broker:
            print(namesrv.address, namesrv.pid, broker.address)

Both functions return when the server says that it is up; with wait=False at once, and `.wait_ready()` waits.
`.stop()` or the end of the `with` ends the server.
Everything that a server writes (store, configuration, logs) stays below work_dir.
Not here: the jars (artifacts.py), the programs that talk to these servers (java_session.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.interop.kit import artifacts
from tests.interop.kit.ports import free_broker_port, free_port
from tests.interop.kit.process import ServerProcess

VERSIONS: Final = ("4.9.7", "5.5.0")

# Small and quick to start: many of these JVMs share two cores in a test run. C1 alone boots fastest.
TEST_JVM_OPTIONS: Final = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
# What RocketMQ reaches into on Java 17.
_MODULE_OPTIONS: Final = (
    *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
    *("--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
)
_PACKAGE: Final = "org.apache.rocketmq"
# 4.9.7 does not start without its logback files; the one that 5.5.0 brings makes it print logback's own story
# to stdout. Warnings are enough to explain a failure. 5.5.0 has logback under a package of its own.
_LOGBACK: Final = """<configuration>
  <appender name="file" class="{package}ch.qos.logback.core.FileAppender">
    <file>{folder}/logs/{name}.log</file>
    <encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""


def java_command(set_name: str, home: Path, jvm_options: Sequence[str] = TEST_JVM_OPTIONS) -> list[str]:
    """The start of a java command line with the class path of a set; RocketMQ writes below `home` only."""
    options = [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", *_logging_options(home)]
    java = artifacts.java_tool("java") or "java"
    return [java, *jvm_options, *_MODULE_OPTIONS, *options, "-cp", artifacts.class_path(set_name)]


def _logging_options(home: Path) -> list[str]:
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        (conf / f"logback_{name}.xml").write_text(_LOGBACK.format(package="", folder=home, name=name))
    package = f"{_PACKAGE}.logging."
    (conf / "rmq.logback.xml").write_text(_LOGBACK.format(package=package, folder=home, name="rocketmq"))
    return [
        f"-Drmq.logback.configurationFile={conf}/rmq.logback.xml",
        f"-Drocketmq.client.logRoot={home}/logs",
    ]


def start_namesrv(
    version: str,
    work_dir: Path,
    *,
    properties: Mapping[str, str] | None = None,
    jvm_options: Sequence[str] = TEST_JVM_OPTIONS,
    wait: bool = True,
) -> ServerProcess:
    """Start Apache's name server of a version; benchmarks pass jvm_options of their own, to be fair to it."""
    port = free_port()
    home = _new_home(work_dir, f"namesrv-{version}")
    conf = _write_conf(home / "namesrv.conf", {"listenPort": str(port), **(properties or {})})
    command = java_command(f"server-{version}", home, jvm_options)
    server = _launch(f"namesrv {version}", [*command, f"{_PACKAGE}.namesrv.NamesrvStartup"], conf, port)
    return server.wait_ready() if wait else server


def start_broker(
    version: str,
    work_dir: Path,
    namesrv_addresses: Sequence[str],
    *,
    broker_name: str = "broker-a",
    cluster_name: str = "DefaultCluster",
    properties: Mapping[str, str] | None = None,
    conf_files: Mapping[str, str] | None = None,
    jvm_options: Sequence[str] = TEST_JVM_OPTIONS,
    wait: bool = True,
) -> ServerProcess:
    """Start Apache's broker (a master) of a version, registered at every given name server; `conf_files`
    are texts of files in the folder `conf` of its home."""
    port = int((properties or {}).get("listenPort", free_broker_port()))
    home = _new_home(work_dir, f"{broker_name}-{version}")
    settings = {
        "brokerName": broker_name,
        "brokerClusterName": cluster_name,
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": ";".join(namesrv_addresses),
        **store_settings(home),
        **(properties or {}),
    }
    command = java_command(f"server-{version}", home, (*jvm_options, *DISK_OPTIONS))
    for name, text in (conf_files or {}).items():
        (home / "conf" / name).write_text(text)
    conf = _write_conf(home / "broker.conf", settings)
    server = _launch(f"broker {version}", [*command, f"{_PACKAGE}.broker.BrokerStartup"], conf, port)
    return server.wait_ready() if wait else server


# A well-filled disk must not make the broker refuse writes or drop files in the middle of a test.
DISK_OPTIONS: Final = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
"""JVM options of every broker."""


def store_settings(home: Path) -> dict[str, str]:
    """A store below `home` with small files."""
    return {
        "storePathRootDir": f"{home}/store",
        "storePathCommitLog": f"{home}/store/commitlog",
        "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
        "mappedFileSizeConsumeQueue": str(20 * 5000),
        "maxHashSlotNum": "10000",
        "maxIndexNum": "40000",
        # On a busy machine the defaults (200 ms and 1 s) turn a pause of the JVM into "broker busy".
        "waitTimeMillsInSendQueue": "20000",
        "osPageCacheBusyTimeOutMills": "20000",
    }


def _new_home(work_dir: Path, name: str) -> Path:
    work_dir.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work_dir.absolute()))


def _write_conf(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def _launch(name: str, command: Sequence[str], conf: Path, port: int) -> ServerProcess:
    return ServerProcess(
        name,
        [*command, "-c", str(conf)],
        port=port,
        log_path=conf.parent / "console.log",
        ready_text="boot success",
    )
