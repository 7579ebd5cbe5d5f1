"""Services that are started by fork, from a process that has imported their packages."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.needed import need_module

need_module("fastapi")
need_module("psycopg_pool")

from webshop.running.supervisor import Program, State, Supervised, Supervisor  # noqa: E402

pytestmark = pytest.mark.integration

MODULE = """
import os, sys, time
print({version!r}, os.environ["THING"], *sys.argv[1:], flush=True)
open(os.environ["READY"], "w").write(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture
async def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    monkeypatch.syspath_prepend(tmp_path)
    async with Supervisor(tmp_path / "logs", restart_s=0.05, is_quiet=True) as supervisor:
        yield supervisor


def add_thing(supervisor: Supervisor, folder: Path) -> Supervised:
    ready = folder / "ready"

    async def is_ready(pid: int) -> bool:
        return _text(ready) == str(pid)

    environ = {"THING": "a thing", "READY": str(ready)}
    return supervisor.add(Program("thing", ["thing", "--fast"], is_ready, environ, is_forked=True))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def proc(process: Supervised, name: str) -> str:
    return Path(f"/proc/{process.pid}/{name}").read_text()


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_true():  # noqa: ASYNC110  another process
            await asyncio.sleep(0.01)


async def test_a_restart_runs_the_code_as_it_is_then(supervisor: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "thing.py").write_text(MODULE.format(version="old"))
    process = add_thing(supervisor, tmp_path)
    await process.wait_ready()
    assert proc(process, "comm") == "shop-thing\n"
    (tmp_path / "thing.py").write_text(MODULE.format(version="newer"))
    process.kill()
    await until(lambda: process.restarts == 1 and process.state is State.RUNNING)
    assert process.last_exit == "killed by SIGKILL"
    assert process.log.read_text() == "old a thing --fast\nnewer a thing --fast\n"


async def test_the_end_of_a_module_is_its_exit_code(supervisor: Supervisor, tmp_path: Path) -> None:
    async def is_ready(pid: int) -> bool:
        return False

    ends = {"done": ("print(1)", 0), "stopped": ("raise SystemExit(3)", 3), "broken": ("1 / 0", 1)}
    for name, (code, _) in ends.items():
        (tmp_path / f"{name}.py").write_text(code)
    processes = {
        name: supervisor.add(Program(name, [name], is_ready, has_end=True, is_forked=True)) for name in ends
    }
    await until(lambda: all(each.state is State.FINISHED for each in processes.values()))
    assert {name: each.last_exit for name, each in processes.items()} == {
        name: f"exit code {code}" for name, (_, code) in ends.items()
    }
    assert "ZeroDivisionError" in processes["broken"].log.read_text()


async def test_services_die_with_their_fork_server_and_come_back_with_another(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    (tmp_path / "thing.py").write_text(MODULE.format(version="old"))
    process = add_thing(supervisor, tmp_path)
    await process.wait_ready()
    parent = proc(process, "stat").rpartition(")")[2].split()[1]
    os.kill(int(parent), signal.SIGKILL)
    await until(lambda: process.restarts == 1 and process.state is State.RUNNING)
    assert process.last_exit == "killed by SIGKILL"
