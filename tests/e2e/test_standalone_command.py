"""`kourou standalone`, `kourou broker`, `mqbroker` as users run them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.cli.mqshutdown import shut_down
from kourou.errors import KourouError
from kourou.protocol.bodies import ClusterInfo, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.store.kernel import choose_kernel
from kourou.testing.store_check import assert_store_ok
from kourou.transport.client import RemotingClient
from tests.e2e.broker.test_cluster import send_command
from tests.e2e.server_process import START_SECONDS, ServerProcess
from tests.needed import need

pytestmark = pytest.mark.e2e

READY = re.compile(r"Kourou is ready: namesrvAddr=(\S+) \(brokers? ([^;]+); store (.+)\)")
BOOTED = re.compile(r"The broker\[broker-x, (127\.0\.0\.1:\d+)\] boot success\. serializeType=JSON")
FREE = ["--namesrv-port", "0", "--broker-port", "0"]

Spawn = Callable[..., ServerProcess]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a home folder of the test's own."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("XDG_", "ROCKETMQ_", "NAMESRV_"))
    }
    home = tmp_path / "home"
    home.mkdir()
    return {**kept, "HOME": str(home)}


@pytest.fixture
def spawn(environ: dict[str, str], tmp_path: Path) -> Iterator[Spawn]:
    """Starts processes; what still runs at the end is killed."""
    started: list[ServerProcess] = []

    def start(*arguments: str, module: str = "kourou.cli.main") -> ServerProcess:
        folder = tmp_path / f"process-{len(started)}"
        started.append(ServerProcess(module, list(arguments), environ, folder))
        return started[-1]

    yield start
    for server in started:
        server.kill()


def ready(server: ServerProcess) -> tuple[str, list[str]]:
    """The addresses of name server and brokers in the line that says that it serves."""
    found = READY.fullmatch(server.wait_first_line())
    assert found is not None
    return found[1], found[2].split(", ")


def call(address: str, command: RemotingCommand, timeout_ms: int = 5_000) -> RemotingCommand:
    async def one_call() -> RemotingCommand:
        client = RemotingClient()
        try:
            return await client.call(address, command, timeout_ms)
        finally:
            await client.stop()

    return asyncio.run(one_call())


def registered(namesrv: str) -> dict[str, str]:
    """The masters that a name server knows, with their addresses."""
    return {name: addresses[0] for name, addresses in replicas(namesrv).items() if 0 in addresses}


def replicas(namesrv: str) -> dict[str, dict[int, str]]:
    """The brokers that a name server knows: name, id, address."""
    answer = call(namesrv, RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    table = decode_body(answer.body, ClusterInfo).broker_addr_table
    return {name: data.broker_addrs for name, data in table.items()}


def brokers_of(store: Path) -> list[int]:
    """Process ids of the brokers that work on stores in this folder."""
    return processes_of(b"kourou.cli.mqbroker", store)


def processes_of(word: bytes, folder: Path) -> list[int]:
    """Ids of the processes whose command line has a word and a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if word in line and str(folder).encode() in line:
                found.append(int(entry.name))
    return found


def test_it_names_its_log_takes_messages_and_says_that_it_stops(spawn: Spawn, tmp_path: Path) -> None:
    store = tmp_path / "store"
    server = spawn("standalone", "--store", str(store), *FREE)
    namesrv, (broker,) = ready(server)
    assert registered(namesrv) == {"broker-a": broker}
    assert call(broker, send_command(b"x")).code == ResponseCode.SUCCESS
    assert server.stop() == 0
    assert (server.output.splitlines()[1:], server.errors) == (
        [
            f"log file: {store}/logs/standalone.log",
            str(choose_kernel()),
            "Kourou is stopping...",
            "Kourou has stopped.",
        ],
        "",
    )
    assert_store_ok(store / "broker-a")


def test_ctrl_c_is_an_end_in_order_too(spawn: Spawn, tmp_path: Path) -> None:
    server = spawn("standalone", "--store", str(tmp_path / "store"), *FREE)
    ready(server)
    assert (server.stop(signal.SIGINT), server.errors) == (0, "")


def test_without_a_store_it_is_in_the_users_data_folder(spawn: Spawn, tmp_path: Path) -> None:
    server = spawn("standalone", *FREE)
    assert server.wait_first_line().endswith(f"store {tmp_path}/home/.local/share/kourou/standalone)")
    assert shut_down("standalone", tmp_path / "home/.local/state/kourou/run")
    assert server.wait_end() == 0


