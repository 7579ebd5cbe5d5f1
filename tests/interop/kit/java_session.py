"""Sessions with our Java programs: AdminSession (Apache's mqadmin) and ClientSession (Apache's Java client).

One JVM serves a whole test module (line_session.py).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.interop.kit import apache
from tests.interop.kit.line_session import LineSession

_COMMAND_TIMEOUT_S: Final = 90
_CLOSE_TIMEOUT_S: Final = 5

CLIENT_SETS: Final = {"4.9.8": "client-4.9.8", "5.5.0": "server-5.5.0"}
"""Artifact set per version of the Java client."""


class JavaSession(LineSession):
    """A program of ours in a JVM of its own."""

    def __init__(self, set_name: str, main_class: str, work_dir: Path) -> None:
        command = [*apache.java_command(set_name, work_dir), main_class]
        super().__init__(command, work_dir / f"{main_class}.log")


@dataclass(frozen=True, slots=True)
class AdminResult:
    """What one mqadmin command printed, and its exit status (0 also where it failed: Apache's way)."""

    stdout: str
    stderr: str
    exit_status: int


class AdminSession(JavaSession):
    """Apache's mqadmin of a version: `run("topicRoute", "-n", address, "-t", topic)`."""

    def __init__(self, version: str, work_dir: Path) -> None:
        super().__init__(f"server-{version}", "AdminSession", work_dir)

    def run(self, *arguments: str, timeout_s: float = _COMMAND_TIMEOUT_S) -> AdminResult:
        """Run one command and wait for its end."""
        self._send_line(" ".join(base64.b64encode(word.encode()).decode() for word in arguments))
        word, stdout, stderr = self._next_line(timeout_s).split(" ")
        exit_status = self._take_exit_status() if word == "exit" else 0
        return AdminResult(_decode(stdout), _decode(stderr), exit_status)

    def _take_exit_status(self) -> int:
        process = self._process
        assert process is not None
        status = process.wait(_CLOSE_TIMEOUT_S)
        self.close()
        return status


def _decode(text: str) -> str:
    return "" if text == "." else base64.b64decode(text).decode()


@dataclass(slots=True)
class ClientRun:
    """What a client did in one command; bodies in the order of the events."""

    sent: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    brokers: set[str] = field(default_factory=set)
    send_errors: list[str] = field(default_factory=list)
    failure: str | None = None

    @property
    def lost(self) -> set[str]:
        """Bodies that were sent with success and not received."""
        return set(self.sent) - set(self.received)

    def add(self, event: dict[str, Any]) -> None:
        """Note one event of ClientSession.java."""
        match event["event"]:
            case "sent" if event["status"] == "SEND_OK":
                self.sent.append(event["body"])
                self.brokers.add(event["broker"])
            case "sent":
                self.send_errors.append(event["status"])
            case "send_failed":
                self.send_errors.append(event["error"])
            case "received":
                self.received.append(event["body"])
            case "failed":
                self.failure = event["error"]


class ClientSession(JavaSession):
    """Apache's Java client of a version: a producer and a push consumer per command."""

    def __init__(self, version: str, work_dir: Path) -> None:
        super().__init__(CLIENT_SETS[version], "ClientSession", work_dir)
        self._run = ClientRun()

    def send(self, namesrv: Sequence[str], topic: str, count: int) -> ClientRun:
        """Send `count` messages one after the other; failures are in the result."""
        self._begin("send", ";".join(namesrv), topic, str(count))
        return self.finish()

    def exchange(self, namesrv: Sequence[str], topic: str, group: str, count: int) -> ClientRun:
        """Send `count` messages and receive them in a new consumer."""
        self._begin("exchange", ";".join(namesrv), topic, group, str(count))
        return self.finish()

    def start_stream(self, namesrv: Sequence[str], topic: str, group: str, seconds: int) -> None:
        """Begin to send one message every 100 ms and to receive them; `finish()` waits for the end."""
        self._begin("stream", ";".join(namesrv), topic, group, str(seconds))

    def wait_received(self, count: int, timeout_s: float = _COMMAND_TIMEOUT_S) -> None:
        """Wait until the running command has received `count` messages in all."""
        deadline = time.monotonic() + timeout_s
        while len(self._run.received) < count:
            self._take_event(deadline - time.monotonic())

    def finish(self, timeout_s: float = _COMMAND_TIMEOUT_S) -> ClientRun:
        """Wait for the end of the running command and return all that it did."""
        deadline = time.monotonic() + timeout_s
        while self._take_event(deadline - time.monotonic()) not in ("done", "failed"):
            pass
        return self._run

    def _begin(self, *words: str) -> None:
        self._run = ClientRun()
        self._send_line("\t".join(words))

    def _take_event(self, timeout_s: float) -> str:
        event: dict[str, Any] = json.loads(self._next_line(timeout_s))
        self._run.add(event)
        return str(event["event"])
