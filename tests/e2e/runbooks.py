"""The runbooks of the documents: their commands, and messages that flow while they are followed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kourou import Message, MessageExt, Producer, PushConsumer
from kourou.errors import KourouError
from tests.e2e.doc_programs import MODULES, NAMESRV
from tests.e2e.server_process import ServerProcess

DOCUMENTS = Path(__file__).parents[2] / "docs"
TOPIC, GROUP = "Orders", "billing"
LIMIT_S = 60.0
_BOOTED = re.compile(r"The broker\[(\S+), (127\.0\.0\.1:\d+)\] boot success")
_NAMESRV_BOOTED = re.compile(r"The Name Server boot success.* (\S+:\d+)")


def runbook(title: str, document: str = "operations.md", kind: str = "") -> list[str]:
    """The command lines under a heading, in order; or the lines in blocks of another kind."""
    text = (DOCUMENTS / document).read_text()
    (section,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?:^## |\Z)", text, re.S | re.M)
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", section, re.S | re.M)
    return [line.strip() for name, block in blocks if name == kind for line in block.splitlines()]


def run(line: str, namesrv: str, environ: dict[str, str]) -> str:
    """Run a command line of the document against this name server; what it printed."""
    program, *words = shlex.split(line.replace(NAMESRV, namesrv))
    ran = subprocess.run(
        [sys.executable, "-m", MODULES[program], *words],
        env=environ, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, ""), (line, ran.stdout, ran.stderr)
    return ran.stdout


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)


@dataclass
class RunningCluster:
    """A name server and brokers as an operator starts them, each with a home of its own."""

    folder: Path
    servers: dict[str, ServerProcess]
    namesrv: str = ""
    _starts: int = 0

    def environ(self, name: str = "operator") -> dict[str, str]:
        """The environment on the machine of a server."""
        home = self.folder / f"home-{name}"
        home.mkdir(exist_ok=True)
        kept = {key: text for key, text in os.environ.items() if not key.startswith(("XDG_", "ROCKETMQ_"))}
        return {**kept, "HOME": str(home)}

    def start(self, name: str, arguments: list[str], module: str = MODULES["kourou"]) -> ServerProcess:
        """Start a server and wait until it serves."""
        self._starts += 1
        folder = self.folder / f"process-{self._starts}-{name}"
        self.servers[name] = server = ServerProcess(module, arguments, self.environ(name), folder)
        server.wait_first_line()
        return server

    def start_namesrv(self) -> None:
        """Start the name server."""
        server = self.start("namesrv", ["namesrv", "--host", "127.0.0.1", "--port", "0"])
        found = _NAMESRV_BOOTED.match(server.output)
        assert found is not None, server.output
        self.namesrv = found[1]

    def start_broker(self, line: str) -> None:
        """Start a broker by its command line in the document, with a free port and a folder of the test."""
        _, *arguments = line.replace(NAMESRV, self.namesrv).split()
        name = arguments[-1].removeprefix("brokerName=")
        arguments[arguments.index("--port") + 1] = "0"
        arguments[arguments.index("--store") + 1] = str(self.folder / "stores" / name)
        server = self.start(name, [*arguments, "--host", "127.0.0.1"])
        assert booted(server)[0] == name

    def run(self, line: str, on: str = "operator") -> str:
        """Run a command line of the document."""
        return run(line, self.namesrv, self.environ(on))


def booted(server: ServerProcess) -> tuple[str, str]:
    """Name and address in the line of a broker that serves."""
    found = _BOOTED.match(server.output)
    assert found is not None, server.output
    return found[1], found[2]


class Traffic:
    """A producer and a consumer that never pause. Use it in a `with` block: on leaving it everything that
    was acknowledged has been consumed, and no send has failed."""

    def __init__(self, namesrv: str) -> None:
        self._producer = Producer("shop", namesrv=namesrv, poll_namesrv_interval_ms=300)
        self._consumer = PushConsumer(
            GROUP,
            namesrv=namesrv,
            consume_from="first",
            poll_namesrv_interval_ms=300,
            rebalance_interval_ms=500,
            persist_interval_ms=300,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, name="traffic")
        self.sent: Counter[tuple[str, int]] = Counter()
        """Messages that were acknowledged, by broker and queue."""
        self.consumed: Counter[tuple[str, int]] = Counter()
        self._acknowledged: set[bytes] = set()
        self._bodies: set[bytes] = set()
        self._failures: list[str] = []

    def __enter__(self) -> Traffic:
        self._producer.start()
        self._consumer.subscribe(TOPIC, self._take)
        self._consumer.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        try:
            wait_for(lambda: self._acknowledged <= self._bodies, "everything acknowledged is consumed")
            assert self._failures == []
        finally:
            self._consumer.stop()
            self._producer.stop()

    def _send(self) -> None:
        number = 0
        while not self._stopping.wait(0.005):
            body, number = b"%d" % number, number + 1
            try:
                queue = self._producer.send(Message(TOPIC, body)).queue
            except KourouError as error:
                self._failures.append(str(error))
                continue
            self._acknowledged.add(body)
            self.sent[queue.broker_name, queue.queue_id] += 1

    def _take(self, message: MessageExt) -> None:
        self._bodies.add(message.body)
        self.consumed[message.broker_name, message.queue_id] += 1

    def sent_to(self, broker: str) -> int:
        """How many messages a broker has acknowledged."""
        return sum(count for (name, _), count in list(self.sent.items()) if name == broker)

    def wait_queues(self, broker: str, queues: int) -> None:
        """Until so many queues of a broker were sent to, and consumed from."""
        wanted = {(broker, queue_id) for queue_id in range(queues)}
        wait_for(lambda: wanted <= self.sent.keys(), f"sends to {wanted}")
        wait_for(lambda: wanted <= self.consumed.keys(), f"consumption from {wanted}")