@pytest.mark.slow
def test_a_second_start_on_the_same_store_or_port_says_so(spawn: Spawn, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = spawn("standalone", "--store", str(store), *FREE)
    namesrv, (broker,) = ready(first)
    port = namesrv.rpartition(":")[2]
    other = ["--store", str(tmp_path / "other")]
    second = spawn("standalone", "--store", str(store), *FREE)
    third = spawn("standalone", *other, "--namesrv-port", port, "--broker-port", "0")
    assert (second.wait_end(), third.wait_end()) == (1, 1)
    assert second.errors == (
        f"kourou standalone: {store}/broker-a/lock: the store is in use by process {first.process.pid}; "
        "stop it, or use another folder\n"
    )
    taken = (
        f"cannot listen on 127.0.0.1:{port}: the port is taken; "
        "stop what uses it or choose another --namesrv-port"
    )
    assert third.errors == f"kourou standalone: {taken}\n"
    assert f"standalone ends: {taken}\n" in (tmp_path / "other" / "logs" / "standalone.log").read_text()
    port = broker.rpartition(":")[2]
    fourth = spawn("standalone", *other, "--namesrv-port", "0", "--broker-port", port)
    assert fourth.wait_end() == 1
    # The port behind it, for slaves, may be taken by another program, which is a warning.
    assert fourth.errors.endswith(
        f"kourou standalone: cannot listen on 127.0.0.1:{port}: the port is taken; "
        "stop what uses it or choose another --broker-port\n"
    )
    log = (store / "logs" / "standalone.log").read_text()
    assert log.count("kourou standalone ") == 1, "the second has not written into it"
    assert first.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["standalone", "--store", "STORE", *FREE, "--host", "192.0.2.77"],
            "kourou standalone: cannot listen on 192.0.2.77:0: this machine has no such address; "
            "check --host",
        ),
        (
            ["standalone", "--store", "STORE", *FREE, "--advertise", "nosuch.invalid"],
            "kourou standalone: --advertise nosuch.invalid: the name cannot be resolved (",
        ),
        (
            [
                "broker",
                "--store",
                "STORE",
                "-n",
                "127.0.0.1:1",
                "--port",
                "0",
                "--advertise",
                "nosuch.invalid",
            ],
            "kourou broker: --advertise nosuch.invalid: the name cannot be resolved (",
        ),
        (
            ["namesrv", "--host", "192.0.2.77", "--port", "0"],
            "kourou namesrv: cannot listen on 192.0.2.77:0: this machine has no such address; check --host",
        ),
    ],
)
def test_what_cannot_be_had_is_named_as_it_was_typed(
    spawn: Spawn, tmp_path: Path, arguments: list[str], line: str
) -> None:
    server = spawn(*[word.replace("STORE", str(tmp_path / "store")) for word in arguments])
    assert server.wait_end() == 1
    assert server.errors.startswith(line) and server.errors.count("\n") == 1


