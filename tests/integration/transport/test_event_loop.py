"""Loops in daemon threads stand still when the interpreter goes."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What is registered first is called last: it sees what goes on when all others are done.
LOOK = """
import asyncio, atexit, time
ticks = []
def look():
    before = len(ticks)
    time.sleep(0.3)
    print("ticks:", len(ticks) - before)
atexit.register(look)
async def tick():
    while True:
        ticks.append(1)
        await asyncio.sleep(0.01)
"""
CLIENT = """
from kourou.client.sync.blocking_portal import enter_portal
enter_portal().submit(tick)
while not ticks:
    time.sleep(0.01)
"""
TEST_KIT = """
from kourou.testing.loop_thread import LoopThread
loop = LoopThread("left-alone")
loop.start()
loop.submit(tick)
"""
WRITES = (
    TEST_KIT
    + """
from kourou.broker.storage.disk_threads import DiskThreads
async def write():
    threads = DiskThreads()
    while True:
        await threads.run(int)
loop.submit(write).add_done_callback(lambda done: print("failed:", done.exception()))
atexit.register(time.sleep, 0.1)  # before the loop is parked, but after the end of thread pools
"""
)
HELD = TEST_KIT + "loop.hold()"
FORKED = (
    CLIENT
    + """
import os
if os.fork() == 0:
    raise SystemExit  # a child has no such thread, and does not wait for one
os.wait()
"""
)
STOPPED = """
from kourou.client.sync.blocking_portal import enter_portal, leave_portal
leave_portal(enter_portal())
"""
# Whatever a program leaves running, its end is quiet.
AT_WORK = """
from kourou import Message, Producer, PushConsumer
from kourou.testing import LocalCluster
mq = LocalCluster()
mq.start()
producer = Producer("left-alone", namesrv=mq.namesrv)
producer.start()
producer.send(Message("Orders", b"one book"))
consumer = PushConsumer("left-alone", namesrv=mq.namesrv)
consumer.subscribe("Orders", "*", lambda message: None)
consumer.start()
"""


@pytest.mark.parametrize(
    ("program", "processes"),
    [
        pytest.param(CLIENT, 1, id="client", marks=pytest.mark.slow),
        pytest.param(TEST_KIT, 1, id="test-kit", marks=pytest.mark.slow),
        pytest.param(WRITES, 1, id="writes"),
        pytest.param(HELD, 1, id="held", marks=pytest.mark.slow),
        pytest.param(FORKED, 2, id="forked", marks=pytest.mark.slow),
        pytest.param(STOPPED, 1, id="stopped"),
        pytest.param(AT_WORK, 1, id="at-work"),
    ],
)
def test_a_loop_that_was_not_stopped_stands_still_at_the_end(program: str, processes: int) -> None:
    words = [sys.executable, "-c", LOOK + program]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["ticks: 0"] * processes


STOPPED_AT_EXIT = """
import atexit
import {first}
atexit.register(lambda: producer.stop())
from kourou import Message, Producer
from kourou.testing import LocalCluster
mq = LocalCluster()
mq.start()
producer = Producer("left-alone", namesrv=mq.namesrv)
producer.start()
producer.send(Message("Orders", b"one book"))
"""


def test_a_client_may_be_stopped_at_exit() -> None:
    program = STOPPED_AT_EXIT.format(first="kourou")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_one_whose_loop_stands_still_by_then_says_so() -> None:
    program = STOPPED_AT_EXIT.format(first="sys")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "ClientStateError: the program is exiting" in ended.stderr
