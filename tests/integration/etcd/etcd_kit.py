"""Members of etcd as processes, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kourou.etcd import EtcdClient
from tests.child_process import dies_with_parent
from tests.interop.kit.ports import free_port
from tests.needed import need

_READY_S = 30.0


@dataclass
class Member:
    """One member. `stop` is SIGKILL, `pause` SIGSTOP."""

    name: str
    folder: Path
    client_port: int
    peer_port: int
    host: str = "127.0.0.1"
    words: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log)

    def pause(self) -> None:
        """Returns when all its threads stand still."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def etcd(
    folder: Path,
    members: int = 1,
    *,
    scheme: str = "http",
    words: Sequence[str] = (),
    places: Sequence[tuple[str, list[str]]] = (),
) -> Iterator[list[Member]]:
    """A cluster of members that are ready, with a short election timeout. `places`: the address of each, and
    what to put in front of its command."""
    program = need("etcd", shutil.which("etcd"))
    places = places or [("127.0.0.1", [])] * members
    found = [Member(f"m{n}", folder, free_port(), free_port(), host) for n, (host, _) in enumerate(places)]
    peers = ",".join(f"{each.name}=http://{each.host}:{each.peer_port}" for each in found)
    for each, (host, wrap) in zip(found, places, strict=True):
        each.words = [
            *wrap,
            *dies_with_parent(),
            program,
            *("--name", each.name, "--data-dir", str(folder / each.name)),
            *("--listen-client-urls", f"{scheme}://{each.address}"),
            *("--advertise-client-urls", f"{scheme}://{each.address}"),
            *("--listen-peer-urls", f"http://{host}:{each.peer_port}"),
            *("--initial-advertise-peer-urls", f"http://{host}:{each.peer_port}"),
            *("--initial-cluster", peers, "--initial-cluster-token", folder.name),
            *("--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error"),
            *words,
        ]
    try:
        for each in found:
            each.start()
        if scheme == "http":
            with ThreadPoolExecutor(1) as thread:  # the test may have a loop of its own
                thread.submit(asyncio.run, _wait_ready([each.address for each in found])).result()
        yield found
    finally:
        for each in found:
            each.go_on() if each.process else None
            each.stop()


async def _wait_ready(addresses: list[str]) -> None:
    deadline = time.monotonic() + _READY_S
    async with EtcdClient(addresses) as client:
        while not all(each.has_leader for each in await client.statuses()):
            assert time.monotonic() < deadline, await client.statuses()
            await asyncio.sleep(0.1)
