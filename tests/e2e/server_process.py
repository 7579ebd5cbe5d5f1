"""A server process as users run it: its output goes to files, so that it never waits for a reader."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.child_process import dies_with_parent

START_SECONDS = 30  # a loaded machine; usually about one
STOP_SECONDS = 20


class ServerProcess:
    """One process that runs a module of commands."""

    def __init__(self, module: str, arguments: list[str], environ: dict[str, str], folder: Path) -> None:
        folder.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        command = [*dies_with_parent(), sys.executable, "-m", module, *arguments]
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(command, env=environ, stdout=out, stderr=err)

    def wait_first_line(self) -> str:
        """Wait for the line that says that it serves."""
        deadline = time.monotonic() + START_SECONDS
        while "\n" not in self.output:
            assert self.process.poll() is None, self.errors
            assert time.monotonic() < deadline, "not started in time"
            time.sleep(0.01)
        return self.output.splitlines()[0]

    def wait_output(self, text: str) -> None:
        """Wait until it has printed a line with this text."""
        deadline = time.monotonic() + START_SECONDS
        while text not in self.output[: self.output.rfind("\n") + 1]:
            assert self.process.poll() is None, self.errors
            assert time.monotonic() < deadline, self.output
            time.sleep(0.01)

    def wait_errors(self, text: str) -> None:
        """Wait until it has complained of something."""
        deadline = time.monotonic() + START_SECONDS
        while text not in self.errors:
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.01)

    def wait_end(self) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(START_SECONDS)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; returns the exit code of a process that ends in the time it has."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait(START_SECONDS)

    @property
    def output(self) -> str:
        """What it has written to stdout."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        return self._err.read_text()
