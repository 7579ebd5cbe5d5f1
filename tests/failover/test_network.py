"""The networks of tests: what is cut is lost, and nothing else."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.child_process import dies_with_parent
from tests.failover.network import CLIENTS, Network, open_network
from tests.interop.kit.ports import free_port

# Prints what it gets, and sends it back.
ECHO = """
import socket, sys, threading
def serve(connection):
    while data := connection.recv(100):
        print(data.decode(), flush=True)
        connection.sendall(data)
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
# Sends each line of its input, and prints the answer.
SPEAKER = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
for line in sys.stdin:
    connection.sendall(line.strip().encode())
    print(connection.recv(100).decode(), flush=True)
"""
pytestmark = [pytest.mark.integration, pytest.mark.slow]

QUIET_S = 0.3


class Program:
    """A process at a node, with its output in a file."""

    def __init__(self, network: Network, node: str, folder: Path, code: str, *words: str) -> None:
        self._out = folder / f"{node}.out"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [*network.wrap(node), *dies_with_parent(), sys.executable, "-c", code, *words],
                stdin=subprocess.PIPE,
                stdout=out,
            )
        network.runs(node, self.process.pid)

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()

    @property
    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    def wait(self, line: str) -> None:
        deadline = time.monotonic() + 30
        while line not in self.lines:
            assert time.monotonic() < deadline, f"{line!r} is missing: {self.lines}"
            time.sleep(0.01)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class Nodes:
    """An echo at node `a`, a speaker to it at node `b`, and a connection of the tests."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        for node in ("a", "b"):
            network.add(node)
        port = free_port()
        network.expose("a", port)
        self.a = Program(network, "a", folder, ECHO, network.bind_host("a"), str(port))
        self.a.wait("ready")
        self.b = Program(network, "b", folder, SPEAKER, network.host("a"), str(port))
        self.b.wait("ready")
        self.own = socket.create_connection((network.host("a"), port), timeout=30)
        self.own.sendall(b"hello")
        assert self.own.recv(100) == b"hello"
        self.b.say("hello of b")
        self.b.wait("hello of b")

    def hears_nothing(self) -> bool:
        """Whether the tests get no answer for a while."""
        self.own.settimeout(QUIET_S)
        try:
            self.own.recv(100)
            return False
        except TimeoutError:
            return True
        finally:
            self.own.settimeout(30)

    def end(self) -> None:
        self.own.close()
        self.b.end()
        self.a.end()


@pytest.fixture(params=["namespaces", "proxies"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    with open_network(request.param) as network:
        nodes = Nodes(network, tmp_path)
        yield nodes
        nodes.end()


def test_one_way(nodes: Nodes) -> None:
    with_clients = nodes.network.cut(CLIENTS, "a", one_way=True)
    nodes.own.sendall(b"lost")
    nodes.b.say("from b")
    nodes.b.wait("from b")  # other links work
    assert "lost" not in nodes.a.lines
    with_clients.heal()
    nodes.a.wait("lost")  # TCP repeats it
    assert nodes.own.recv(100) == b"lost"

    nodes.network.cut("a", CLIENTS, one_way=True)
    nodes.own.sendall(b"unanswered")
    nodes.a.wait("unanswered")
    assert nodes.hears_nothing()
    nodes.network.heal()
    assert nodes.own.recv(100) == b"unanswered"


def test_between_nodes_until_the_last_cut_is_healed(nodes: Nodes) -> None:
    first, second = nodes.network.cut("b", "a"), nodes.network.cut("a", "b", one_way=True)
    nodes.own.sendall(b"from the tests")
    assert nodes.own.recv(100) == b"from the tests"
    nodes.b.say("held")
    time.sleep(QUIET_S)
    assert "held" not in nodes.a.lines
    first.heal()
    first.heal()
    nodes.a.wait("held")
    time.sleep(QUIET_S)
    assert "held" not in nodes.b.lines
    second.heal()
    nodes.b.wait("held")


def test_namespaces_are_removed_also_those_of_a_process_that_was_killed() -> None:
    with open_network("namespaces") as network:
        network.add("x")
    code = (
        "import os, signal\n"
        "from tests.failover.network import Namespaces\n"
        "Namespaces().add('y')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    killed.wait()
    with open_network("namespaces"):
        found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        bridges = subprocess.run(["ip", "link"], capture_output=True, text=True).stdout
    assert f"kourou-{killed.pid}." not in found and f"kourou-{os.getpid()}.0-x" not in found
    assert f"kb{killed.pid}." not in bridges
