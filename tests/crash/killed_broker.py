"""KilledBroker: a broker process on one store and one port, started as often as it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from kourou.transport.client import RemotingClient
from tests.e2e.server_process import START_SECONDS, ServerProcess
from tests.interop.kit.ports import free_broker_port

_REPOSITORY = Path(__file__).parents[2]


def environment(home: Path) -> dict[str, str]:
    """For a process that uses the tests' own modules."""
    path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "HOME": str(home), "PYTHONPATH": path}


class KilledBroker:
    """`keys` are settings beside those that every broker here has: this machine, small files; `arguments` are
    others of its command."""

    def __init__(self, folder: Path, *, arguments: Sequence[str] = (), **keys: object) -> None:
        self._folder = folder
        self._arguments = arguments
        self._starts = 0
        port = free_broker_port()
        self.address = f"127.0.0.1:{port}"
        self.store = folder / "store"
        self._keys: dict[str, object] = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": self.store,
            "mappedFileSizeCommitLog": 256 * 1024,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 4000,
            **keys,
        }

    def start(self, **keys: object) -> None:
        """As users do; `keys` hold for this life only. It serves on return."""
        arguments = ["--logFile", str(self._folder / "log"), *self._arguments]
        self._begin("kourou.cli.mqbroker", arguments, keys)
        self.process.wait_first_line()

    def start_to_die(self, step: str, **keys: object) -> None:
        """One that kills itself at a step (dying_broker.py), before or after it serves."""
        self._begin("tests.crash.dying_broker", [step], keys)

    def _begin(self, module: str, arguments: list[str], keys: dict[str, object]) -> None:
        self._starts += 1
        settings = [f"--set={key}={value}" for key, value in {**self._keys, **keys}.items()]
        folder = self._folder / f"process-{self._starts}"
        self.process = ServerProcess(module, [*arguments, *settings], environment(self._folder), folder)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()

    def stop(self) -> None:
        """In order, without a complaint."""
        assert self.process.stop() == 0, self.process.errors

    def wait_serving(self) -> None:
        """Wait until one that kills itself serves, unless it is dead before."""
        deadline = time.monotonic() + START_SECONDS
        while "\n" not in self.process.output and self.process.process.poll() is None:
            assert time.monotonic() < deadline, "not started in time"
            time.sleep(0.01)

    def wait_dead(self) -> None:
        """Wait for the end of one that kills itself."""
        assert self.process.process.wait(START_SECONDS) == -signal.SIGKILL, self.process.errors


class Client(Protocol):
    """Something that works with a broker until it is cancelled, and goes on when the broker is back."""

    client: RemotingClient

    async def run(self) -> None: ...


async def live_until_death(
    broker: KilledBroker, step: str, client: Client, *more: Coroutine[Any, Any, None]
) -> None:
    """A life of a broker that dies at a step, with what clients do meanwhile."""
    broker.start_to_die(step)
    await asyncio.to_thread(broker.wait_serving)
    works = [asyncio.ensure_future(work) for work in (client.run(), *more)]
    try:
        await asyncio.to_thread(broker.wait_dead)
    finally:
        broker.kill()
        works[0].cancel()
        await asyncio.wait(works)
        await client.client.stop()
    for work in works:
        with suppress(asyncio.CancelledError):
            work.result()
