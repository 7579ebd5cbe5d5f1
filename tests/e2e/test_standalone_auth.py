"""`kourou standalone --auth`: access control without a configuration, from one broker to a fail-over set."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from kourou import Credentials, Message, Producer, PushConsumer
from kourou.errors import KourouError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from tests.e2e.broker.test_cluster import send_command
from tests.e2e.server_process import ServerProcess
from tests.e2e.test_standalone_command import FREE, brokers_of, call, processes_of, ready
from tests.needed import need

pytestmark = pytest.mark.e2e

Spawn = Callable[..., ServerProcess]
SHOWN = re.compile(r"administrator: accessKey=(\S+) secretKey=(\S+); shown this once, kept for (.+)")


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts standalone with a store of the test's own; what still runs at the end is killed."""
    home = tmp_path / "home"
    home.mkdir()
    left_out = ("XDG_", "ROCKETMQ_", "NAMESRV_")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    started: list[ServerProcess] = []

    def start(*arguments: str) -> ServerProcess:
        folder = tmp_path / f"process-{len(started)}"
        command = ["standalone", "--store", str(tmp_path / "store"), *FREE, "--auth", *arguments]
        started.append(ServerProcess("kourou.cli.main", command, {**environ, "HOME": str(home)}, folder))
        return started[-1]

    yield start
    for server in started:
        server.kill()


def administrator(server: ServerProcess) -> tuple[Credentials, Path]:
    """The keys that the first start shows, and the file that has them."""
    server.wait_output("shown this once")
    found = SHOWN.search(server.output)
    assert found is not None
    return Credentials(found[1], found[2]), Path(found[3].removeprefix("mqadmin --acl "))


def mqadmin(tools: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "kourou.cli.mqadmin", *arguments, "--acl", str(tools)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def everything_written(folder: Path) -> str:
    """All logs and outputs below a folder."""
    files = [*folder.rglob("*.log"), *folder.glob("process-*/*")]
    return "".join(path.read_text() for path in files)


def test_the_first_start_makes_an_administrator_and_nobody_else_may_do_anything(
    spawn: Spawn, tmp_path: Path
) -> None:
    server = spawn()
    namesrv, (broker,) = ready(server)
    keys, tools = administrator(server)
    assert stat.S_IMODE(tools.stat().st_mode) == 0o600
    assert call(broker, send_command(b"x")).code == ResponseCode.NO_PERMISSION
    registration = RemotingCommand.request(RequestCode.REGISTER_BROKER)
    assert call(namesrv, registration).code == ResponseCode.NO_PERMISSION
    with Producer("p", namesrv=namesrv, credentials=keys) as producer:
        assert producer.send(Message("T", b"signed")).status.name == "SEND_OK"
    with Producer("p", namesrv=namesrv, credentials=Credentials(keys.access_key, "wrong")) as producer:
        with pytest.raises(KourouError):
            producer.send(Message("T", b"wrong"))
    assert "broker-a" in mqadmin(tools, "clusterList", "-n", namesrv)
    assert server.stop() == 0
    again = spawn()
    namesrv, _ = ready(again)
    again.wait_output("access control is on")
    with Producer("p", namesrv=namesrv, credentials=keys) as producer:
        assert producer.send(Message("T", b"again")).status.name == "SEND_OK"
    assert again.stop() == 0
    assert keys.secret_key not in again.output + again.errors
    assert everything_written(tmp_path).count(keys.secret_key) == 1, "in the line that shows it"


@pytest.mark.slow
def test_a_fail_over_set_with_accounts_goes_on_for_its_clients(spawn: Spawn, tmp_path: Path) -> None:
    need("etcd", shutil.which("etcd"))
    store = tmp_path / "store"
    store.mkdir()
    labels = ("broker-a", "broker-a-s1", "broker-a-s2")
    for label in labels:
        (store / f"{label}.properties").write_text("failoverLeaseSeconds=2\n")
    server = spawn("--slaves", "2", "--failover")
    namesrv, brokers = ready(server)
    admin, tools = administrator(server)
    inner = (store / "conf" / "access.properties").read_text().rpartition('"secretKey": "')[2][:48]
    assert processes_of(b"mqbroker", store) and not processes_of(inner.encode(), store)
    assert not processes_of(admin.secret_key.encode(), store)
    everywhere = ("-n", namesrv, "-c", "DefaultCluster")
    mqadmin(tools, "createUser", *everywhere, "-u", "shop", "-p", "the secret of the shop")
    grant = ("-r", "Topic:T,Group:g", "-a", "Pub,Sub,Get,Create", "-d", "Allow")
    mqadmin(tools, "createAcl", *everywhere, "-s", "User:shop", *grant)
    mqadmin(tools, "updateTopic", *everywhere, "-t", "T", "-r", "1", "-w", "1")
    keys = Credentials("shop", "the secret of the shop")
    got: list[bytes] = []
    with (
        Producer("p", namesrv=namesrv, credentials=keys) as producer,
        PushConsumer("g", namesrv=namesrv, credentials=keys, consume_from="first") as consumer,
    ):
        consumer.subscribe("T", "*", lambda message, _: got.append(message.body))
        until_stored(producer, b"before")
        (label,) = [labels[index] for index, text in enumerate(brokers) if text.endswith("SYNC_MASTER")]
        (pid,) = brokers_of(store / f"{label}\0")
        os.kill(pid, signal.SIGSTOP)
        until_stored(producer, b"after")
        until(lambda: {b"before", b"after"} <= set(got), "both are consumed")
        os.kill(pid, signal.SIGKILL)
    assert server.stop() == 0
    assert "Traceback" not in server.errors
    written = everything_written(tmp_path)
    assert inner not in written and keys.secret_key not in written


def until_stored(producer: Producer, body: bytes) -> None:
    """Send until the message is stored, as an application does."""

    def is_stored() -> bool:
        try:
            return producer.send(Message("T", body)).status.name == "SEND_OK"
        except KourouError:
            return False

    until(is_stored, f"{body!r} is stored")


def until(condition: Callable[[], bool], what: str, timeout_s: float = 40) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


def test_the_console_lets_accounts_in_and_nobody_else(spawn: Spawn) -> None:
    server = spawn("--console", "--console-port", "0")
    ready(server)
    keys, _ = administrator(server)
    server.wait_output("console: ")
    url = next(line for line in server.output.splitlines() if line.startswith("console: "))[
        len("console: ") :
    ]

    def log_in(secret: str) -> dict[str, object]:
        body = json.dumps({"user": keys.access_key, "password": secret}).encode()
        with urlopen(Request(f"{url}api/login", body)) as answer:
            found: dict[str, object] = json.load(answer)
        return found

    for path in ("api/overview", "metrics", "metrics/exporter"):
        with pytest.raises(HTTPError, match="401"):
            urlopen(url + path)
    with pytest.raises(HTTPError, match="401"):
        log_in("wrong-secret")
    session = log_in(keys.secret_key)
    assert (session["user"], session["role"]) == (keys.access_key, "administrator")
    assert keys.secret_key not in str(session)
