"""The supervisor of the shop's processes: small programs that die, hang and go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.needed import need_module

need_module("uvicorn")

from webshop.running.supervisor import Program, State, Supervisor, SupervisorError, descendants  # noqa: E402

pytestmark = pytest.mark.integration

# Writes its process id when it is ready, and its child's.
SLEEPER = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
path = sys.argv[1]
with open(path + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(path + ".new", path)
time.sleep(600)
"""


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor(tmp_path / "logs", restart_s=0.05, is_quiet=True) as supervisor:
        yield supervisor


def pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def sleeper(path: Path) -> Program:
    async def is_ready(pid: int) -> bool:
        return pids(path)[:1] == [pid]

    return Program("sleeper", [sys.executable, "-c", SLEEPER, str(path)], is_ready, stop_s=10)


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_true():  # noqa: ASYNC110  another process
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_what_is_killed_comes_back_and_its_children_are_killed_too(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    process = supervisor.add(sleeper(tmp_path / "pids"))
    await process.wait_ready()
    first = pids(tmp_path / "pids")
    assert [process.pid, *descendants(first[0])] == first
    process.kill()
    await until(lambda: process.restarts == 1 and process.state is State.RUNNING)
    assert process.pid not in (None, first[0])
    await until(lambda: not any(map(is_alive, first)))
    whats = [event.what for event in supervisor.events]
    assert whats[0] == "ended (killed by SIGKILL); restarting it in 0.05 s"
    assert whats[1].startswith("is ready again after ")


async def test_a_stopped_process_hangs_until_it_continues_and_ends_when_asked(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    process = supervisor.add(sleeper(tmp_path / "pids"))
    await process.wait_ready()
    process.freeze()
    assert process.pid is not None
    tree = [process.pid, *descendants(process.pid)]

    def states() -> set[str]:
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in tree}

    await until(lambda: states() == {"T"})
    process.unfreeze()
    await until(lambda: "T" not in states())
    process.freeze()
    await process.end()  # in order, although it hangs
    assert (process.state, process.pid, process.restarts) == (State.DOWN, None, 0)
    assert process.last_exit == "killed by SIGTERM"
    with pytest.raises(SupervisorError, match="sleeper is down: there is no process"):
        process.kill()
    process.start()
    await process.wait_ready()
    with pytest.raises(SupervisorError, match="sleeper is running already"):
        process.start()


async def test_a_program_that_never_gets_ready_is_named_with_the_end_of_its_log(
    supervisor: Supervisor,
) -> None:
    async def is_ready(pid: int) -> bool:
        return False

    words = [sys.executable, "-c", "print('no such table'); raise SystemExit(3)"]
    process = supervisor.add(Program("broken", words, is_ready, start_s=1))
    with pytest.raises(SupervisorError, match=r"(?s)broken is not ready after 1 s.*broken\.log:\n  no such"):
        await process.wait_ready()
    assert process.last_exit == "exit code 3"
    assert "exit code 3; see " in supervisor.events[0].what


async def test_a_program_that_has_finished_is_not_restarted(supervisor: Supervisor) -> None:
    async def is_ready(pid: int) -> bool:
        return True

    process = supervisor.add(Program("buyers", [sys.executable, "-c", ""], is_ready, has_end=True))
    await until(lambda: process.state is State.FINISHED)
    assert process.restarts == 0


LAUNCHER = """
import asyncio, sys
from pathlib import Path
from tests.e2e.shop.test_supervisor import sleeper
from webshop.running.supervisor import Supervisor

async def main():
    folder = Path(sys.argv[1])
    async with Supervisor(folder / "logs") as supervisor:
        await supervisor.add(sleeper(folder / "pids")).wait_ready()
        supervisor.find("sleeper").freeze()
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_launcher_that_is_killed_leaves_no_process_not_even_a_stopped_one(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-c", LAUNCHER, str(tmp_path)]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None and launcher.stdout.readline() == "ready\n"
        pid, child = pids(tmp_path / "pids")
        assert is_alive(pid)
        launcher.kill()
    deadline = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # The kernel kills what the launcher has started; that has to see to its own children.
    os.kill(child, signal.SIGKILL)
