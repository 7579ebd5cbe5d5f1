"""GrpcClient: an official client for gRPC, of one language, under remote control.

Producers and consumers live in one process per language and are started, used and stopped by name. All
programs understand the same commands (java/GrpcSession.java has the list), so a scenario is written once; and
commands run side by side, so scenarios of one client may run in threads.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from tests.child_process import dies_with_parent
from tests.interop.kit.grpc.client_programs import ClientProgram

Fields: TypeAlias = dict[str, Any]
"""A message: field names to values, under the names of java/GrpcMessages.java."""

_ANSWER_TIMEOUT_S: Final = 90
_CLOSE_TIMEOUT_S: Final = 5


class CallFailed(RuntimeError):
    """A command failed: what the client raised, with the status code of the response, or 0 without one."""

    def __init__(self, command: str, error: str, code: int) -> None:
        super().__init__(f"{command}: {error}")
        self.code = code


class SessionEnded(RuntimeError):
    """The program ended or does not answer; the message holds the end of what it printed."""


class GrpcClient:
    """One program; `with` ends it."""

    def __init__(self, program: ClientProgram, work_dir: Path) -> None:
        self.language = program.language
        work_dir.mkdir(parents=True, exist_ok=True)
        self._log_path = work_dir / f"{program.language}.log"
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                [*dies_with_parent(), *program.command(work_dir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                cwd=work_dir,
                # Clients keep their logs in the home folder.
                env={**os.environ, "HOME": str(work_dir), "NODE_PATH": ""},
            )
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[str, Future[Any]]] = {}
        self._sending = threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"grpc-{program.language}")
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program, by force if need be."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def begin(self, command: str, **options: object) -> Future[Any]:
        """Send one command with its options; its answer, or CallFailed where the client fails."""
        answer: Future[Any] = Future()
        words = [f"{name}={_text(value)}" for name, value in options.items() if value is not None]
        with self._sending:
            number = next(self._numbers)
            line = "\t".join([command, f"id={number}", *words])
            self._asked[number] = (line.replace("\t", " "), answer)
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return answer

    def ask(self, command: str, **options: object) -> Any:
        """Send one command and wait for its answer."""
        try:
            return self.begin(command, **options).result(_ANSWER_TIMEOUT_S)
        except TimeoutError:
            raise SessionEnded(
                f"{self.language}: no answer to {command} within {_ANSWER_TIMEOUT_S} s; "
                f"end of {self._log_path}:\n{self._log_tail()}"
            ) from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            asked, answer = self._asked.pop(message["id"])
            if "error" in message:
                answer.set_exception(CallFailed(asked, message["error"], message["code"]))
            else:
                answer.set_result(message["answer"])
        for asked, answer in self._asked.values():
            answer.set_exception(SessionEnded(f"{asked}: {self.language} ended:\n{self._log_tail()}"))

    def _log_tail(self) -> str:
        return self._log_path.read_text(errors="replace")[-4000:]


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
