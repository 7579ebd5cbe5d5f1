"""kill -9 of a process that writes under sync flush: nothing that it acknowledged is lost.

One store over all rounds. The parent reads acknowledgements from a pipe, kills the writer at some
moment, opens the store itself, and looks at what is there.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from kourou.protocol.record import decode_record
from kourou.store.check.check import check_store
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.testing.crash_writer import QUEUES, TOPIC, crash_config, now_ms, number_of
from tests.crash.ledger import read_queue
from tests.crash.rounds import replayable, seeds


class Writer:
    """A crash_writer that runs. `acknowledged`: queue_id, queue_offset and number of each message."""

    def __init__(self, root: Path, seed: int) -> None:
        command = [sys.executable, "-m", "kourou.testing.crash_writer", str(root), str(seed)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.acknowledged: list[tuple[int, int, int]] = []

    def read_until(self, word: bytes) -> None:
        """Up to the line that begins with `word`."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(line)
            if line.startswith(word):
                return
        raise AssertionError(f"the writer ended with {self._process.wait()}")

    def read_one(self) -> None:
        """Up to the next acknowledgement."""
        before = len(self.acknowledged)
        while len(self.acknowledged) == before:
            self.read_until(b"")

    def kill(self, after_s: float) -> None:
        """Kill it in a while; then take what it said before."""
        time.sleep(after_s)
        self._process.send_signal(signal.SIGKILL)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(line)
        assert self._process.wait() == -signal.SIGKILL
        self._process.stdout.close()

    def _take(self, line: bytes) -> None:
        # The last line may be cut off: it was not acknowledged.
        if line.endswith(b"\n") and line[:1].isdigit():
            number, _, queue_id, queue_offset, _ = line.split()
            self.acknowledged.append((int(queue_id), int(queue_offset), int(number)))


class KilledStore:
    """The store, and what is known of each queue: the number at each queue_offset."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[int, list[int]] = defaultdict(list)
        self.acknowledged = 0
        self.recovered = 0

    def settle(self, writer: Writer, *, clean: bool) -> None:
        """Open the store, compare, and close it, or let it go as it is."""
        store = MessageStore.open(crash_config(self.root), Files(), now_ms)
        assert not store.report.damages
        self.recovered += store.report.records
        for queue_id in range(QUEUES):
            self._settle_queue(store, queue_id)
        for queue_id, queue_offset, number in writer.acknowledged:
            known = self._known[queue_id]
            assert queue_offset < len(known), f"{number} was acknowledged and is lost"
            assert known[queue_offset] == number, f"{queue_id} has {known[queue_offset]} instead of {number}"
        self.acknowledged += len(writer.acknowledged)
        store.close() if clean else store.abandon()

    def _settle_queue(self, store: MessageStore, queue_id: int) -> None:
        known = self._known[queue_id]
        new = read_queue(store, TOPIC, queue_id, from_queue_offset=len(known))
        for queue_offset, raw in new.items():
            assert queue_offset == len(known)
            known.append(number_of(decode_record(raw, verify_body_crc=True)))
        assert known == sorted(set(known)), f"queue {queue_id}: numbers repeat or go back"

    def check_all(self) -> None:
        """At the end: every number once, and every invariant."""
        numbers = [number for known in self._known.values() for number in known]
        assert len(numbers) == len(set(numbers))
        report = check_store(Files(), self.root)
        assert report.ok and not report.recovery, report.as_json()


def kill_rounds(root: Path, *, seconds: float, full: int) -> None:
    killed = KilledStore(root)
    for seed in seeds("kill -9 under sync flush", seconds=seconds, full=full):
        with replayable(seed):
            chance = random.Random(seed)
            writer = Writer(root, seed)
            if chance.random() < 0.25:  # while it recovers, or just after
                writer.read_until(b"opening")
                writer.kill(chance.uniform(0, 0.03))
            else:
                writer.read_one()
                writer.kill(chance.uniform(0, 0.2))
            killed.settle(writer, clean=chance.random() < 0.3)
    assert killed.acknowledged > 0
    MessageStore.open(crash_config(root), Files(), now_ms).close()
    killed.check_all()


def test_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    kill_rounds(tmp_path / "store", seconds=3, full=3)


@pytest.mark.nightly
def test_kill_9_loses_nothing_acknowledged_over_many_rounds(tmp_path: Path) -> None:
    kill_rounds(tmp_path / "store", seconds=0, full=100)
