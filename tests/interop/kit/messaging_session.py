"""Messaging: an official client, Java of two versions or Go, under remote control.

Producers and consumers live in one process per client and are started, used and stopped by name. All programs
understand the same commands (java/MessagingSession.java, go/main.go), so a scenario is written once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.interop.kit import apache, go_programs
from tests.interop.kit.java_session import CLIENT_SETS
from tests.interop.kit.line_session import LineSession

Fields: TypeAlias = dict[str, Any]
"""A message: field names to values, under the names of java/Described.java."""

GO: Final = "go"
"""The name of the Go client among the versions of the Java client."""
CLIENTS: Final = (*CLIENT_SETS, GO)
"""All clients."""

_ANSWER_TIMEOUT_S: Final = 90


class CommandFailed(RuntimeError):
    """A client failed to execute a command; the message is its error."""


class Messaging(LineSession):
    """One client; `namesrv` is what its producers and consumers connect to until it is changed."""

    def __init__(self, name: str, command: Sequence[str], log_path: Path) -> None:
        super().__init__(command, log_path)
        self.name = name
        self.namesrv = ""
        self._asked = ""

    @property
    def label(self) -> str:
        """The client's name as part of a topic or group."""
        return self.name.replace(".", "_")

    def ask(self, command: str, **options: object) -> Any:
        """Send one command with its options; its answer, or CommandFailed."""
        self.begin(command, **options)
        return self.finish()

    def begin(self, command: str, **options: object) -> None:
        """Send one command and return at once; `finish()` waits for its answer."""
        self._asked = "\t".join([command, *(f"{name}={_text(value)}" for name, value in options.items())])
        self._send_line(self._asked)

    def finish(self, timeout_s: float = _ANSWER_TIMEOUT_S) -> Any:
        """The answer to the command that was begun last."""
        answer = json.loads(self._next_line(timeout_s))
        if "error" in answer:
            raise CommandFailed(f"{self._asked}: {answer['error']}")
        return answer["answer"]

    def start_producer(self, name: str, **options: object) -> None:
        """Start a producer; its group is its name unless `group` says otherwise."""
        self.ask("start-producer", **{"name": name, "group": name, "namesrv": self.namesrv, **options})

    def send(self, producer: str, mode: str, topic: str, count: int, **options: object) -> list[Fields]:
        """Send `count` messages; what was sent, with its result where the mode has one."""
        options = {"label": f"{mode}-{self.label}", **options}
        sent: list[Fields] = self.ask(
            "send", producer=producer, mode=mode, topic=topic, count=count, **options
        )
        assert {message.get("status", "SEND_OK") for message in sent} == {"SEND_OK"}, sent
        return sent

    def start_consumer(self, name: str, topic: str, **options: object) -> None:
        """Start a push consumer; its group is its name unless `group` says otherwise."""
        self.ask(
            "start-consumer",
            **{"name": name, "group": name, "namesrv": self.namesrv, "topic": topic, **options},
        )

    def received(self, consumer: str, count: int, timeout_s: float = 30) -> list[Fields]:
        """All that a push consumer has received, once these are `count` messages or the time is over."""
        received: list[Fields] = self.ask(
            "received", consumer=consumer, count=count, timeoutMs=int(timeout_s * 1000)
        )
        return received

    def owned(self, consumer: str, topic: str) -> set[int]:
        """The queues of a topic that a push consumer owns now."""
        return set(self.ask("owned", consumer=consumer, topic=topic)["queues"])

    def popped(self, consumer: str, topic: str) -> set[int]:
        """The queues of a topic that a push consumer pops from now; -1: all of a broker."""
        return set(self.ask("owned", consumer=consumer, topic=topic)["popped"])

    def stop(self, *names: str) -> None:
        """Stop producers and consumers."""
        for name in names:
            assert self.ask("stop", name=name), f"there is no {name}"


def java_messaging(version: str, work_dir: Path, *, jvm_options: Sequence[str] = ()) -> Messaging:
    """Apache's Java client of a version."""
    options = (*apache.TEST_JVM_OPTIONS, *jvm_options)
    command = [*apache.java_command(CLIENT_SETS[version], work_dir, options), "MessagingSession"]
    return Messaging(version, command, work_dir / "MessagingSession.log")


def go_messaging(work_dir: Path) -> Messaging:
    """Apache's Go client."""
    return Messaging(GO, [str(go_programs.program())], work_dir / "go.log")


def bodies(messages: Iterable[Fields]) -> list[str]:
    """The names of the bodies, in order."""
    return [message["body"] for message in messages]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
