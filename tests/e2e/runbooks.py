"""The runbooks of docs/operations.md: their commands, and messages that flow while they are followed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kourou import Message, MessageExt, Producer, PushConsumer
from kourou.errors import KourouError
from tests.e2e.doc_programs import MODULES, NAMESRV

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
TOPIC, GROUP = "Orders", "billing"
LIMIT_S = 60.0


def runbook(title: str) -> list[str]:
    """The command lines under a heading, in order."""
    (section,) = re.findall(rf"^## {re.escape(title)}\n(.*?)^## ", DOCUMENT.read_text(), re.S | re.M)
    blocks = re.findall(r"^ *```\n(.*?)^ *```", section, re.S | re.M)
    return [line.strip() for block in blocks for line in block.splitlines()]


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
