"""The brokers that are measured: ours, and Apache's of a version, each as a process of its own.

All have the same settings: RocketMQ's own sizes of files, and the index that is on by default; Apache's heap
is what its authors' figures are usually taken with, cut down to the machine.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._broker_loadgen import Loadgen
from benchmarks._page_cache import available_bytes

if TYPE_CHECKING:
    from tests.interop.kit.process import ServerProcess

OURS = "Kourou"
PYTHON_ALONE = "Kourou, Python alone"
"""Ours without the compiled kernel, where that is installed."""
PYTHON_WORD = "python"
CHECKOUT_WORD = "checkout="
CHECKOUT = "Kourou in "
"""Ours as another checkout has it, run by the Python of its `.venv`."""
WITHOUT_KERNEL = {"compiledKernelEnable": "false"}
JVM_OPTIONS = ("-server", "-Xms3g", "-Xmx3g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=4g")
STORE = {
    "mappedFileSizeCommitLog": str(1024 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 300_000),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "messageIndexEnable": "true",
    "enablePropertyFilter": "true",
    # Thousands of topics are created in some rows; the limit does not matter otherwise.
    "autoCreateTopicEnable": "true",
    # Nothing is to be deleted while it is read, however full the disk.
    "diskMaxUsedSpaceRatio": "95",
}
# By default a pull brings 32 messages at most. Of ours loadgen negotiates more, where a row asks for more;
# Apache's brokers need a setting for it.
APACHE_LIMITS = {
    "maxTransferCountOnMessageInMemory": "1024",
    "maxTransferBytesOnMessageInMemory": str(4 * 1024 * 1024),
    "maxTransferCountOnMessageInDisk": "1024",
    "maxTransferBytesOnMessageInDisk": str(4 * 1024 * 1024),
    "pullBatchMaxMessageCount": "1024",
}
# A store on tmpfs takes memory: smaller files, so that the one that is prepared does not take a gigabyte.
ON_TMPFS = {"mappedFileSizeCommitLog": str(256 * 1024 * 1024)}
TMPFS = Path("/dev/shm")
TMPFS_BYTES = 3 * 1024 * 1024 * 1024
"""What one broker may need there."""
# On a machine that does much else Apache's take a minute.
FIRST_SEND_TIMEOUT_S = 180
# A clean stop of Apache's writes all that is not on the disk.
STOP_TIMEOUT_S = 60
POLL_S = 0.02


class PeerError(RuntimeError):
    """A broker does not start, or does not take messages."""


class RunningPeer:
    """One broker that runs; its folder is left to the caller."""

    def __init__(
        self, name: str, server: ServerProcess, program: Path, namesrv: str, store: Path | None = None
    ) -> None:
        self.name = name
        self.namesrv = namesrv
        self.store = store
        self._server = server
        self.address = f"127.0.0.1:{server.port}"
        self.load = Loadgen(program, server.port, server.pid)

    def wait_first_send(self) -> None:
        """Return when a message was accepted."""
        deadline = time.monotonic() + FIRST_SEND_TIMEOUT_S
        while not self.load.try_send_one():
            if time.monotonic() > deadline or not self._server.is_alive:
                raise PeerError(f"{self.name} does not take messages:\n{self._server.log_text()[-2000:]}")
            time.sleep(POLL_S)

    @property
    def anonymous_mb(self) -> float:
        """Resident memory without file pages, such as the mapped log; 10^6 bytes."""
        return self._status_mb("RssAnon")

    @property
    def resident_mb(self) -> float:
        """Resident memory with the pages of files; 10^6 bytes."""
        return self._status_mb("VmRSS")

    @property
    def descriptors(self) -> int:
        """How many files and sockets it has open, but for those of stored messages: of the log it has one for
        each file, of queues it keeps up to 4,000."""
        count = 0
        for entry in Path(f"/proc/{self._server.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                count += not {"commitlog", "consumequeue"} & set(entry.readlink().parts)
        return count

    @property
    def cpu_s(self) -> float:
        """Processor time that it has used so far."""
        # The name may hold spaces and brackets; user and system time are 12 and 13 words after it.
        words = Path(f"/proc/{self._server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def _status_mb(self, key: str) -> float:
        status = Path(f"/proc/{self._server.pid}/status").read_text()
        found = re.search(rf"{key}:\s+(\d+) kB", status)
        return int(found[1]) * 1024 / 1e6 if found else 0.0

    def stop(self) -> None:
        """End it in order: what it holds is on the disk afterwards."""
        self._server.stop(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it as a crash would."""
        self._server.kill()


