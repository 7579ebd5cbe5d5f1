"""`kourou store backup` beside a broker under load, and `kourou store restore`: as an operator uses them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou import AsyncProducer, Message, MessageQueue, QueueReader
from kourou.testing.store_check import assert_store_ok
from tests.child_process import dies_with_parent
from tests.e2e.server_process import START_SECONDS, ServerProcess
from tests.e2e.test_standalone_command import FREE, READY
from tests.golden.stores import extract_store

pytestmark = pytest.mark.e2e

TOPIC = "BackedUp"
TIMER_TOPIC = "Later"
QUEUES = 4
# In a queue: bounds of the load.
MOST_MESSAGES = 30_000
PAUSE_SECONDS = 0.002
PROPERTIES = """
mappedFileSizeCommitLog=262144
maxHashSlotNum=1000
maxIndexNum=4000
flushConsumeQueueThoroughInterval=500
"""


@contextmanager
def standalone(folder: Path, environ: dict[str, str]) -> Iterator[str]:
    """A name server and a broker on `folder`; yields the address. They stop without a complaint."""
    (folder / "broker-a.properties").write_text(PROPERTIES)
    arguments = ["standalone", "--store", str(folder), *FREE]
    server = ServerProcess("kourou.cli.main", arguments, environ, folder.with_name(folder.name + "-process"))
    try:
        found = READY.fullmatch(server.wait_first_line())
        assert found is not None
        yield found[1]
        assert (server.stop(), server.errors) == (0, "")
    finally:
        server.kill()


def log_lines(folder: Path, *levels: str) -> list[str]:
    """What a broker has complained of."""
    lines = (folder / "logs" / "standalone.log").read_text().splitlines()
    return [line for line in lines if any(f" {level} " in line for level in levels)]


def body(queue_id: int, number: int) -> bytes:
    return b"%d %d " % (queue_id, number) + b"x" * 1_000


class Load:
    """Producers, one for each queue, that send a message when the one before was acknowledged."""

    def __init__(self, namesrv: str) -> None:
        self._producer = AsyncProducer("load", namesrv=namesrv)
        self._progress = asyncio.Event()
        self.acknowledged = [0] * QUEUES
        self.timers = 0

    async def run(self) -> None:
        async with self._producer as producer:
            queues = await producer.queues(TOPIC)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send_timers())
                for queue in queues:
                    tasks.create_task(self._send(queue))

    async def _send(self, queue: MessageQueue) -> None:
        for number in range(MOST_MESSAGES):
            result = await self._producer.send(Message(TOPIC, body(queue.queue_id, number)), queue=queue)
            assert result.queue_offset == number
            self.acknowledged[queue.queue_id] = number + 1
            self._progress.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _send_timers(self) -> None:
        for number in range(MOST_MESSAGES):
            await self._producer.send(Message(TIMER_TOPIC, b"%d" % number, delay_time_ms=500 + number % 900))
            self.timers = number + 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def wait_more(self, count: int) -> list[int]:
        """Wait until each queue has so many more; how many it has then."""
        wanted = [number + count for number in self.acknowledged]
        async with asyncio.timeout(START_SECONDS):
            while any(has < wants for has, wants in zip(self.acknowledged, wanted, strict=True)):
                self._progress.clear()
                await self._progress.wait()
        return list(self.acknowledged)


async def kourou(environ: dict[str, str], *arguments: str | Path) -> str:
    """Run a command that has to succeed."""
    process = await asyncio.create_subprocess_exec(
        *dies_with_parent(),
        sys.executable,
        "-m",
        "kourou.cli.main",
        *map(str, arguments),
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), START_SECONDS)
    assert (process.returncode, errors) == (0, b""), errors
    return output.decode()


async def read_all(namesrv: str, topic: str = TOPIC) -> list[list[bytes]]:
    """The bodies of each queue."""
    async with AsyncProducer("reader", namesrv=namesrv) as producer:
        queues = await producer.queues(topic)
    found = []
    for queue in queues:
        async with QueueReader(queue, namesrv=namesrv) as chunks:
            found.append([message.body async for chunk in chunks for message in chunk.messages()])
    return found


async def read_timers(namesrv: str, count: int) -> list[int]:
    """The numbers of the timer messages that were delivered, when the first `count` are among them."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            numbers = [int(body) for bodies in await read_all(namesrv, TIMER_TOPIC) for body in bodies]
            if set(range(count)) <= set(numbers):
                return numbers
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_three_backups_under_load_have_every_acknowledged_message(tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path)}
    store = tmp_path / "running"
    store.mkdir()
    kept: list[tuple[Path, list[int], int]] = []
    with standalone(store, environ) as namesrv:
        for topic in (TOPIC, TIMER_TOPIC):
            await kourou(environ, "topic", "create", topic, "--queues", str(QUEUES), "-n", namesrv)
        load = Load(namesrv)
        sending = asyncio.create_task(load.run(), name="load")
        for number, options in enumerate(([], ["--copy"], ["--base", tmp_path / "backup-0"])):
            before = await load.wait_more(150)
            timers = load.timers
            backup = tmp_path / f"backup-{number}"
            await kourou(environ, "store", "backup", store / "broker-a", backup, *options)
            kept.append((backup, before, timers))
        assert not sending.done(), "there was load all the time"
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert log_lines(store, "WARNING", "ERROR") == []
    for backup, before, timers in kept:
        restored = tmp_path / f"restored-{backup.name}"
        restored.mkdir()
        await kourou(environ, "store", "restore", backup, restored / "broker-a")
        assert_store_ok(restored / "broker-a")
        with standalone(restored, environ) as namesrv:
            queues = await read_all(namesrv)
            delivered = await read_timers(namesrv, timers)
        assert len(delivered) == len(set(delivered)), "a timer message was delivered twice"
        for queue_id, bodies in enumerate(queues):
            assert len(bodies) >= before[queue_id], f"{backup.name}: acknowledged messages are missing"
            assert bodies == [body(queue_id, number) for number in range(len(bodies))]
        assert log_lines(restored, "WARNING", "ERROR") == []
        report = assert_store_ok(restored / "broker-a")
        assert report.recovery == [] and report.notes == []
        await kourou(environ, "store", "compare", store / "broker-a", backup)
    # The first one may be so early that no full file is durable yet.
    files = [path for number in (0, 2) for path in (tmp_path / f"backup-{number}/store/commitlog").iterdir()]
    assert any(path.stat().st_nlink > 1 for path in files), "full files were linked"


def test_a_killed_backup_is_refused(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    os.mkfifo(root / "config" / "zz")  # a file that cannot be read: the backup waits there
    target = tmp_path / "backup"
    command = [sys.executable, "-m", "kourou.cli.main", "store", "backup", str(root), str(target)]
    process = subprocess.Popen([*dies_with_parent(), *command])
    deadline = time.monotonic() + START_SECONDS
    while not (target / "store" / "config").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    assert process.wait(START_SECONDS) == -signal.SIGKILL
    for arguments, reason in (
        (["restore", target, tmp_path / "new"], "the backup is incomplete: it has no backup.json"),
        (["backup", root, target], "not empty: remains of an interrupted backup"),
    ):
        words = [sys.executable, "-m", "kourou.cli.main", "store", *map(str, arguments)]
        refused = subprocess.run(words, capture_output=True, text=True, timeout=START_SECONDS)
        assert refused.returncode == 2 and refused.stdout == ""
        assert f"{target}: {reason}" in refused.stderr and refused.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()
