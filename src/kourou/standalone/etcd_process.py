"""EtcdProcess: one member of etcd on this machine, for the broker sets of a standalone.

One member survives nothing that this machine does not survive; it is restarted if it dies. Its ports are free
ones, chosen at the start of the standalone: a single member does not mind other ports than before.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import Final

from kourou.config.host import LOOPBACK
from kourou.errors import ConfigError
from kourou.etcd import EtcdClient
from kourou.transport.addresses import join_address

_READY_TIMEOUT_S: Final = 60.0
_LOOK_S: Final = 0.05
_NAME: Final = "kourou"
# As the brokers stop when their standard input ends: where the system can do that (Linux), etcd ends with the
# supervisor, also if that is killed.
_ENDS_WITH_PARENT: Final = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def etcd_program() -> str:
    """The path of the program. ConfigError says how to install it."""
    found = shutil.which("etcd")
    if found is None:
        raise ConfigError(
            "--failover: there is no program etcd on this machine; install it with `apt-get install "
            "etcd-server` (Debian, Ubuntu), `brew install etcd` (macOS), or as "
            "https://etcd.io/docs/latest/install/ says"
        )
    return found


class EtcdProcess:
    """The child. Create it by `spawn`, on the running loop."""

    name = "etcd"

    def __init__(self, process: Process, address: str, log: Path) -> None:
        self._process = process
        self.address = address
        self.log = log
        self.started_s = asyncio.get_running_loop().time()
        # Ends with the exit code.
        self.ended = asyncio.create_task(process.wait(), name="watch-etcd")

    @classmethod
    async def spawn(cls, folder: Path, log: Path, ports: tuple[int, int]) -> EtcdProcess:
        """Start a member with its data in `folder`, at these ports for clients and peers. It has a session of
        its own, as the brokers have."""
        client, peer = (join_address(LOOPBACK, port) for port in ports)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _ENDS_WITH_PARENT, str(os.getpid()), etcd_program()),
                *("--name", _NAME, "--data-dir", str(folder), "--log-level", "error"),
                *("--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}"),
                *("--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"),
                *("--initial-cluster", f"{_NAME}=http://{peer}"),
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(process, client, log)

    async def wait_booted_or_ended(self) -> bool:
        """Wait until it serves; False if it ended before, or does not serve in time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _READY_TIMEOUT_S
        async with EtcdClient([self.address]) as client:
            while not (await client.statuses())[0].has_leader:
                if self.ended.done() or loop.time() > deadline_s:
                    return False
                await asyncio.sleep(_LOOK_S)
        return True

    async def stop(self) -> None:
        """End it and wait for that."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        await asyncio.shield(self.ended)

    def kill(self) -> None:
        """End it now."""
        if self._process.returncode is None:
            self._process.kill()


def free_ports() -> tuple[int, int]:
    """Two ports at which nothing listens."""
    with socket.create_server((LOOPBACK, 0)) as one, socket.create_server((LOOPBACK, 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]
