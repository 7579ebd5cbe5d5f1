"""The name server as users run it: a process of its own, its signals, its files, its last words."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.cli.mqshutdown import shut_down as stop_servers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient

pytestmark = pytest.mark.e2e

BOOT_LINE = "The Name Server boot success. serializeType=JSON, address "
START_SECONDS = 20  # a loaded machine; usually well under one
STOP_SECONDS = 3


class Namesrv:
    """A name server process. Its output goes to files, so that it never waits for a reader."""

    def __init__(self, command: list[str], environ: dict[str, str], folder: Path) -> None:
        folder.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(command, env=environ, stdout=out, stderr=err)
        self.address = ""
        self.log_line = ""

    def wait_booted(self) -> None:
        """Wait for the two lines that say that it serves."""
        deadline = time.monotonic() + START_SECONDS
        while self._out.read_text().count("\n") < 2:
            assert self.process.poll() is None, self.errors
            assert time.monotonic() < deadline, "not started in time"
            time.sleep(0.01)
        boot, self.log_line = self._out.read_text().splitlines()
        assert boot.startswith(BOOT_LINE)
        self.address = boot.removeprefix(BOOT_LINE)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; returns the exit code of a process that ends in the time it has."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait(START_SECONDS)

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        return self._err.read_text()


Spawn = Callable[..., Namesrv]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home folder of the user who runs the commands."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    """That user's environment."""
    others = {name: text for name, text in os.environ.items() if not name.startswith(("XDG_", "ROCKETMQ_"))}
    return {**others, "HOME": str(home)}


@pytest.fixture
def spawn(environ: dict[str, str], tmp_path: Path) -> Iterator[Spawn]:
    """Starts name servers; what still runs at the end is killed."""
    started: list[Namesrv] = []

    def start(*arguments: str, module: str = "kourou.cli.mqnamesrv", **more: str) -> Namesrv:
        command = [sys.executable, "-m", module, *arguments]
        started.append(Namesrv(command, {**environ, **more}, tmp_path / f"process-{len(started)}"))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def free_port(tmp_path: Path) -> Path:
    """A configuration file that lets the system choose a port."""
    path = tmp_path / "ns.conf"
    path.write_text("# ours\nlistenPort=0\nbindAddress=127.0.0.1\n")
    return path


def booted(server: Namesrv) -> Namesrv:
    server.wait_booted()
    return server


def call(address: str, code: RequestCode, body: bytes = b"") -> RemotingCommand:
    async def one_call() -> RemotingCommand:
        client = RemotingClient()
        try:
            return await client.call(address, RemotingCommand.request(code, body=body), timeout_ms=5_000)
        finally:
            await client.stop()

    return asyncio.run(one_call())


