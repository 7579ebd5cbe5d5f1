"""standalone_cluster: a Spark standalone cluster on this machine, started from the pip-installed PySpark.

    with standalone_cluster(workers=2) as cluster:
        spark = local_session("orders", master=cluster.master, settings=cluster.settings)

For tests, and to try a job in several processes before it runs on a real cluster; PySpark from PyPI has no
`start-master.sh`. Everything listens on loopback and on free ports. As a program (`python -m
kourou.spark.cluster`) it prints the master's address and runs until it is stopped. Not here: the driver's
session (session.py), and clusters of several machines (docs/spark-cluster.md).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kourou.errors import ConfigError
from kourou.spark.java import find_java

_INSTALL: Final = "a Spark cluster needs PySpark and pyarrow: pip install 'kourou[spark]'"
_LOOPBACK: Final = "127.0.0.1"
_MASTER_CLASS: Final = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS: Final = "org.apache.spark.deploy.worker.Worker"
# Master and workers only coordinate: the driver sets the memory of executors.
_DAEMON_ENVIRONMENT: Final = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "SPARK_LOCAL_IP": _LOOPBACK,
    # In the background Spark's scripts would outlive this process.
    "SPARK_NO_DAEMONIZE": "1",
}
_MEMORY: Final = re.compile(r"[1-9]\d*[mg]", re.IGNORECASE)
_START_TIMEOUT_S: Final = 90
_STOP_TIMEOUT_S: Final = 10
_POLL_S: Final = 0.05
_LOG_TAIL_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class ClusterProcess:
    """The master, or a worker."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def log_tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL_CHARS:]


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """The addresses and processes of a running cluster."""

    master: str
    """The master address for a driver: `spark://127.0.0.1:PORT`."""
    ui: str
    """The master's page: workers, applications, executors."""
    folder: Path
    """Logs of master and workers, and a work folder for each worker, with its executors' logs."""
    workers: tuple[ClusterProcess, ...]
    cores: int
    memory: str

    @property
    def settings(self) -> dict[str, str]:
        """For a driver on this machine: one executor per worker, and no task before all have registered."""
        return {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": self.memory,
            "spark.cores.max": str(self.cores * len(self.workers)),
            # By default a standalone cluster starts with the first executor, which may get all tasks.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        }


@contextmanager
def standalone_cluster(
    workers: int = 2,
    *,
    cores: int = 1,
    memory: str = "512m",
    folder: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[StandaloneCluster]:
    """A master and workers with `cores` and `memory` each. All are registered when the block begins, and have
    ended with their executors after it.

    Executors inherit `environ` from their worker, including PYTHONPATH. Without `folder`, logs and work
    folders are temporary. ConfigError if there is no Java, or a process does not start.
    """
    if workers < 1 or cores < 1:
        raise ConfigError("a cluster needs at least one worker with at least one core")
    if _MEMORY.fullmatch(memory) is None:
        raise ConfigError(f"memory must be a number with m or g, such as 512m, not {memory!r}")
    with _kept_or_temporary(folder) as home:
        launcher = _Launcher(home, environ)
        try:
            yield launcher.start(workers, cores, memory)
        finally:
            launcher.stop()


@contextmanager
def _kept_or_temporary(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="kourou-spark-") as name:
        yield Path(name)


class _Launcher:
    """Starts and stops the processes of a cluster."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._spark_class, home = _spark_class()
        self._environ = {
            **environ,
            **_DAEMON_ENVIRONMENT,
            "JAVA_HOME": str(find_java(environ).home),
            "SPARK_HOME": str(home),
        }
        self._processes: list[ClusterProcess] = []

    def start(self, workers: int, cores: int, memory: str) -> StandaloneCluster:
        ui_port = _free_port()
        ui = f"http://{_LOOPBACK}:{ui_port}"
        ports = ["--port", str(_free_port()), "--webui-port", str(ui_port)]
        self._launch("master", _MASTER_CLASS, "--host", _LOOPBACK, *ports)
        # Spark uses the next port if one was taken meanwhile: the master reports its port.
        address: str = self._wait_state(ui, workers=0)["url"]
        size = ["--cores", str(cores), "--memory", memory]
        for number in range(1, workers + 1):
            work = ["--work-dir", str(self._folder / f"worker-{number}")]
            place = ["--host", _LOOPBACK, "--port", "0", "--webui-port", "0"]
            self._launch(f"worker-{number}", _WORKER_CLASS, *place, *size, *work, address)
        self._wait_state(ui, workers=workers)
        return StandaloneCluster(address, ui, self._folder, tuple(self._processes[1:]), cores, memory)

    def stop(self) -> None:
        # Workers first: they end their executors, and do not look for a missing master.
        for each in reversed(self._processes):
            each.process.terminate()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for each in reversed(self._processes):
            try:
                each.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()

    def _launch(self, name: str, main_class: str, *arguments: str) -> None:
        path = self._folder / f"{name}.log"
        with open(path, "wb") as log:
            process = subprocess.Popen(
                [*_dies_with_us(), str(self._spark_class), main_class, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environ,
            )
        self._processes.append(ClusterProcess(name, process, path))

    def _wait_state(self, ui: str, *, workers: int) -> dict[str, Any]:
        """The master's report, once it has so many workers."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            state = _master_state(ui)
            if state is not None and _alive_workers(state) >= workers:
                return state
            for each in self._processes:
                if each.process.poll() is not None:
                    raise ConfigError(f"Spark's {each.name} exited; its log ends with:\n{each.log_tail()}")
            if time.monotonic() > deadline:
                last = self._processes[-1]
                raise ConfigError(
                    f"Spark's {last.name} did not start within {_START_TIMEOUT_S} s; "
                    f"its log ends with:\n{last.log_tail()}"
                )
            time.sleep(_POLL_S)


def _spark_class() -> tuple[Path, Path]:
    """The program that starts a class of Spark, and Spark's home."""
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    home = Path(_find_spark_home())
    return home / "bin" / "spark-class", home


def _master_state(ui: str) -> dict[str, Any] | None:
    # A proxy in the environment is for other machines.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{ui}/json/", timeout=5) as answer:
            state: dict[str, Any] = json.load(answer)
    except (OSError, urllib.error.URLError, ValueError):
        return None
    return state


def _alive_workers(state: Mapping[str, Any]) -> int:
    return sum(worker.get("state") == "ALIVE" for worker in state.get("workers", ()))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _dies_with_us() -> list[str]:
    """A command prefix that ends the cluster even if this process is killed, where the system supports it.
    It follows the starting thread, so only the main thread may use it."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a cluster until SIGINT or SIGTERM; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m kourou.spark.cluster", description="A Spark standalone cluster on this machine."
    )
    parser.add_argument("--workers", type=int, default=2, help="number of workers (default: 2)")
    parser.add_argument("--cores", type=int, default=1, help="cores per worker (default: 1)")
    parser.add_argument("--memory", default="512m", help="memory per executor (default: 512m)")
    parser.add_argument("--folder", type=Path, help="for logs and work folders (default: temporary)")
    given = parser.parse_args(arguments)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with standalone_cluster(
            given.workers, cores=given.cores, memory=given.memory, folder=given.folder
        ) as cluster:
            print(f"master {cluster.master}\npage   {cluster.ui}", flush=True)
            stopped.wait()
    except (ConfigError, ImportError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
