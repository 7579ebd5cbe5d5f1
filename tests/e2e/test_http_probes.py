"""`--http-port` and `httpPort` with real processes: what an orchestrator sees of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.metrics_kit import Scrape
from tests.e2e.server_process import START_SECONDS, ServerProcess
from tests.interop.kit.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FREE = ["--namesrv-port", "0", "--broker-port", "0"]
CHECKS = re.compile(r"^health checks: (http://(\S+))/readyz$", re.M)
READY = re.compile(r"namesrvAddr=(\S+) \(brokers? ([^;]+);")

Spawn = Callable[..., ServerProcess]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts processes with a home folder of the test's own; what still runs at the end is killed."""
    started: list[ServerProcess] = []
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ROCKETMQ_", "NAMESRV_"))}
    environ = {**kept, "HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()

    def start(*arguments: str, module: str = "kourou.cli.main") -> ServerProcess:
        folder = tmp_path / f"process-{len(started)}"
        started.append(ServerProcess(module, list(arguments), environ, folder))
        return started[-1]

    yield start
    for server in started:
        server.kill()


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def listener(server: ServerProcess) -> str:
    """The address that a server says it answers health checks at."""
    wait_for(lambda: CHECKS.search(server.output) is not None, "the line of the health checks")
    found = CHECKS.search(server.output)
    assert found is not None
    return found[2]


def get(address: str, path: str = "/readyz") -> tuple[int, str]:
    """Status and body, by a client that is not ours."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def is_refused(address: str) -> bool:
    try:
        get(address)
    except urllib.error.URLError as error:
        return isinstance(error.reason, ConnectionRefusedError)
    return False


def kourou(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kourou.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def set_permission(namesrv: str, broker: str, permission: int) -> None:
    words = ["-n", namesrv, "-b", broker, "-k", "brokerPermission", "-v", str(permission)]
    changed = kourou("admin", "updateBrokerConfig", *words)
    assert changed.returncode == 0, changed.stderr


def addresses(server: ServerProcess) -> tuple[str, list[str]]:
    """Name server and brokers of a standalone."""
    found = READY.search(server.wait_first_line())
    assert found is not None, server.output
    return found[1], found[2].split(", ")


def test_ready_read_only_ready_gone(spawn: Spawn, tmp_path: Path) -> None:
    server = spawn("standalone", "--store", str(tmp_path / "store"), *FREE, "--http-port", "0")
    namesrv, (broker,) = addresses(server)
    checks = listener(server)
    assert get(checks) == (200, "ready\n")
    set_permission(namesrv, broker, 4)
    assert get(checks) == (503, "brokerPermission=4: clients may not send to it\n")
    assert get(checks, "/livez") == (200, "alive\n")
    assert get(checks, "/")[0] == 404
    asked = kourou("ready", "--http", checks)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr == (
        f"kourou ready: http://{checks}/readyz: brokerPermission=4: clients may not send to it\n"
    )
    set_permission(namesrv, broker, 6)
    assert get(checks) == (200, "ready\n")
    asked = kourou("ready", "--http", checks)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, f"http://{checks}/readyz: ready\n", "")
    assert (server.stop(), server.errors) == (0, "")
    assert is_refused(checks)


def test_several_brokers_are_ready_when_each_is(spawn: Spawn, tmp_path: Path) -> None:
    server = spawn(
        "standalone", "--store", str(tmp_path / "store"), *FREE, "--brokers", "2", "--http-port", "0"
    )
    namesrv, (_, second) = addresses(server)
    checks = listener(server)
    assert get(checks) == (200, "ready\n")
    status, text = get(checks, "/metrics")
    scraped = Scrape(text)
    assert status == 200
    assert [scraped.value("rocketmq_broker_permission", node_id=f"broker-{x}") for x in "ab"] == [6, 6]
    # Each process of its own: two brokers and the supervisor with the name server.
    assert len(scraped.values("process_resident_memory_bytes")) == 3
    assert scraped.value("kourou_namesrv_brokers", role="master") == 2
    set_permission(namesrv, second, 4)
    assert get(checks) == (503, "broker-b: brokerPermission=4: clients may not send to it\n")
    set_permission(namesrv, second, 6)
    assert get(checks) == (200, "ready\n")
    assert (server.stop(), server.errors) == (0, "")
    assert is_refused(checks)


def test_servers_of_their_own_by_option_and_by_key(spawn: Spawn, tmp_path: Path) -> None:
    namesrv = spawn("namesrv", "--host", "127.0.0.1", "--port", "0", "--http-port", "0")
    found = re.search(r"address (\S+)", namesrv.wait_first_line())
    assert found is not None
    assert get(listener(namesrv)) == (200, "ready\n")
    port = free_port()
    path = tmp_path / "broker.conf"
    path.write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nbrokerName=broker-x\nhttpPort={port}\n"
        f"namesrvAddr={found[1]}\nstorePathRootDir={tmp_path / 'store'}\n"
    )
    broker = spawn("-c", str(path), module="kourou.cli.mqbroker")
    assert broker.wait_first_line().startswith("The broker[broker-x, ")
    assert listener(broker) == f"127.0.0.1:{port}"
    assert get(f"127.0.0.1:{port}") == (200, "ready\n")
    broker.kill()
    wait_for(lambda: is_refused(f"127.0.0.1:{port}"), "the end of a killed broker")
    assert namesrv.stop() == 0
    assert is_refused(listener(namesrv))


@pytest.mark.slow  # a broker tries again after 10 s
def test_a_broker_alone_is_not_ready_while_no_name_server_knows_it(spawn: Spawn, tmp_path: Path) -> None:
    gone, port = f"127.0.0.1:{free_port()}", free_port()
    options = ["--host", "127.0.0.1", "--port", "0", "--http-port", str(port)]
    broker = spawn("broker", *options, "-n", gone, "--store", str(tmp_path / "store"))
    broker.wait_first_line()
    assert get(f"127.0.0.1:{port}") == (503, f"no name server knows this broker yet: {gone}\n")
    spawn("namesrv", "--host", "127.0.0.1", "--port", gone.partition(":")[2]).wait_first_line()
    asked = kourou("ready", "--http", f"127.0.0.1:{port}", "--wait", "30")
    assert (asked.returncode, asked.stderr) == (0, "")


@pytest.mark.parametrize("command", ["standalone", "broker", "namesrv"])
def test_a_port_that_is_taken_or_none_is_named_by_its_option(
    command: str, spawn: Spawn, tmp_path: Path
) -> None:
    first = spawn("namesrv", "--host", "127.0.0.1", "--port", "0", "--http-port", "0")
    taken = listener(first)
    port = taken.partition(":")[2]
    ports = FREE if command == "standalone" else ["--port", "0"]
    store = [] if command == "namesrv" else ["--store", str(tmp_path / "store")]
    second = spawn(command, "--host", "127.0.0.1", *ports, *store, "--http-port", port)
    assert second.wait_end() == 1
    assert second.errors.splitlines()[-1] == (
        f"kourou {command}: cannot listen on {taken}: the port is taken; "
        "stop what uses it or choose another --http-port"
    )
    wrong = kourou(command, "--http-port", "70000")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(f"kourou {command}: --http-port 70000: must be ")


def test_a_server_that_is_not_asked_for_it_does_not_load_it() -> None:
    program = (
        "import sys, kourou.cli.main, kourou.cli.mqbroker, kourou.broker.controller, kourou.namesrv.server\n"
        "import kourou.standalone.one_process, kourou.standalone.supervisor\n"
        "names = ('kourou.transport.http_probe', 'kourou.broker.readiness', 'http')\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")