def launch(
    name: str,
    work_dir: Path,
    namesrv: str,
    program: Path,
    flush: str,
    *,
    store: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> RunningPeer:
    """Launch a broker and return at once; on a store of its own, or on the one that is given."""
    from tests.interop.kit import apache
    from tests.interop.kit.kourou_broker import launch_kourou_broker

    properties = {**STORE, "flushDiskType": f"{flush.upper()}_FLUSH", **(settings or {})}
    if store is not None:
        properties |= {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    if is_ours(name):
        properties |= WITHOUT_KERNEL if name == PYTHON_ALONE else {}
        server = launch_kourou_broker(work_dir, [namesrv], properties, python=python_of(name))
    else:
        version = name.removeprefix("Apache ")
        properties = {**APACHE_LIMITS, **properties}
        server = apache.start_broker(
            version, work_dir, [namesrv], properties=properties, jvm_options=JVM_OPTIONS, wait=False
        )
    return RunningPeer(name, server, program, namesrv, store)


def why_no_tmpfs(brokers: int) -> str | None:
    """Why so many brokers cannot have their stores on tmpfs; None: they can."""
    mounts = Path("/proc/self/mounts")
    lines = mounts.read_text().splitlines() if mounts.exists() else []
    if not any(line.split()[1:3] == [str(TMPFS), "tmpfs"] for line in lines):
        return f"{TMPFS} is no tmpfs"
    space = os.statvfs(TMPFS)
    room_bytes = min(space.f_bavail * space.f_frsize, available_bytes())
    if room_bytes < brokers * TMPFS_BYTES:
        wanted = f"{TMPFS_BYTES / 1e9:.1f} GB a broker are needed"
        return f"{TMPFS}, or memory, has {room_bytes / 1e9:.1f} GB left, {wanted}"
    return None


class Launcher:
    """Starts brokers, each with a name server of its own, below a folder that is emptied afterwards."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder = folder
        self.program = program

    @contextmanager
    def running(self, names: list[str], flush: str, *, on_tmpfs: bool = False) -> Iterator[list[RunningPeer]]:
        """All brokers at once, each ready; killed at the end, and what they wrote deleted. With `on_tmpfs`
        that is in memory (`why_no_tmpfs`)."""
        settings = ON_TMPFS if on_tmpfs else {}
        with ExitStack() as stack:
            where = TMPFS if on_tmpfs else self.folder
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=where)))
            peers = []
            for name in names:
                namesrv = self._namesrv(stack, folder)
                peer = launch(name, folder, namesrv, self.program, flush, settings=settings)
                stack.callback(peer.kill)
                peers.append(peer)
            for peer in peers:
                peer.wait_first_send()
            yield peers

    @contextmanager
    def place(self, name: str) -> Iterator[Place]:
        """Where one broker can be started several times on the same store."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder)))
            yield stack.enter_context(Place(name, folder, self._namesrv(stack, folder), self.program))

    @staticmethod
    def _namesrv(stack: ExitStack, folder: Path) -> str:
        from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

        return stack.enter_context(launch_kourou_namesrv(folder)).wait_ready().address


class Place:
    """A store on which one broker at a time is started; the end of the `with` kills it."""

    def __init__(self, name: str, folder: Path, namesrv: str, program: Path) -> None:
        self.folder = folder
        self._name = name
        self._namesrv = namesrv
        self._program = program
        self._peer: RunningPeer | None = None

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer is not None:
            self._peer.kill()

    def start(self, settings: Mapping[str, str] | None = None) -> RunningPeer:
        """Launch it with asynchronous flush, and return when it has accepted a message."""
        self._peer = launch(
            self._name,
            self.folder,
            self._namesrv,
            self._program,
            "async",
            store=self.folder / "store",
            settings=settings,
        )
        self._peer.wait_first_send()
        return self._peer


def is_ours(name: str) -> bool:
    """Whether the broker of a column is a Kourou."""
    return name in (OURS, PYTHON_ALONE) or name.startswith(CHECKOUT)


def python_of(name: str) -> str:
    """The interpreter that runs the Kourou of a column."""
    if not name.startswith(CHECKOUT):
        return sys.executable
    return str(Path(name.removeprefix(CHECKOUT), ".venv", "bin", "python").absolute())


def peer_names(words: list[str]) -> list[str]:
    """The columns: ours, then those of words such as `apache-5.5.0`, `python` or `checkout=../other`.
    ValueError for others."""
    known = rf"apache-\d+\.\d+\.\d+|{PYTHON_WORD}|{CHECKOUT_WORD}.+"
    unknown = [word for word in words if not re.fullmatch(known, word)]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: a peer is written like apache-5.5.0 or {CHECKOUT_WORD}FOLDER, "
            f"or is {PYTHON_WORD}"
        )
    columns = [OURS, *map(_column, dict.fromkeys(words))]
    for python in map(python_of, columns):
        if not Path(python).exists():
            raise ValueError(f"{python} is missing: run `make .venv/.ready` in that checkout")
    return columns


def _column(word: str) -> str:
    if word.startswith(CHECKOUT_WORD):
        return CHECKOUT + word.removeprefix(CHECKOUT_WORD)
    return PYTHON_ALONE if word == PYTHON_WORD else f"Apache {word.removeprefix('apache-')}"


def available(asked: str) -> list[str]:
    """The peers of a list such as `5.5.0,4.9.7`; none of Apache's where Java is missing."""
    from tests.interop.kit import artifacts

    versions = [word for word in asked.split(",") if word and word != "none"]
    missing = artifacts.missing_tools() if versions else None
    if missing:
        print(f"without Apache: {missing}")
        versions = []
    return [OURS, *(f"Apache {version}" for version in versions)]