def shut_down(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kourou.cli.mqshutdown", "namesrv"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=40, check=False)


def test_it_serves_says_where_its_log_is_and_ends_with_sigterm(
    spawn: Spawn, free_port: Path, home: Path
) -> None:
    server = booted(spawn("-c", str(free_port)))
    answer = call(server.address, RequestCode.GET_NAMESRV_CONFIG)
    assert answer.code == ResponseCode.SUCCESS and b"listenPort=0\n" in answer.body
    assert server.stop() == 0
    log = Path(server.log_line.removeprefix("log file: "))
    assert log.parent == home / ".local" / "share" / "kourou" / "logs"
    assert "SIGTERM: stopping" in log.read_text()
    assert server.errors == ""
    assert list(home.rglob("*.pid")) == []


def test_it_ends_with_ctrl_c(spawn: Spawn, free_port: Path) -> None:
    server = booted(spawn("-c", str(free_port)))
    assert server.stop(signal.SIGINT) == 0
    assert server.errors == ""


def test_a_hang_up_is_harmless(spawn: Spawn, free_port: Path) -> None:
    server = booted(spawn("-c", str(free_port)))
    server.process.send_signal(signal.SIGHUP)
    assert call(server.address, RequestCode.GET_NAMESRV_CONFIG).code == ResponseCode.SUCCESS
    assert server.stop() == 0


def test_open_connections_do_not_delay_the_end(spawn: Spawn, free_port: Path) -> None:
    server = booted(spawn("-c", str(free_port)))
    host, _, port = server.address.rpartition(":")
    request = RemotingCommand.request(RequestCode.GET_NAMESRV_CONFIG).encode()
    connections = [socket.create_connection((host, int(port))) for _ in range(20)]
    for connection in connections:
        connection.settimeout(START_SECONDS)
        connection.sendall(request * 500)  # answers that this side does not take
    assert server.stop() == 0
    for connection in connections:
        connection.close()


def test_changed_configuration_is_in_the_file_beside_its_comments(spawn: Spawn, free_port: Path) -> None:
    server = booted(spawn("-c", str(free_port)))
    body = b"orderMessageEnable=true\nfileReservedTime=1\n"
    assert call(server.address, RequestCode.UPDATE_NAMESRV_CONFIG, body).code == ResponseCode.SUCCESS
    answer = call(server.address, RequestCode.GET_NAMESRV_CONFIG)
    assert b"orderMessageEnable=true\n" in answer.body
    assert server.stop() == 0
    assert free_port.read_text() == "# ours\nlistenPort=0\nbindAddress=127.0.0.1\norderMessageEnable=true\n"
    again = booted(spawn("-c", str(free_port)))
    assert b"orderMessageEnable=true\n" in call(again.address, RequestCode.GET_NAMESRV_CONFIG).body


def test_a_taken_port_is_one_line_and_exit_code_1(spawn: Spawn, free_port: Path, tmp_path: Path) -> None:
    first = booted(spawn("-c", str(free_port)))
    port = first.address.rpartition(":")[2]
    other = tmp_path / "other.conf"
    other.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
    second = spawn("-c", str(other))
    assert second.process.wait(START_SECONDS) == 1
    errors = second.errors
    assert errors.startswith(f"mqnamesrv: cannot listen on 127.0.0.1:{port}: the port is taken")
    assert errors.count("\n") == 1
    assert call(first.address, RequestCode.GET_NAMESRV_CONFIG).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listenPort=abc\n", "bad.conf:1: listenPort=abc: must be a whole number from 0 to 65535"),
        ("bindAddress=203.0.113.7\nlistenPort=0\n", "cannot listen on 203.0.113.7:0: "),
        ("tls.server.mode=enforcing\ntls.server.certPath=/none.pem\nlistenPort=0\n", "/none.pem"),
        (
            "rocketmqHome=/dev/null\nlistenPort=0\n",
            "bad.conf:1: rocketmqHome=/dev/null: is a file, not a folder",
        ),
        ("kvConfigPath=/proc/self/mem\nlistenPort=0\n", "/proc/self/mem: "),
    ],
    ids=["bad value", "not our address", "no certificate", "home is a file", "unreadable data"],
)
def test_what_it_cannot_start_with_is_one_line(spawn: Spawn, tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "bad.conf"
    path.write_text(text)
    server = spawn("-c", str(path))
    assert server.process.wait(START_SECONDS) == 1
    # Where no log file can be written, the log is on the console, too.
    lines = [
        line for line in server.errors.splitlines() if not line.startswith("note: ") and " INFO " not in line
    ]
    assert len(lines) == 1 and lines[0].startswith("mqnamesrv: ") and problem in lines[0]


def test_a_reader_that_leaves_early_is_no_stack_trace(environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "kourou.cli.mqnamesrv", "-p"]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_kourou_namesrv_is_the_same_server(spawn: Spawn, tmp_path: Path) -> None:
    log = tmp_path / "my.log"
    server = booted(
        spawn(
            *("namesrv", "--host", "127.0.0.1", "--port", "0", "--log-file", str(log)),
            module="kourou.cli.main",
        )
    )
    assert server.log_line == f"log file: {log}"
    assert call(server.address, RequestCode.GET_NAMESRV_CONFIG).code == ResponseCode.SUCCESS
    assert server.stop() == 0
    assert "name server listens on 127.0.0.1:" in log.read_text()


def test_without_a_writable_home_it_logs_to_the_console(spawn: Spawn, free_port: Path) -> None:
    server = booted(spawn("-c", str(free_port), HOME="/dev/null"))
    assert server.log_line == "log: on this console"
    assert server.stop() == 0
    errors = server.errors
    assert "; logging to the console" in errors
    assert "name server listens on" in errors


def test_mqshutdown_stops_every_name_server_of_the_user(
    spawn: Spawn, free_port: Path, environ: dict[str, str]
) -> None:
    servers = [spawn("-c", str(free_port)) for _ in range(2)]
    for server in servers:
        server.wait_booted()
    done = shut_down(environ)
    assert done.returncode == 0, done.stderr
    for server in servers:
        assert server.process.wait(STOP_SECONDS) == 0
        assert f"The mqnamesrv({server.process.pid}) on {server.address} is stopping..." in done.stdout
        assert f"The mqnamesrv({server.process.pid}) has stopped." in done.stdout
    again = shut_down(environ)
    assert (again.returncode, again.stdout) == (1, "No mqnamesrv running.\n")


def test_mqshutdown_forgets_a_server_that_was_killed(
    spawn: Spawn, free_port: Path, environ: dict[str, str], home: Path
) -> None:
    server = booted(spawn("-c", str(free_port)))
    server.kill()
    assert len(list(home.rglob("*.pid"))) == 1
    done = shut_down(environ)
    assert (done.returncode, done.stdout) == (1, "No mqnamesrv running.\n")
    assert list(home.rglob("*.pid")) == []


def test_mqshutdown_leaves_a_stranger_with_the_same_number_alone(
    spawn: Spawn, free_port: Path, environ: dict[str, str], home: Path
) -> None:
    server = booted(spawn("-c", str(free_port)))
    [path] = home.rglob("*.pid")
    fields = json.loads(path.read_text())
    server.kill()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        path.write_text(json.dumps({**fields, "pid": stranger.pid}))
        done = shut_down(environ)
        assert (done.returncode, done.stdout) == (1, "No mqnamesrv running.\n")
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert stranger.returncode == 0


def test_mqshutdown_says_when_a_server_does_not_end(tmp_path: Path) -> None:
    program = (
        "import signal, sys; from pathlib import Path; from kourou.pidfile import pid_file\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "with pid_file(Path(sys.argv[1]), 'namesrv', '127.0.0.1:1'): print(flush=True); input()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        assert stop_servers("namesrv", tmp_path, wait_seconds=0.1) is False
        stubborn.communicate(b"\n")
    assert stubborn.returncode == 0
