"""The brokers that are measured: ours, and Apache's of a version, each as a process of its own.

All have RocketMQ's own sizes of files and the index that is on by default; Apache's heap is what its authors'
figures are usually taken with, cut down to the machine.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._broker_loadgen import Loadgen

if TYPE_CHECKING:
    from tests.interop.process import ServerProcess

OURS = "Kourou"
JVM_OPTIONS = ("-server", "-Xms3g", "-Xmx3g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=4g")
STORE = {
    "mappedFileSizeCommitLog": str(1024 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 300_000),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "messageIndexEnable": "true",
    # 2,000 topics are created in one of the rows; the rest of the time nobody looks at this.
    "autoCreateTopicEnable": "true",
}
FIRST_SEND_TIMEOUT_S = 60
POLL_S = 0.02


class RunningPeer:
    """One broker that runs; killed at the end, and its folder left to the caller."""

    def __init__(self, name: str, server: ServerProcess, program: Path) -> None:
        self.name = name
        self._server = server
        self.load = Loadgen(program, server.port, server.pid)

    def wait_first_send(self) -> None:
        """Return when a message was accepted."""
        deadline = time.monotonic() + FIRST_SEND_TIMEOUT_S
        while not self.load.try_send_one():
            if time.monotonic() > deadline or not self._server.is_alive:
                raise RuntimeError(f"{self.name} does not take messages:\n{self._server.log_text()[-2000:]}")
            time.sleep(POLL_S)

    @property
    def anonymous_mb(self) -> float:
        """Resident memory without file pages, such as the mapped log; 10^6 bytes."""
        status = Path(f"/proc/{self._server.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        return int(found[1]) * 1024 / 1e6 if found else 0.0

    def kill(self) -> None:
        """End it; what it wrote is of no more use."""
        self._server.kill()


def launch(name: str, work_dir: Path, namesrv: str, program: Path, flush: str) -> RunningPeer:
    """Launch a broker and return at once."""
    from tests.interop import apache
    from tests.interop.kourou_broker import launch_kourou_broker

    properties = {**STORE, "flushDiskType": f"{flush.upper()}_FLUSH"}
    if name == OURS:
        server = launch_kourou_broker(work_dir, [namesrv], properties)
    else:
        version = name.removeprefix("Apache ")
        server = apache.start_broker(
            version, work_dir, [namesrv], properties=properties, jvm_options=JVM_OPTIONS, wait=False
        )
    return RunningPeer(name, server, program)


def available(asked: str) -> list[str]:
    """The peers of a list such as `5.5.0,4.9.7`; none of Apache's where Java is missing."""
    from tests.interop import artifacts

    versions = [word for word in asked.split(",") if word and word != "none"]
    missing = artifacts.missing_tools() if versions else None
    if missing:
        print(f"without Apache: {missing}")
        versions = []
    return [OURS, *(f"Apache {version}" for version in versions)]
