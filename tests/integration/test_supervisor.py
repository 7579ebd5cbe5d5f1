"""How the supervisor of several brokers tells an end that it wanted from one that it did not."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from kourou.errors import KourouError
from kourou.standalone.options import Replica, StandaloneOptions
from kourou.standalone.supervisor import BrokerProcess, Supervisor

BOOTED = "print('The broker[broker-a, 127.0.0.1:1] boot success', flush=True)"
WAITS = "import signal; signal.pause()"
ENDS_BADLY = f"import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); {BOOTED}; signal.pause()"
IS_KILLED = "import os; os.kill(os.getpid(), 9)"


async def child(program: str) -> BrokerProcess:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)
    return BrokerProcess("broker-a", process)


async def test_one_that_is_ended_during_its_start_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    broker = await child(WAITS)
    with caplog.at_level(logging.INFO, logger="kourou"):
        await broker.stop()
    assert (await broker.ended, caplog.messages) == (-15, [])


async def test_one_that_ends_badly_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    broker = await child(ENDS_BADLY)
    await broker.wait_booted()
    assert broker.address == "127.0.0.1:1"
    await broker.stop()
    assert caplog.messages == ["broker-a did not stop in order: exit code 3"]


async def test_one_that_is_killed_says_by_what(caplog: pytest.LogCaptureFixture) -> None:
    broker = await child(IS_KILLED)
    with pytest.raises(KourouError, match=r"^broker-a did not start: killed by SIGKILL$"):
        await broker.wait_booted()
    await broker.stop()
    assert caplog.messages == []


async def test_a_broker_that_cannot_be_started_again_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(StandaloneOptions(store=tmp_path, slaves=1))
    replica = Replica(0)
    supervisor._brokers[replica] = await child(IS_KILLED)
    tries = [OSError(errno.ENOMEM, "Cannot allocate memory"), await child(f"{BOOTED}; {WAITS}")]
    ports = []

    async def spawn(replica: Replica, *, port: int) -> BrokerProcess:
        ports.append(port)
        started = tries.pop(0)
        if isinstance(started, OSError):
            raise started
        return started

    monkeypatch.setattr(supervisor, "_spawn", spawn)
    monkeypatch.setattr("kourou.standalone.supervisor._FIRST_PAUSE_S", 0.001)
    with caplog.at_level(logging.INFO, logger="kourou"):
        keeper = asyncio.create_task(supervisor._keep_running(replica, 10_911))
        async with asyncio.timeout(10):
            while "broker-a serves again at 127.0.0.1:1" not in caplog.messages:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert caplog.messages == [
        "broker-a ended by itself (killed by SIGKILL); restarting it in 0.001 s",
        "broker-a cannot be started: Cannot allocate memory",
        "broker-a ended by itself (killed by SIGKILL); restarting it in 0.002 s",
        "broker-a serves again at 127.0.0.1:1",
    ]
    assert ports == [10_911, 10_911]
    supervisor._keepers = [keeper]
    await supervisor.stop()
    assert await supervisor._brokers[replica].ended == -15
