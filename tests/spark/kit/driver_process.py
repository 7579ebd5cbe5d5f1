"""DriverProcess: a Spark driver in a process of its own, which a test asks to do things, and may kill."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.child_process import dies_with_parent
from tests.spark.kit.driver_main import ANSWER

PROJECT = Path(__file__).parents[3]
WAIT_S = 240
SMALL = {"spark.driver.memory": "768m", "spark.sql.session.timeZone": "UTC"}
"""Settings of drivers: several JVMs share the machine."""


class DriverProcess:
    """`how` is what driver_main.make_session takes: settings, and `master` or `remote`."""

    def __init__(self, folder: Path, environ: dict[str, str] | None = None, **how: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._errors = folder / "driver.log"
        path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with open(self._errors, "ab") as errors:
            self._process = subprocess.Popen(
                [*dies_with_parent(), sys.executable, "-m", "tests.spark.kit.driver_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, **(environ or {})},
                text=True,
                # A group of its own, which the JVM belongs to as well: both die by one signal.
                start_new_session=True,
            )
        atexit.register(self.kill)
        settings = {} if "remote" in how else {**SMALL, "spark.sql.warehouse.dir": str(folder / "warehouse")}
        self._tell({**settings, **how})

    def __enter__(self) -> Self:
        return self.wait_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close() if error is None else self.kill()

    @property
    def log(self) -> str:
        """What the driver and its JVM complained about."""
        return self._errors.read_text(errors="replace")

    def wait_ready(self) -> Self:
        """Wait for the session."""
        self._answer()
        return self

    def ask(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """The result of a function of driver_main, called over there."""
        self.begin(function, **arguments)
        return self.result()

    def begin(self, function: Callable[..., Any], **arguments: Any) -> None:
        """Call it without waiting for the result."""
        self._tell({"function": function.__name__, "arguments": arguments})

    def result(self) -> Any:
        """The result of what `begin` called."""
        reported = self._answer()
        assert "error" not in reported, reported["error"]
        return reported["result"]

    def kill(self) -> None:
        """kill -9 of the driver and its JVM, at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def close(self) -> None:
        """Stop in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # the last report is of no use any more
        atexit.unregister(self.kill)

    def _tell(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                reported: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return reported
        raise AssertionError(f"the driver ended: {self.log[-4_000:]}")


def wait_for(condition: Callable[[], Any], what: str, pause_s: float = 0.005) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in time"
        time.sleep(pause_s)
