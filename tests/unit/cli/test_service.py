"""Running a server as a process: signals, failures and ends, without a network."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.cli import service
from kourou.errors import ConfigError, KourouError
from kourou.pidfile import STARTING, running_servers


class FakeServer:
    """Serves nothing; notes what is asked of it."""

    address = "127.0.0.1:9876"

    def __init__(self, failure: BaseException | None = None, *, hangs: bool = False) -> None:
        self.calls: list[str] = []
        self._failure = failure
        self._hangs = hangs

    async def start(self) -> None:
        self.calls.append("start")

    async def stop(self, timeout_ms: int) -> None:
        self.calls.append(f"stop {timeout_ms}")
        if self._hangs:
            await asyncio.Event().wait()

    async def wait_failed(self) -> None:
        if self._failure is None:
            await asyncio.Event().wait()
        else:
            raise self._failure


@pytest.fixture(autouse=True)
def _signals_and_limits_as_they_were() -> Iterator[None]:
    hang_up = signal.getsignal(signal.SIGHUP)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    signal.signal(signal.SIGHUP, hang_up)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def run(
    server: FakeServer,
    folder: Path | None,
    on_started: Callable[[service.Server], None] | None = None,
    **more: Any,
) -> None:
    async def started(started_server: FakeServer) -> None:
        if on_started is not None:
            on_started(started_server)

    service.run_server(service.Service(lambda: server, "namesrv", started, folder, **more))


def send(*signals: signal.Signals) -> Callable[[service.Server], None]:
    def action(_: service.Server) -> None:
        for number in signals:
            os.kill(os.getpid(), number)

    return action


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    server = FakeServer()
    run(server, tmp_path, send(number))
    assert server.calls == ["start", "stop 1500"]
    assert list(tmp_path.rglob("*.pid")) == []


def test_a_hang_up_is_ignored(tmp_path: Path) -> None:
    server = FakeServer()
    run(server, tmp_path, send(signal.SIGHUP, signal.SIGHUP, signal.SIGTERM))
    assert server.calls == ["start", "stop 1500"]


def test_a_second_ctrl_c_ends_a_stop_that_takes_long(tmp_path: Path) -> None:
    class Slow(FakeServer):
        async def stop(self, timeout_ms: int) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run(Slow(), tmp_path, send(signal.SIGINT))


def test_a_pid_file_is_there_while_it_runs(tmp_path: Path) -> None:
    found: list[str] = []

    def look(server: service.Server) -> None:
        found.extend(path.name for path in tmp_path.rglob("*.pid"))
        send(signal.SIGTERM)(server)

    run(FakeServer(), tmp_path, look)
    assert found == ["namesrv-9876.pid"]


def test_it_is_found_while_it_still_starts(tmp_path: Path) -> None:
    found: list[tuple[int, str]] = []

    class Recovering(FakeServer):
        async def start(self) -> None:
            found.extend((server.pid, server.address) for server in running_servers(tmp_path, "namesrv"))
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    run(Recovering(), tmp_path)
    assert found == [(os.getpid(), STARTING)]
    assert list(tmp_path.rglob("*.pid")) == []


def test_what_keeps_it_from_starting_is_raised(tmp_path: Path) -> None:
    class Taken(FakeServer):
        async def start(self) -> None:
            raise ConfigError("the port is taken")

    with pytest.raises(ConfigError, match="the port is taken"):
        run(Taken(), tmp_path)


def test_what_it_dies_of_is_raised_after_a_stop_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = FakeServer(RuntimeError("broken"))
    with caplog.at_level(logging.ERROR), pytest.raises(KourouError, match=r"namesrv failed: .*broken"):
        run(server, tmp_path)
    assert server.calls == ["start", "stop 1500"]
    assert "RuntimeError: broken" in caplog.text


def test_a_server_that_does_not_stop_is_left(tmp_path: Path) -> None:
    times = service.StopTimes(answers_ms=5, cut_off_ms=10)
    with pytest.raises(KourouError, match="did not stop within 10 ms"):
        run(FakeServer(hangs=True), tmp_path, send(signal.SIGTERM), stop_times=times)


def test_a_child_stops_when_its_parent_has_gone_and_leaves_no_pid_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, parents = os.pipe()
    with open(ours) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        server = FakeServer()
        run(server, None, lambda _: os.close(parents), stops_with_parent=True)
    assert server.calls == ["start", "stop 1500"]
    assert list(tmp_path.rglob("*.pid")) == []


def test_asyncio_serves_where_there_is_no_uvloop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loops: list[str] = []

    def look(server: service.Server) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)
        send(signal.SIGTERM)(server)

    run(FakeServer(), tmp_path, look)
    assert loops == ["asyncio.unix_events"]


def test_the_limit_of_open_files_is_raised() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    service.raise_descriptor_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


class SlowServer(FakeServer):
    """Gets the signal in the middle of its start, which takes back what it has begun when it is given up."""

    def __init__(self, *, ends_in_order: bool = True) -> None:
        super().__init__()
        self._ends_in_order = ends_in_order

    async def start(self) -> None:
        await super().start()
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # such as a store's recovery
            self.calls.append("taken back")
            if self._ends_in_order:
                raise
            raise ConfigError("the store cannot be closed") from None


def test_a_signal_stops_a_start_that_takes_long(tmp_path: Path) -> None:
    server = SlowServer()
    run(server, tmp_path, lambda _: pytest.fail("it never started"))
    assert server.calls == ["start", "taken back"]


def test_errors_while_a_start_is_given_up_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the store cannot be closed"):
        run(SlowServer(ends_in_order=False), tmp_path)


class StubbornServer(FakeServer):
    """Starts although a stop was requested."""

    async def start(self) -> None:
        await super().start()
        os.kill(os.getpid(), signal.SIGTERM)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def test_a_start_that_ends_after_the_signal_is_stopped_in_order(tmp_path: Path) -> None:
    server = StubbornServer()
    run(server, tmp_path)
    assert server.calls == ["start", "stop 1500"]
