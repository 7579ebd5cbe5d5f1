"""`kourou standalone --console` and `kourou console` as users run them; the program of docs/console.md."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.e2e.doc_programs import is_like, steps, user_environ
from tests.e2e.server_process import ServerProcess

pytestmark = pytest.mark.e2e

FREE = ["--namesrv-port", "0", "--broker-port", "0"]
CONSOLE = re.compile(r"^console: (http://127\.0\.0\.1:\d+)/$", re.M)
SECONDS = 20

Spawn = Callable[..., ServerProcess]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts commands of one user; what still runs at the end is killed."""
    started: list[ServerProcess] = []

    def start(*arguments: str) -> ServerProcess:
        folder = tmp_path / f"process-{len(started)}"
        environ = user_environ(tmp_path / "home")
        started.append(ServerProcess("kourou.cli.main", list(arguments), environ, folder))
        return started[-1]

    (tmp_path / "home").mkdir()
    yield start
    for server in started:
        server.kill()


def _address(server: ServerProcess) -> str:
    server.wait_output("console: ")
    found = CONSOLE.search(server.output)
    assert found, server.output
    return found[1]


def test_a_console_in_the_process_of_the_broker(spawn: Spawn, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    server = spawn("standalone", *FREE, "--store", store, "--console", "--console-port", "0")
    address = _address(server)
    with urlopen(f"{address}/", timeout=SECONDS) as page:
        assert b'<script type="module"' in page.read()
    with urlopen(f"{address}/metrics", timeout=SECONDS) as answer:
        assert b"rocketmq_broker_permission{" in answer.read()

    (program,) = (step for step in steps("docs/console.md") if step.is_program)
    text = program.text.replace("http://127.0.0.1:8080", address)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=SECONDS)
    assert program.output is not None and is_like(ran.stdout.splitlines(), program.output), ran
    (line,) = (tmp_path / "store" / "logs" / "console-audit.log").read_text().splitlines()
    assert json.loads(line)["outcome"] == "done"
    assert server.stop() == 0


def test_a_console_of_its_own_with_users(spawn: Spawn, tmp_path: Path) -> None:
    server = spawn("standalone", *FREE, "--store", str(tmp_path / "store"))
    server.wait_first_line()
    namesrv = re.search(r"namesrvAddr=(\S+)", server.output)
    assert namesrv
    add = [sys.executable, "-m", "kourou.cli.main", "console", "user", "add", "bob", "--password-stdin"]
    environ = user_environ(tmp_path / "home")
    subprocess.run(add, input="correct horse\n", env=environ, text=True, check=True, timeout=SECONDS)
    console = spawn("console", "-n", namesrv[1], "--port", "0")
    with urlopen(f"{_address(console)}/api/session", timeout=SECONDS) as answer:
        assert json.load(answer)["login_required"] is True
    assert (console.stop(), server.stop()) == (0, 0)


def test_it_is_not_open_to_others_without_users(spawn: Spawn) -> None:
    for words in (
        ["console", "-n", "127.0.0.1:1"],
        ["standalone", *FREE, "--console", "--console-port", "0"],
    ):
        server = spawn(*words, "--host", "0.0.0.0")
        assert server.wait_end() == 1
        assert "the console would be open to everyone who reaches this address" in server.errors


@pytest.mark.parametrize("is_standalone", [False, True])
def test_a_port_that_is_taken_is_reported_with_its_option(
    spawn: Spawn, tmp_path: Path, is_standalone: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["standalone", *FREE, "--store", str(tmp_path / "store"), "--console", "--console-port", port]
        option = "--console-port" if is_standalone else "--port"
        server = spawn(*(words if is_standalone else ["console", "-n", "127.0.0.1:1", "--port", port]))
        assert server.wait_end() == 1
        assert option in server.errors and port in server.errors
