"""PushConsumer: handlers in threads, and `run` until it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.client.push.consume_result import ConsumeResult
from kourou.client.sync.push_consumer import PushConsumer
from kourou.errors import ClientStateError
from kourou.protocol.message import MessageExt
from tests.e2e.client.kit.pull_kit import TOPIC, ClusterThread, cluster_thread, numbered

pytestmark = pytest.mark.e2e

# Consumes until a signal ends it, and says that it ended in order.
PROGRAM = """
import sys
from kourou.client.sync.push_consumer import PushConsumer

def on_message(message):
    print(message.body.decode(), flush=True)

with PushConsumer("signalled", namesrv=sys.argv[1], consume_from="first") as consumer:
    consumer.subscribe("TopicTest", on_message)
    consumer.run()
print("stopped in order", flush=True)
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path) as cluster:
        yield cluster


class Seen:
    """Collects what handlers get."""

    def __init__(self, count: int) -> None:
        self.bodies: list[bytes] = []
        self.threads: set[str] = set()
        self.is_complete = threading.Event()
        self._count = count
        self._lock = threading.Lock()

    def __call__(self, message: MessageExt) -> ConsumeResult:
        with self._lock:
            self.bodies.append(message.body)
            self.threads.add(threading.current_thread().name)
            if len(self.bodies) >= self._count:
                self.is_complete.set()
        return ConsumeResult.SUCCESS


def test_handlers_get_every_message_in_threads_of_the_consumer(running: ClusterThread) -> None:
    running.put(numbered(200))
    seen = Seen(200)
    with PushConsumer("pushed", namesrv=running.namesrv_addr, consume_from="first") as consumer:
        consumer.subscribe(TOPIC, seen)
        assert seen.is_complete.wait(20)
        assert len([queue for queue in consumer.queues if queue.topic == TOPIC]) == 4
        assert consumer.group == "pushed" and consumer.client_id
    assert sorted(seen.bodies) == sorted(numbered(200))
    assert not seen.threads & {"MainThread", "kourou-client"}
    assert consumer.stats().topics[TOPIC].consumed == 200


def test_an_async_handler_runs_on_the_shared_loop(running: ClusterThread) -> None:
    running.put(numbered(10))
    seen = Seen(10)

    async def on_message(message: MessageExt) -> None:
        seen(message)

    with PushConsumer("pushed", namesrv=running.namesrv_addr, consume_from="first") as consumer:
        consumer.subscribe(TOPIC, on_message)
        assert seen.is_complete.wait(20)
    assert seen.threads == {"kourou-client"}


def test_run_starts_and_ends_when_another_thread_stops_it(running: ClusterThread) -> None:
    running.put(numbered(5))
    seen = Seen(5)
    consumer = PushConsumer("pushed", namesrv=running.namesrv_addr, consume_from="first")
    consumer.subscribe(TOPIC, seen)
    runs = threading.Thread(target=consumer.run)
    runs.start()
    assert seen.is_complete.wait(20)
    consumer.pause()
    consumer.resume()
    consumer.stop()
    runs.join(20)
    assert not runs.is_alive()
    with pytest.raises(ClientStateError, match="is stopped"):
        consumer.wait()


def test_a_failure_of_our_own_ends_run(running: ClusterThread) -> None:
    running.put([b"x"])
    seen = Seen(1)
    consumer = PushConsumer("pushed", namesrv=running.namesrv_addr, consume_from="first")
    consumer.subscribe(TOPIC, seen)
    consumer.start()
    problems: list[BaseException] = []

    def run() -> None:
        try:
            consumer.run()
        except BaseException as error:
            problems.append(error)

    runs = threading.Thread(target=run)
    runs.start()
    assert seen.is_complete.wait(20)
    consumer._do(lambda: consumer._client._instance.tasks.fail(ZeroDivisionError("a bug of ours")))
    runs.join(20)
    assert [type(problem) for problem in problems] == [ZeroDivisionError]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_program_in_order(running: ClusterThread, number: signal.Signals) -> None:
    running.put([b"hello"])
    command = [sys.executable, "-W", "error", "-c", PROGRAM, running.namesrv_addr]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == "hello\n"
            os.kill(process.pid, number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "stopped in order\n", "")