def test_a_port_that_a_file_sets_is_named_with_the_option_beside_it(spawn: Spawn, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = tmp_path / "ns.conf"
        path.write_text(f"bindAddress=127.0.0.1\nlistenPort={port}\n")
        server = spawn("namesrv", "-c", str(path))
        assert server.wait_end() == 1
        assert server.errors.endswith("stop what uses it or choose another listenPort (--port)\n")
        server = spawn("namesrv", "--host", "127.0.0.1", "--port", str(port))
        assert server.wait_end() == 1
        assert server.errors.endswith("stop what uses it or choose another --port\n")


@pytest.mark.slow
def test_brokers_of_one_that_does_not_start_are_ended_without_a_word(spawn: Spawn, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = spawn(
            *("standalone", "--store", str(tmp_path / "store"), "--brokers", "2"),
            *("--namesrv-port", "0", "--broker-port", str(port)),
        )
        assert server.wait_end() == 1
    first, last = server.errors.splitlines()
    assert first.startswith(f"mqbroker: cannot listen on 127.0.0.1:{port}: ")
    assert first.endswith("choose another --broker-port")
    assert last == "kourou standalone: broker-a did not start: exit code 1"
    assert brokers_of(tmp_path / "store") == []


def test_the_brokers_file_is_read_and_what_has_no_effect_is_noted(spawn: Spawn, tmp_path: Path) -> None:
    path = tmp_path / "store" / "broker-a.properties"
    path.parent.mkdir()
    path.write_text("enableDLegerCommitLog=true\ncompiledKernelEnable=false\n")
    server = spawn("standalone", "--store", str(path.parent), *FREE)
    ready(server)
    assert server.stop() == 0
    assert server.errors == (
        f"note: {path}:1: enableDLegerCommitLog has no effect: there is no DLedger log; use a master with "
        "slaves\n"
    )
    assert server.output.splitlines()[2] == str(choose_kernel(is_enabled=False))


def test_a_wrong_advertised_address_is_warned_of(spawn: Spawn, tmp_path: Path) -> None:
    # An address for documents: no machine has it. The broker itself reaches its name server by loopback.
    server = spawn("standalone", "--store", str(tmp_path / "store"), *FREE, "--advertise", "192.0.2.77")
    namesrv, (broker,) = ready(server)
    assert namesrv.startswith("192.0.2.77:") and broker.startswith("192.0.2.77:")
    server.wait_errors(f"the advertised address {broker} cannot be reached from here: ")
    assert server.stop() == 0


def test_several_brokers_are_processes_behind_one_name_server(spawn: Spawn, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "broker-b.properties").write_text("compiledKernelEnable=false\n")
    server = spawn("standalone", "--store", str(store), *FREE, "--brokers", "2")
    namesrv, brokers = ready(server)
    assert registered(namesrv) == dict(zip(("broker-a", "broker-b"), brokers, strict=True))
    server.wait_output("broker-b: ")
    assert server.output.splitlines()[2:] == [
        f"broker-a: {choose_kernel()}",
        f"broker-b: {choose_kernel(is_enabled=False)}",
    ]
    assert len(brokers_of(store)) == 2
    for broker in brokers:
        assert call(broker, send_command(b"x")).code == ResponseCode.SUCCESS
    assert (server.stop(signal.SIGINT), server.errors) == (0, "")
    assert brokers_of(store) == []
    for name in ("broker-a", "broker-b"):
        assert_store_ok(store / name)


def test_a_broker_that_dies_stops_all_loudly(spawn: Spawn, tmp_path: Path) -> None:
    store = tmp_path / "store"
    server = spawn("standalone", "--store", str(store), *FREE, "--brokers", "2")
    ready(server)
    os.kill(min(brokers_of(store)), signal.SIGKILL)
    assert server.wait_end() == 1
    assert "broker-a ended by itself (killed by SIGKILL); stopping all" in server.errors
    assert "Traceback" not in server.errors
    assert brokers_of(store) == []


@pytest.mark.slow
def test_with_slaves_a_master_that_dies_is_restarted_where_it_was(spawn: Spawn, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    for label in ("broker-a", "broker-b"):
        (store / f"{label}.properties").write_text("slaveTimeout=20000\n")  # for a busy machine
    server = spawn("standalone", "--store", str(store), *FREE, "--brokers", "2", "--slaves", "1", "--sync")
    namesrv, brokers = ready(server)
    places = [text.split(" ") for text in brokers]
    assert [role for _, role in places] == ["SYNC_MASTER", "SLAVE"] * 2
    master, slave, other, other_slave = (address for address, _ in places)
    expected = {"broker-a": {0: master, 1: slave}, "broker-b": {0: other, 1: other_slave}}
    assert replicas(namesrv) == expected
    # At once: ready means that a slave acknowledges.
    for address in (master, other):
        assert call(address, send_command(b"x"), timeout_ms=30_000).code == ResponseCode.SUCCESS
    (pid,) = brokers_of(store / "broker-a\0")
    os.kill(pid, signal.SIGKILL)
    server.wait_errors("broker-a ended by itself (killed by SIGKILL); restarting it in 0.5 s")
    wait_for(lambda: is_stored(master), "the master stores messages, and its slave too")
    wait_for(lambda: replicas(namesrv) == expected, "the master is registered where it was")
    assert server.stop() == 0
    assert brokers_of(store) == []
    assert server.errors.count(" ended by itself ") == 1 and "Traceback" not in server.errors
    for label in ("broker-a", "broker-a-s1", "broker-b", "broker-b-s1"):
        assert_store_ok(store / label)
    assert "broker-a serves again at" in (store / "logs" / "standalone.log").read_text()


def is_stored(address: str) -> bool:
    try:
        return call(address, send_command(b"x"), timeout_ms=30_000).code == ResponseCode.SUCCESS
    except KourouError:
        return False


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


@pytest.mark.slow
def test_with_failover_another_broker_takes_over_and_what_died_comes_back(
    spawn: Spawn, tmp_path: Path
) -> None:
    need("etcd", shutil.which("etcd"))
    store = tmp_path / "store"
    store.mkdir()
    labels = ("broker-a", "broker-a-s1", "broker-a-s2")
    for label in labels:
        (store / f"{label}.properties").write_text("failoverLeaseSeconds=2\n")
    server = spawn("standalone", "--store", str(store), *FREE, "--slaves", "2", "--failover")
    namesrv, brokers = ready(server)
    roles = dict(text.split(" ") for text in brokers)
    assert sorted(roles.values()) == ["SLAVE", "SLAVE", "SYNC_MASTER"]
    (master,) = [address for address, role in roles.items() if role == "SYNC_MASTER"]
    assert registered(namesrv) == {"broker-a": master}
    assert is_stored(master)
    label = labels[list(roles).index(master)]
    (pid,) = brokers_of(store / f"{label}\0")
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: registered(namesrv).get("broker-a", master) != master, "another one is master")
    successor = registered(namesrv)["broker-a"]
    wait_for(lambda: is_stored(successor), "the new master stores messages")
    os.kill(pid, signal.SIGKILL)
    server.wait_errors(f"{label} ended by itself (killed by SIGKILL); restarting it in 0.5 s")
    wait_for(lambda: set(replicas(namesrv)["broker-a"].values()) == set(roles), "all are there again")
    (pid,) = processes_of(b"--data-dir", store / "etcd")
    os.kill(pid, signal.SIGKILL)
    server.wait_errors("etcd ended by itself (killed by SIGKILL); restarting it in 0.5 s")
    wait_for(lambda: is_stored(registered(namesrv).get("broker-a", master)), "messages are stored again")
    assert server.stop() == 0
    assert processes_of(b"", store) == [], "brokers and etcd have stopped"
    assert server.errors.count(" ended by itself ") == 2 and "Traceback" not in server.errors
    for label in labels:
        assert_store_ok(store / label)


def test_failover_without_the_program_etcd_says_how_to_install_it(
    spawn: Spawn, environ: dict[str, str], tmp_path: Path
) -> None:
    environ["PATH"] = str(tmp_path)
    server = spawn("standalone", "--store", str(tmp_path / "store"), *FREE, "--slaves", "2", "--failover")
    assert server.wait_end() == 1
    assert server.errors.startswith(
        "kourou standalone: --failover: there is no program etcd on this machine;"
    )
    assert "`apt-get install etcd-server`" in server.errors and server.errors.count("\n") == 1
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_brokers_stop_in_order_when_their_parent_is_killed(spawn: Spawn, tmp_path: Path) -> None:
    store = tmp_path / "store"
    server = spawn("standalone", "--store", str(store), *FREE, "--brokers", "2")
    ready(server)
    server.kill()
    wait_for(lambda: not brokers_of(store), "the brokers have stopped")
    for name in ("broker-a", "broker-b"):
        assert not (store / name / "abort").exists()


def test_mqbroker_with_a_file_and_a_name_server(spawn: Spawn, tmp_path: Path) -> None:
    cluster = spawn("standalone", "--store", str(tmp_path / "store"), *FREE)
    namesrv, _ = ready(cluster)
    path = tmp_path / "broker.conf"
    path.write_text(
        "brokerName=broker-x\nlistenPort=0\nbindAddress=127.0.0.1\nmapedFileSizeCommitLog=16777216\n"
        f"rocketmqHome={tmp_path / 'rmq'}\n"
    )
    server = spawn("-c", str(path), "-n", namesrv, module="kourou.cli.mqbroker")
    booted = BOOTED.match(server.wait_first_line())
    assert booted is not None
    assert server.output.splitlines()[0].endswith(f" and name server is {namesrv}")
    assert server.output.splitlines()[2] == str(choose_kernel())
    assert registered(namesrv)["broker-x"] == booted[1]
    assert shut_down("broker", tmp_path / "home/.local/state/kourou/run")
    assert server.wait_end() == 0
    assert server.output.endswith("The broker[broker-x] is stopping...\nThe broker[broker-x] has stopped.\n")
    assert "broker-x" not in registered(namesrv)
    assert_store_ok(tmp_path / "rmq" / "store")
    assert cluster.stop() == 0
