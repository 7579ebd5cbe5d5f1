"""LineSession: a program of ours in a process of its own; commands go to its stdin, answers from its stdout.

One process serves a whole test module. Closing the session closes stdin, on which the program ends; one that
does not is killed.
"""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_CLOSE_TIMEOUT_S: Final = 5


class SessionBroken(RuntimeError):
    """The process of a session ended or does not answer; the message holds the end of what it printed."""


class LineSession:
    """A program in a process of its own; lines in, lines out. It starts with the first line."""

    def __init__(self, command: Sequence[str], log_path: Path) -> None:
        self._command = list(command)
        self._log_path = log_path
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Self:
        self._ensure_started()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; nothing happens when it has ended already."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join()
        process.stdout.close()

    def _send_line(self, line: str) -> None:
        process = self._ensure_started()
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()

    def _next_line(self, timeout_s: float) -> str:
        try:
            line = self._lines.get(timeout=max(timeout_s, 0.001))
        except queue.Empty:
            line = None
        if line is None:
            raise SessionBroken(
                f"no answer within {timeout_s:g} s; end of {self._log_path}:\n{self._log_tail()}"
            )
        return line

    def _ensure_started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._log_path, "ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    encoding="utf-8",
                    cwd=self._log_path.parent,
                )
            self._lines = queue.Queue()
            arguments = (self._process, self._lines)
            self._reader = threading.Thread(target=_read_lines, args=arguments, name="line-session")
            self._reader.start()
        return self._process

    def _log_tail(self) -> str:
        return self._log_path.read_text(errors="replace")[-4000:]


def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip("\n"))
    lines.put(None)
