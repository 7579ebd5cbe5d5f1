"""How the supervisor of several brokers tells an end that it wanted from one that it did not."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE

import pytest

from kourou.errors import KourouError
from kourou.standalone.supervisor import BrokerProcess

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
