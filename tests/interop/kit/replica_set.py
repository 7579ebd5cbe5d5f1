"""ReplicaSet: a master and its slaves, ours or Apache's of either version, as processes.

    with ExitStack() as servers:
        (replicas,) = launch_replica_sets([(KOUROU, ("4.9.7", KOUROU))], work_dir, servers)
        replicas.slaves["4.9.7"].wait_caught_up(replicas.master)

The slaves of a set are named by their kind, so there is one of each at most. Sets that are launched together
share a name server of ours; the broker name tells them apart.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kourou.protocol.bodies import decode_body
from kourou.protocol.bodies.kv import KVTable
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from tests.interop.kit import wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.interop.kit.lanes import LAUNCHERS, PROPERTIES
from tests.interop.kit.ports import free_broker_port
from tests.interop.kit.process import ServerProcess

LOG_FILE_BYTES: Final = 1024 * 1024
"""The size of a file of the log: a story fills several, and each of them ends with a blank record."""

_WAIT_S: Final = 45
_SETTINGS: Final = {
    **PROPERTIES,
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "slaveReadEnable": "true",
}


@dataclass(slots=True)
class Replica:
    """One broker of a set, with the same port and store at each start."""

    kind: str
    namesrv: str
    work_dir: Path
    settings: Mapping[str, str]
    port: int = field(default_factory=free_broker_port)
    process: ServerProcess | None = None

    @property
    def address(self) -> str:
        """Where it serves clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def store_dir(self) -> Path:
        """Its store."""
        return self.work_dir / "store"

    def launch(self) -> None:
        """Start it; returns at once."""
        settings = {
            **_SETTINGS,
            "listenPort": str(self.port),
            "storePathRootDir": str(self.store_dir),
            "storePathCommitLog": str(self.store_dir / "commitlog"),
            **self.settings,
        }
        self.process = LAUNCHERS[self.kind](self.work_dir, [self.namesrv], settings)

    def wait_registered(self) -> None:
        """Wait until it serves and the name server has it."""
        assert self.process is not None
        self.process.wait_ready()
        # Apache's 5.5.0 may find no name server in its first round; a change of its permission makes it
        # register now, by which a slave learns where its master is.
        wire.set_config(self.address, brokerPermission=6)
        wire.wait_route(self.namesrv, "TBW102", self.address)

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            self.process.kill()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all its threads meanwhile; its connections stay open."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            # On a busy machine other threads of a JVM may run before the one that gets the signal.
            wait_until(self._is_stopped, timeout_s=_WAIT_S, what=f"the threads of {self.kind} stopped")
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def _is_stopped(self) -> bool:
        assert self.process is not None
        states = [path.read_text() for path in Path(f"/proc/{self.process.pid}/task").glob("*/stat")]
        return all(state.rpartition(")")[2].split()[0] == "T" for state in states)

    def figures(self) -> dict[str, str]:
        """What it tells of itself; empty where it cannot yet."""
        answer = wire.call(self.address, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return decode_body(answer.body, KVTable).table if answer.code == 0 else {}

    def log_range(self) -> tuple[int, int]:
        """From where to where its log goes; (-1, -1) where it cannot say yet."""
        figures = self.figures()
        return int(figures.get("commitLogMinOffset", -1)), int(figures.get("commitLogMaxOffset", -1))

    def read_log(self, begin: int, end: int) -> bytes:
        """The bytes of its log."""
        folder = self.store_dir / "commitlog"
        data = bytearray()
        for path in sorted(folder.iterdir()):
            start = int(path.name)
            content = path.read_bytes()
            data += content[max(begin - start, 0) : max(end - start, 0)]
        return bytes(data)

    def has_all_of(self, master: Replica) -> bool:
        """Whether its log ends where the master's does."""
        end = master.log_range()[1]
        return end == self.log_range()[1] == master.log_range()[1] and end > 0

    def wait_caught_up(self, master: Replica) -> None:
        """Wait until its log ends where the master's does."""
        what = f"{self.kind} behind {master.kind}: {self.log_range()} after {master.log_range()}"
        wait_until(lambda: self.has_all_of(master), timeout_s=_WAIT_S, what=what)


@dataclass(slots=True)
class ReplicaSet:
    """A master and its slaves by kind; `name` is the broker name."""

    name: str
    namesrv: str
    master: Replica
    slaves: dict[str, Replica]

    def wait_following(self) -> None:
        """Send to the master, and wait until every slave has that."""
        # A SYNC_MASTER may have no slave yet.
        wire.try_send(self.master.address, f"first-{self.name}", b"first")
        self.wait_caught_up()

    def wait_caught_up(self) -> None:
        """Wait until every slave has the whole log."""
        for slave in self.slaves.values():
            slave.wait_caught_up(self.master)


def launch_replica_sets(
    kinds: Iterable[tuple[str, Sequence[str]]],
    work_dir: Path,
    servers: ExitStack,
    *,
    master_role: str = "ASYNC_MASTER",
) -> list[ReplicaSet]:
    """Masters of these kinds with slaves of these kinds, all registered."""
    namesrv = launch_kourou_namesrv(work_dir)
    servers.callback(namesrv.kill)
    address = namesrv.wait_ready().address
    sets = [_new_set(master, slaves, address, work_dir, master_role) for master, slaves in kinds]
    # A slave learns of its master when it registers: the masters come first.
    _start([each.master for each in sets], servers)
    _start([slave for each in sets for slave in each.slaves.values()], servers)
    return sets


def _new_set(
    master: str, slaves: Sequence[str], namesrv: str, work_dir: Path, master_role: str
) -> ReplicaSet:
    name = "-".join((master, *slaves)).replace(".", "_")
    settings = {"brokerName": name, "brokerRole": master_role, **_sync_rule(master, master_role)}
    return ReplicaSet(
        name,
        namesrv,
        Replica(master, namesrv, work_dir / name / "master", settings),
        {
            slave: Replica(
                slave,
                namesrv,
                work_dir / name / f"slave-{slave}",
                {"brokerName": name, "brokerRole": "SLAVE", "brokerId": str(number)},
            )
            for number, slave in enumerate(slaves, start=1)
        },
    )


def _start(replicas: Iterable[Replica], servers: ExitStack) -> None:
    started = list(replicas)
    for replica in started:
        servers.callback(replica.kill)
        replica.launch()
    for replica in started:
        replica.wait_registered()


def _sync_rule(kind: str, role: str) -> dict[str, str]:
    """5.x waits for slaves only where the number of copies is set."""
    return {"inSyncReplicas": "2"} if kind.startswith("5") and role == "SYNC_MASTER" else {}
