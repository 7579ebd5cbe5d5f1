"""Plain clients share one loop: what is left of it, of their sockets and threads, when they are stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kourou.client.sync.producer import Producer
from kourou.errors import NoNameServerError
from kourou.protocol.message import Message
from tests.e2e.client.kit.pull_kit import TOPIC, ClusterThread, cluster_thread

pytestmark = pytest.mark.e2e

# Run in a process of its own, in which nothing else opens files or starts threads.
LIVES = """
import gc, os, sys, threading
from kourou.client.sync.lite_pull_consumer import LitePullConsumer
from kourou.client.sync.producer import Producer
from kourou.client.sync.pull_consumer import PullConsumer
from kourou.client.sync.push_consumer import PushConsumer
from kourou.protocol.message import Message

namesrv = sys.argv[1]

def live():
    puller = PullConsumer("pullers", namesrv=namesrv)
    with Producer("producers", namesrv=namesrv) as producer, puller:
        result = producer.send(Message("TopicTest", b"hello"))
        assert puller.pull(result.queue, queue_offset=result.queue_offset).messages()

def consume():
    seen = threading.Event()
    push = PushConsumer("pushed", namesrv=namesrv, consume_from="first", concurrency=2)
    push.subscribe("TopicTest", lambda message: seen.set())
    lite = LitePullConsumer("polled", namesrv=namesrv, consume_from="first")
    lite.subscribe("TopicTest")
    with push, lite, Producer("producers", namesrv=namesrv) as producer:
        producer.send(Message("TopicTest", b"hello"))
        assert seen.wait(20)
        assert lite.poll(20_000)

def counts():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), [thread.name for thread in threading.enumerate()]

live()
consume()
before = counts()
for _ in range(100):
    live()
for _ in range(5):
    consume()
after = counts()
assert before == after, (before, after)
assert after[1] == ["MainThread"], after
"""

# A client that was started before a fork says so in the child, and goes on in the parent.
FORK = """
import os, sys
from kourou.client.sync.producer import Producer
from kourou.errors import ClientStateError
from kourou.protocol.message import Message

namesrv = sys.argv[1]
message = Message("TopicTest", b"hello")
with Producer("producers", namesrv=namesrv) as producer:
    producer.send(message)
    child = os.fork()
    if child == 0:
        try:
            producer.send(message)
            os._exit(1)
        except ClientStateError as error:
            if "before a fork" not in str(error):
                os._exit(2)
        producer.stop()
        with Producer("producers", namesrv=namesrv) as own:
            own.send(message)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    producer.send(message)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path) as cluster:
        yield cluster


def run_program(program: str, *arguments: str) -> None:
    # A fork in a process with threads is what is tested here; Python 3.12 warns of it.
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_hundred_starts_and_stops_leave_no_thread_and_no_socket(running: ClusterThread) -> None:
    running.put([b"x"])
    run_program(LIVES, running.namesrv_addr)


def test_a_client_of_the_parent_is_refused_in_a_forked_child(running: ClusterThread) -> None:
    running.put([b"x"])
    run_program(FORK, running.namesrv_addr)


def test_clients_of_all_threads_share_one_loop(running: ClusterThread) -> None:
    def send(number: int) -> int:
        with Producer("producers", namesrv=running.namesrv_addr) as producer:
            results = producer.send_many([Message(TOPIC, b"%d" % number)] * 5)
            assert [thread.name for thread in threading.enumerate()].count("kourou-client") == 1
            return len(results)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(send, range(16))) == [5] * 16
    assert "kourou-client" not in [thread.name for thread in threading.enumerate()]


def test_a_start_that_fails_leaves_nothing_behind(unused_tcp_port: int) -> None:
    for _ in range(3):
        with pytest.raises(NoNameServerError):
            Producer("producers", namesrv=f"127.0.0.1:{unused_tcp_port}").start()
    assert "kourou-client" not in [thread.name for thread in threading.enumerate()]
