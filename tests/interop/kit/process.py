"""ServerProcess: a server of ours or of Apache's as a real process, with its log and an end in every case.

Start it from a thread that outlives it: where setpriv exists, the kernel kills the server when the starting
thread ends, so that not even a killed test run leaves servers behind.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from tests.child_process import dies_with_parent

_POLL_S: Final = 0.05
_LOG_TAIL_CHARS: Final = 6000


class ServerNotReady(RuntimeError):
    """A server ended or stayed silent while it was waited for; the message holds the tail of its log."""


class ServerProcess:
    """A running server: `.address`, `.port`, `.pid`, `.log_path`; it may be stopped or killed more than once.

    It is ready when its log holds `ready_text`; without one, when it accepts connections.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        port: int,
        log_path: Path,
        ready_text: str | None = None,
        ready_timeout_s: float = 120,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._ready_text = ready_text
        self._ready_timeout_s = ready_timeout_s
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(log_path, "wb") as log:
            self._process = subprocess.Popen(
                [*dies_with_parent(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=log_path.parent,
                env={**os.environ, **(environment or {})},
            )
        self.pid = self._process.pid
        atexit.register(self.kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def log_text(self) -> str:
        """All that the server has printed so far."""
        return self.log_path.read_text(errors="replace")

    def wait_ready(self) -> Self:
        """Wait until the server is ready; when it does not come up, end it and raise ServerNotReady."""
        deadline = time.monotonic() + self._ready_timeout_s
        while not self._is_ready():
            if not self.is_alive or time.monotonic() > deadline:
                self._give_up()
            time.sleep(_POLL_S)
        return self

    def request_stop(self) -> None:
        """Send SIGTERM and return at once."""
        if self.is_alive:
            self._process.terminate()

    def stop(self, timeout_s: float = 10) -> int:
        """End the server with SIGTERM, with SIGKILL when that takes too long; returns its exit status."""
        self.request_stop()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        atexit.unregister(self.kill)
        return self._process.wait()

    def kill(self) -> None:
        """End the server with SIGKILL and wait for its end."""
        if self.is_alive:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        atexit.unregister(self.kill)

    def _is_ready(self) -> bool:
        if self._ready_text is not None:
            return self._ready_text in self.log_text()
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _give_up(self) -> NoReturn:
        status = self._process.poll()
        self.kill()
        problem = (
            f"not ready after {self._ready_timeout_s:g} s" if status is None else f"exit status {status}"
        )
        log_tail = self.log_text()[-_LOG_TAIL_CHARS:]
        raise ServerNotReady(f"{self.name}: {problem}; end of {self.log_path}:\n{log_tail}")
