"""A whole command line of mqadmin in this process, from its words to its exit code.

result = await run_line(running.namesrv_addr, "topicStatus", "-t", "Orders")
assert result.exit_code == 0 and "broker-a" in result.stdout

It runs in a thread with a loop of its own, as the program does, while the cluster runs on the test's loop.
"""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from kourou.cli.admin.run import main

# Standard output is one for the whole process.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Result:
    """How a command line ended."""

    stdout: str
    stderr: str
    exit_code: int

    @property
    def lines(self) -> list[str]:
        """The lines of stdout."""
        return self.stdout.splitlines()

    @property
    def json(self) -> Any:
        """stdout of a command with `--json`."""
        return json.loads(self.stdout)

    @property
    def problem(self) -> str:
        """The only line of stderr, of a command that failed."""
        assert self.exit_code in (1, 2, 130), self
        (line,) = self.stderr.splitlines()
        return line


class _Interrupting(io.StringIO):
    """Stdout of a user who presses Ctrl-C after some lines."""

    def __init__(self, is_enough: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_enough = is_enough
        self._was_enough = False

    def write(self, text: str) -> int:
        written = super().write(text)
        if not self._was_enough and self._is_enough(self.getvalue()):
            self._was_enough = True
            raise KeyboardInterrupt
        return written


async def run_line(
    namesrv: str | None, *words: str, is_enough: Callable[[str], bool] | None = None, timeout_s: float = 30
) -> Result:
    """Run `mqadmin WORDS`, with `-n NAMESRV` unless that is None.

    One that repeats for ever is interrupted when `is_enough` of its stdout is true; exit code 130 then.
    """
    name, *rest = words
    line = [name, *(("-n", namesrv) if namesrv is not None else ()), *rest]
    return await asyncio.wait_for(asyncio.to_thread(run_now, line, is_enough), timeout_s)


def run_now(line: list[str], is_enough: Callable[[str], bool] | None = None) -> Result:
    """Run a command line here and now, where no cluster waits for this thread."""
    out = _Interrupting(is_enough) if is_enough is not None else io.StringIO()
    errors = io.StringIO()
    exit_code = 0
    with _one_at_a_time, redirect_stdout(out), redirect_stderr(errors):
        try:
            main("mqadmin", line)
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 1
    return Result(out.getvalue(), errors.getvalue(), exit_code)
